"""Programs, which are steps with variables, conditions and return; and functions that a window defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from lockstep.engine.events.schema import FieldType, Value
from lockstep.engine.language.checker import Checker, Scope, Variable
from lockstep.engine.language.code import Code, Environment, Inputs, Row, Uses, Vector, constant, merged, row_by_row
from lockstep.engine.language.faults import Misfit, fault
from lockstep.engine.language.functions import converted
from lockstep.engine.language.operators import chosen
from lockstep.engine.language.parser import MAX_HEIGHT, parse
from lockstep.engine.language.syntax import (
    Assign,
    Bare,
    Call,
    Declare,
    Group,
    Node,
    Repeat,
    Return,
    Statement,
    When,
    height_of,
)
from lockstep.engine.language.types import coerced, condition, unified
from lockstep.engine.model.windows import UserFunction

MAX_ROUNDS = 10_000
"""Of all loops of an expression together, for one event: then its value is null, so that nothing runs for ever."""
Outcome = tuple[Value] | None
"""A value in a tuple of one if the program has returned; None if it goes on."""
Step = Callable[[Row, Environment], Outcome]


@dataclass(slots=True)
class Program:
    """Turns a parsed program into code. With `is_initializer` its variables are those that are kept."""

    checker: Checker
    is_initializer: bool = False
    is_function: bool = False
    """Its variables may be called like fields, and like variables that are kept: those are not seen then."""
    _uses: Uses = field(default=Uses())
    _kind: FieldType | None = None
    count: int = 0
    """Variables declared so far."""

    def code(self, program: Group) -> Code:
        """The code of the whole."""
        simple = self._simple(program)
        if simple is not None:
            return simple
        step = self._typed(program, is_last=True)
        kind = self._kind or FieldType.INT32
        run = step(kind)
        count, is_function = 0 if self.is_initializer else self.count, self.is_function

        def whole(row: Row, env: Environment) -> Value:
            env.scratch = [None] * count
            if not is_function:
                env.rounds = 0
            outcome = run(row, env)
            return None if outcome is None else outcome[0]

        return row_by_row(kind, whole, self._uses)

    def _simple(self, statement: Statement | None) -> Code | None:
        """A plain expression, or a choice between such, needs no steps and can be run on columns."""
        match statement:
            case None:
                return constant(None, None)
            case Bare() | Return():
                return self.checker.code(statement.value)
            case Group(steps=(only,)):
                return self._simple(only)
            case When():
                then, otherwise = self._simple(statement.then), self._simple(statement.otherwise)
                if then is None or otherwise is None:
                    return None
                test = self.checker.code(statement.condition)
                return self._fitting(statement.at, lambda: chosen(test, then, otherwise))
        return None

    def _fitting(self, at: int, build: Callable[[], Code]) -> Code:
        try:
            return build()
        except Misfit as misfit:
            raise fault(self.checker.text, at, misfit.reason, misfit.remedy) from None

    # The steps are typed in order first; only then the type of the whole is known, and they can be made.

    def _typed(self, statement: Statement, *, is_last: bool) -> Callable[[FieldType], Step]:
        match statement:
            case Group():
                return self._group(statement, is_last)
            case Declare():
                return self._declare(statement)
            case Assign():
                return self._assign(statement)
            case When():
                return self._when(statement, is_last)
            case Repeat():
                return self._repeat(statement)
            case Return():
                return self._return(statement.value)
            case Bare() if is_last:
                return self._return(statement.value)
        reason = "nothing is done with this value"
        remedy = "Assign it to a variable that is declared before, as in integer x x = 1, or return it."
        raise fault(self.checker.text, statement.at, reason, remedy)

    def _group(self, group: Group, is_last: bool) -> Callable[[FieldType], Step]:
        last = len(group.steps) - 1
        makers = [self._typed(step, is_last=is_last and place == last) for place, step in enumerate(group.steps)]
        return lambda kind: _in_order([make(kind) for make in makers])

    def _declare(self, statement: Declare) -> Callable[[FieldType], Step]:
        known = self.checker.variables
        if self._is_taken(statement.name):
            reason = f"{statement.name!r} is declared already"
            raise fault(self.checker.text, statement.at, reason, "Choose another name for the variable.")
        known[statement.name] = Variable(self.count, statement.type, self.is_initializer)
        self.count += 1
        return lambda _kind: _in_order([])

    def _is_taken(self, name: str) -> bool:
        variable = self.checker.variables.get(name)
        if self.is_function:
            return variable is not None and not variable.is_kept
        return variable is not None or any(name == field for field, _ in self.checker.scope.names)

    def _assign(self, statement: Assign) -> Callable[[FieldType], Step]:
        variable = self.checker.variables.get(statement.name)
        if variable is None:
            reason = f"the variable {statement.name!r} is not declared yet"
            raise fault(self.checker.text, statement.at, reason, "Declare it before: integer x.")
        code = self.checker.code(statement.value)
        code = self._fitting(statement.value.at, lambda: coerced(converted(code, variable.type), variable.type))
        self._uses |= code.uses | Uses(variables=variable.is_kept)
        step = _store(variable.place, code, variable.is_kept)
        return lambda _kind: step

    def _when(self, statement: When, is_last: bool) -> Callable[[FieldType], Step]:
        test = self.checker.code(statement.condition)
        test = self._fitting(statement.condition.at, lambda: condition(test))
        self._uses |= test.uses
        then = self._typed(statement.then, is_last=is_last)
        otherwise = self._typed(statement.otherwise or Group(at=statement.at, steps=()), is_last=is_last)
        return lambda kind: _either(test, then(kind), otherwise(kind))

    def _repeat(self, statement: Repeat) -> Callable[[FieldType], Step]:
        test = self.checker.code(statement.condition)
        test = self._fitting(statement.condition.at, lambda: condition(test))
        self._uses |= test.uses
        body = self._typed(statement.body, is_last=False)
        return lambda kind: _again(test, body(kind))

    def _return(self, node: Node) -> Callable[[FieldType], Step]:
        code = self.checker.code(node)
        try:
            self._kind = unified(self._kind, code.type)
        except Misfit as misfit:
            raise fault(self.checker.text, node.at, f"of what is returned, {misfit.reason}", misfit.remedy) from None
        self._uses |= code.uses
        return lambda kind: _result(coerced(code, kind))


def _in_order(steps: list[Step]) -> Step:
    def run(row: Row, env: Environment) -> Outcome:
        for step in steps:
            outcome = step(row, env)
            if outcome is not None:
                return outcome
        return None

    return run


def _store(place: int, code: Code, is_kept: bool) -> Step:
    value = code.run

    def keep(row: Row, env: Environment) -> Outcome:
        env.variables[place] = value(row, env)
        return None

    def note(row: Row, env: Environment) -> Outcome:
        env.scratch[place] = value(row, env)
        return None

    return keep if is_kept else note


def _either(test: Code, then: Step, otherwise: Step) -> Step:
    decide = test.run
    return lambda row, env: then(row, env) if decide(row, env) else otherwise(row, env)


def _again(test: Code, body: Step) -> Step:
    decide = test.run

    def run(row: Row, env: Environment) -> Outcome:
        while decide(row, env):
            env.rounds += 1
            if env.rounds > MAX_ROUNDS:
                return (None,)
            outcome = body(row, env)
            if outcome is not None:
                return outcome
        return None

    return run


def _result(code: Code) -> Step:
    value = code.run
    return lambda row, env: (value(row, env),)


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
