"""Unions on columns: the inputs' events in one order, resolved by key in one compiled loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.columns import Int64s
from lockstep.engine.kernels import pages
from lockstep.engine.kernels.flow import Flow, Part
from lockstep.engine.kernels.join_loops import unite
from lockstep.engine.kernels.keyed import KeyedRows, check_names, grown
from lockstep.engine.kernels.keys import NONE
from lockstep.engine.kernels.lines import Rows, counted, event_rows, in_order, report_faults
from lockstep.engine.kernels.moments import ColumnOperator, Moments, Pages, Yield
from lockstep.engine.kernels.source import resolved_flags
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import UnionWindow
from lockstep.engine.windows.index import tree_row

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
