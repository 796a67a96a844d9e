"""Filter windows: the rows for which an expression holds; null does not hold.

Each half of an update is tested: both hold: the pair; only the new one: an insert; only the old one: a delete.
"""

from __future__ import annotations

from typing import cast

from lockstep.engine.events.event import Event, Row
from lockstep.engine.expressions.compiler import Environment, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import FilterWindow
from lockstep.engine.windows.index import DELETE, UPDATE_BLOCK, add_change, row_tree, tree_row
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.results import look


class FilterOperator(Operator):
    """Has no rows; its only state are the variables of its initializer."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(FilterWindow, node.window)
        scope = Scope.of(node.inputs[0])
        self._expression = compile_expression(window.expression, scope, initialize=window.initialize)
        self._environment = Environment(variables=list(self._expression.initial()))

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - one input
        """Test one change, the new half first."""
        if event.opcode is UPDATE_BLOCK and old is not None:
            new = event.values if self._holds(event, moment) else None
            was = old if self._holds(Event(DELETE, event.flags, old), moment) else None
            add_change(new, was, event.flags, out)
        elif self._holds(event, moment):
            out.append(event)

    def _holds(self, event: Event, moment: Moment) -> bool:
        if not self._expression.is_pure:
            look(self._environment, event, moment)
        return bool(self._expression.evaluate(event.values, self._environment))

    def dump(self) -> Tree:
        """The variables."""
        return row_tree(tuple(self._environment.variables))

    def load(self, state: Tree) -> None:
        """Go on from dumped variables."""
        self._environment.variables = list(tree_row(state))
