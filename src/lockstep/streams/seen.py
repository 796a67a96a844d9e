"""Remembering what was done, for handlers that must not act twice."""

from __future__ import annotations

from lockstep.log.port import Transaction


def first_time(changes: Transaction, space: str, key: str, limit: int | None = None) -> bool:
    """True if the key is new to the space, which remembers all keys, or the last `limit` of those given with one."""
    cell = f"seen\0{space}\0key\0{key}".encode()
    if changes.get(cell) is not None:
        return False
    if limit is None:
        changes.put(cell, b"1")
        return True
    count_cell = f"seen\0{space}\0count".encode()
    number = int(changes.get(count_cell) or b"0")
    changes.put(count_cell, str(number + 1).encode())
    changes.put(cell, b"1")
    changes.put(_numbered(space, number), cell)
    oldest = changes.get(_numbered(space, number - limit))
    if oldest is not None:
        changes.put(oldest, None)
        changes.put(_numbered(space, number - limit), None)
    return True


def _numbered(space: str, number: int) -> bytes:
    return f"seen\0{space}\0number\0{number}".encode()
