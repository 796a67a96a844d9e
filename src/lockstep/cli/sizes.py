"""Byte sizes as text: parse and format them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_size(text: str) -> int:
    """Bytes: 1048576, 64KiB, 10MB (decimal) or 1GiB. ValueError otherwise."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        message = f"{text!r} is not a size; write for example 1048576, 64KiB or 10MB"
        raise ValueError(message)
    number, prefix, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[prefix.lower()])


def size(count: int) -> str:
    """Format a number of bytes: 812 B, 64.0 KiB, 1.5 GiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
