"""The functions of the function language that take plain values; names are compared without case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from lockstep.engine.events.schema import Value
from lockstep.engine.reference.function_documents import Unreadable, json_value, read_json
from lockstep.engine.reference.function_values import Number, number, order, text, time_part, truth, whole

MAX_BITS = 1_024
"""Whole numbers that are longer are no result; a field holds 64."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function: its name, how many arguments it takes (most None: any number), and what it makes of them."""

    name: str
    least: int
    most: int | None
    make: Callable[..., Value]
    needs_context: bool = False
    reads_clock: bool = False


def _sum(*values: Value) -> Value:
    found = _numbers(values)
    return _real(lambda: sum(found[1:], found[0])) if found else None


def _mean(*values: Value) -> Value:
    found = _numbers(values)
    return _real(lambda: sum(found) / len(found)) if found else None


def _numbers(values: tuple[Value, ...]) -> list[Number]:
    return [found for found in map(number, values) if found is not None]


def _arithmetic(combine: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    """A function of two or more numbers, from left to right; null if one of them is none or there is no result."""

    def make(*values: Value) -> Value:
        found = _numbers(values)
        if len(found) < len(values):
            return None
        result: Any = found[0]
        for value in found[1:]:
            result = _real(partial(combine, result, value))
            if result is None or (isinstance(result, int) and result.bit_length() > MAX_BITS):
                return None
        return result  # type: ignore[no-any-return]

    return make


def _mod(left: Number, right: Number) -> Number:
    """What is left of a division, with the sign of the left side; exact for whole numbers."""
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return math.fmod(left, right)


def _real(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except (ArithmeticError, ValueError):
        return None


def _unary(compute: Callable[[Any], Any]) -> Callable[[Value], Value]:
    def make(value: Value) -> Value:
        found = number(value)
        return None if found is None else _real(partial(compute, found))

    return make


def _double(value: Value) -> Value:
    found = number(value)
    return None if found is None else _real(partial(float, found))


def _round(value: Value, digits: Value = 0) -> Value:
    found, places = number(value), whole(digits)
    if found is None or places is None or not -300 < places < 300:
        return None
    rounded = _real(partial(round, found, places))
    return whole(rounded) if places <= 0 else rounded


def _compare(holds: Callable[[int], bool]) -> Callable[[Value, Value], Value]:
    def make(left: Value, right: Value) -> Value:
        found = order(left, right)
        return None if found is None else int(holds(found))

    return make


def _between(value: Value, low: Value, high: Value) -> Value:
    below, above = order(value, low), order(value, high)
    return None if below is None or above is None else int(below >= 0 >= above)


def _extreme(wanted: int) -> Callable[..., Value]:
    def make(*values: Value) -> Value:
        best: Value = None
        for value in values:
            if value is not None and (best is None or order(value, best) == wanted):
                best = value
        return best

    return make


def _substring(value: Value, start: Value, length: Value = None) -> Value:
    """From character `start` (the first is 0), a negative one counted from the end."""
    begin, size = whole(start), whole(length)
    if value is None or begin is None:
        return None
    plain = text(value)
    begin = max(0, begin + len(plain)) if begin < 0 else begin
    return plain[begin:] if size is None else plain[begin : begin + max(0, size)]


def _cut(value: Value, mark: Value, *, after: bool, last: bool) -> Value:
    if value is None:
        return None
    plain = text(value)
    head, found, tail = plain.rpartition(text(mark)) if last else plain.partition(text(mark))
    return (tail if after else head) if found else ""


def _textual(change: Callable[..., Value]) -> Callable[..., Value]:
    """A function of texts; null if the first is null."""
    return lambda *values: None if values[0] is None else change(*map(text, values))


def _translate(value: str, old: str, new: str) -> str:
    return value.translate({ord(letter): new[place] if place < len(new) else None for place, letter in enumerate(old)})


def _separated(values: str, separator: str) -> list[str]:
    return values.split(separator) if separator and values else [values] if values else []


def _items(values: Value, separator: Value) -> list[str]:
    """The items of a list: of a text with a separator, else of a JSON list, as list properties are kept."""
    if separator is not None:
        return _separated(text(values), text(separator))
    found = _json(values)
    return [text(json_value(item)) for item in found] if isinstance(found, list) else _separated(text(values), ",")


def _json(values: Value) -> Any:
    try:
        return read_json(text(values))
    except Unreadable:
        return None


def _list_item(values: Value, *rest: Value) -> Value:
    """listItem(list[, separator], place), the first place being 0."""
    items, at = _items(values, rest[0] if len(rest) > 1 else None), whole(rest[-1])
    return items[at] if at is not None and 0 <= at < len(items) else None


def _list_size(values: Value, separator: Value = None) -> Value:
    return None if values is None else len(_items(values, separator))


def _list_contains(values: Value, *rest: Value) -> Value:
    """listContains(list[, separator], item)."""
    return None if values is None else int(text(rest[-1]) in _items(values, rest[0] if len(rest) > 1 else None))


def _map_value(values: Value, *rest: Value) -> Value:
    """mapValue(map, name) of a JSON object, as map properties are kept; mapValue(map, outer, inner, name) of a text."""
    if len(rest) < 3:
        found = _json(values)
        return json_value(found.get(text(rest[-1]))) if isinstance(found, dict) else None
    return read_map(text(values), text(rest[0]), text(rest[1])).get(text(rest[2]))


def read_map(values: str, outer: str, inner: str) -> dict[str, str]:
    """Names and values of a text like a=1;b=2; of a name that comes twice the last counts."""
    pairs = (item.partition(inner) for item in _separated(values, outer) if inner)
    return {name.strip(): value.strip() for name, found, value in pairs if found}


def read_list(values: str, separator: str) -> list[str]:
    """The items of a text like a,b,c, without the space around them."""
    return [item.strip() for item in _separated(values, separator)]


def _index(value: str, part: str) -> int | None:
    return value.find(part) if part in value else None


def _part(part: str) -> Callable[[Value], Value]:
    return lambda seconds: time_part(part, seconds)


_PLAIN: tuple[tuple[str, int, int | None, Callable[..., Value]], ...] = (
    ("sum", 1, None, _sum),
    ("mean", 1, None, _mean),
    ("diff", 2, None, _arithmetic(lambda left, right: left - right)),
    ("product", 1, None, _arithmetic(lambda left, right: left * right)),
    ("quotient", 2, None, _arithmetic(lambda left, right: left / right)),
    ("mod", 2, 2, _arithmetic(_mod)),
    ("max", 1, None, _extreme(1)),
    ("min", 1, None, _extreme(-1)),
    ("abs", 1, 1, _unary(abs)),
    ("neg", 1, 1, _unary(lambda value: -value)),
    ("ceiling", 1, 1, _unary(math.ceil)),
    ("floor", 1, 1, _unary(math.floor)),
    ("sqrt", 1, 1, _unary(math.sqrt)),
    ("round", 1, 2, _round),
    ("integer", 1, 1, whole),
    ("long", 1, 1, whole),
    ("double", 1, 1, _double),
    ("number", 1, 1, number),
    ("boolean", 1, 1, lambda value: None if value is None else int(truth(value))),
    ("equals", 2, 2, _compare(lambda found: found == 0)),
    ("notEquals", 2, 2, _compare(lambda found: found != 0)),
    ("gt", 2, 2, _compare(lambda found: found > 0)),
    ("gte", 2, 2, _compare(lambda found: found >= 0)),
    ("lt", 2, 2, _compare(lambda found: found < 0)),
    ("lte", 2, 2, _compare(lambda found: found <= 0)),
    ("between", 3, 3, _between),
    ("compare", 2, 2, order),
    ("not", 1, 1, lambda value: int(not truth(value))),
    ("isNull", 1, 1, lambda value: int(value is None)),
    ("isNotNull", 1, 1, lambda value: int(value is not None)),
    ("substring", 2, 3, _substring),
    ("substringBefore", 2, 2, partial(_cut, after=False, last=False)),
    ("substringAfter", 2, 2, partial(_cut, after=True, last=False)),
    ("substringBeforeLast", 2, 2, partial(_cut, after=False, last=True)),
    ("substringAfterLast", 2, 2, partial(_cut, after=True, last=True)),
    ("stringLength", 1, 1, _textual(len)),
    ("toUpper", 1, 1, _textual(str.upper)),
    ("toLower", 1, 1, _textual(str.lower)),
    ("trim", 1, 1, _textual(str.strip)),
    ("normalizeSpace", 1, 1, _textual(lambda value: " ".join(value.split()))),
    ("translate", 3, 3, _textual(_translate)),
    ("contains", 2, 2, _textual(lambda value, part: int(part in value))),
    ("startsWith", 2, 2, _textual(lambda value, part: int(value.startswith(part)))),
    ("endsWith", 2, 2, _textual(lambda value, part: int(value.endswith(part)))),
    ("indexOf", 2, 2, _textual(_index)),
    ("urlEncode", 1, 1, _textual(lambda value: quote(value, safe=""))),
    ("urlDecode", 1, 1, _textual(unquote)),
    ("listItem", 2, 3, _list_item),
    ("listSize", 1, 2, _list_size),
    ("listContains", 2, 3, _list_contains),
    ("mapValue", 2, 4, _map_value),
    ("timeIsDst", 0, 1, lambda *_: 0),
    ("timeGmtToLocal", 1, 1, whole),
    ("timeLocalToGmt", 1, 1, whole),
    ("timeSecondOfDay", 1, 1, _part("daysecond")),
    ("timeMinuteOfDay", 1, 1, _part("dayminute")),
    ("timeSecondOfMinute", 1, 1, _part("second")),
    ("timeMinuteOfHour", 1, 1, _part("minute")),
    ("timeHourOfDay", 1, 1, _part("hour")),
    ("timeDayOfWeek", 1, 1, _part("weekday")),
    ("timeDayOfMonth", 1, 1, _part("day")),
    ("timeDayOfYear", 1, 1, _part("yearday")),
    ("timeMonth", 1, 1, _part("month")),
    ("timeYear", 1, 1, _part("year")),
)

_ABOUT_EVENT: tuple[tuple[str, Callable[..., Value]], ...] = (
    ("eventCounter", lambda context: context.counter),
    ("eventNumber", lambda context: context.number),
    ("eventOpcode", lambda context: context.opcode),
    ("eventFlags", lambda context: context.flags),
    ("blockNumber", lambda context: context.block),
    ("input", lambda context: context.input),
)

_CLOCKS: tuple[tuple[str, Callable[..., Value]], ...] = (
    ("timeCurrent", lambda context: context.clock_us // 1_000_000),
    ("timeCurrentMicros", lambda context: context.clock_us),
    ("timeToday", lambda context: context.clock_us // 86_400_000_000 * 86_400),
)


def _concat(context: Any, *values: Value) -> Value:
    if all(value is None for value in values):
        return None
    parts = [text(value) for value in values]
    return "".join(parts) if context.allows(sum(map(len, parts))) else None


def _replace(context: Any, value: Value, old: Value, new: Value) -> Value:
    if value is None or text(old) == "":
        return value
    plain, part, other = text(value), text(old), text(new)
    length = len(plain) + plain.count(part) * (len(other) - len(part))
    return plain.replace(part, other) if context.allows(length) else None


def _random(context: Any, low: Value = 0, high: Value = 1) -> Value:
    """random([low, high]): a number from `low` on and below `high`."""
    least, most = number(low), number(high)
    if least is None or most is None:
        return None
    part = int.from_bytes(context.draw()[:7], "big") / (1 << 56)
    found: Value = _real(lambda: least + (most - least) * part)
    return found


def _guid(context: Any) -> Value:
    """A name that no other event of the project has, in the form of a UUID."""
    return str(UUID(bytes=context.draw(), version=4))


def _table() -> Mapping[str, Call]:
    calls = [Call(name, least, most, make) for name, least, most, make in _PLAIN]
    calls += [Call(name, 0, 0, make, needs_context=True) for name, make in _ABOUT_EVENT]
    calls += [Call(name, 0, 0, make, needs_context=True, reads_clock=True) for name, make in _CLOCKS]
    calls += [Call(name, 1, None, _concat, needs_context=True) for name in ("concat", "string")]
    calls.append(Call("replace", 3, 3, _replace, needs_context=True))
    calls.append(Call("random", 0, 2, _random, needs_context=True))
    calls.append(Call("guid", 0, 0, _guid, needs_context=True))
    return {call.name.lower(): call for call in calls}


CALLS: Mapping[str, Call] = _table()
NUMBERED = frozenset({"eventCounter", "eventNumber", "random", "guid"})
"""Functions that give something else for each event, the same for the same one."""
