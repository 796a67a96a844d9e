"""Which aggregates have a column form, and the accumulators that they need."""

from __future__ import annotations

from typing import cast

from lockstep.engine.events.types import FieldType
from lockstep.engine.expressions.compiler import AggregateCall, Scope, compile_aggregate
from lockstep.engine.kernels import accumulators
from lockstep.engine.kernels.aggregate import Called, Made
from lockstep.engine.kernels.traits import Traits, may_overflow
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import AggregateWindow, FieldPlug


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
