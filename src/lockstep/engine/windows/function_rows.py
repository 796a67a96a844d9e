"""Rows that a window makes, kept by their key so that opcodes can be resolved."""

from __future__ import annotations

import math
from collections.abc import Iterator, MutableMapping

from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import Value
from lockstep.engine.model.graph import Node
from lockstep.engine.windows.operator import Tree

Key = tuple[Value, ...]
_RESOLVED = {Flag(bits): Flag(bits & ~Flag.PARTIAL) or Flag.NORMAL for bits in range(8)}
_PARTIALS = frozenset(flags for flags in _RESOLVED if flags & Flag.PARTIAL)


class KeyGuard:
    """The keys of rows that only ever come: each may come once."""

    def __init__(self, node: Node) -> None:
        self._schema = node.schema
        self._known: dict[Key, None] | None = {} if node.is_indexed else None

    def refusal(self, row: Row) -> str | None:
        """Why a row can't be inserted; None if it can, and is."""
        key = key_of(self._schema, row)
        if None in key:
            return "null-key"
        if self._known is not None:
            if key in self._known:
                return "duplicate-key"
            self._known[key] = None
        return None

    def dump(self) -> Tree:
        """All keys."""
        return None if self._known is None else [kept(key) for key in self._known]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if self._known is not None:
            self._known = {same_nan(restored(key)): None for key in state}


class KeptRows:
    """The rows of a window by key; a window without an index keeps none, and passes opcodes on as they are."""

    def __init__(self, node: Node) -> None:
        self._schema = node.schema
        self.is_indexed = node.is_indexed
        self._rows: MutableMapping[Key, Row] = {}

    def get(self, key: Key) -> Row | None:
        """The row of a key."""
        return self._rows.get(key)

    def resolve(self, opcode: Opcode, flags: Flag, row: Row) -> list[Event] | str:
        """The events that an opcode comes down to, or the reason why it can't be."""
        key = key_of(self._schema, row)
        if None in key:
            return "null-key"
        if not self.is_indexed:
            return [Event(Opcode.UPDATE if opcode is Opcode.UPDATE_BLOCK else opcode, flags, row)]
        old = self._rows.get(key)
        if opcode in (Opcode.DELETE, Opcode.SAFEDELETE):
            return self._removed(key, old, flags, is_safe=opcode is Opcode.SAFEDELETE)
        if opcode is Opcode.INSERT and old is not None:
            return "duplicate-key"
        if opcode in (Opcode.UPDATE, Opcode.UPDATE_BLOCK) and old is None:
            return "unknown-key"
        return self._stored(key, old, flags, row)

    def _removed(self, key: Key, old: Row | None, flags: Flag, *, is_safe: bool) -> list[Event] | str:
        if old is None:
            return [] if is_safe else "unknown-key"
        del self._rows[key]
        return [Event(Opcode.DELETE, resolved(flags), old)]

    def _stored(self, key: Key, old: Row | None, flags: Flag, row: Row) -> list[Event]:
        if old is not None and flags in _PARTIALS:
            row = tuple([new if new is not None else before for new, before in zip(row, old, strict=True)])
        self._rows[key] = row
        if old is None:
            return [Event(Opcode.INSERT, resolved(flags), row)]
        return [Event(Opcode.UPDATE_BLOCK, resolved(flags), row), Event(Opcode.DELETE, resolved(flags), old)]

    def rows(self) -> Iterator[Row]:
        """All rows."""
        return iter(self._rows.values())

    def dump(self) -> Tree:
        """All rows."""
        return [kept(row) for row in self._rows.values()]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        rows = [restored(row) for row in state]
        self._rows = {key_of(self._schema, row): row for row in rows}


def key_of(schema: Schema, row: Row) -> Key:
    """The key in a row; all NaN are one key."""
    return same_nan(schema.key_of(row))


def same_nan(key: Key) -> Key:
    """A key in which every NaN is the same object: a dict finds it again only then."""
    return tuple([math.nan if isinstance(value, float) and math.isnan(value) else value for value in key])


def resolved(flags: Flag) -> Flag:
    """The flags of an event whose opcode is resolved: it is whole now."""
    return _RESOLVED[flags]


def kept(values: Row) -> list[Tree]:
    """Values to be kept."""
    return [list(value) if isinstance(value, tuple) else value for value in values]


def restored(values: list[Value]) -> Row:
    """A row as it was kept: an array comes back as a list."""
    return tuple([tuple(value) if isinstance(value, list) else value for value in values])
