"""Programs: steps with variables, conditions and return. The last step is the value, unless one returned before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.checker import Checker, Variable
from lockstep.engine.expressions.code import Code, Environment, Row, Uses, constant, row_by_row
from lockstep.engine.expressions.faults import Misfit, fault
from lockstep.engine.expressions.functions import converted
from lockstep.engine.expressions.operators import chosen
from lockstep.engine.expressions.syntax import Assign, Bare, Declare, Group, Node, Repeat, Return, Statement, When
from lockstep.engine.expressions.types import coerced, condition, unified

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
