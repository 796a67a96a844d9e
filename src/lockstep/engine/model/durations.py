"""Durations as models write them: "300 seconds", "5 minutes", "1 hour", "4 days", or a number of seconds."""

from __future__ import annotations

import re

UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
"""The units by name, the smallest first."""
MAX_US = 2**61
"""Times further than this from 1970, some 73,000 years, do not count, and no duration is longer: sums of two fit."""
DURATION_REMEDY = "Write a number and a unit, as in 5 minutes; a number alone is seconds."

_SHAPE = re.compile(r"(-?[0-9]{1,30})\s*([A-Za-z]*?)(?:s|\(s\))?", re.ASCII)


def parse_duration(text: str | int) -> int:
    """Microseconds of a duration; raises ValueError if it is none."""
    found = _SHAPE.fullmatch(str(text).strip())
    unit = found and UNITS_US.get(found[2].lower() or "second")
    if found is None or unit is None or (not found[2] and not found[0][-1].isdigit()):
        msg = f"{text!r} is not a duration"
        raise ValueError(msg)
    return int(found[1]) * unit


def duration_text(microseconds: int) -> str:
    """The duration in the largest unit that holds it as a whole number; parse_duration gives it back."""
    units = [unit for unit, size in UNITS_US.items() if microseconds % size == 0]
    unit = units[-1] if microseconds else "second"
    count = microseconds // UNITS_US[unit]
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
