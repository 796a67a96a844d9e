"""Filter and compute windows on columns, where their expressions look at nothing but the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.columns.flow import INSERT, UPDATE_BLOCK, Flow, Mask, Part
from lockstep.engine.columns.runner import ColumnOperator, Moments, Yield
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import INT_RANGE, Field, FieldType
from lockstep.engine.language.compiler import Expression, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import ComputeWindow, FilterWindow
from lockstep.engine.reference.operator import BadEvent


class FilterColumns(ColumnOperator):
    """The rows for which an expression holds; each half of an update is tested."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(FilterWindow, node.window)
        self.expression = compile_expression(window.expression, Scope.of(node.inputs[0]))

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Test all rows at once."""
        del moments, emit
        (flow,) = inputs
        if not len(flow):
            return Yield(None, 0, 0)
        holds = self._holds(flow)
        opcode = flow.opcode
        updates = np.flatnonzero(opcode == UPDATE_BLOCK)
        alone = updates[holds[updates] & ~holds[updates + 1]]
        if len(alone):
            opcode = opcode.copy()
            opcode[alone] = INSERT
        if not holds.all() or len(alone):
            flow = replace(flow, opcode=opcode).select(holds)
        return Yield.of(replace(flow, schema=self.node.schema, refused=None))

    def _holds(self, flow: Flow) -> Mask:
        made = self.expression.on_columns({name: flow.column(name) for name in self.expression.fields}, len(flow))
        holds: Mask = pc.fill_null(pc.not_equal(made, 0), False).to_numpy(zero_copy_only=False)
        return holds


class ComputeColumns(ColumnOperator):
    """For each row a row: keys are copied, the others are made by expressions."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(ComputeWindow, node.window)
        scope = Scope.of(node.inputs[0])
        made = [field for field in node.schema if not field.key]
        self.steps = [
            (field, compile_expression(text, scope, wanted=field.type))
            for field, text in zip(made, window.fields, strict=True)
        ]
        self.copied = [field.name for field in node.schema if field.key]

    @property
    def may_overflow(self) -> bool:
        """Whether a value may be too large for its field, which is reported with the whole row that caused it."""
        return any(_narrows(field, expression) for field, expression in self.steps)

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Make all columns."""
        del emit
        (flow,) = inputs
        if not len(flow):
            return Yield(None, 0, 0)
        columns = {name: flow.column(name) for name in self.copied}
        bad: list[tuple[int, Field, object]] = []
        for field, expression in self.steps:
            made = expression.on_columns({name: flow.column(name) for name in expression.fields}, len(flow))
            columns[field.name] = _fitted(made, field, expression, bad)
        self._report(flow, bad, moments)
        part = Part(columns, len(flow))
        out = Flow(self.node.schema, flow.block, flow.opcode, flow.flags, (part,), None, flow.places)
        return Yield.of(out)

    def _report(self, flow: Flow, bad: list[tuple[int, Field, object]], moments: Moments) -> None:
        if not bad:
            return
        order = {field.name: place for place, field in enumerate(self.node.schema)}
        for row, field, value in sorted(bad, key=lambda item: (item[0], order[item[1].name])):
            one = flow.select(np.arange(len(flow)) == row)
            detail = f"{field.name} is {value!r}, too large for {field.type.value}"
            event = one.batch().events()[0]
            kept = Event(Opcode(int(flow.opcode[row])), Flag(int(flow.flags[row])), event.values)
            moments.report(BadEvent(int(flow.block[row]), self.node.path, "overflow", detail, kept))


def _narrows(field: Field, expression: Expression) -> bool:
    return field.type is FieldType.INT32 and expression.type is not FieldType.INT32


def _fitted(made: pa.Array, field: Field, expression: Expression, bad: list[tuple[int, Field, object]]) -> pa.Array:
    """A column in the type of its field; what does not fit is null, and put on the list."""
    if _narrows(field, expression):
        low, high = INT_RANGE[FieldType.INT32]
        fits = pc.fill_null(pc.and_(pc.greater_equal(made, low), pc.less_equal(made, high)), True)
        rows = np.flatnonzero(~fits.to_numpy(zero_copy_only=False)).tolist()
        bad.extend((row, field, made[row].as_py()) for row in rows)
        made = pc.if_else(fits, made, pa.scalar(None, made.type))
    return made if made.type == field.type.arrow else made.cast(field.type.arrow, safe=False)
