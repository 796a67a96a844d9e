"""Joins on columns: keys and matches become small numbers, one compiled loop goes over both sides' events.

Of a kept side its rows are state, and nothing else: what was given out for a fact follows from its row and from that of
the dimension. So this is for joins that make it anew when a dimension row changes, and for facts that never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.columns import pages
from lockstep.engine.columns.flow import Flow, Mask, Part, frozen
from lockstep.engine.columns.join_loops import FULL, INNER, OUTER, join, link_all
from lockstep.engine.columns.keys import NONE, KeyedRows, KeyNumbers, check_names, grown, unused
from lockstep.engine.columns.runner import ColumnOperator, Moments, Pages, Yield
from lockstep.engine.columns.traits import Traits, needs_facts
from lockstep.engine.columns.union import Rows, counted, event_rows, in_order, report_faults
from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.columns import Int64s
from lockstep.engine.events.schema import Schema
from lockstep.engine.language.compiler import Expression, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.schemas import fact_sides, join_fields, join_names
from lockstep.engine.model.windows import JoinWindow
from lockstep.engine.reference.index import tree_row

SIDES = ("left", "right")
"""The names of the sides, and of their pages."""
_LINES = 1 << 12
"""The least room for lines of output."""
_KINDS = {"inner": INNER, "fullouter": FULL}


class Side(KeyedRows):
    """One side: its rows by key, if they are kept, and for each key its match and its neighbours there."""

    def __init__(self, node: Node, port: int, names: Sequence[str], *, is_kept: bool, is_counted: bool) -> None:
        schema, window = node.inputs[port], cast(JoinWindow, node.window)
        keys = tuple(schema.names[place] for place in schema.keys)
        self.condition = tuple(pair[port] for pair in window.conditions)
        self.names = [name for name in schema.names if name in {*names, *keys, *self.condition}]
        self.schema, self.is_kept = schema, is_kept
        types = {name: schema[name].type.arrow for name in self.names}
        super().__init__(types, keys, SIDES[port], node.path, is_counted=is_counted)
        self.match = self.behind = self.before = np.full(0, NONE, np.int64)

    def grow(self) -> None:
        """Room for all keys."""
        super().grow()
        size = self.numbers.size
        self.match, self.behind, self.before = (grown(each, size) for each in (self.match, self.behind, self.before))


class JoinColumns(ColumnOperator):
    """A join of a fact side and a dimension side. `facts` is what can be said about the events of the first."""

    loads_rows = True

    def __init__(self, node: Node, facts: Traits) -> None:
        super().__init__(node)
        window = cast(JoinWindow, node.window)
        self._fact = fact_sides(window, *node.inputs)[0]
        self._kind = _KINDS.get(window.type, OUTER)
        self._steps = _Steps(node)
        self._sides = [
            Side(node, port, self._steps.fields[port], is_kept=port != self._fact or needs_facts(node),
                 is_counted=facts.is_unique and port == self._fact)
            for port in (0, 1)
        ]  # fmt: skip
        self._matches = KeyNumbers()
        self._dimension = self._first = self._last = np.full(0, NONE, np.int64)
        self._count = np.zeros(0, np.int64)
        self._counts = [0, 0]
        """The rows of both sides, as they were kept last."""
        self._loaded_rows = False
        self._refuses_facts = not (facts.is_unique or (facts.is_sound and not needs_facts(node)))

    def fields(self, port: int) -> Sequence[str]:
        """The fields of an input that it looks at: all where it may refuse an event, which is reported as a whole."""
        if port != self._fact or self._refuses_facts:
            return self.node.inputs[port].names
        return self._sides[port].names

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """All events of both sides in order, then the rows that they made."""
        if not any(map(len, inputs)):
            return Yield(None, 0, 0)
        given = [event_rows(flow, side.names) for flow, side in zip(inputs, self._sides, strict=True)]
        keys = [side.numbers.of(part, side.keys) if side.is_kept else _NOTHING for side, part in self._with(given)]
        matches = [self._matches.of_complete(part, side.condition) for side, part in self._with(given)]
        self._grow()
        was = [side.row[numbers] for side, numbers in zip(self._sides, keys, strict=True)]
        before = [side.match[numbers[rows >= 0]] for side, numbers, rows in zip(self._sides, keys, was, strict=True)]
        order, faults = in_order(inputs), np.zeros(sum(map(len, inputs)), np.int64)
        lines = self._walk(inputs, keys, matches, order, faults)
        report_faults(self.node, inputs, order, faults, moments)
        made = self._counted(inputs, given, lines, emit=emit)
        for side, part, numbers, old in zip(self._sides, given, keys, was, strict=True):
            if side.is_kept:
                side.settle(part, numbers, old)
        self._forget_matches(np.concatenate([*matches, *before]))
        return made

    def _with(self, given: Sequence[Part]) -> Iterator[tuple[Side, Part]]:
        return zip(self._sides, given, strict=True)

    def _grow(self) -> None:
        for side in self._sides:
            side.grow()
        size = self._matches.size
        self._dimension, self._first, self._last = (
            grown(array, size) for array in (self._dimension, self._first, self._last)
        )
        if size > len(self._count):
            count = np.zeros(len(self._dimension), np.int64)
            count[: len(self._count)] = self._count
            self._count = count

    def _walk(
        self, inputs: Sequence[Flow], keys: Sequence[Int64s], matches: Sequence[Int64s], order: Int64s, faults: Int64s
    ) -> Int64s:
        """The lines that the events make: event, opcode, fact and dimension."""
        fact, other = self._fact, 1 - self._fact
        facts, dimensions = self._sides[fact], self._sides[other]
        starts = (0, len(inputs[0]))
        split = (starts[fact], starts[fact] + len(inputs[fact]), starts[other])
        opcodes = [frozen(flow.opcode) for flow in inputs]
        dim = opcodes[other], keys[other], matches[other]
        tail = dim, (dimensions.row, dimensions.match), dimensions.store.next_id
        fact_side = opcodes[fact], keys[fact], matches[fact]
        state = facts.row, facts.match, facts.behind, facts.before
        lists = self._first, self._last, self._count
        found, at, room = [], 0, max(_LINES, 2 * len(order))
        while True:
            out = np.empty((room, 4), np.int64)
            stop, made = join(at, order, split, self._kind, facts.is_kept, fact_side, state, facts.store.next_id, *tail,
                              lists, self._dimension, faults, out)  # fmt: skip
            found.append(out[:made])
            if stop >= len(order):
                return found[0] if len(found) == 1 else np.concatenate(found)
            room, at = room if stop > at else 2 * room, stop

    def _counted(self, inputs: Sequence[Flow], given: Sequence[Part], lines: Int64s, *, emit: bool) -> Yield:
        columns: dict[str, pa.Array] = {}
        if emit:
            rows = [Rows(side.store, part) for side, part in self._with(given)]
            numbers = (lines[:, 2], lines[:, 3]) if self._fact == 0 else (lines[:, 3], lines[:, 2])
            columns = self._steps.columns(rows, numbers)
        return counted(self.node.schema, inputs, lines, columns, emit=emit)

    def _forget_matches(self, numbers: Int64s) -> None:
        """Give up the matches that no row has any more."""
        safe = np.maximum(numbers, 0)
        is_used = (self._dimension[safe] >= 0) | (self._count[safe] > 0) if len(self._count) else safe > 0
        self._matches.give_up(unused(numbers, is_used))

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """The rows that came and went since the last time."""
        for side in self._sides:
            yield from side.store.changed_pages()
        counts = [len(side.store) for side in self._sides]
        if counts != self._counts:
            self._counts = counts
            yield "sides", pages.pack(counts)
        if self._loaded_rows:
            self._loaded_rows = False
            yield "rows", None

    def load(self, pages_: Pages) -> None:
        """Go on from pages, also from that of its row form, which earlier versions wrote."""
        if "rows" in pages_:
            self._load_rows(pages.unpack(pages_["rows"]))
            return
        check_names(pages_, (*SIDES, "sides"), self.node.path)
        for side in self._sides:
            side.store.load(pages_)
        self._counts = [len(side.store) for side in self._sides]
        expected = pages.unpack(pages_["sides"]) if "sides" in pages_ else [0, 0]
        if self._counts != expected:
            reason = f"{self._counts} rows of the left and the right side are there, it should be {expected}"
            raise SnapshotDamaged(place=self.node.path, reason=reason)
        self._index()

    def _load_rows(self, state: Mapping[str, Any]) -> None:
        for side, trees in zip(self._sides, state["sides"], strict=True):
            if side.is_kept and trees:
                columns = zip(*map(tree_row, trees), strict=True)
                part = Part(_as_columns(side.schema, list(columns)), len(trees))
                side.store.add(part, np.arange(len(trees), dtype=np.int64))
        self._loaded_rows = True
        self._index()

    def _index(self) -> None:
        """Number the keys and matches of loaded rows, which are in the order in which they came."""
        for port, side in enumerate(self._sides):
            for part, ids in side.store.all():
                keys, matches = side.numbered(part), self._matches.of_complete(part, side.condition)
                self._grow()
                if port == self._fact:
                    state = side.row, side.match, side.behind, side.before
                    link_all(keys, matches, ids, *state, self._first, self._last, self._count)
                else:
                    side.row[keys], side.match[keys] = ids, matches
                    self._dimension[matches[matches >= 0]] = ids[matches >= 0]


class _Steps:
    """The fields of a join: taken from one side, or made by an expression over both."""

    def __init__(self, node: Node) -> None:
        window, (left, right) = cast(JoinWindow, node.window), node.inputs
        self._node, scope = node, Scope(join_names(left, right))
        fields = zip(join_fields(window, left, right), node.schema, strict=True)
        self._made: list[tuple[str, str | Expression]] = [
            (field.name, each.source or compile_expression(each.expression or "", scope, wanted=field.type))
            for each, field in fields
        ]
        self._only_right = {}
        if window.type == "fullouter":
            pairs = dict(window.conditions)
            self._only_right = {f"l_{left.names[place]}": f"r_{pairs[left.names[place]]}" for place in left.keys}
        used = set(self._only_right.values())
        for _, step in self._made:
            used |= {step} if isinstance(step, str) else step.fields
        self.fields = [[name[2:] for name in sorted(used) if name[:2] == prefix] for prefix in ("l_", "r_")]

    def columns(self, rows: Sequence[Rows], numbers: Sequence[Int64s]) -> dict[str, pa.Array]:
        """The columns of rows that are made of a row of each side, by number; -1 is a side without one."""
        both: dict[str, pa.Array] = {}
        for port, prefix in enumerate(("l_", "r_")):
            found = rows[port].gather(numbers[port], self.fields[port])
            both |= {prefix + name: column for name, column in found.items()}
        made, no_left = {}, numbers[0] < 0
        for name, step in self._made:
            if isinstance(step, str):
                made[name] = self._taken(both, step, no_left)
                continue
            column = step.on_columns({each: both[each] for each in step.fields}, len(no_left))
            kind = self._node.schema[name].type.arrow
            made[name] = column if column.type == kind else column.cast(kind, safe=False)
        return made

    def _taken(self, both: Mapping[str, pa.Array], source: str, no_left: Mask) -> pa.Array:
        other = self._only_right.get(source)
        if other is None or not no_left.any():
            return both[source]
        return pc.if_else(pa.array(no_left), both[other], both[source])


_NOTHING = np.zeros(0, np.int64)


def _as_columns(schema: Schema, columns: Sequence[Sequence[object]]) -> dict[str, pa.Array]:
    return {field.name: pa.array(column, field.type.arrow) for column, field in zip(columns, schema, strict=True)}
