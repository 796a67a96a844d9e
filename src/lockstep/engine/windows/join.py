"""Join windows: rows of two windows put together where the condition's fields are equal.

As a rule one side is the fact side: its key is the key of the join, and each of its rows meets at most one row of the
other, the dimension, whose whole key is in the condition.

left outer     every left row, with the right row or nulls       a change of a dimension row alone says nothing
right outer    every right row, with the left row or nulls       a change of a dimension row makes the rows of the facts
inner          facts that have a dimension row                   that meet it anew, in the order in which they came,
full outer     every row of both sides, which are both           unless the model says no-regenerates
               dimensions, under the key that they share

An inner join whose condition has the whole key of neither side has two facts: each pair that fits is a row under the
keys of both. A change of either row makes its pairs anew: first those that it had, then new ones, each in the order in
which the rows of the other side came.

A join without an index (pi_EMPTY) and with no-regenerates takes inserts of facts again and again under the same key, as
streams of readings have them: each is joined and given out as an insert.

A side with the index pi_EMPTY keeps no rows: its events meet what the other side has, and nothing is made anew of them.
"""

from __future__ import annotations

from typing import cast

from lockstep.engine.events.event import Event, Flag, Row
from lockstep.engine.expressions.compiler import Environment
from lockstep.engine.model.graph import Node
from lockstep.engine.model.schemas import fact_sides, meets_many
from lockstep.engine.model.windows import JoinWindow
from lockstep.engine.windows.index import (
    DELETE,
    INSERT,
    UPDATE_BLOCK,
    Key,
    add_change,
    key_tree,
    row_tree,
    same_nan,
    tree_key,
    tree_row,
)
from lockstep.engine.windows.join_rows import RowMaker
from lockstep.engine.windows.join_sides import Match, Side
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.results import look
from lockstep.engine.windows.source import details


class JoinOperator(Operator):
    """Keeps both sides, and what it gave out, so that the old half of an update is always what was said before."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(JoinWindow, node.window)
        self._fact = fact_sides(window, *node.inputs)[0]
        self._type = window.type
        self._meets_many = meets_many(window, *node.inputs)
        self._regenerates = not window.no_regenerates
        self._takes_again = window.no_regenerates and not node.is_indexed and window.type != "fullouter"
        self._sides = [
            Side(schema, [pair[place] for pair in window.conditions], is_kept=index != "pi_EMPTY")
            for place, (schema, index) in enumerate(
                zip(node.inputs, (window.left_index, window.right_index), strict=True)
            )
        ]
        self._maker = RowMaker(node)
        self._given: dict[Key, Row] = {}
        self._environment = Environment(variables=[])

    def on_change(
        self,
        port: int,
        event: Event,
        old: Row | None,
        moment: Moment,
        out: list[Event],
    ) -> None:
        """Take one change of one side."""
        if event.opcode not in (INSERT, DELETE, UPDATE_BLOCK):
            detail = f"{event.opcode.name.lower()} is not resolved: the parent has no index"
            self.refuse(event, "bad-opcode", detail, moment)
            return
        side = self._sides[port]
        key = side.key_of(event.values)
        is_known = (key in side.rows) == (event.opcode is INSERT)
        if is_known and event.opcode is INSERT and self._takes_again and port == self._fact:
            side.drop(key)  # readings that come again under their key: each is an insert of its own
            self._given.pop(key, None)
        elif side.is_kept and is_known and event.opcode is not UPDATE_BLOCK:
            reason = "duplicate-key" if event.opcode is INSERT else "unknown-key"
            self.refuse(event, reason, details(reason), moment)
            return
        if not self._maker.is_pure:
            look(self._environment, event, moment)
        before = side.drop(key)
        if not side.is_kept and event.opcode is not INSERT:
            before = event.values if event.opcode is DELETE else old
        after = None if event.opcode is DELETE else event.values
        if after is not None:
            side.put(after)
        telling = _Telling(event, moment, out)
        if self._meets_many:
            self._on_pairs(port, after, before, telling)
            return
        change = self._on_fact if port == self._fact else self._on_dimension
        change(after, before, telling)

    def _on_pairs(self, port: int, after: Row | None, before: Row | None, telling: _Telling) -> None:
        """A row of either side, and all rows of the other that it met or meets."""
        side, others = self._sides[port], self._sides[1 - port]
        met, meets = (
            {others.keys_of(other): other for other in others.matching(None if row is None else side.match_of(row))}
            for row in (before, after)
        )
        own = side.keys_of(cast(Row, before if after is None else after))
        for key in met | meets:
            slot = own + key if port == 0 else key + own
            row, other = (after, meets[key]) if key in meets else (None, None)
            left, right = (row, other) if port == 0 else (other, row)
            self._settle(slot, left, right, telling)

    def _on_fact(self, after: Row | None, before: Row | None, telling: _Telling) -> None:
        if not self._sides[self._fact].is_kept:
            add_change(self._met(after, telling), self._met(before, telling), telling.flags, telling.out)
            return
        slots = dict.fromkeys(self._slot(row, self._fact) for row in (before, after) if row is not None)
        for slot in slots:
            row = after if after is not None and self._slot(after, self._fact) == slot else None
            some = row if row is not None else before
            match = None if some is None else self._sides[self._fact].match_of(some)
            self._settle(slot, row, self._dimension(match), telling)

    def _met(self, fact: Row | None, telling: _Telling) -> Row | None:
        """What a fact makes with the dimension as it is now."""
        if fact is None:
            return None
        return self._joined(fact, self._dimension(self._sides[self._fact].match_of(fact)), telling)

    def _on_dimension(self, after: Row | None, before: Row | None, telling: _Telling) -> None:
        side, facts = self._sides[1 - self._fact], self._sides[self._fact]
        for row in _distinct(before, after, side):
            match = side.match_of(row)
            met = facts.matching(match)
            is_looked_up = match is not None and side.is_kept
            dimension = self._dimension(match) if is_looked_up else (row if row is after else None)
            for fact in met if self._regenerates else ():
                self._settle(self._slot(fact, self._fact), fact, dimension, telling)
            if not met and self._type == "fullouter":
                self._settle(self._slot(row, 1 - self._fact), None, dimension, telling)

    def _dimension(self, match: Match | None) -> Row | None:
        """The row of the dimension that facts with these values meet."""
        return next(iter(self._sides[1 - self._fact].matching(match)), None)

    def _slot(self, row: Row, side: int) -> Key:
        """Where a row's output is remembered: by the fact's key; by what both sides share in a full outer join."""
        if self._type != "fullouter":
            return cast(Key, self._sides[side].key_of(row))
        match = self._sides[side].match_of(row)
        if match is not None:
            return ("both", *match)
        return ("lr"[side], *[row[place] for place in self.node.inputs[side].keys])

    def _settle(self, slot: Key, fact: Row | None, dimension: Row | None, telling: _Telling) -> None:
        """Say what became of the output of a slot."""
        old = self._given.pop(slot, None)
        new = self._joined(fact, dimension, telling)
        if new is not None:
            self._given[slot] = new
        add_change(new, old, telling.flags, telling.out)

    def _joined(self, fact: Row | None, dimension: Row | None, telling: _Telling) -> Row | None:
        is_full = self._type == "fullouter"
        if fact is None and (dimension is None or not is_full):
            return None
        if dimension is None and self._type == "inner":
            return None
        left, right = (fact, dimension) if self._fact == 0 else (dimension, fact)

        def overflow(detail: str) -> None:
            self.refuse(telling.event, "overflow", detail, telling.moment)

        return self._maker.row(left, right, self._environment, overflow)

    def dump(self) -> Tree:
        """Both sides, and what was given out."""
        given = [[key_tree(slot), row_tree(row)] for slot, row in self._given.items()]
        return {"sides": [side.dump() for side in self._sides], "given": given}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        for side, rows in zip(self._sides, state["sides"], strict=True):
            side.load(rows)
        self._given = {_flat(tree_key(slot)): tree_row(row) for slot, row in state["given"]}


class _Telling:
    """The event that causes something, and where to say it."""

    __slots__ = ("event", "flags", "moment", "out")

    def __init__(self, event: Event, moment: Moment, out: list[Event]) -> None:
        self.event = event
        self.flags: Flag = event.flags
        self.moment = moment
        self.out = out


def _flat(slot: Key) -> Key:
    """A slot whose doubles stand as they are: in states of earlier versions of a full join each is a tuple of one."""
    if not isinstance(slot, tuple) or slot[:1] != ("both",):
        return slot
    return tuple([same_nan(each[0]) if _is_double(each) else each for each in slot])


def _is_double(value: Key) -> bool:
    return isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], float)


def _distinct(before: Row | None, after: Row | None, side: Side) -> list[Row]:
    """The rows of a change whose matches are to be looked at: one if the condition's fields stayed the same."""
    rows = [row for row in (before, after) if row is not None]
    same = len(rows) == 2 and side.match_of(rows[0]) == side.match_of(rows[1])
    return rows[1:] if same else rows
