"""The types of expressions, and what may be put where."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import FieldType
from lockstep.engine.model.windows import Initializer

if TYPE_CHECKING:
    from lockstep.engine.expressions.compiler import AggregateExpression, Expression

Names = tuple[tuple[str, FieldType], ...]
_KEPT = 4096
"""Expressions that are kept compiled: checks, the plan and the guard ask for the same ones many times."""


def names_of(schema: Schema) -> Names:
    """What expressions over rows of this schema can name."""
    return tuple((field.name, field.type) for field in schema)


def compiled(
    text: str, names: Names, initialize: Initializer | None = None, wanted: FieldType | None = None
) -> Expression:
    """The expression over these names, for a field of type `wanted`; raises BadExpression."""
    from lockstep.engine.expressions.compiler import Scope, compile_expression

    return compile_expression(text, Scope(names), initialize=initialize, wanted=wanted)


def compiled_aggregate(
    text: str, names: Names, initialize: Initializer | None = None, wanted: FieldType | None = None
) -> AggregateExpression:
    """The expression with aggregate functions over these names, for a field of type `wanted`; raises BadExpression."""
    if initialize is None:  # nothing of an earlier call can show in the result
        return _plain_aggregate(text, names, wanted)
    return _aggregate(text, names, initialize, wanted)


def _aggregate(
    text: str, names: Names, initialize: Initializer | None, wanted: FieldType | None
) -> AggregateExpression:
    from lockstep.engine.expressions.compiler import Scope, compile_aggregate

    return compile_aggregate(text, Scope(names), initialize=initialize, wanted=wanted)


@lru_cache(maxsize=_KEPT)
def _plain_aggregate(text: str, names: Names, wanted: FieldType | None) -> AggregateExpression:
    return _aggregate(text, names, None, wanted)


def type_of(text: str, names: Names) -> FieldType | None:
    """The type of an expression; None if it is not valid."""
    try:
        return compiled(text, names).type
    except BadExpression:
        return None


_CONVERSIONS = {
    FieldType.INT32: (FieldType.INT64, FieldType.DOUBLE, FieldType.DATE, FieldType.STAMP),
    FieldType.INT64: (FieldType.INT32, FieldType.DOUBLE, FieldType.DATE, FieldType.STAMP),
    FieldType.DATE: (FieldType.INT64, FieldType.DOUBLE),
    FieldType.STAMP: (FieldType.INT64, FieldType.DOUBLE),
}


def takes(declared: FieldType, made: FieldType) -> bool:
    """Whether a field of the declared type can take what an expression makes.

    Whole numbers fit into each other (one too large for int32 is reported when it comes) and into doubles. What can be
    turned into the type was turned into it before, when the expression was compiled for its field.
    """
    return declared is made or declared in _CONVERSIONS.get(made, ())
