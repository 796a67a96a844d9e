"""What built-in operators and functions do: numbers, texts and times, one value or many, to the same bit."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.events.schema import MONEY_SCALE, FieldType, Value
from lockstep.engine.language.code import Bools, Code, Kernel, Numbers, Vector, constant, strict
from lockstep.engine.language.faults import Misfit

LOW, HIGH = -(2**63), 2**63 - 1
_SURE = 2.0**62
"""A product that is below this in doubles fits into int64 for certain."""
_WHOLE = 2.0**52
"""Doubles from here on are whole numbers."""

Result = tuple[Numbers, Bools | None]


def fitting(value: int) -> int | None:
    """The value if it fits into int64."""
    return value if LOW <= value <= HIGH else None


def total(function: Callable[..., float]) -> Callable[..., float | None]:
    """A function of doubles that gives null where it has no value."""

    def safe(*values: float) -> float | None:
        try:
            return function(*values)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None

    return safe


def _add_ints(left: Numbers, right: Numbers) -> Result:
    found = left + right
    return found, ((left ^ found) & (right ^ found)) >= 0


def _subtract_ints(left: Numbers, right: Numbers) -> Result:
    found = left - right
    return found, ((left ^ right) & (left ^ found)) >= 0


def _multiply_ints(left: Numbers, right: Numbers) -> Result:
    found = left * right
    doubtful = np.flatnonzero(np.abs(left.astype(np.float64) * right.astype(np.float64)) >= _SURE)
    good = np.ones(len(found), np.bool_)
    for place in doubtful.tolist():
        good[place] = LOW <= int(left[place]) * int(right[place]) <= HIGH
    return found, good


def _remainder(left: int, right: int) -> int | None:
    if right == 0:
        return None
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def _remainder_ints(left: Numbers, right: Numbers) -> Result:
    # By -1 the remainder is 0 as by 1, but the smallest integer can't be divided by it.
    divisor = np.where((right == 0) | (right == -1), 1, right)
    return np.fmod(left, divisor), right != 0


def _divide(left: float, right: float) -> float | None:
    return float(left) / float(right) if right else None


def _divide_doubles(left: Numbers, right: Numbers) -> Result:
    return left.astype(np.float64) / right.astype(np.float64), right != 0


def _remainder_doubles(left: Numbers, right: Numbers) -> Result:
    undefined = np.isinf(left) | (right == 0)
    return np.fmod(left, right), ~undefined | np.isnan(left) | np.isnan(right)


ADD_INTS = Kernel(lambda a, b: fitting(a + b), _add_ints)
SUBTRACT_INTS = Kernel(lambda a, b: fitting(a - b), _subtract_ints)
MULTIPLY_INTS = Kernel(lambda a, b: fitting(a * b), _multiply_ints)
REMAINDER_INTS = Kernel(_remainder, _remainder_ints)
NEGATE_INT = Kernel(lambda a: fitting(-a), lambda a: (-a, a != LOW))
ABS_INT = Kernel(lambda a: fitting(abs(a)), lambda a: (np.abs(a), a != LOW))

ADD_DOUBLES = Kernel(operator.add, lambda a, b: (a + b, None))
SUBTRACT_DOUBLES = Kernel(operator.sub, lambda a, b: (a - b, None))
MULTIPLY_DOUBLES = Kernel(operator.mul, lambda a, b: (a * b, None))
DIVIDE = Kernel(_divide, _divide_doubles)
REMAINDER_DOUBLES = Kernel(total(math.fmod), _remainder_doubles)
POWER = Kernel(total(math.pow))
NEGATE_DOUBLE = Kernel(operator.neg, lambda a: (-a, None))
ABS_DOUBLE = Kernel(abs, lambda a: (np.abs(a), None))
SQRT = Kernel(total(math.sqrt), lambda a: (np.sqrt(a), ~(a < 0)))
EXP = Kernel(total(math.exp))
LOG = Kernel(total(math.log))
LOG10 = Kernel(total(math.log10))
SIN, COS, TAN = Kernel(total(math.sin)), Kernel(total(math.cos)), Kernel(total(math.tan))
ASIN, ACOS, ATAN = Kernel(total(math.asin)), Kernel(total(math.acos)), Kernel(total(math.atan))
ATAN2 = Kernel(total(math.atan2))

SAME = Kernel(lambda a: a, lambda a: (a, None))
TO_DOUBLE = Kernel(float, lambda a: (a.astype(np.float64), None))
MONEY_TO_DOUBLE = Kernel(lambda a: float(a) / MONEY_SCALE, lambda a: (a.astype(np.float64) / MONEY_SCALE, None))
INT_TO_MONEY = Kernel(
    lambda a: fitting(a * MONEY_SCALE),
    lambda a: (a * MONEY_SCALE, (a >= -(-LOW // MONEY_SCALE)) & (a <= HIGH // MONEY_SCALE)),
)
NARROW = Kernel(lambda a: a if -(2**31) <= a < 2**31 else None, lambda a: (a, (a >= -(2**31)) & (a < 2**31)))

COMPARE = {
    "==": Kernel(lambda a, b: int(a == b), lambda a, b: (_flags(a == b), None)),
    "!=": Kernel(lambda a, b: int(a != b), lambda a, b: (_flags(a != b), None)),
    "<": Kernel(lambda a, b: int(a < b), lambda a, b: (_flags(a < b), None)),
    "<=": Kernel(lambda a, b: int(a <= b), lambda a, b: (_flags(a <= b), None)),
    ">": Kernel(lambda a, b: int(a > b), lambda a, b: (_flags(a > b), None)),
    ">=": Kernel(lambda a, b: int(a >= b), lambda a, b: (_flags(a >= b), None)),
}
MIN = Kernel(lambda a, b: min(a, b), lambda a, b: (_where(b < a, b, a), None))
MAX = Kernel(lambda a, b: max(a, b), lambda a, b: (_where(b > a, b, a), None))
SIGN = Kernel(lambda a: (a > 0) - (a < 0), lambda a: (_flags(a > 0) - _flags(a < 0), None))


def _where(test: Bools, then: Numbers, otherwise: Numbers) -> Numbers:
    found: Numbers = np.where(test, then, otherwise)
    return found


def _flags(found: Bools) -> Numbers:
    return found.astype(np.int64)


def _whole(step: Callable[[float], int]) -> Callable[[float], float]:
    """Floor, ceil or trunc that keeps the sign of zero, as the processor does."""
    return lambda a: math.copysign(float(step(a)), a) if abs(a) < _WHOLE else a


def _rounded(a: float) -> float:
    if not abs(a) < _WHOLE:
        return a
    whole = math.trunc(a)
    return math.copysign(float(abs(whole) + (abs(a) - abs(whole) >= 0.5)), a)


def _round_doubles(a: Numbers) -> Result:
    whole = np.trunc(a)
    return np.copysign(np.abs(whole) + (np.abs(a) - np.abs(whole) >= 0.5), a), None


FLOOR = Kernel(_whole(math.floor), lambda a: (np.floor(a), None))
CEIL = Kernel(_whole(math.ceil), lambda a: (np.ceil(a), None))
ROUND = Kernel(_rounded, _round_doubles)


def truncated(a: float) -> int | None:
    """The whole part, if it fits into int64."""
    return int(a) if -(2.0**63) <= a < 2.0**63 else None


def _truncate_doubles(a: Numbers) -> Result:
    good = (a >= -(2.0**63)) & (a < 2.0**63)
    return np.where(good, a, 0.0).astype(np.int64), good


TRUNCATE = Kernel(truncated, _truncate_doubles)


MICROSECONDS = 1_000_000
PARTS: dict[str, Callable[[datetime], int]] = {
    "year": lambda moment: moment.year,
    "month": lambda moment: moment.month,
    "day": lambda moment: moment.day,
    "hour": lambda moment: moment.hour,
    "minute": lambda moment: moment.minute,
    "second": lambda moment: moment.second,
    "weekday": lambda moment: moment.isoweekday(),
}
"""Functions that take a part of a date or stamp."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN_US = 10**18
"""More microseconds than lie between 1970 and any year with a calendar."""
_MARKS = re.compile("YYYY|YY|MM|DD|hh|mm|ss|ffffff")
_WRITTEN: dict[str, Callable[[datetime], str]] = {
    "YYYY": lambda moment: f"{moment.year:04d}",
    "YY": lambda moment: f"{moment.year % 100:02d}",
    "MM": lambda moment: f"{moment.month:02d}",
    "DD": lambda moment: f"{moment.day:02d}",
    "hh": lambda moment: f"{moment.hour:02d}",
    "mm": lambda moment: f"{moment.minute:02d}",
    "ss": lambda moment: f"{moment.second:02d}",
    "ffffff": lambda moment: f"{moment.microsecond:06d}",
}


def _moment(microseconds: int) -> datetime | None:
    if abs(microseconds) > _SPAN_US:
        return None
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def _scale(kind: FieldType) -> int:
    return 1 if kind is FieldType.STAMP else MICROSECONDS


def part_of(name: str, kind: FieldType) -> Callable[[int], Value]:
    """The year, month, ... of a date or stamp."""
    take, scale = PARTS[name], _scale(kind)

    def part(value: int) -> Value:
        moment = _moment(value * scale)
        return None if moment is None else take(moment)

    return part


def formatted(kind: FieldType) -> Callable[[int, str], Value]:
    """A date or stamp written by a format of YYYY YY MM DD hh mm ss ffffff; everything else stands for itself."""
    scale = _scale(kind)

    def write(value: int, form: str) -> Value:
        moment = _moment(value * scale)
        if moment is None:
            return None
        return _MARKS.sub(lambda mark: _WRITTEN[mark.group()](moment), form)

    return write


def as_text(kind: FieldType) -> Callable[[int], Value]:
    """A date or stamp as text in the usual form."""
    write = formatted(kind)
    form = "YYYY-MM-DD hh:mm:ss.ffffff" if kind is FieldType.STAMP else "YYYY-MM-DD hh:mm:ss"
    return lambda value: write(value, form)


def later(kind: FieldType) -> Callable[[int, int], Value]:
    """So many seconds later."""
    unit = MICROSECONDS if kind is FieldType.STAMP else 1
    return lambda value, seconds: fitting(value + seconds * unit)


MAX_TEXT_RESULT = 2**20

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_LONGEST_NUMBER = 400
_SHOWN = 80


def bounded(text: str) -> str | None:
    """The text, unless it is too long."""
    return text if len(text) <= MAX_TEXT_RESULT else None


def joined(left: str, right: str) -> str | None:
    """One text after the other; None if the result would be too long."""
    return left + right if len(left) + len(right) <= MAX_TEXT_RESULT else None


def _money(value: int) -> str:
    whole, rest = divmod(abs(value), MONEY_SCALE)
    return f"{'-' if value < 0 else ''}{whole}.{rest:04d}"


_TEXT: dict[FieldType, Callable[..., Value]] = {
    FieldType.INT32: str,
    FieldType.INT64: str,
    FieldType.DOUBLE: repr,
    FieldType.MONEY: _money,
    FieldType.DATE: as_text(FieldType.DATE),
    FieldType.STAMP: as_text(FieldType.STAMP),
}


def to_text(code: Code, argument: int = 0) -> Code:
    """The value as text; doubles as short as they can be without loss."""
    if code.type is FieldType.STRING:
        return code
    if code.type is None:
        return constant(FieldType.STRING, None)
    if code.type not in _TEXT:
        raise Misfit(
            argument, f"a value of type {code.type.value} has no text", "Use its elements, or a field of another type."
        )
    return strict(Kernel(_TEXT[code.type]), FieldType.STRING, code)


def parsed_double(text: str) -> float | None:
    """The number that a text is."""
    plain = text.strip(" \t\r\n")
    if len(plain) > _LONGEST_NUMBER or not _NUMBER.fullmatch(plain):
        return None
    return float(plain)


def parsed_integer(text: str) -> int | None:
    """The whole number that a text is; of another number the whole part."""
    plain = text.strip(" \t\r\n")
    if _INTEGER.fullmatch(plain):
        return fitting(int(plain))
    number = parsed_double(plain)
    return None if number is None else truncated(number)


def left(text: str, count: int) -> str:
    """The first characters."""
    return text[: max(count, 0)]


def right(text: str, count: int) -> str:
    """The last characters."""
    return text[-count:] if count > 0 else ""


def middle(text: str, start: int, count: int = MAX_TEXT_RESULT) -> str:
    """So many characters from a place on."""
    first = max(start, 1) - 1
    return text[first : first + max(count, 0)]


def place_of(text: str, part: str, start: int = 1) -> int:
    """Where a part begins for the first time, 0 if it is not there."""
    return text.find(part, max(start, 1) - 1) + 1


def replaced(text: str, part: str, by: str) -> str | None:
    """Every occurrence of a part replaced; an empty part occurs nowhere."""
    if not part:
        return text
    length = len(text) + text.count(part) * (len(by) - len(part))
    return text.replace(part, by) if length <= MAX_TEXT_RESULT else None


def order(first: str, second: str) -> int:
    """-1, 0 or 1: which comes first."""
    return (first > second) - (first < second)


def upper(text: str) -> str | None:
    """In capitals."""
    return bounded(text.upper())


def lower(text: str) -> str | None:
    """In small letters."""
    return bounded(text.lower())


LENGTH = Kernel(len, arrow=lambda texts: pc.utf8_length(texts.arrow()))


def matching(pattern: str) -> Kernel:
    """Whether a text matches a regular expression somewhere.

    Arrow's engine (RE2) takes time in proportion to the text whatever the pattern; Python's own may take forever.
    """
    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
    except pa.ArrowInvalid as error:
        raise Misfit(
            1,
            f"{pattern[:_SHOWN]!r} is not a pattern: {str(error)[:_SHOWN]}",
            "Use the syntax of RE2 regular expressions.",
        ) from None

    def one(text: str) -> int:
        return int(pc.match_substring_regex(pa.scalar(text, pa.string()), pattern=pattern).as_py())

    def many(texts: Vector) -> pa.Array:
        return pc.match_substring_regex(texts.arrow(), pattern=pattern).cast(pa.int32())

    return Kernel(one, arrow=many)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Callable[..., Value] | None:
    try:
        return matching(pattern).scalar
    except (Misfit, UnicodeEncodeError):
        return None


def found_first(text: str, pattern: str) -> int:
    """Whether the pattern of a regex object is found in a text; what is no pattern is found nowhere."""
    finds = _compiled(pattern)
    return int(finds is not None and bool(finds(text)))


def wildcards(pattern: str) -> str:
    """The regular expression for a whole text with * for any characters and ? for one."""
    written = {"*": ".*", "?": "."}
    parts = (
        written.get(letter) or (letter if letter.isascii() and letter.isalnum() else f"\\x{{{ord(letter):x}}}")
        for letter in pattern
    )
    return f"(?s)\\A{''.join(parts)}\\z"
