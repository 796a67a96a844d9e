"""Rows by key: how opcodes become inserts, deletes and update pairs; and rows made of an input's rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import isnan, nan
from operator import itemgetter
from typing import Any, cast

from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import FieldType, Schema, Value
from lockstep.engine.reference.operator import Tree
from lockstep.engine.reference.retention import Policy

INSERT, UPDATE, UPSERT = Opcode.INSERT, Opcode.UPDATE, Opcode.UPSERT
DELETE, SAFEDELETE, UPDATE_BLOCK = Opcode.DELETE, Opcode.SAFEDELETE, Opcode.UPDATE_BLOCK
NORMAL, PARTIAL, RETENTION = Flag.NORMAL, Flag.PARTIAL, Flag.RETENTION

Key = Hashable
"""The value of a single key field, or the tuple of several."""

RESOLVED = {Flag(bits): Flag(bits & ~PARTIAL or NORMAL) for bits in range(8)}
"""The flags of what leaves an index: once resolved, nothing is partial any more."""
PARTIALS = frozenset(flags for flags in RESOLVED if flags & PARTIAL)
"""The flags of incomplete events."""


def key_getter(schema: Schema, places: Sequence[int] | None = None) -> Callable[[Row], Any]:
    """What takes a key out of a row: the schema's, or the fields at `places`. All NaN are one key."""
    places = schema.keys if places is None else places
    if not places:
        return lambda _: ()
    if not any(schema.fields[place].type is FieldType.DOUBLE for place in places):
        return itemgetter(*places)
    return lambda row: tuple([same_nan(row[place]) for place in places])


def same_nan(value: Value) -> Value:
    """The value; all NaN are one object."""
    # A dict finds a NaN again only if it is the same object.
    return nan if isinstance(value, float) and isnan(value) else value


def row_tree(row: Row) -> list[Tree]:
    """A row to be kept."""
    return [list(value) if type(value) is tuple else value for value in row]


def tree_row(tree: Sequence[Tree]) -> Row:
    """A kept row; arrays are tuples again."""
    return tuple([tuple(value) if type(value) is list else value for value in tree])


def key_tree(key: Key) -> Tree:
    """A key to be kept."""
    return [row_tree(key)] if isinstance(key, tuple) else key


def tree_key(tree: Tree) -> Key:
    """A kept key."""
    if isinstance(tree, list):
        return tuple([same_nan(value) for value in tree_row(tree[0])])
    return cast(Key, tree)


def completed(values: Row, old: Row) -> Row:
    """A partial row: what is null in it is taken from the old one."""
    return tuple([before if value is None else value for value, before in zip(values, old, strict=True)])


def add_update(new: Row, old: Row, flags: Flag, out: list[Event]) -> None:
    """The pair that an update is: the new row, directly followed by the old one."""
    out.append(Event(UPDATE_BLOCK, flags, new))
    out.append(Event(DELETE, flags, old))


def add_change(new: Row | None, old: Row | None, flags: Flag, out: list[Event]) -> None:
    """What became of a row that was `old` (None: not there) and is `new` (None: not there any more)."""
    if new is not None and old is not None:
        add_update(new, old, flags, out)
    elif new is not None:
        out.append(Event(INSERT, flags, new))
    elif old is not None:
        out.append(Event(DELETE, flags, old))


class Index:
    """The rows of a window by key, with the policy that decides how long they stay."""

    __slots__ = ("key_of", "policy", "rows")

    def __init__(self, schema: Schema, policy: Policy | None = None) -> None:
        self.key_of = key_getter(schema)
        self.policy = policy
        self.rows: dict[Key, Row] = {}

    def take(self, event: Event, out: list[Event], *, forgiving: bool = False) -> str | None:
        """Apply an event; what it changes is added to `out`, then the rows that retention lets go because of it.

        The reason is given back if the event can't be taken; then nothing has changed. `forgiving` is for rows that
        retention may have taken away from under the event: an update brings such a row back as an insert, and a delete
        of it is nothing.
        """
        opcode, flags, values = event
        key = self.key_of(values)
        rows, policy = self.rows, self.policy
        old = rows.get(key)
        if opcode is INSERT:
            if old is not None:
                return "duplicate-key"
            rows[key] = values
            out.append(event if flags is NORMAL else Event(INSERT, RESOLVED[flags], values))
        elif opcode is DELETE or opcode is SAFEDELETE:
            if old is not None:
                self._remove(key)
                out.append(Event(DELETE, RESOLVED[flags], old))
            elif opcode is DELETE and not forgiving:
                return "unknown-key"
            key = None
        elif old is not None:
            rows[key] = new = completed(values, old) if flags in PARTIALS else values
            add_update(new, old, RESOLVED[flags], out)
        elif opcode is UPDATE and not forgiving:
            return "unknown-key"
        else:
            rows[key] = values
            out.append(Event(INSERT, RESOLVED[flags], values))
        if policy is not None:
            leaving = policy.taken(key, values)
            if leaving:
                self._let_go(leaving, out)
        return None

    def _remove(self, key: Key) -> None:
        del self.rows[key]
        if self.policy is not None:
            self.policy.forget(key)

    def tick(self, clock_us: int, out: list[Event]) -> None:
        """The model's clock moved."""
        if self.policy is not None:
            self._let_go(self.policy.ticked(clock_us), out)

    def _let_go(self, keys: Iterable[Key], out: list[Event]) -> None:
        out.extend([Event(DELETE, RETENTION, self.rows.pop(key)) for key in keys])

    def dump(self) -> Tree:
        """The rows, oldest first, with their ages if something depends on them."""
        if self.policy is None:
            return {"rows": [row_tree(row) for row in self.rows.values()]}
        ages = self.policy.ages
        return {
            "rows": [row_tree(self.rows[key]) for key in ages],
            "ages": list(ages.values()),
            "policy": self.policy.dump(),
        }

    def load(self, state: Tree) -> None:
        """Go on from dumped rows."""
        rows = [tree_row(tree) for tree in state["rows"]]
        self.rows = {self.key_of(row): row for row in rows}
        if self.policy is not None:
            self.policy.load(state["policy"], zip(self.rows, state["ages"], strict=True))


class Trial:
    """What a transactional block would meet, event by event, without changing a row.

    Rows are looked up as they were before the block, with the block's own changes; retention acts when it is taken.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._changed: dict[Key, bool] = {}

    def fault(self, event: Event) -> str | None:
        """Why the event can't be taken, if it can't."""
        key = self._index.key_of(event.values)
        is_there = self._changed.get(key, key in self._index.rows)
        if event.opcode is INSERT and is_there:
            return "duplicate-key"
        if event.opcode in (UPDATE, DELETE) and not is_there:
            return "unknown-key"
        self._changed[key] = event.opcode not in (DELETE, SAFEDELETE)
        return None


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
            if before is not None:  # else it was refused when it came, and reported then
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
