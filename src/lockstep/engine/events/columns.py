"""Events of many blocks as columns: what the fast path works on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


OwnKey = tuple[tuple[str, ...], int, int]
"""By which fields rows are divided, the number of a shard, and how many there are."""


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The rows of one shard, with columns that a batch does not have for all of its rows."""

    key: OwnKey
    rows: Int64s
    """Which rows of the batch they are, in order."""
    columns: tuple[pa.Array | None, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def slice(self, start: int, stop: int) -> OwnRows:
        """Those among rows start up to stop of the batch, sharing memory."""
        low, high = np.searchsorted(self.rows, [start, stop]).tolist()
        columns = tuple(None if column is None else column.slice(low, high - low) for column in self.columns)
        return OwnRows(self.key, self.rows[low:high] - start, columns)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in order, with the number of the block each belongs to; a column that is not needed is None."""

    schema: Schema
    block: Int64s
    opcode: Bytes
    flags: Bytes
    columns: tuple[pa.Array | None, ...]
    own: OwnRows | None = None
    """In a batch for one shard of several: the rows of that shard, of the others only some columns are there."""
    found: dict[str, Any] = field(init=False, default_factory=dict, repr=False, compare=False)
    """What others worked out from it, by names of their own."""
    whole: list[tuple[EventBatch, int]] = field(init=False, default_factory=list, repr=False, compare=False)
    """The batch that it is a slice of, and where it begins there; empty if it is none."""

    def __len__(self) -> int:
        return len(self.block)

    @classmethod
    def empty(cls, schema: Schema) -> EventBatch:
        """No events."""
        return cls.of(schema, [])

    @classmethod
    def of(cls, schema: Schema, blocks: Iterable[tuple[int, Sequence[Event]]]) -> EventBatch:
        """The events of numbered blocks."""
        numbers: list[int] = []
        events: list[Event] = []
        for number, block in blocks:
            events.extend(block)
            numbers.extend([number] * len(block))
        columns = zip(*(event.values for event in events), strict=True) if events else ([] for _ in schema)
        return cls(
            schema,
            np.array(numbers, np.int64),
            np.array([event.opcode for event in events], np.uint8),
            np.array([event.flags for event in events], np.uint8),
            tuple(pa.array(column, field.type.arrow) for column, field in zip(columns, schema, strict=True)),
        )

    def column(self, name: str) -> pa.Array:
        """A column by name."""
        found = self.columns[self.schema.places[name]]
        assert found is not None, f"column {name} was pruned, yet somebody needs it"
        return found

    def take(self, rows: npt.NDArray[np.intp]) -> EventBatch:
        """Some of the events, in the order of `rows`."""
        index = pa.array(rows)
        columns = tuple(None if column is None else column.take(index) for column in self.columns)
        return EventBatch(self.schema, self.block[rows], self.opcode[rows], self.flags[rows], columns)

    def slice(self, start: int, stop: int) -> EventBatch:
        """Events start up to stop, sharing memory."""
        columns = tuple(None if column is None else column.slice(start, stop - start) for column in self.columns)
        own = None if self.own is None else self.own.slice(start, stop)
        made = EventBatch(
            self.schema, self.block[start:stop], self.opcode[start:stop], self.flags[start:stop], columns, own
        )
        made.whole.append((self, start))
        return made

    def events(self) -> list[Event]:
        """The events one by one; none of the columns may have been pruned."""
        columns = [_values(column) for column in self.columns]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(self))
        opcodes, flags = [Opcode(code) for code in self.opcode.tolist()], [Flag(bits) for bits in self.flags.tolist()]
        return [Event(opcode, flag, row) for opcode, flag, row in zip(opcodes, flags, rows, strict=True)]

    def blocks(self) -> list[tuple[int, list[Event]]]:
        """The events by block, blocks without events left out."""
        events = self.events()
        starts = np.flatnonzero(np.r_[True, self.block[1:] != self.block[:-1]]) if len(self) else np.array([], int)
        ends = [*starts[1:].tolist(), len(self)]
        return [(int(self.block[start]), events[start:end]) for start, end in zip(starts.tolist(), ends, strict=False)]


def concat(batches: Sequence[EventBatch]) -> EventBatch:
    """Batches of one schema after each other; a column pruned in one is pruned in the result."""
    if len(batches) == 1:
        return batches[0]
    return EventBatch(
        batches[0].schema,
        np.concatenate([batch.block for batch in batches]),
        np.concatenate([batch.opcode for batch in batches]),
        np.concatenate([batch.flags for batch in batches]),
        _joined([batch.columns for batch in batches]),
        _joined_own(batches),
    )


def _joined(tables: Sequence[tuple[pa.Array | None, ...]]) -> tuple[pa.Array | None, ...]:
    return tuple(None if any(part is None for part in parts) else _concat(parts) for parts in zip(*tables, strict=True))


def _concat(parts: Sequence[pa.Array]) -> pa.Array:
    """Columns after each other; those whose values stand in dictionaries get one for all."""
    coded = [isinstance(part, pa.DictionaryArray) for part in parts]
    if all(coded):
        return pa.chunked_array(parts).unify_dictionaries().combine_chunks()
    if any(coded):
        parts = [part.dictionary_decode() if isinstance(part, pa.DictionaryArray) else part for part in parts]
    return pa.concat_arrays(parts)


def _joined_own(batches: Sequence[EventBatch]) -> OwnRows | None:
    owns = [batch.own for batch in batches if batch.own is not None]
    if not owns:
        return None
    assert len(owns) == len(batches), "all are for one shard, or none is"
    starts = np.cumsum([0, *map(len, batches[:-1])])
    rows = np.concatenate([own.rows + start for own, start in zip(owns, starts.tolist(), strict=True)])
    return OwnRows(owns[0].key, rows, _joined([own.columns for own in owns]))


def merge(batches: Sequence[EventBatch]) -> EventBatch:
    """Batches of one schema by block; within a block in the order given: how a window sees several parents."""
    if len(batches) == 1:
        return batches[0]
    joined = concat(batches)
    return joined.take(np.argsort(joined.block, kind="stable"))


def _values(column: pa.Array | None) -> list[object]:
    assert column is not None, "a pruned column has no values"
    values = column.to_pylist()
    return [None if item is None else tuple(item) for item in values] if pa.types.is_list(column.type) else values


def shaped(batch: EventBatch, *, collapse: bool = False, no_retention_deletes: bool = False) -> EventBatch:
    """The events of whole blocks, in the form that the options ask for.

    With `collapse` an update is one event U instead of UB and D. `no_retention_deletes` leaves out deletes that
    retention caused, but not the old half of an update.
    """
    is_new = batch.opcode == Opcode.UPDATE_BLOCK
    is_old = np.zeros(len(batch), bool)
    is_old[1:] = is_new[:-1]
    drop = np.zeros(len(batch), bool)
    opcode = batch.opcode
    if no_retention_deletes:
        drop |= (opcode == Opcode.DELETE) & ((batch.flags & Flag.RETENTION) != 0) & ~is_old
    if collapse:
        drop |= is_old
        opcode = np.where(is_new, np.uint8(Opcode.UPDATE), opcode)
    changed = EventBatch(batch.schema, batch.block, opcode, batch.flags, batch.columns)
    return changed.take(np.flatnonzero(~drop)) if drop.any() else changed
