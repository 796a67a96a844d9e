"""Which operator is the meaning of which kind of window."""

from __future__ import annotations

from importlib import import_module

from lockstep.engine.model.graph import Node
from lockstep.engine.windows.operator import Operator

OPERATORS = {
    "source": ("source", "SourceOperator"),
    "copy": ("copy", "CopyOperator"),
    "aggregate": ("aggregate", "AggregateOperator"),
    "filter": ("filter", "FilterOperator"),
    "compute": ("compute", "ComputeOperator"),
    "union": ("union", "UnionOperator"),
    "join": ("join", "JoinOperator"),
    "pattern": ("pattern", "PatternOperator"),
    "functional": ("functional", "FunctionalOperator"),
    "counter": ("counter", "CounterOperator"),
    "transpose": ("transpose", "TransposeOperator"),
    "remove-state": ("remove_state", "RemoveStateOperator"),
    "notification": ("notification", "NotificationOperator"),
    "procedural": ("procedural", "ProceduralOperator"),
    "custom": ("custom", "CustomOperator"),
    "idle": ("idle", "IdleOperator"),
}
"""Module and class by the kind of window; a module is loaded when a model first needs it."""


def make_operator(node: Node) -> Operator:
    """A new operator for a window, without state."""
    module, name = OPERATORS[node.window.kind]
    operator: Operator = getattr(import_module(f"lockstep.engine.windows.{module}"), name)(node)
    return operator
