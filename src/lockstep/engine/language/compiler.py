"""Texts to expressions: the way in for everything that has expressions."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.events.schema import FieldType
from lockstep.engine.language.aggregates import (
    AggregateCall,
    AggregateExpression,
    Expression,
    Variables,
    make_expression,
    split_aggregate,
)
from lockstep.engine.language.checker import Checker, Scope, Variable
from lockstep.engine.language.code import Environment, retyped
from lockstep.engine.language.faults import fault
from lockstep.engine.language.functions import converted
from lockstep.engine.language.parser import parse
from lockstep.engine.language.programs import Program, UserFunctions
from lockstep.engine.language.syntax import Group
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

    Variables and functions of `initialize` can be used; variables are kept in Environment.variables. `wanted` is the
    type of the field that it fills, which its value is turned into where that is usual. Raises BadExpression with the
    place of the first fault.
    """
    known = _initialized(initialize)
    return _expression(text, parse(text, known.names), scope, known, wanted)


def compile_aggregate(
    text: str, scope: Scope, *, initialize: Initializer | None = None, wanted: FieldType | None = None
) -> AggregateExpression:
    """An expression of an aggregate window: calls of aggregate functions, and what combines their results."""
    known = _initialized(initialize)
    program, calls = split_aggregate(text, parse(text, known.names), scope, known.functions)
    results = Scope(tuple((f"#{place}", call.type) for place, call in enumerate(calls)))
    return AggregateExpression.of(text, calls, _expression(text, program, results, known, wanted))


@dataclass(frozen=True, slots=True)
class _Known:
    """What an initializer declares."""

    names: dict[str, Variable]
    variables: Variables | None
    functions: UserFunctions | None


def _expression(text: str, program: Group, scope: Scope, known: _Known, wanted: FieldType | None) -> Expression:
    if not program.steps:
        raise fault(text, 0, "it is empty", "Write a field, number or text.")
    for place, (name, _) in enumerate(scope.names):
        if name in known.names:
            reason = f"{name!r} is a field (number {place + 1}) and a variable of the initializer"
            raise fault(text, 0, reason, "Give the variable another name.")
    code = Program(Checker(text, scope, dict(known.names), known.functions)).code(program)
    if code.type is None:
        code = retyped(code, wanted or FieldType.INT32)
    elif wanted is not None:
        code = converted(code, wanted)
    return make_expression(text, scope.names, code, known.variables)


def _initialized(initialize: Initializer | None) -> _Known:
    if initialize is None:
        return _Known({}, None, None)
    functions = UserFunctions(initialize.functions)
    checker = Checker(initialize.text, Scope(()), functions=functions)
    program = Program(checker, is_initializer=True)
    code = program.code(parse(initialize.text))
    return _Known(checker.variables, Variables(program.count, code.run, code.uses.clocks), functions)
