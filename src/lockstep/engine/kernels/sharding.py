"""Which shard a row belongs to: by the values of the fields that the plan names, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from lockstep.engine.events.columns import Int64s
from lockstep.engine.events.types import Value
from lockstep.engine.kernels.flow import Flow, Mask, Part

_KEYS_REMEMBERED = 1 << 17
"""Keys whose shard is known; when there are more, all are forgotten."""

Key = Value | tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Own:
    """The events of one shard in a flow: their places among all, the parts that hold their rows, and which they are."""

    places: Int64s
    parts: tuple[Part, ...]
    rows: Int64s


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of one shard out of several."""

    fields: tuple[str, ...]
    shard: int
    shards: int
    known: dict[Key, bool] = field(default_factory=dict, compare=False, repr=False)
    """Whether keys that were met are of this shard."""

    def own(self, part: Part) -> tuple[Part, Int64s]:
        """The rows of the shard as a part of their own, and their places in this one; worked out once."""
        key = (self.fields, self.shard, self.shards)
        found: tuple[Part, Int64s] | None = part.found.get(key)
        if found is None:
            found = part.found[key] = self._select(part)
        return found

    def _select(self, part: Part) -> tuple[Part, Int64s]:
        if part.whole is None:
            rows = np.flatnonzero(self._mask(part))
            return part.take(rows, tuple(part.columns), self.fields), rows
        whole, start = part.whole
        mine, rows = self.own(whole)
        low, high = np.searchsorted(rows, [start, start + part.length]).tolist()
        return mine.slice(low, high), rows[low:high] - start

    def own_of(self, flow: Flow) -> Own:
        """The events of the shard in a flow."""
        if flow.index is None and len(flow.parts) == 1:
            part, places = self.own(flow.parts[0])
            return Own(places, (part,), np.arange(len(places), dtype=np.int64))
        rows = flow.rows()
        places = np.flatnonzero(self.mask(flow.parts)[rows])
        return Own(places, flow.parts, rows[places])

    def mask(self, parts: Sequence[Part]) -> Mask:
        """Which rows of the parts belong to the shard."""
        return np.concatenate([self._mask(part) for part in parts])

    def _mask(self, part: Part) -> Mask:
        codes, distinct = part.codes(self.fields)
        return np.fromiter(map(self._is_own, distinct), np.bool_, len(distinct))[codes]

    def _is_own(self, key: Key) -> bool:
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= _KEYS_REMEMBERED:
                self.known.clear()
            found = self.known[key] = shard_of(key, self.shards) == self.shard
        return found


def shard_of(key: Key, shards: int) -> int:
    """The shard of a key: a value, or the values of several fields."""
    digest = 0
    for value in key if isinstance(key, tuple) else (key,):
        digest = crc32(_bytes(value), digest)
    return digest % shards


def index_in_block(block: Int64s, places: Int64s) -> Int64s:
    """For the events at some places their index in their block."""
    if len(block) and int(block[-1] - block[0]) == len(block) - 1 and bool((block[1:] > block[:-1]).all()):
        return np.zeros(len(places), np.int64)  # one event in each
    return places - np.searchsorted(block, block[places])


def _bytes(value: object) -> bytes:
    """A value as bytes with an end, so that neighbours can't run together; equal numbers give equal bytes."""
    if isinstance(value, bytes):
        return value + b"\x00b"
    if isinstance(value, float):
        value += 0.0  # a group of 0.0 is the group of -0.0 as well
    return f"{value}\x00".encode() + type(value).__name__.encode()[:1]
