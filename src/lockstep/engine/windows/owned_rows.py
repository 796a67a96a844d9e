"""Rows that are made of the rows of an input, under keys of their own: what becomes of them as the input changes."""

from __future__ import annotations

from typing import Any

from lockstep.engine.events.event import Event, Row
from lockstep.engine.events.schema import Schema
from lockstep.engine.windows.index import (
    DELETE,
    INSERT,
    SAFEDELETE,
    UPDATE,
    Index,
    Key,
    key_getter,
    key_tree,
    tree_key,
)
from lockstep.engine.windows.operator import Tree


class OwnedRows:
    """The rows by their keys, and which row of the input has which.

    A row whose key changes leaves, and comes again under the other one. A key that is taken is not given twice.
    """

    def __init__(self, schema: Schema, parent: Schema) -> None:
        self._index = Index(schema)
        self._owner_of = key_getter(parent)
        self._made: dict[Key, Key] = {}

    def change(self, event: Event, row: Row | None, out: list[Event]) -> str | None:
        """An event of the input, and what is made of its row; the reason is given back if that can't be taken."""
        owner: Key = self._owner_of(event.values)
        before = self._made.get(owner)
        if event.opcode is DELETE or event.opcode is SAFEDELETE or row is None:
            if before is not None:  # else it was not taken when it came, and that was told
                self._take_away(owner, before, event, out)
            return None
        if before is not None and event.opcode is INSERT:
            return "duplicate-key"
        if before is None and event.opcode is UPDATE:
            return "unknown-key"
        key = self._index.key_of(row)
        if before == key and before is not None:
            return self._index.take(Event(UPDATE, event.flags, row), out)
        if before is not None:
            self._take_away(owner, before, event, out)
        reason = self._index.take(Event(INSERT, event.flags, row), out)
        if reason is None:
            self._made[owner] = key
        return reason

    def _take_away(self, owner: Key, key: Key, event: Event, out: list[Event]) -> None:
        del self._made[owner]
        self._index.take(Event(DELETE, event.flags, self._index.rows[key]), out)

    def dump(self) -> Tree:
        """The rows, and whose they are."""
        made: list[Any] = [[key_tree(owner), key_tree(key)] for owner, key in self._made.items()]
        return {"index": self._index.dump(), "made": made}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._index.load(state["index"])
        self._made = {tree_key(owner): tree_key(key) for owner, key in state["made"]}
