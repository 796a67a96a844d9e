"""The rows that a window holds, folded from what came out of it, by whole columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema

_WAITING_MIN = 1 << 18
"""Events that wait before they are folded; more if more rows are held, so that each is looked at a few times."""


class HeldColumns:
    """Takes whole blocks; then has the last row of each key that was not deleted, in the order of these changes."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._held = EventBatch.empty(schema), np.array([], np.int64)
        self._waiting: list[tuple[EventBatch, Int64s]] = []
        self._later: list[pa.Table] | None = None
        self._events = 0

    def take(self, batch: EventBatch, times_ns: Int64s) -> None:
        """Apply whole blocks; `times_ns` says for each event when the bus took it."""
        self._waiting.append((batch, times_ns))
        self._events += len(batch)
        if self._events >= max(_WAITING_MIN, len(self._held[0])):
            self._fold()

    def drop(self, later: EventBatch) -> None:
        """Let go of the rows whose keys are in what comes after all blocks that were taken: another task has them."""
        if self._later is None:
            self._fold()
            self._later = []
        self._later.append(_keys_of(later))
        self._events += len(later)
        if self._events >= max(_WAITING_MIN, len(self._held[0])):
            self._drop()

    def rows(self) -> tuple[EventBatch, Int64s]:
        """The rows as normal inserts, each with the block and the time of its last change."""
        self._fold()
        self._drop()
        return self._held

    def _drop(self) -> None:
        later, self._later, self._events = self._later, [], 0
        batch, times = self._held
        if not later or not len(batch):
            return
        last = _last_of_each(pa.concat_tables([_keys_of(batch), *later]))
        kept = last[last < len(batch)]
        self._held = batch.take(kept), times[kept]

    def _fold(self) -> None:
        parts, self._waiting, self._events = [self._held, *self._waiting], [], 0
        batch = concat([part for part, _ in parts])
        times = np.concatenate([part for _, part in parts])
        if len(batch):
            rows = np.flatnonzero(~_old_halves(batch))
            last = rows[_last_of_each(_keys_of(batch.take(rows)))]
            kept = last[batch.opcode[last] != Opcode.DELETE]
            self._held = _as_inserts(batch.take(kept)), times[kept]


def _as_inserts(batch: EventBatch) -> EventBatch:
    """What is held is no longer a change: the delete of a later block is not the old half of an update in it."""
    size = len(batch)
    return replace(batch, opcode=np.full(size, Opcode.INSERT, np.uint8), flags=np.full(size, Flag.NORMAL, np.uint8))


def _old_halves(batch: EventBatch) -> npt.NDArray[np.bool_]:
    """Which events are the old half of an update: the delete directly after the new row."""
    is_old = np.zeros(len(batch), bool)
    is_old[1:] = (batch.opcode[:-1] == Opcode.UPDATE_BLOCK) & (batch.opcode[1:] == Opcode.DELETE)
    return is_old


def _keys_of(batch: EventBatch) -> pa.Table:
    names = [batch.schema.names[place] for place in batch.schema.keys]
    return pa.table({name: _groupable(batch.column(name)) for name in names})


def _last_of_each(keys: pa.Table) -> npt.NDArray[np.intp]:
    """The place of the last one of each key, in rising order."""
    numbered = keys.append_column("", pa.array(np.arange(len(keys))))
    found = numbered.group_by(keys.column_names).aggregate([("", "max")]).column("_max").to_numpy()
    return np.sort(found)


def _groupable(column: pa.Array) -> pa.Array:
    """A column whose equal values are the same to Arrow: a key may be -0.0 or 0.0, or a list."""
    if pa.types.is_floating(column.type):
        return pc.add(column, 0.0)
    if pa.types.is_list(column.type):
        return pa.array([None if item is None else repr(item) for item in column.to_pylist()], pa.string())
    return column
