"""Kernels for dates (seconds since 1970) and stamps (microseconds since 1970), all in UTC.

Beyond the years 1 to 9999 a moment has no calendar, and what is asked of it is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.numeric import fitting

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
