"""Times as BigBen writes them, spans, and the time zones of crons."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lockstep.cron import Zone
from lockstep.errors import BadArgument
from lockstep.schedule.rows import CronRow

_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{0,9}))?)?"
    r"([Zz]|[+-]\d{2}(?::\d{2}(?::\d{2})?)?)(?:\[([A-Za-z0-9_+\-/:]+)\])?",
    re.ASCII,
)
_FIXED_ZONE = re.compile(r"Z|(?:UTC|GMT|UT)?([+-]\d{2}:\d{2})", re.ASCII)
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
SPAN_MS_MAX = 10_000 * 366 * 86_400_000
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_OFFSET_MAX = timedelta(hours=18)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
FIRST_MS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MS
LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // _MS
"""Times before and after these, in UTC, can't be printed."""
HINT = "write it in ISO 8601 with an offset, as 2027-01-31T04:00Z or 2027-01-31T04:00:30.5+05:30"


def parse_time(text: str) -> int:
    """Return milliseconds since 1970; BadArgument unless it is a date and time with an offset."""
    found = _ISO.fullmatch(text)
    if found is None:
        raise BadArgument(name="time", value=text, reason=HINT)
    year, month, day, hour, minute, second, fraction, offset, zone = found.groups()
    try:
        if zone is not None:
            _check_zone(zone)
        at = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=timezone(_offset(offset))
        )
        return checked_ms((at - _EPOCH) // _MS + int((fraction or "0").ljust(3, "0")[:3]))
    except (ValueError, OverflowError, ZoneInfoNotFoundError, OSError) as error:
        raise BadArgument(name="time", value=text, reason=f"{error}; {HINT}") from None


def _check_zone(name: str) -> None:
    """Raise an error unless a zone exists; the instant is that of the offset before it."""
    fixed = _FIXED_ZONE.fullmatch(name)
    if fixed is None:
        ZoneInfo(name)
    elif fixed[1] is not None:
        _offset(fixed[1])


def _offset(text: str) -> timedelta:
    if text in "Zz":  # Java takes both
        return timedelta(0)
    hours, minutes, seconds = ([int(part) for part in text[1:].split(":")] + [0, 0])[:3]
    span = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if span > _OFFSET_MAX or minutes > 59 or seconds > 59:
        reason = f"offset {text} is not between -18:00 and +18:00"
        raise ValueError(reason)
    return -span if text[0] == "-" else span


@lru_cache(maxsize=4096)
def java_text(ms: int) -> str:
    """Return a time in UTC as Java prints it: seconds only if there are any, a fraction in three digits."""
    minute, rest = divmod(ms, 60_000)
    if not rest:
        return _minute_text(minute) + "Z"
    second, fraction = divmod(rest, 1000)
    if not fraction:
        return f"{_minute_text(minute)}:{second:02}Z"
    return f"{_minute_text(minute)}:{second:02}.{fraction:03}Z"


@lru_cache(maxsize=1024)
def _minute_text(minute: int) -> str:
    at = _EPOCH + timedelta(minutes=minute)
    return f"{at.year:04}-{at.month:02}-{at.day:02}T{at.hour:02}:{at.minute:02}"


def instant(time: str | datetime) -> int:
    """Return milliseconds since 1970 of a time as callers give it: text in ISO 8601 or an aware datetime."""
    if isinstance(time, str):
        return parse_time(time)
    if not isinstance(time, datetime):
        raise BadArgument(name="time", value=time, reason=f"give an aware datetime, or {HINT}")
    return from_datetime(time)


def from_datetime(at: datetime) -> int:
    """Return milliseconds since 1970 of an aware datetime."""
    if at.tzinfo is None:
        raise BadArgument(name="time", value=str(at), reason="it has no time zone; give an aware datetime")
    return checked_ms((at - _EPOCH) // _MS)


def checked_ms(ms: int) -> int:
    """Return a time in milliseconds since 1970; BadArgument if its year in UTC is not 1 to 9999."""
    if not FIRST_MS <= ms <= LAST_MS:
        raise BadArgument(name="time", value=ms, reason="its year in UTC must be 1 to 9999")
    return ms


def to_datetime(ms: int) -> datetime:
    """Return a time as an aware datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=ms)


def span_ms(span: str | float | timedelta, name: str = "span") -> int:
    """Return a span of time in milliseconds: 30m, 1h30m, 500ms, a number of seconds, or a timedelta."""
    if isinstance(span, timedelta):
        return span // timedelta(milliseconds=1)
    if isinstance(span, str):
        if not _SPAN.fullmatch(span):
            raise BadArgument(name=name, value=span, reason="write it as 30s, 5m, 1h30m or 7d")
        total = sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(span))
        if total > SPAN_MS_MAX:
            raise BadArgument(name=name, value=span[:80], reason="it is longer than 10,000 years")
        return round(total)
    if isinstance(span, bool) or not isinstance(span, (int, float)) or not -1e12 < span < 1e12:
        raise BadArgument(name=name, value=span, reason="it must be a span of time, as 30m, or seconds")
    return round(span * 1000)


def span_s(name: str, span: str | float | timedelta, least: int = 0) -> int:
    """Return a span in whole seconds; a part of a second counts as one."""
    seconds = -(-span_ms(span, name) // 1000)
    if seconds < least:
        raise BadArgument(name=name, value=span, reason=f"it must be at least {least} s")
    return seconds


def zone_of(row: CronRow) -> Zone:
    """The time zone of a cron, with its rule for nights when clocks change."""
    return _zone(row.tz, row.dst)


@lru_cache(maxsize=1024)
def _zone(name: str, dst: str) -> Zone:
    return Zone(name, "literal" if dst == "literal" else "once")
