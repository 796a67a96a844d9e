"""Why a join or a union goes row by row, if it does: the builder of operators asks, and so does the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import FieldType
from lockstep.engine.expressions.compiler import Scope, compile_expression
from lockstep.engine.kernels.traits import Traits, input_traits, keeps_facts
from lockstep.engine.model.graph import Node
from lockstep.engine.model.schemas import fact_sides, join_fields, join_names, meets_many
from lockstep.engine.model.windows import JoinWindow


def rows_because(node: Node, traits: Sequence[Traits]) -> str | None:
    """The reason; None if it works on columns. `traits` are those of all windows before it."""
    if isinstance(node.window, JoinWindow):
        return _join(node, node.window, traits)
    parents = [input_traits(node, traits, port) for port in range(len(node.parents))]
    return _union(node, parents)


def needs_facts(node: Node) -> bool:
    """Whether a join on columns keeps its facts: a dimension row that changes makes anew those that meet it."""
    window = cast(JoinWindow, node.window)
    return not window.no_regenerates and keeps_facts(window, fact_sides(window, *node.inputs)[0])


def _join(node: Node, window: JoinWindow, traits: Sequence[Traits]) -> str | None:
    if meets_many(window, *node.inputs):
        return "a row of either side may meet many of the other"
    fact = fact_sides(window, *node.inputs)[0]
    if not keeps_facts(window, 1 - fact):
        return "its dimension is not kept, so that a fact has to remember what it met"
    may_change = window.type == "fullouter" or not input_traits(node, traits, fact).is_unique
    if window.no_regenerates and keeps_facts(window, fact) and may_change:
        return "with no_regenerates a fact that may change has to remember what it met"
    for port, schema in enumerate(node.inputs):
        names = {schema.names[place] for place in schema.keys} | {pair[port] for pair in window.conditions}
        odd = _no_key(schema, names)
        if odd is not None:
            return f"{odd} is looked up"
    left, right = node.inputs
    for one, other in window.conditions:
        if left[one].type is not right[other].type:
            return f"{one} and {other} are of different types"
    return _expressions(node, window)


def _expressions(node: Node, window: JoinWindow) -> str | None:
    left, right = node.inputs
    scope = Scope(join_names(left, right))
    for made, field in zip(join_fields(window, left, right), node.schema, strict=True):
        if made.expression is None:
            continue
        expression = compile_expression(made.expression, scope, wanted=field.type)
        if not expression.is_pure:
            return f"{field.name} looks at more than the two rows"
        if field.type is FieldType.INT32 and expression.type is not FieldType.INT32:
            return f"{field.name} may be too large for an int32, which is reported event by event"
    return None


def _union(node: Node, parents: Sequence[Traits]) -> str | None:
    if not node.is_indexed:
        return None
    odd = _no_key(node.schema, (node.schema.names[place] for place in node.schema.keys))
    if odd is not None:
        return f"{odd} is its key"
    if not all(parent.is_whole for parent in parents):
        return "an input may give partial rows, which are put together one by one"
    return None


def _no_key(schema: Schema, names: Iterable[str]) -> str | None:
    """A field whose values are no good numbers for keys: NaN and the two zeros."""
    for name in sorted(names):
        kind = schema[name].type
        if not (kind.is_integer or kind in (FieldType.STRING, FieldType.BLOB)):
            return f"{name}, a {kind.value},"
    return None
