"""The rows that a window holds, folded from what came out of it."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import Schema

_PUTS = (Opcode.INSERT, Opcode.UPDATE_BLOCK, Opcode.UPDATE, Opcode.UPSERT)


class HeldRows:
    """The rows by key, in the order in which their keys came."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._rows: dict[Row, Row] = {}

    def take(self, block: EventBatch) -> None:
        """Apply a whole block."""
        self.apply(block.events())

    def apply(self, events: Iterable[Event]) -> None:
        """Apply events in order; the delete behind an update block is its old half."""
        is_old = False
        for event in events:
            key = self._schema.key_of(event.values)
            if event.opcode in _PUTS:
                self._rows[key] = event.values
            elif not is_old:
                self._rows.pop(key, None)
            is_old = event.opcode is Opcode.UPDATE_BLOCK

    def batch(self, number: int) -> EventBatch:
        """All rows as inserts of one block."""
        events = [Event(Opcode.INSERT, Flag.NORMAL, row) for row in self._rows.values()]
        return EventBatch.of(self._schema, [(number, events)])
