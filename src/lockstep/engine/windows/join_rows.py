"""The rows of a join, made of a row of the left side and one of the right; a side that has none counts as nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.compiler import Environment, Expression, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.schemas import join_fields, join_names
from lockstep.engine.model.windows import JoinField, JoinWindow
from lockstep.engine.windows.results import Converter, converter

Names = tuple[tuple[str, FieldType], ...]
Overflow = Callable[[str], None]
"""Told if a value does not fit its field."""


class RowMaker:
    """Fields are taken from one of the sides (l_NAME, r_NAME), or made by an expression over both."""

    def __init__(self, node: Node) -> None:
        left, right = node.inputs
        names = join_names(left, right)
        self._nothing = ((None,) * len(left), (None,) * len(right))
        self._places = {name: place for place, (name, _) in enumerate(names)}
        window = cast(JoinWindow, node.window)
        fields = zip(join_fields(window, left, right), node.schema, strict=True)
        self._steps = [self._step(each, field, names) for each, field in fields]
        self._only_right = self._right_keys(window, left, right)
        self.is_pure = all(isinstance(step, int) or step[0].is_pure for step in self._steps)

    def _right_keys(self, window: JoinWindow, left: Schema, right: Schema) -> dict[int, int]:
        """In a full outer join: where a key of the left side is found in the right row, if there is no left one."""
        if window.type != "fullouter":
            return {}
        pairs = {left.places[mine]: right.places[theirs] for mine, theirs in window.conditions}
        return {place: len(left) + pairs[place] for place in left.keys}

    def _step(self, made: JoinField, field: Field, names: Names) -> int | tuple[Expression, Converter | None, Field]:
        if made.source is not None:
            return self._places[made.source]
        expression = compile_expression(made.expression or "", Scope(names), wanted=field.type)
        return expression, converter(expression.type, field.type), field

    def row(self, left: Row | None, right: Row | None, environment: Environment, overflow: Overflow) -> Row:
        """The row for one of each side."""
        both = (left or self._nothing[0]) + (right or self._nothing[1])
        made: list[Value] = []
        for step in self._steps:
            if isinstance(step, int):
                made.append(both[step if left is not None else self._only_right.get(step, step)])
                continue
            expression, convert, field = step
            value = expression.evaluate(both, environment)
            if value is not None and convert is not None:
                value = convert(value)
                if value is None:
                    overflow(f"{field.name} does not fit {field.type.value}")
            made.append(value)
        return tuple(made)
