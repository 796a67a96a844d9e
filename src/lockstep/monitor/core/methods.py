"""What values of expressions can be asked: the closed list of methods, and what they share with operators."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

from lockstep.monitor.core.patterns import SUBJECT_MAX

NUMBER_MAX = 2**63
DAYS = ("monday?", "tuesday?", "wednesday?", "thursday?", "friday?", "saturday?", "sunday?")


class ExpressionInvalid(ValueError):
    """An expression that can't be read, or has no value for an event."""


def fail(reason: str) -> NoReturn:
    """An expression can't be read or has no value."""
    raise ExpressionInvalid(reason)


def is_true(value: Any) -> bool:
    """Everything but nil and false."""
    return value is not None and value is not False


def number(value: Any) -> Any:
    """A number that may be computed with; anything else has no value."""
    if type(value) not in (int, float) or abs(value) > NUMBER_MAX:
        fail(f"{str(value)[:40]!r} is no number to compute with")
    return value


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal; true and 1 are not."""
    return bool(left == right and (isinstance(left, bool) is isinstance(right, bool)))


class Span(NamedTuple):
    """A range of whole numbers; an open one is without its last."""

    first: int
    last: int
    is_open: bool

    def has(self, value: Any) -> bool:
        """Whether a number is in it."""
        is_number = type(value) in (int, float)
        return is_number and self.first <= value and (value < self.last if self.is_open else value <= self.last)


def span(first: Any, last: Any, *, is_open: bool = False) -> Span:
    """first..last, or first...last."""
    if type(first) is not int or type(last) is not int:
        fail("a range has whole numbers on both sides")
    return Span(number(first), number(last), is_open)


def item(value: Any, key: Any, count: Any = None) -> Any:
    """A member of an object, an element of a list, a character of a text; or a part of these, by a range or a count."""
    if isinstance(value, Mapping):
        return value.get(key) if isinstance(key, str) else None
    if not isinstance(value, list | str):
        fail("only lists, texts and objects have members")
    if isinstance(key, Span):
        first, last = (each + len(value) if each < 0 else each for each in key[:2])
        return _part(value, first, last - first + (not key.is_open))
    if type(key) is not int:
        fail("a place is a whole number")
    if count is not None:
        return _part(value, key + len(value) if key < 0 else key, number(count))
    return value[key] if -len(value) <= key < len(value) else None


def _part(value: Any, first: int, count: int) -> Any:
    return value[first : first + max(count, 0)] if 0 <= first <= len(value) else None


def fits(value: Any, pattern: Any) -> bool:
    """Whether a text is as a pattern says."""
    return isinstance(value, str) and bool(pattern.search(value[:SUBJECT_MAX]))


def includes(value: Any, item: Any) -> bool:
    """Whether a text, list, range or object has a part, element, number or member."""
    if isinstance(value, str):
        return isinstance(item, str) and item in value
    if isinstance(value, Span):
        return value.has(item)
    if isinstance(value, list):
        return any(same(each, item) for each in value)
    if isinstance(value, Mapping):
        return item in value
    fail("include? needs a text, a list or a range")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | Mapping) else fail("it has no length")


def _to_i(value: Any) -> int:
    if isinstance(value, str):
        found = re.match(r"\s*[-+]?\d{1,18}", value)
        return int(found[0]) if found else 0
    if isinstance(value, datetime):
        return math.floor(value.timestamp())
    return 0 if value is None else int(number(value))


def _to_f(value: Any) -> float:
    if isinstance(value, str):
        found = re.match(r"\s*[-+]?\d{1,18}(\.\d{1,18})?", value)
        return float(found[0]) if found else 0.0
    if isinstance(value, datetime):
        return value.timestamp()
    return 0.0 if value is None else float(number(value))


def _to_s(value: Any) -> str:
    return ruby_text(value)


def ruby_text(value: Any) -> str:
    """A plain value as Ruby's to_s writes it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _of_text(function: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if isinstance(value, str) else fail("this method is one of texts")


def _of_time(function: Callable[[datetime], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if isinstance(value, datetime) else fail("this method is one of times")


def _between(value: Any, low: Any, high: Any) -> bool:
    return bool(number(low) <= number(value) <= number(high))


def _of_list(function: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if isinstance(value, list) else fail("this method is one of lists")


def _of_number(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: function(number(value))


def _of_whole(function: Callable[[int], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if type(value) is int else fail("this method is one of whole numbers")


def _uniq(items: list[Any]) -> list[Any]:
    made: list[Any] = []
    for each in items[:_LIST_MAX]:
        if not includes(made, each):
            made.append(each)
    return made


def _least(value: Any) -> Any:
    """The least number of a list, or the minute of a time."""
    return value.minute if isinstance(value, datetime) else min(map(number, value)) if _is_filled(value) else None


def _is_filled(value: Any) -> bool:
    return len(value) > 0 if isinstance(value, list) else fail("this method is one of lists and times")


def _has_member(value: Any, name: Any) -> bool:
    return name in value if isinstance(value, Mapping) else fail("this method is one of objects")


def _begins(value: Any, *texts: Any) -> bool:
    return isinstance(value, str) and any(isinstance(each, str) and value.startswith(each) for each in texts)


def _ends(value: Any, *texts: Any) -> bool:
    return isinstance(value, str) and any(isinstance(each, str) and value.endswith(each) for each in texts)


def _round(value: Any) -> int:
    """Halves away from zero, as Ruby does."""
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _day(number_: int) -> Callable[[Any], Any]:
    return _of_time(lambda time: time.weekday() == number_)


MANY = -1
"""One value or more."""
_LIST_MAX = 1000
METHODS: dict[str, tuple[int, Callable[..., Any]]] = {
    "include?": (1, includes),
    "member?": (1, includes),
    "cover?": (1, includes),
    "between?": (2, _between),
    "start_with?": (MANY, _begins),
    "end_with?": (MANY, _ends),
    "match": (1, fits),
    "match?": (1, fits),
    "key?": (1, _has_member),
    "has_key?": (1, _has_member),
    "nil?": (0, lambda value: value is None),
    "empty?": (0, lambda value: _length(value) == 0),
    "any?": (0, _of_list(lambda items: any(map(is_true, items)))),
    "length": (0, _length),
    "size": (0, _length),
    "count": (0, _length),
    "first": (0, _of_list(lambda items: items[0] if items else None)),
    "last": (0, _of_list(lambda items: items[-1] if items else None)),
    "uniq": (0, _of_list(_uniq)),
    "sum": (0, _of_list(lambda items: sum(map(number, items)))),
    "max": (0, _of_list(lambda items: max(map(number, items)) if items else None)),
    "to_i": (0, _to_i),
    "to_f": (0, _to_f),
    "to_s": (0, _to_s),
    "abs": (0, _of_number(abs)),
    "round": (0, _of_number(_round)),
    "floor": (0, _of_number(math.floor)),
    "ceil": (0, _of_number(math.ceil)),
    "zero?": (0, _of_number(lambda value: value == 0)),
    "even?": (0, _of_whole(lambda value: value % 2 == 0)),
    "odd?": (0, _of_whole(lambda value: value % 2 == 1)),
    "downcase": (0, _of_text(str.lower)),
    "upcase": (0, _of_text(str.upper)),
    "strip": (0, _of_text(str.strip)),
    "year": (0, _of_time(lambda time: time.year)),
    "month": (0, _of_time(lambda time: time.month)),
    "day": (0, _of_time(lambda time: time.day)),
    "yday": (0, _of_time(lambda time: time.timetuple().tm_yday)),
    "wday": (0, _of_time(lambda time: time.isoweekday() % 7)),
    "hour": (0, _of_time(lambda time: time.hour)),
    "min": (0, _least),
    "sec": (0, _of_time(lambda time: time.second)),
    **{name: (0, _day(place)) for place, name in enumerate(DAYS)},
}
