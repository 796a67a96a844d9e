"""Functions that a window defines itself: each call becomes code of its own, typed by its arguments.

Inside the function its parameters are more fields of the row, so that rows and columns go the same way. Nothing can run
forever: a function can't call itself, and calls are bounded in depth and in number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.checker import Checker, Scope
from lockstep.engine.expressions.code import Code, Environment, Row, constant, merged
from lockstep.engine.expressions.faults import Misfit, fault
from lockstep.engine.expressions.functions import converted
from lockstep.engine.expressions.parser import MAX_HEIGHT, parse
from lockstep.engine.expressions.programs import Program
from lockstep.engine.expressions.syntax import Call, Group, height_of
from lockstep.engine.expressions.types import coerced
from lockstep.engine.expressions.vectors import Inputs, Vector
from lockstep.engine.model.windows import UserFunction

MAX_CALLS = 1_000
_CALL_HEIGHT = 3


class UserFunctions:
    """The functions of one initializer by their names in lower case, for one expression."""

    def __init__(self, functions: Sequence[UserFunction]) -> None:
        self._functions: dict[str, UserFunction] = {}
        self._calls = 0
        for function in functions:
            self._add(function)

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    def _add(self, function: UserFunction) -> None:
        name = function.name.lower()
        if not name.isidentifier() or name.startswith("esp_") or name in ("parameter", "parametercount"):
            reason = f"a function can't be called {function.name!r}"
            raise fault(function.text, 0, reason, "Choose a name of letters that does not begin with ESP_.")
        if name in self._functions:
            raise fault(function.text, 0, f"two functions are called {function.name}", "Give each a name of its own.")
        if not parse(function.text).steps:
            raise fault(function.text, 0, f"the function {function.name} is empty", "Write what it returns.")
        self._functions[name] = function

    def called(self, node: Call, arguments: list[Code], caller: Checker) -> Code:
        """The code of one call."""
        function = self._functions[node.name]
        kept = {name: variable for name, variable in caller.variables.items() if variable.is_kept}
        program = parse(function.text, kept)
        self._check_bounds(node, program, caller)
        checker = Checker(
            function.text,
            Scope(caller.scope.names[: caller.width] + _parameters(arguments)),
            kept,
            functions=self,
            parameters=arguments,
            calling=(*caller.calling, node.name),
            depth=caller.depth + height_of(program) + _CALL_HEIGHT,
        )
        body = Program(checker, is_function=True).code(program)
        try:
            body = coerced(converted(body, function.type), function.type)
        except Misfit as misfit:
            raise fault(function.text, 0, f"of what {function.name} returns, {misfit.reason}", misfit.remedy) from None
        return _call(body, function.type, arguments, caller)

    def _check_bounds(self, node: Call, program: Group, caller: Checker) -> None:
        if node.name in caller.calling:
            reason = f"the function {node.name} calls itself"
            raise fault(caller.text, node.at, reason, "Use a procedural window for what needs loops.")
        self._calls += 1
        if caller.depth + height_of(program) + _CALL_HEIGHT > MAX_HEIGHT or self._calls > MAX_CALLS:
            reason = f"with its functions it is deeper than {MAX_HEIGHT} levels, or has more than {MAX_CALLS} calls"
            raise fault(caller.text, node.at, reason, "Compute a part of it in a window before.")


def _parameters(arguments: Sequence[Code]) -> tuple[tuple[str, FieldType], ...]:
    return tuple((f"parameter({number})", code.type or FieldType.INT32) for number, code in enumerate(arguments, 1))


def _call(body: Code, kind: FieldType, arguments: list[Code], caller: Checker) -> Code:
    """The arguments are evaluated once each, in order, before the function."""
    if body.is_constant and not any(argument.uses.variables for argument in arguments):
        return constant(kind, body.value)
    width = caller.width
    runs, inner = [argument.run for argument in arguments], body.run

    def run(row: Row, env: Environment) -> Value:
        values = list(row[:width])
        for argument in runs:
            values.append(argument(row, env))  # noqa: PERF401 - a comprehension is a frame more on a deep stack
        scratch = env.scratch
        found = inner(values, env)
        env.scratch = scratch
        return found

    names = _parameters(arguments)

    def vector(inputs: Inputs) -> Vector:
        given = {name: code.vector(inputs) for (name, _), code in zip(names, arguments, strict=True)}
        return body.vector(inputs.narrowed(width, names, given))

    own = frozenset(name for name, _ in names)
    return Code(kind, run, vector, merged(arguments) | replace(body.uses, fields=body.uses.fields - own))
