"""Spans of time as Java's Duration reads them: PT1M30S, P1DT2H, PT-0.5S."""

from __future__ import annotations

import re

from lockstep.errors import BadArgument

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_LENGTH_MAX = 40
_YEARS_MS = 1000 * 366 * 86_400_000


def parse_duration(text: object, name: str) -> int:
    """Return milliseconds; BadArgument unless it is a span in ISO 8601."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) and len(text) <= _LENGTH_MAX else None
    if found is None or found[3] in ("T", "t") or not any(found.group(2, 4, 5, 6)):
        raise BadArgument(name=name, value=text, reason="it must be a span in ISO 8601, as PT1M30S")
    days, hours, minutes, seconds = (int(part or 0) for part in found.group(2, 4, 5, 6))
    fraction = int((found[7] or "").ljust(3, "0")[:3])
    if (found[6] or "").startswith("-"):
        fraction = -fraction
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction
    if abs(total) > _YEARS_MS:
        raise BadArgument(name=name, value=text, reason="it is longer than 1000 years")
    return -total if found[1] == "-" else total
