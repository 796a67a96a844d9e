"""Texts to expressions: the way in for everything that has expressions."""

from __future__ import annotations

from lockstep.engine.events.types import FieldType
from lockstep.engine.expressions.aggregates import AggregateCall, AggregateExpression, split_aggregate
from lockstep.engine.expressions.checker import Checker, Scope, Variable
from lockstep.engine.expressions.code import Environment, retyped
from lockstep.engine.expressions.expression import Expression, Variables, make_expression
from lockstep.engine.expressions.faults import fault
from lockstep.engine.expressions.parser import parse
from lockstep.engine.expressions.programs import Program
from lockstep.engine.expressions.syntax import Group
from lockstep.engine.model.windows import Initializer

__all__ = [
    "AggregateCall",
    "AggregateExpression",
    "Environment",
    "Expression",
    "Scope",
    "compile_aggregate",
    "compile_expression",
]


def compile_expression(
    text: str, scope: Scope, *, initialize: Initializer | None = None, wanted: FieldType | None = None
) -> Expression:
    """The expression that a text is, over the fields of a scope.

    Variables that `initialize` declares can be used; they are kept in Environment.variables. `wanted` is the type of an
    expression that is nothing but null. Raises BadExpression with the place of the first fault.
    """
    known, variables = _initialized(initialize)
    return _expression(text, parse(text, known), scope, known, variables, wanted)


def compile_aggregate(text: str, scope: Scope, *, initialize: Initializer | None = None) -> AggregateExpression:
    """An expression of an aggregate window: calls of aggregate functions, and what combines their results."""
    known, variables = _initialized(initialize)
    program, calls = split_aggregate(text, parse(text, known), scope)
    results = Scope(tuple((f"#{place}", call.type) for place, call in enumerate(calls)))
    combine = _expression(text, program, results, known, variables, None)
    return AggregateExpression.of(text, calls, combine)


def _expression(
    text: str,
    program: Group,
    scope: Scope,
    known: dict[str, Variable],
    variables: Variables | None,
    wanted: FieldType | None,
) -> Expression:
    if not program.steps:
        raise fault(text, 0, "it is empty", "Write a field, number or text.")
    for place, (name, _) in enumerate(scope.names):
        if name in known:
            reason = f"{name!r} is a field (number {place + 1}) and a variable of the initializer"
            raise fault(text, 0, reason, "Give the variable another name.")
    code = Program(Checker(text, scope, dict(known))).code(program)
    if code.type is None:
        code = retyped(code, wanted or FieldType.INT32)
    return make_expression(text, scope.names, code, variables)


def _initialized(initialize: Initializer | None) -> tuple[dict[str, Variable], Variables | None]:
    if initialize is None:
        return {}, None
    checker = Checker(initialize.text, Scope(()))
    program = Program(checker, is_initializer=True)
    code = program.code(parse(initialize.text))
    return checker.variables, Variables(program.count, code.run, code.uses.clocks)
