"""Expressions that are ready to run, and those that call aggregate functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lockstep.engine.events.schema import FieldType, Value
from lockstep.engine.language.checker import Checker, Scope
from lockstep.engine.language.code import Code, Environment, Inputs, Row, Run, Vector
from lockstep.engine.language.faults import Misfit, fault, suggestion
from lockstep.engine.language.programs import UserFunctions
from lockstep.engine.language.syntax import (
    Assign,
    Bare,
    Binary,
    Call,
    Choice,
    Group,
    Index,
    Name,
    Node,
    Return,
    Statement,
    Unary,
    When,
)
from lockstep.engine.language.types import DOUBLE, INT64, MONEY, PLAIN, STRING, called, coerced

_PREFIX = "esp_a"
_SQL = {
    "sum": "ESP_aSum", "avg": "ESP_aAve", "average": "ESP_aAve", "mean": "ESP_aAve", "count": "ESP_aCount",
    "min": "ESP_aMin", "max": "ESP_aMax", "first": "ESP_aFirst", "last": "ESP_aLast", "first_value": "ESP_aFirst",
    "last_value": "ESP_aLast", "lag": "ESP_aLag", "stddev": "ESP_aStd", "stdev": "ESP_aStd", "variance": "ESP_aVar",
    "median": "ESP_aMedian", "mode": "ESP_aMode", "string_agg": "ESP_aCat", "count_distinct": "ESP_aCountDistinct",
}  # fmt: skip
"""What people who write SQL try first."""
_FARTHEST_LAG = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class AggregateCall:
    """One aggregate function: `arguments` are computed for each row, `constants` (n, seconds, separator) are fixed."""

    function: str
    """In lower case, without ESP_a: sum, wave, countdistinct, sumtimed, ..."""
    arguments: tuple[Expression, ...]
    constants: tuple[Value, ...]
    type: FieldType


@dataclass(frozen=True, slots=True, eq=False)
class AggregateExpression:
    """The calls, and the expression over their results, which it knows as #0, #1, ..."""

    text: str
    calls: tuple[AggregateCall, ...]
    combine: Expression
    type: FieldType
    fields: frozenset[str]
    """The input fields that the calls use."""
    clocks: tuple[str, ...]

    @classmethod
    def of(cls, text: str, calls: tuple[AggregateCall, ...], combine: Expression) -> AggregateExpression:
        """Put together from its parts."""
        arguments = [argument for call in calls for argument in call.arguments]
        fields = frozenset().union(*(argument.fields for argument in arguments))
        timed = {call.function for call in calls if AGGREGATES[call.function].constant == "seconds"}
        return cls(text, calls, combine, combine.type, fields, tuple(sorted(timed | set(combine.clocks))))


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What an aggregate function takes: so many arguments of a row, perhaps a constant, and the type it gives."""

    usage: str
    arguments: int
    result: Callable[[Code], tuple[Code, FieldType]]
    constant: str = ""
    default: Value = None
    is_optional: bool = False
    """May be called without arguments."""


def _summed(code: Code) -> tuple[Code, FieldType]:
    if code.type is DOUBLE or code.type is MONEY:
        return code, code.type
    return _number(code), INT64


def _averaged(code: Code) -> tuple[Code, FieldType]:
    return (coerced(code, DOUBLE) if code.type is MONEY else _number(code)), DOUBLE


def _mean(code: Code) -> tuple[Code, FieldType]:
    """Of numbers a number, of arrays an array: the mean of their elements, place by place."""
    if code.type is not None and code.type.element is not None:
        return code, FieldType.ARRAY_DOUBLE
    return _averaged(code)


def _number(code: Code) -> Code:
    if code.type is None or code.type not in PLAIN:
        raise Misfit(None, f"a number is needed, not {called(code.type)}", "Convert it with todouble() or toint().")
    return code


def _ordered(code: Code) -> tuple[Code, FieldType]:
    if code.type is None or not (code.type.is_numeric or code.type is STRING):
        raise Misfit(None, f"values of type {called(code.type)} have no order", "Use numbers, times or texts.")
    return code, code.type


def _kept(code: Code) -> tuple[Code, FieldType]:
    if code.type is None:
        raise Misfit(None, "null has no type", "Use a field.")
    return code, code.type


def _counted(code: Code) -> tuple[Code, FieldType]:
    return _kept(code)[0], INT64


def _listed(code: Code) -> tuple[Code, FieldType]:
    if code.type is None or not (code.type.is_numeric or code.type is STRING):
        raise Misfit(None, f"a value of type {called(code.type)} has no text", "Use numbers, times or texts.")
    return code, STRING


AGGREGATES = {
    "sum": Aggregate("ESP_aSum(x)", 1, _summed),
    "ave": Aggregate("ESP_aAve(x)", 1, _mean),
    "min": Aggregate("ESP_aMin(x)", 1, _ordered),
    "max": Aggregate("ESP_aMax(x)", 1, _ordered),
    "count": Aggregate("ESP_aCount() or ESP_aCount(x)", 1, _counted, is_optional=True),
    "countnonnull": Aggregate("ESP_aCountNonNull(x)", 1, _counted),
    "countnull": Aggregate("ESP_aCountNull(x)", 1, _counted),
    "countdistinct": Aggregate("ESP_aCountDistinct(x)", 1, _counted),
    "std": Aggregate("ESP_aStd(x)", 1, _averaged),
    "var": Aggregate("ESP_aVar(x)", 1, _averaged),
    "wave": Aggregate("ESP_aWAve(weight, x)", 2, _averaged),
    "median": Aggregate("ESP_aMedian(x)", 1, _averaged),
    "mode": Aggregate("ESP_aMode(x)", 1, _ordered),
    "first": Aggregate("ESP_aFirst(x)", 1, _kept),
    "last": Aggregate("ESP_aLast(x)", 1, _kept),
    "lag": Aggregate("ESP_aLag(x, n)", 1, _kept, "count", 1),
    "cat": Aggregate("ESP_aCat(x, ',')", 1, _listed, "text", ","),
    "sumtimed": Aggregate("ESP_aSumTimed(x, seconds)", 1, _summed, "seconds"),
    "avetimed": Aggregate("ESP_aAveTimed(x, seconds)", 1, _averaged, "seconds"),
    "mintimed": Aggregate("ESP_aMinTimed(x, seconds)", 1, _ordered, "seconds"),
    "maxtimed": Aggregate("ESP_aMaxTimed(x, seconds)", 1, _ordered, "seconds"),
    "counttimed": Aggregate("ESP_aCountTimed(seconds)", 0, _counted, "seconds"),
}
"""The aggregate functions by their names without ESP_a."""


def split_aggregate(
    text: str, program: Group, scope: Scope, functions: UserFunctions | None = None
) -> tuple[Group, tuple[AggregateCall, ...]]:
    """The program with its aggregate calls replaced by #0, #1, ..., and the calls; equal calls are one."""
    splitter = _Splitter(text, scope, functions)
    found = splitter.statement(program)
    assert isinstance(found, Group)
    return found, tuple(splitter.calls.values())


class _Splitter:
    def __init__(self, text: str, scope: Scope, functions: UserFunctions | None) -> None:
        self.text = text
        self.scope = scope
        self.functions = functions
        self.calls: dict[str, AggregateCall] = {}

    def statement(self, step: Statement) -> Statement:
        match step:
            case Bare() | Return() | Assign():
                return replace(step, value=self.node(step.value))
            case Group():
                return replace(step, steps=tuple([self.statement(each) for each in step.steps]))
            case When():
                otherwise = None if step.otherwise is None else self.statement(step.otherwise)
                condition = self.node(step.condition)
                return replace(step, condition=condition, then=self.statement(step.then), otherwise=otherwise)
        return step

    def node(self, node: Node) -> Node:
        match node:
            case Call() if node.name.startswith(_PREFIX):
                return self._call(node)
            case Call() if (meant := _SQL.get(node.name.lower())) and len(node.arguments) < 2:
                reason = f"{node.name}() is no aggregate function of this language"
                raise fault(self.text, node.at, reason, f"Did you mean {meant}?")
            case Call():
                return replace(node, arguments=tuple([self.node(each) for each in node.arguments]))
            case Unary():
                return replace(node, operand=self.node(node.operand))
            case Binary():
                return replace(node, left=self.node(node.left), right=self.node(node.right))
            case Index():
                return replace(node, array=self.node(node.array), index=self.node(node.index))
            case Choice():
                parts = [self.node(each) for each in (node.condition, node.then, node.otherwise)]
                return replace(node, condition=parts[0], then=parts[1], otherwise=parts[2])
            case Name() if any(name == node.name for name, _ in self.scope.names):
                reason = f"the field {node.name!r} stands outside of an aggregate function"
                raise fault(
                    self.text, node.at, reason, f"Write ESP_aLast({node.name}) for its last value in the group."
                )
        return node

    def _call(self, node: Call) -> Name:
        key = repr(node)
        if key not in self.calls:
            self.calls[key] = self._made(node)
        return Name(at=node.at, name=f"#{list(self.calls).index(key)}", quoted=True)

    def _made(self, node: Call) -> AggregateCall:
        name = node.name.removeprefix(_PREFIX)
        kind = AGGREGATES.get(name)
        if kind is None:
            remedy = suggestion(node.name, [known.usage.partition("(")[0] for known in AGGREGATES.values()], "")
            raise fault(self.text, node.at, f"there is no aggregate function {node.name}", remedy)
        most = kind.arguments + bool(kind.constant)
        fewest = 0 if kind.is_optional else most - (kind.default is not None)
        if not fewest <= len(node.arguments) <= most:
            reason = f"{node.name} can't take {len(node.arguments)} argument(s)"
            raise fault(self.text, node.at, reason, f"Write {kind.usage}.")
        pairs = list(zip(node.arguments, node.texts, strict=True))[: kind.arguments]
        typed = [self._argument(each, text, kind) for each, text in pairs]
        arguments = tuple([expression for expression, _ in typed])
        result = typed[-1][1] if typed else INT64
        return AggregateCall(name, arguments, self._constants(node.arguments[kind.arguments :], kind), result)

    def _argument(self, node: Node, text: str, kind: Aggregate) -> tuple[Expression, FieldType]:
        code = Checker(self.text, self.scope, functions=self.functions).code(node)
        if not code.uses.is_pure:
            reason = "an aggregate can depend on the rows only, not on a clock, opcode or flags"
            raise fault(self.text, node.at, reason, "Compute a field in a window before, and use that.")
        try:
            code, result = kind.result(code)
        except Misfit as misfit:
            raise fault(self.text, node.at, misfit.reason, misfit.remedy) from None
        return make_expression(text, self.scope.names, code, None), result

    def _constants(self, nodes: tuple[Node, ...], kind: Aggregate) -> tuple[Value, ...]:
        if not kind.constant:
            return ()
        if not nodes:
            return (kind.default,)
        code = Checker(self.text, self.scope).code(nodes[0])
        value = code.value if code.is_constant else None
        if not _is_good(kind.constant, value):
            reason = {
                "count": f"a whole number from 0 to {_FARTHEST_LAG} is needed",
                "text": "a text is needed",
                "seconds": "a number of seconds above 0 is needed",
            }[kind.constant]
            raise fault(self.text, nodes[0].at, reason, f"Write it as a constant: {kind.usage}.")
        return (value,)


def _is_good(kind: str, value: Value) -> bool:
    if kind == "count":
        return isinstance(value, int) and 0 <= value <= _FARTHEST_LAG
    if kind == "text":
        return isinstance(value, str)
    return isinstance(value, int | float) and 0 < value < float("inf")


_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of an initializer: how many, and the code that gives them their first values."""

    count: int
    run: Run
    clocks: frozenset[str]

    def first(self, clock_us: int) -> list[Value]:
        """Their values before the first event."""
        environment = Environment(clock_us=clock_us, variables=[None] * self.count)
        self.run((), environment)
        return environment.variables


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A text typed against a scope. `evaluate` and `on_columns` give the same bits, row for row.

    evaluate(values in the order of the scope, environment) -> value
    """

    text: str
    type: FieldType
    fields: frozenset[str]
    """The fields it uses."""
    clocks: tuple[str, ...]
    """The functions it uses that read the model's clock."""
    is_pure: bool
    """Its value depends on the row alone: no variables, no clock, no opcode or flags."""
    evaluate: Run = field(repr=False)
    _names: tuple[tuple[str, FieldType], ...] = field(repr=False)
    _vector: Callable[[Inputs], Vector] = field(repr=False)
    _variables: Variables | None = field(repr=False)

    def initial(self, clock_us: int = 0) -> list[Value]:
        """The first values of the initializer's variables; all expressions of a window share them."""
        return [] if self._variables is None else self._variables.first(clock_us)

    def on_columns(self, columns: Mapping[str, pa.Array], length: int) -> pa.Array:
        """Its values for many rows at once; `columns` needs the fields it uses only."""
        assert self.is_pure, f"{self.text!r} depends on more than the row"
        with np.errstate(all="ignore"):
            found = self._vector(Inputs(self._names, columns, length))
            return (_plain(found) if self.type is FieldType.DOUBLE else found).arrow()


def make_expression(
    text: str, names: tuple[tuple[str, FieldType], ...], code: Code, variables: Variables | None
) -> Expression:
    """The expression of finished code; its type must be known."""
    assert code.type is not None
    clocks = code.uses.clocks
    if code.uses.variables and variables is not None:
        clocks |= variables.clocks
    return Expression(
        text,
        code.type,
        code.uses.fields,
        tuple(sorted(clocks)),
        code.uses.is_pure,
        _plainly(code.run) if code.type is FieldType.DOUBLE else code.run,
        names,
        code.vector,
        variables,
    )


def _plainly(run: Run) -> Run:
    """There are many bit patterns for not-a-number, and processors differ in which they give: only one comes out."""

    def evaluate(row: Row, env: Environment) -> Value:
        value = run(row, env)
        return value if value == value else _NAN

    return evaluate


def _plain(vector: Vector) -> Vector:
    values, valid = vector.numbers()
    strange = np.isnan(values)
    if not strange.any():
        return vector
    return Vector(vector.type, vector.length, numbers=(np.where(strange, _NAN, values), valid))
