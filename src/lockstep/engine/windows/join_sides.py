"""The two sides of a join: rows by key, and by the values of the condition's fields."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import Value
from lockstep.engine.windows.index import Key, key_getter, row_tree, same_nan, tree_row
from lockstep.engine.windows.operator import Tree

Match = tuple[Value, ...]
"""The values of the condition's fields."""


class Side:
    """Rows in the order in which they came; an update comes in at the end. A null in the condition matches nothing."""

    def __init__(self, schema: Schema, fields: Sequence[str], *, is_kept: bool = True) -> None:
        self.is_kept = is_kept
        self.key_of = key_getter(schema)
        self._keys = schema.keys
        self._fields = [schema.places[name] for name in fields]
        self.rows: dict[Key, Row] = {}
        self._by_match: dict[Match, OrderedDict[Key, Row]] = {}

    def keys_of(self, row: Row) -> tuple[Value, ...]:
        """The values of the key fields."""
        return tuple([same_nan(row[place]) for place in self._keys])

    def match_of(self, row: Row) -> Match | None:
        """What the other side must have, too; None if one of the fields is null."""
        match = tuple([same_nan(row[place]) for place in self._fields])
        return None if None in match else match

    def matching(self, match: Match | None) -> list[Row]:
        """The rows with these values, in order."""
        found = None if match is None else self._by_match.get(match)
        return list(found.values()) if found else []

    def put(self, row: Row) -> None:
        """Add a row whose key is not there; a side without an index keeps none."""
        if not self.is_kept:
            return
        key, match = self.key_of(row), self.match_of(row)
        self.rows[key] = row
        if match is not None:
            self._by_match.setdefault(match, OrderedDict())[key] = row

    def drop(self, key: Key) -> Row | None:
        """Take a row out; None if it is not there."""
        row = self.rows.pop(key, None)
        match = None if row is None else self.match_of(row)
        if match is not None:
            found = self._by_match[match]
            del found[key]
            if not found:
                del self._by_match[match]
        return row

    def dump(self) -> Tree:
        """The rows in order."""
        return [row_tree(row) for row in self.rows.values()]

    def load(self, state: Tree) -> None:
        """Go on from dumped rows."""
        self.rows, self._by_match = {}, {}
        for row in state:
            self.put(tree_row(row))
