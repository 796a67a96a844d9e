"""Which shard a row belongs to: by the values of the fields that the plan names, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from lockstep.engine.events.types import Value
from lockstep.engine.kernels.flow import Mask, Part


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of one shard out of several."""

    fields: tuple[str, ...]
    shard: int
    shards: int

    def mask(self, parts: Sequence[Part]) -> Mask:
        """Which rows of the parts belong to the shard."""
        return np.concatenate([self._part(part) for part in parts])

    def _part(self, part: Part) -> Mask:
        codes, distinct = part.codes(self.fields)
        mine = (shard_of(key, self.shards) == self.shard for key in distinct)
        return np.fromiter(mine, np.bool_, len(distinct))[codes]


def shard_of(key: Value | tuple[Value, ...], shards: int) -> int:
    """The shard of a key: a value, or the values of several fields."""
    digest = 0
    for value in key if isinstance(key, tuple) else (key,):
        digest = crc32(_bytes(value), digest)
    return digest % shards


def _bytes(value: object) -> bytes:
    """A value as bytes with an end, so that neighbours can't run together."""
    if isinstance(value, bytes):
        return value + b"\x00b"
    return f"{value}\x00".encode() + type(value).__name__.encode()[:1]
