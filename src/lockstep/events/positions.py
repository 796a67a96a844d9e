"""Where a subscriber is on an out stream, and the rows that a window holds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.engine.errors import PositionForeign
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import Schema
from lockstep.errors import BadArgument
from lockstep.log.port import Log


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """Everything up to block `last` was handed out; reading goes on at `offset` of that very stream.

    Blocks are handed out whole, so a position never lies within one.
    """

    stream: str
    identity: str
    """The identity of the stream, which changes when it is deleted and created again."""
    offset: int
    last: int | None
    """None before the first block, which is accepted whatever its number."""
    digest: str = ""
    """The digest of the sequence that block `last` was computed from; empty if the stream does not state it."""
    record: int | None = None
    """Where block `last` ends on the stream; None if that is not known."""

    def dumps(self) -> str:
        """As text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str | bytes) -> Position:
        """Back from text."""
        try:
            return cls.of(json.loads(text))
        except ValueError as fault:
            raise BadArgument(name="position", value=text, reason="it is not JSON") from fault

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Position:
        """Back from plain values."""
        kinds: dict[str, Any] = {"stream": str, "identity": str, "offset": int, "last": (int, type(None))}
        if not isinstance(tree, Mapping) or any(not isinstance(tree.get(name), kind) for name, kind in kinds.items()):
            raise BadArgument(name="position", value=tree, reason="it must have stream, identity, offset and last")
        digest = tree.get("digest", "")
        if not isinstance(digest, str):
            raise BadArgument(name="position", value=tree, reason="its digest must be text")
        record = tree.get("record")
        if not isinstance(record, int | None):
            raise BadArgument(name="position", value=tree, reason="its record must be an offset")
        return cls(**{name: tree[name] for name in kinds}, digest=digest, record=record)

    def check(self, log: Log) -> None:
        """Refuse a position of another stream."""
        if (self.stream, self.identity) != (log.name, log.identity):
            found, wanted = f"{self.stream} ({self.identity[:12]})", f"{log.name} ({log.identity[:12]})"
            raise PositionForeign(found=found, wanted=wanted)


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
        """Apply events in order; the delete after an update block is its old half."""
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
