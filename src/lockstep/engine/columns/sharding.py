"""Which shard a row belongs to, and the output of shards put together in the order of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from zlib import crc32

import numpy as np
import pyarrow as pa

from lockstep.engine.columns.flow import Flow, Mask, Part, common, plain
from lockstep.engine.events.columns import EventBatch, Int64s, OwnKey, OwnRows, concat
from lockstep.engine.events.schema import FieldType, Value

_KEYS_REMEMBERED = 1 << 17
"""Keys whose shard is known; when there are more, all are forgotten."""

_FEW_SHARDS = 256

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
    known: dict[Key, int] = field(default_factory=dict, compare=False, repr=False)
    """The shards of keys that were met."""

    @property
    def key(self) -> OwnKey:
        """What tells it from the shares of others."""
        return self.fields, self.shard, self.shards

    def own(self, part: Part) -> tuple[Part, Int64s]:
        """The rows of the shard as a part of their own, and their places in this one; worked out once."""
        found = part.own(self.key)
        if found is None:
            root = part
            while root.whole is not None:
                root = root.whole[0]
            rows = np.flatnonzero(self._mask(root))
            root.set_own(self.key, root.take(rows, tuple(root.columns), self.fields), rows)
            found = part.own(self.key)
        assert found is not None, "the whole was divided"
        return found

    def own_of(self, flow: Flow) -> Own:
        """The events of the shard in a flow."""
        if flow.index is None and len(flow.parts) == 1:
            part, places = self.own(flow.parts[0])
            return Own(places, (part,), np.arange(len(places), dtype=np.int64))
        if flow.index is not None and len(flow.parts) == 1:
            part, mine = self.own(flow.parts[0])
            places, rows = common(flow.index, mine)
            return Own(places, (part,), rows)
        rows = flow.rows()
        places = np.flatnonzero(self.mask(flow.parts)[rows])
        return Own(places, flow.parts, rows[places])

    def mask(self, parts: Sequence[Part]) -> Mask:
        """Which rows of the parts belong to the shard."""
        return np.concatenate([self._mask(part) for part in parts])

    def _mask(self, part: Part) -> Mask:
        codes, distinct = part.codes(self.fields)
        mask: Mask = (self.shards_of(distinct) == self.shard)[codes]
        return mask

    def shards_of(self, keys: Sequence[Key]) -> Int64s:
        """The shard of each key."""
        found = list(map(self.known.get, keys))
        if None in found:
            found = list(map(self._shard_of, keys))
        return np.array(found, np.int64)

    def _shard_of(self, key: Key) -> int:
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= _KEYS_REMEMBERED:
                self.known.clear()
            found = self.known[key] = shard_of(key, self.shards)
        return found


@dataclass(frozen=True, slots=True)
class InputShare:
    """What one shard needs of a source: some columns of all rows, and those that it needs at all of its own."""

    share: Share
    looked_at: frozenset[str]
    needed: frozenset[str]

    def of(self, batch: EventBatch) -> EventBatch:
        """The same events with no more than that."""
        mine, rows = self.share.own(Part.of(batch))
        columns = {name: column for name, column in mine.columns.items() if name in self.needed}
        coded = self._coded_field(batch)
        if coded is not None:
            columns[coded] = _coded(*mine.codes(self.share.fields), columns[coded].type)
        own = OwnRows(self.share.key, rows, tuple([columns.get(name) for name in batch.schema.names]))
        return self.looked_at_of(batch, own)

    def looked_at_of(self, batch: EventBatch, own: OwnRows | None = None) -> EventBatch:
        """The columns that are looked at in all rows."""
        pairs = zip(batch.schema.names, batch.columns, strict=True)
        columns = tuple(column if name in self.looked_at else None for name, column in pairs)
        return EventBatch(batch.schema, batch.block, batch.opcode, batch.flags, columns, own)

    def of_all(self, batch: EventBatch) -> list[OwnRows]:
        """The rows of every shard."""
        part, (fields, _, shards) = Part.of(batch), self.share.key
        codes, distinct = part.codes(fields)
        by_code = self.share.shards_of(distinct)
        by_row = by_code.astype(np.uint8 if shards <= _FEW_SHARDS else np.uint16)[codes]  # few bits are sorted fast
        order = np.argsort(by_row, kind="stable")
        ends = np.cumsum(np.bincount(by_row, minlength=shards)).tolist()
        index, coded = pa.array(order), self._coded_field(batch)
        taken = {name: plain(part.columns[name].take(index)) for name in self.needed if name != coded}
        words = pa.nulls(0) if coded is None else pa.array(distinct, batch.schema[coded].type.arrow)
        found = []
        for shard, (low, high) in enumerate(pairwise([0, *ends])):
            columns = {name: column.slice(low, high - low) for name, column in taken.items()}
            if coded is not None:
                used = by_code == shard
                places = (np.cumsum(used, dtype=np.int32) - np.int32(1))[codes[order[low:high]]]
                values = words.take(pa.array(np.flatnonzero(used)))
                columns[coded] = pa.DictionaryArray.from_arrays(pa.array(places), values)
            made = tuple([columns.get(name) for name in batch.schema.names])
            found.append(OwnRows((fields, shard, shards), order[low:high], made))
        return found

    def _coded_field(self, batch: EventBatch) -> str | None:
        """The one field of text that rows are divided by: its values are worth a dictionary, as groups are by it."""
        name = self.share.fields[0]
        is_text = len(self.share.fields) == 1 and batch.schema[name].type is FieldType.STRING
        return name if is_text and name in self.needed and not batch.column(name).null_count else None


def _coded(codes: Int64s, distinct: Sequence[Key], kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(distinct, kind))


def shard_of(key: Key, shards: int) -> int:
    """The shard of a key: a value, or the values of several fields."""
    digest = 0
    for value in key if isinstance(key, tuple) else (key,):
        digest = crc32(_bytes(value), digest)
    return digest % shards


def _bytes(value: object) -> bytes:
    """A value as bytes with an end, so that neighbours can't run together; equal numbers give equal bytes."""
    if isinstance(value, bytes):
        return value + b"\x00b"
    if isinstance(value, float):
        value += 0.0  # a group of 0.0 is the group of -0.0 as well
    return f"{value}\x00".encode() + type(value).__name__.encode()[:1]


ShardOutput = tuple[EventBatch, tuple[Int64s, Int64s]]
"""A shard's output of a window, with the place of each event below its block."""


def merge_shards(parts: Sequence[ShardOutput]) -> EventBatch:
    """By block, then by the causing event, then by the order below it."""
    if len(parts) == 1:
        return parts[0][0]
    whole = concat([batch for batch, _ in parts])
    index = np.concatenate([places[0] for _, places in parts])
    order = np.concatenate([places[1] for _, places in parts])
    return whole.take(np.lexsort((order, index, whole.block)))
