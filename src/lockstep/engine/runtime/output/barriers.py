"""Barriers on out streams: a leader reads the stream through its own barrier before it publishes; readers skip them."""

from __future__ import annotations

import json

from lockstep.core.outputs import Barrier
from lockstep.errors import DataError

_KIND = "barrier"


def encode_barrier(barrier: Barrier) -> bytes:
    """A barrier as the value of a record."""
    return json.dumps(
        {"kind": _KIND, "epoch": barrier.epoch, "owner": barrier.owner}, separators=(",", ":"), ensure_ascii=False
    ).encode()


def is_barrier(value: bytes) -> bool:
    """Whether a record of an out stream is a barrier, and not a frame."""
    return _fields(value) is not None


def decode_barrier(value: bytes) -> Barrier:
    """The barrier in a record's value."""
    fields = _fields(value)
    if fields is None:
        raise DataError(reason=f"This is no barrier: {value[:80]!r}.")
    return Barrier(*fields)


def _fields(value: bytes) -> tuple[int, str] | None:
    if value[:1] != b"{":  # a frame begins otherwise
        return None
    try:
        tree = json.loads(value)
    except ValueError:
        return None
    if tree.get("kind") != _KIND:
        return None
    epoch, owner = tree.get("epoch"), tree.get("owner")
    return (epoch, owner) if type(epoch) is int and type(owner) is str else None
