"""Unions on columns, and what windows over several inputs share: their events in one order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.columns import pages
from lockstep.engine.columns.flow import Flow, Part
from lockstep.engine.columns.join_loops import OTHER_INPUT, UNRESOLVED, unite
from lockstep.engine.columns.keys import NONE, KeyedRows, check_names, grown
from lockstep.engine.columns.rowstore import RowStore
from lockstep.engine.columns.runner import ColumnOperator, Moments, Pages, Yield
from lockstep.engine.columns.source import resolved_flags
from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.columns import Int64s
from lockstep.engine.events.event import Event, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import UnionWindow
from lockstep.engine.reference.index import tree_row
from lockstep.engine.reference.operator import BadEvent
from lockstep.engine.reference.source import details

_WRITER = "#writer"
"""The column with the number of the input that wrote a row; no field has such a name."""


class PassingUnion(ColumnOperator):
    """A union that keeps no rows: the events of all inputs in order, as they are."""

    loads_rows = True

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Put them in order."""
        del moments, emit
        if not any(map(len, inputs)):
            return Yield(None, 0, 0)
        flows = [flow for flow in inputs if len(flow)]
        parts_in = [part for flow in flows for part in flow.parts]
        known = [name for name in self.node.schema.names if all(name in part.columns for part in parts_in)]
        order = in_order(flows)
        block, opcode, flags = (
            np.concatenate([getattr(flow, name) for flow in flows])[order] for name in ("block", "opcode", "flags")
        )
        parts = tuple(event_rows(flow, known) for flow in flows)
        return Yield.of(
            Flow(self.node.schema, block, opcode, flags, tuple(_only(part, known) for part in parts), order)
        )


class UnionColumns(ColumnOperator):
    """A union that keeps its rows by key, and who wrote them."""

    loads_rows = True

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._is_strict = cast(UnionWindow, node.window).strict
        self._names = node.schema.names
        keys = tuple(self._names[place] for place in node.schema.keys)
        types = {field.name: field.type.arrow for field in node.schema} | {_WRITER: pa.int32()}
        self._kept = KeyedRows(types, keys, "row", node.path)
        self._writer = np.full(0, NONE, np.int64)
        self._count, self._loaded_rows = 0, False

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Resolve all events."""
        if not any(map(len, inputs)):
            return Yield(None, 0, 0)
        sizes = [len(flow) for flow in inputs]
        given = self._given(inputs)
        keys = self._kept.numbers.of(given, self._kept.keys)
        self._grow()
        was, order, faults = self._kept.row[keys], in_order(inputs), np.zeros(sum(sizes), np.int64)
        lines = self._walk(inputs, keys, order, faults)
        report_faults(self.node, inputs, order, faults, moments)
        columns = Rows(self._kept.store, given).gather(lines[:, 2], self._names) if emit else {}
        made = counted(self.node.schema, inputs, lines, columns, emit=emit)
        if made.flow is not None:
            made.flow.flags[:] = resolved_flags(made.flow.flags)
        self._kept.settle(given, keys, was)
        return made

    def _given(self, inputs: Sequence[Flow]) -> Part:
        """The rows of all inputs one after the other, with the number of their input."""
        parts = [event_rows(flow, self._names) for flow in inputs if len(flow)]
        columns = {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in self._names}
        sizes = [len(flow) for flow in inputs]
        columns[_WRITER] = pa.array(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
        return Part(columns, sum(sizes))

    def _grow(self) -> None:
        self._kept.grow()
        self._writer = grown(self._writer, self._kept.numbers.size)

    def _walk(self, inputs: Sequence[Flow], keys: Int64s, order: Int64s, faults: Int64s) -> Int64s:
        starts = np.cumsum([0, *map(len, inputs[:-1])], dtype=np.int64)
        opcodes = np.concatenate([flow.opcode for flow in inputs])
        out = np.empty((2 * len(order), 4), np.int64)
        base = self._kept.store.next_id
        made = unite(order, starts, self._is_strict, opcodes, keys, base, self._kept.row, self._writer, faults, out)
        return out[:made]

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """The rows that came and went since the last time."""
        yield from self._kept.store.changed_pages()
        if len(self._kept.store) != self._count:
            self._count = len(self._kept.store)
            yield "count", pages.pack(self._count)
        if self._loaded_rows:
            self._loaded_rows = False
            yield "rows", None

    def load(self, pages_: Pages) -> None:
        """Go on from pages, also from that of its row form, which earlier versions wrote."""
        if "rows" in pages_:
            self._load_rows(pages.unpack(pages_["rows"]))
            return
        check_names(pages_, ("row", "count"), self.node.path)
        self._kept.store.load(pages_)
        self._count = len(self._kept.store)
        expected = pages.unpack(pages_["count"]) if "count" in pages_ else 0
        if self._count != expected:
            raise SnapshotDamaged(place=self.node.path, reason=f"{self._count} rows are there, not {expected}")
        self._index()

    def _load_rows(self, state: Mapping[str, Any]) -> None:
        self._loaded_rows = True
        trees = state["index"]["rows"]
        if trees:
            values = zip(*map(tree_row, trees), strict=True)
            columns = {
                field.name: pa.array(column, field.type.arrow)
                for field, column in zip(self.node.schema, values, strict=True)
            }
            columns[_WRITER] = pa.array(state["writers"], pa.int32())
            self._kept.store.add(Part(columns, len(trees)), np.arange(len(trees), dtype=np.int64))
        self._index()

    def _index(self) -> None:
        for part, ids in self._kept.store.all():
            keys, writers = self._kept.numbered(part), part.columns[_WRITER].to_numpy()
            self._grow()
            if writers.min() < 0 or writers.max() >= len(self.node.inputs):
                raise SnapshotDamaged(place=self.node.path, reason="a row is from an input that is not there")
            self._kept.row[keys], self._writer[keys] = ids, writers


def _only(part: Part, names: Sequence[str]) -> Part:
    """The part with no other columns than those."""
    if part.columns.keys() == set(names):
        return part
    return Part({name: part.columns[name] for name in names}, part.length)


def in_order(flows: Sequence[Flow]) -> Int64s:
    """The events of all inputs by number, which goes on from input to input: by block, within it input by input."""
    blocks = [flow.block for flow in flows if len(flow)]
    if len(blocks) < 2:
        return np.arange(sum(map(len, blocks)), dtype=np.int64)
    return np.argsort(np.concatenate(blocks), kind="stable")


def event_rows(flow: Flow, names: Sequence[str]) -> Part:
    """The rows of a flow, one for each event, with plain columns.

    What was worked out from a part that it is only a slice of is not used, nor are dictionaries: there may be keys in
    them that none of the rows has.
    """
    part = flow.parts[0]
    is_plain = not any(isinstance(part.columns[name], pa.DictionaryArray) for name in names)
    if flow.index is None and len(flow.parts) == 1 and part.whole is None and is_plain:
        return part
    return Part({name: flow.column(name) for name in names}, len(flow))


def counted(
    schema: Schema, flows: Sequence[Flow], lines: Int64s, columns: Mapping[str, pa.Array], *, emit: bool
) -> Yield:
    """The output of lines that a loop made: each names its event, whose block and flags it has, and its opcode."""
    event, opcode = lines[:, 0], lines[:, 1].astype(np.uint8)
    block, flags = (np.concatenate([getattr(flow, name) for flow in flows])[event] for name in ("block", "flags"))
    made = Yield.of(Flow(schema, block, opcode, flags, (Part(columns, len(lines)),)))
    return made if emit else replace(made, flow=None)


class Rows:
    """Rows by number: kept ones below the store's next number, those of the span at hand from there on."""

    def __init__(self, store: RowStore, given: Part) -> None:
        self._store, self._given, self._base = store, given, store.next_id

    def gather(self, numbers: Int64s, names: Sequence[str]) -> dict[str, pa.Array]:
        """The values of the named rows; nulls for a negative number."""
        is_kept = (numbers >= 0) & (numbers < self._base)
        if not is_kept.any():
            places = numbers - self._base
            return {name: _taken(self._given.columns[name], places) for name in names}
        ids, kept_places = _distinct(numbers[is_kept])
        kept = self._store.take(ids)
        places = np.where(numbers < 0, numbers, numbers - self._base + len(ids))
        places[is_kept] = kept_places
        return {
            name: _taken(pa.concat_arrays([kept.columns[name], self._given.columns[name]]), places) for name in names
        }


def report_faults(node: Node, flows: Sequence[Flow], order: Int64s, faults: Int64s, moments: Moments) -> None:
    """Refuse the events that could not be taken, in their order; of these flows all columns are there."""
    if not faults.any():
        return
    events: dict[int, tuple[int, Event]] = {}
    start = 0
    for flow in flows:
        wrong = faults[start : start + len(flow)] > 0
        if wrong.any():
            batch = flow.select(wrong).batch()
            numbers = (start + np.flatnonzero(wrong)).tolist()
            events |= dict(zip(numbers, zip(batch.block.tolist(), batch.events(), strict=True), strict=True))
        start += len(flow)
    for number in order[faults[order] > 0].tolist():
        block, event = events[number]
        moments.report(BadEvent(block, node.path, *_words(int(faults[number]), event.opcode), event))


def _words(fault: int, opcode: Opcode) -> tuple[str, str]:
    if fault == UNRESOLVED:
        return "bad-opcode", f"{opcode.name.lower()} is not resolved: the parent has no index"
    if fault >= OTHER_INPUT:
        return "strict-union", f"the row with this key is from input {fault - OTHER_INPUT + 1}"
    reason = ("duplicate-key", "unknown-key")[fault - 2]
    return reason, details(reason)


def _distinct(numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Each number once, rising, and for each of those given its place there."""
    coded = pc.dictionary_encode(pa.array(numbers))
    found = coded.dictionary.to_numpy()
    order = np.argsort(found)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return found[order], ranks[coded.indices.to_numpy()]


def _taken(column: pa.Array, places: Int64s) -> pa.Array:
    """The values at some places; nulls for negative ones."""
    missing = places < 0
    if missing.any():
        return column.take(pa.array(places, mask=missing))
    if len(places) == len(column) and bool((places == np.arange(len(places))).all()):
        return column
    return column.take(pa.array(places))
