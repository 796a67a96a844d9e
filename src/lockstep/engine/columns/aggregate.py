"""Aggregates on columns: every function is one compiled pass over the events, every group an entry of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lockstep.engine.columns import accumulators, loops, pages
from lockstep.engine.columns.accumulators import Accumulator, Given, Steps
from lockstep.engine.columns.flow import (
    UPDATE_BLOCK,
    Flow,
    Mask,
    Part,
    Places,
    as_column,
    as_numbers,
    frozen,
    plain,
    validity,
)
from lockstep.engine.columns.keys import PAGE, GroupTable
from lockstep.engine.columns.runner import ColumnOperator, Moments, Pages, Yield
from lockstep.engine.columns.traits import Traits, may_overflow
from lockstep.engine.events.columns import Bytes, Int64s
from lockstep.engine.events.schema import FieldType
from lockstep.engine.language.compiler import AggregateCall, Scope, compile_aggregate
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import AggregateWindow, FieldPlug

if TYPE_CHECKING:
    from lockstep.engine.language.compiler import AggregateCall, AggregateExpression, Expression

NO_ROWS: Int64s = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Called:
    """One call of an aggregate function, shared by all fields that make the same call."""

    call: AggregateCall
    accumulator: Accumulator


@dataclass(frozen=True, slots=True)
class Made:
    """A field: its expression, and which calls are its #0, #1, ..."""

    expression: AggregateExpression
    calls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """The events of a batch as steps: first a look at every group that exists, then adds and removes."""

    steps: Steps
    looks: int
    shown: Mask
    """Steps that give output: the first half of an update within one group does not."""
    prev: Int64s
    order: Int64s
    """The events in the order of the steps; empty if it is theirs."""


class AggregateColumns(ColumnOperator):
    """One row for each group, on columns."""

    def __init__(self, node: Node, called: Sequence[Called], made: Sequence[Made]) -> None:
        super().__init__(node)
        self._called, self._made = tuple(called), tuple(made)
        self._groups = GroupTable()
        self._keys = tuple(node.schema.names[place] for place in node.schema.keys)
        self._dirty: set[int] = set()

    @property
    def fields(self) -> frozenset[str]:
        """The input fields that it looks at."""
        return frozenset(self._keys).union(*(made.expression.fields for made in self._made))

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Move every group by the events, and show what became of it."""
        del moments
        (flow,) = inputs
        if not len(flow):
            return Yield(None, 0, 0)
        codes, table = self._groups.codes(flow, self._keys)
        touched = self._groups.distinct(table)
        self._grow()
        walk = self._walk(flow, codes, table, touched)
        results = [self._run(called, flow, walk, emit) for called in self._called]
        inserts, deletes, updates = loops.tally(walk.looks, walk.shown, walk.prev, walk.steps.after)
        events = inserts + deletes + 2 * updates
        out = self._output(flow, walk, results, touched, events) if emit else None
        self._groups.release(touched)
        self._dirty.update((touched[np.flatnonzero(np.diff(touched // PAGE, prepend=-1))] // PAGE).tolist())
        return Yield(out, events, inserts - deletes)

    def _grow(self) -> None:
        for called in self._called:
            called.accumulator.grow_to(self._groups.capacity)

    def _walk(self, flow: Flow, codes: Int64s, table: Int64s, touched: Int64s) -> Walk:
        order = step_order(flow.opcode)
        looked = touched[self._groups.count[touched] > 0]
        size = len(looked) + len(flow)
        group, sign, rows, after, prev = (np.empty(size, np.int64) for _ in range(5))
        shown, resets = np.empty(size, np.bool_), np.empty(size, np.bool_)
        index = NO_ROWS if flow.index is None else flow.index
        given = (looked, frozen(flow.opcode), order, index, codes, table, self._groups.count, self._groups.last)
        loops.frame(*given, group, sign, rows, shown, after, resets, prev)
        return Walk(Steps(group, sign, rows, after, resets), len(looked), shown, prev, order)

    def _run(self, called: Called, flow: Flow, walk: Walk, emit: bool) -> pa.Array | None:
        given = [argument(expression, flow) for expression in called.call.arguments]
        out, ok = called.accumulator.run(walk.steps, given, emit)
        return as_column(out, ok, called.call.type.arrow) if emit else None

    def _output(self, flow: Flow, walk: Walk, results: list[pa.Array], touched: Int64s, events: int) -> Flow:
        opcode, source = np.zeros(events, np.uint8), np.zeros(events, np.int64)
        cause, half = np.zeros(events, np.int64), np.zeros(events, np.int64)
        inner = np.empty(events if flow.places is not None and not len(walk.order) else 0, np.int64)
        order = flow.places[1] if len(inner) and flow.places is not None else NO_ROWS
        loops.assemble(walk.looks, walk.shown, walk.prev, walk.steps.after, order, opcode, source, cause, half, inner)
        step = cause - walk.looks
        event = walk.order[step] if len(walk.order) else step
        columns = self._columns(walk, results, touched)
        part = Part(columns, len(walk.steps.group))
        out = Flow(self.node.schema, flow.block[event], opcode, flow.flags[event], (part,), source)
        if flow.places is not None:
            out = replace(out, places=self._places(flow.places, walk, step, half, inner))
        return out

    def _places(self, places: Places, walk: Walk, step: Int64s, half: Int64s, inner: Int64s) -> Places:
        """Both halves of an update take the place of the new row, in the order in which the groups were shown."""
        index, order = places
        if not len(walk.order):
            return index[step] if index.any() else np.zeros(len(step), np.int64), inner
        event = walk.order[step]
        is_second = event < step
        new = np.minimum(event, step)
        return index[new], order[new] * 4 + 2 * is_second + half

    def _columns(self, walk: Walk, results: list[pa.Array], touched: Int64s) -> dict[str, pa.Array]:
        columns = self._key_columns(walk, touched)
        others = [field for field in self.node.schema if not field.key]
        for field, made in zip(others, self._made, strict=True):
            column = self._combine(made, results, len(walk.steps.group))
            columns[field.name] = (
                column if column.type == field.type.arrow else column.cast(field.type.arrow, safe=False)
            )
        return columns

    def _key_columns(self, walk: Walk, touched: Int64s) -> dict[str, pa.Array]:
        slots = np.zeros(self._groups.capacity, np.int32)
        slots[touched] = np.arange(len(touched), dtype=np.int32)
        places = pa.array(slots[walk.steps.group])
        lists = self._groups.key_lists(touched, len(self._keys))
        kinds = [self.node.schema[name].type.arrow for name in self._keys]
        return {
            name: pa.DictionaryArray.from_arrays(places, pa.array(values, kind))
            for name, values, kind in zip(self._keys, lists, kinds, strict=True)
        }

    def _combine(self, made: Made, results: list[pa.Array], length: int) -> pa.Array:
        inputs = {f"#{number}": results[call] for number, call in enumerate(made.calls)}
        return made.expression.combine.on_columns(inputs, length)

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """The pages of groups that changed."""
        for number in sorted(self._dirty):
            yield str(number), self._page(number)
        self._dirty.clear()

    def _page(self, number: int) -> bytes | None:
        start, stop = number * PAGE, (number + 1) * PAGE
        count = self._groups.count[start:stop]
        members = (start + np.flatnonzero(count)).tolist()
        if not members:
            return None
        states = [called.accumulator.page(start, stop) for called in self._called]
        keys = [self._groups.keys[member] for member in members]
        return pages.pack([count, members, keys, states])

    def load(self, pages_: Pages) -> None:
        """Put the pages of groups back."""
        for name, page in pages_.items():
            count, members, keys, states = pages.unpack(page)
            start = int(name) * PAGE
            known = [tuple(key) if isinstance(key, list) else key for key in keys]
            self._groups.restore(start, count, members, known)
            self._grow()
            for called, state in zip(self._called, states, strict=True):
                called.accumulator.restore(start, state)
        self._groups.find_free()


def argument(expression: Expression, flow: Flow) -> Given:
    """The values of a function's argument for all rows of a flow's parts."""
    name = expression.text.strip()
    if name in flow.schema and flow.schema[name].type is expression.type and expression.type.is_numeric:
        return flow.numbers(name)
    columns = {field: plain(flow.pooled(field)) for field in expression.fields}
    made = expression.on_columns(columns, flow.pool_size)
    return as_numbers(made) if expression.type.is_numeric else (np.zeros(0, np.int64), validity(made))


def step_order(opcode: Bytes) -> Int64s:
    """The events in the order in which they are taken: an old row leaves before the new one comes. Empty: as is."""
    updates = np.flatnonzero(opcode == UPDATE_BLOCK)
    if not len(updates):
        return NO_ROWS
    order = np.arange(len(opcode), dtype=np.int64)
    order[updates], order[updates + 1] = updates + 1, updates
    return order


def column_calls(node: Node, parent: Traits) -> tuple[list[Called], list[Made]] | None:
    """The calls and fields of an aggregate on columns; None if it has to go row by row."""
    window = cast(AggregateWindow, node.window)
    if not parent.is_sound or window.initialize is not None or not _groups_fit(node):
        return None
    known: dict[tuple[object, ...], int] = {}
    calls: list[Called] = []
    fields: list[Made] = []
    for text, field in zip(window.fields, (field for field in node.schema if not field.key), strict=True):
        expression = None
        if not isinstance(text, FieldPlug):
            expression = compile_aggregate(text, Scope.of(node.inputs[0]), wanted=field.type)
        if expression is None or not expression.combine.is_pure or may_overflow(expression, field.type):
            return None
        places = []
        for call in expression.calls:
            key = (call.function, tuple(argument.text for argument in call.arguments), call.constants)
            if key not in known:
                accumulator = make_accumulator(call, parent)
                if accumulator is None:
                    return None
                known[key] = len(calls)
                calls.append(Called(call, accumulator))
            places.append(known[key])
        fields.append(Made(expression, tuple(places)))
    return calls, fields


def make_accumulator(call: AggregateCall, parent: Traits) -> accumulators.Accumulator | None:
    """The accumulator of a call; None if it has no column form over what the parent gives."""
    if not all(argument.is_pure for argument in call.arguments):
        return None
    name = call.function
    if name in ("countnonnull", "countnull"):
        return accumulators.CountValid(name == "countnull")
    if name == "count":
        return accumulators.Count()
    if not call.arguments or not all(argument.type.is_numeric for argument in call.arguments):
        return None
    whole = call.arguments[0].type is not FieldType.DOUBLE
    if name in ("min", "max"):
        return _extreme(name == "max", whole, parent)
    if name == "sum":
        return accumulators.SumInteger() if whole else accumulators.SumDouble(mean=False)
    if name == "ave":
        return accumulators.MeanInteger() if whole else accumulators.SumDouble(mean=True)
    if name in ("var", "std"):
        return accumulators.Deviation(name == "std")
    return accumulators.Weighted() if name == "wave" else None


def _extreme(largest: bool, whole: bool, parent: Traits) -> accumulators.Accumulator | None:
    if parent.inserts_only:
        return accumulators.Running(largest, whole)
    return accumulators.Queued(largest, whole) if parent.is_queue else None


def _groups_fit(node: Node) -> bool:
    """Doubles are no good numbers for groups: NaN and the two zeros."""
    kinds = [node.schema.fields[place].type for place in node.schema.keys]
    return all(kind.is_integer or kind in (FieldType.STRING, FieldType.BLOB) for kind in kinds)
