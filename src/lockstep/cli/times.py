"""Times and spans as people type them, and times as they are shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "h": 3_600 * SECOND_NS,
    "d": 86_400 * SECOND_NS,
    "w": 7 * 86_400 * SECOND_NS,
}
_PART = r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d|w)"
_SPAN = re.compile(rf"(?:{_PART})+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_FRACTION = re.compile(r"(\d\d:\d\d:\d\d)\.(\d{1,9})")
_DIGITS_OF_UNIT = ((11, SECOND_NS), (14, 1_000_000), (17, 1_000))  # seconds, milliseconds, microseconds, else nano


def parse_span_ns(text: str) -> int:
    """A span such as 90s, 1h30m or 500ms; a plain number means seconds. ValueError otherwise."""
    if _NUMBER.fullmatch(text):
        text += "s"
    if not _SPAN.fullmatch(text):
        message = f"{text!r} is not a span of time; write for example 30s, 5m, 1h30m or 7d"
        raise ValueError(message)
    return sum(_scaled(number, _UNITS_NS[unit]) for number, unit in re.findall(_PART, text))


def parse_time_ns(text: str, now_ns: int) -> int:
    """A moment: ISO 8601 (UTC unless it names a zone), seconds or finer since 1970, a span ago, or now."""
    if text == "now":
        return now_ns
    number = text.removeprefix("@")
    if _NUMBER.fullmatch(number):
        return _since_1970(number)
    if _SPAN.fullmatch(text):
        return max(now_ns - parse_span_ns(text), 0)
    return _from_iso(text)


def iso(time_ns: int) -> str:
    """A moment in ISO 8601, UTC, to the nanosecond; parse_time_ns takes it back."""
    seconds, rest = divmod(time_ns, SECOND_NS)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return f"@{time_ns}ns"  # a label somebody else set; shown, not understood
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def span(seconds: float) -> str:
    """A span for people: 850ms, 12s, 3m20s, 2h5m, 4d3h."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    whole = int(seconds)
    for large, small, size, part in (("d", "h", 86_400, 3_600), ("h", "m", 3_600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{large}{rest}{small}" if rest else f"{whole // size}{large}"
    return f"{whole}s"


def _since_1970(number: str) -> int:
    whole = number.partition(".")[0]
    unit = next((unit for digits, unit in _DIGITS_OF_UNIT if len(whole) <= digits), 1)
    return _scaled(number, unit)


def _scaled(number: str, unit_ns: int) -> int:
    """Exact for any number of digits, which a float would not be."""
    whole, _, fraction = number.partition(".")
    return int(whole) * unit_ns + (int(fraction) * unit_ns // 10 ** len(fraction) if fraction else 0)


def _from_iso(text: str) -> int:
    fraction = _FRACTION.search(text)
    plain = _FRACTION.sub(r"\1", text)
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        message = f"{text!r} is not a time; write for example 2026-01-31T12:00:00Z, 1767225600, or 5m for 5 minutes ago"
        raise ValueError(message) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    nanos = int(fraction[2].ljust(9, "0")) if fraction else 0
    return (since.days * 86_400 + since.seconds) * SECOND_NS + nanos
