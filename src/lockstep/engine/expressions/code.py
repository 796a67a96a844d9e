"""What a piece of an expression becomes: a closure for one row, and a way to do the same for whole columns.

Every operator is a Kernel. Its meaning is `scalar`, a plain function of values that are not null; it never raises. A
kernel may also have a form for numpy numbers or Arrow arrays, if that gives the same bits; one without is applied value
by value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.vectors import Bools, Inputs, Numbers, Vector

Row = Sequence[Value]


@dataclass(slots=True)
class Environment:
    """What an evaluation sees besides the row: the model's clock, the event, and the variables of an initializer."""

    clock_us: int = 0
    block: int = 0
    opcode: str = "I"
    flags: str = "N"
    variables: list[Value] = field(default_factory=list)
    scratch: list[Value] = field(default_factory=list, repr=False)
    """Variables of a program that live only while it runs."""
    rounds: int = 0
    """How often its loops went round."""


Run = Callable[[Row, Environment], Value]


@dataclass(frozen=True, slots=True)
class Uses:
    """What a piece of code depends on."""

    fields: frozenset[str] = frozenset()
    clocks: frozenset[str] = frozenset()
    event: bool = False
    """Reads the opcode or the flags."""
    variables: bool = False
    """Reads or writes variables of an initializer."""

    @property
    def is_pure(self) -> bool:
        """Depends on the row alone."""
        return not (self.clocks or self.event or self.variables)

    def __or__(self, other: Uses) -> Uses:
        return Uses(
            self.fields | other.fields,
            self.clocks | other.clocks,
            self.event or other.event,
            self.variables or other.variables,
        )


@dataclass(frozen=True, slots=True)
class Code:
    """A typed piece of an expression; type None is that of the word null, which fits everywhere."""

    type: FieldType | None
    run: Run
    vector: Callable[[Inputs], Vector]
    uses: Uses = Uses()
    is_constant: bool = False

    @property
    def value(self) -> Value:
        """Of a constant."""
        assert self.is_constant
        return self.run((), Environment())


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operation on values that are not null; the numpy form gives the results and perhaps where they are valid."""

    scalar: Callable[..., Value]
    numbers: Callable[..., tuple[Numbers, Bools | None]] | None = None
    arrow: Callable[..., pa.Array] | None = None
    """From vectors to an array; nulls go through."""


def constant(kind: FieldType | None, value: Value) -> Code:
    """A value that never changes."""
    shown = kind or FieldType.INT32
    return Code(
        kind, lambda _row, _env: value, lambda inputs: Vector.constant(shown, value, inputs.length), Uses(), True
    )


def merged(parts: Sequence[Code]) -> Uses:
    """What all the parts together depend on."""
    uses = Uses()
    for part in parts:
        uses |= part.uses
    return uses


def retyped(code: Code, kind: FieldType) -> Code:
    """The same values under another type that keeps them in the same way."""
    if code.type is None or code.is_constant:
        return constant(kind, code.value)

    def vector(inputs: Inputs) -> Vector:
        found = code.vector(inputs)
        if kind.is_numeric:
            return Vector(kind, inputs.length, numbers=found.numbers())
        return Vector(kind, inputs.length, items=found.items())

    return Code(kind, code.run, vector, code.uses)


def strict(kernel: Kernel, kind: FieldType, *arguments: Code) -> Code:
    """A kernel applied to its arguments: null as soon as one of them is null."""
    make: Callable[..., Run] = _RUNS.get(len(arguments), _run_many)
    run = make(kernel.scalar, *(argument.run for argument in arguments))
    if all(argument.is_constant for argument in arguments):
        return constant(kind, run((), Environment()))
    parts = tuple(argument.vector for argument in arguments)

    def vector(inputs: Inputs) -> Vector:
        return _apply(kernel, kind, [part(inputs) for part in parts], inputs.length)

    return Code(kind, run, vector, merged(arguments))


def row_by_row(kind: FieldType, run: Run, uses: Uses) -> Code:
    """Code that has no column form of its own."""

    def vector(inputs: Inputs) -> Vector:
        environment = Environment()
        rows = inputs.rows(uses.fields)
        return Vector(kind, inputs.length, items=[run(row, environment) for row in rows])

    return Code(kind, run, vector, uses)


def _apply(kernel: Kernel, kind: FieldType, arguments: list[Vector], length: int) -> Vector:
    if kernel.numbers is not None:
        pairs = [argument.numbers() for argument in arguments]
        values, good = kernel.numbers(*(numbers for numbers, _ in pairs))
        valid = pairs[0][1]
        for _, other in pairs[1:]:
            valid = valid & other
        return Vector(kind, length, numbers=(values, valid if good is None else valid & good))
    if kernel.arrow is not None:
        return Vector(kind, length, arrow=kernel.arrow(*arguments))
    return Vector(kind, length, items=_one_by_one(kernel.scalar, [argument.items() for argument in arguments]))


def _one_by_one(scalar: Callable[..., Value], columns: list[list[Value]]) -> list[Value]:
    if len(columns) == 1:
        return [None if item is None else scalar(item) for item in columns[0]]
    if len(columns) == 2:
        pairs = zip(*columns, strict=True)
        return [None if left is None or right is None else scalar(left, right) for left, right in pairs]
    return [None if any(item is None for item in row) else scalar(*row) for row in zip(*columns, strict=True)]


def _run_none(scalar: Callable[..., Value]) -> Run:
    return lambda _row, _env: scalar()


def _run_one(scalar: Callable[..., Value], operand: Run) -> Run:
    def run(row: Row, env: Environment) -> Value:
        value = operand(row, env)
        return None if value is None else scalar(value)

    return run


def _run_two(scalar: Callable[..., Value], left: Run, right: Run) -> Run:
    def run(row: Row, env: Environment) -> Value:
        first = left(row, env)
        if first is None:
            return None
        second = right(row, env)
        return None if second is None else scalar(first, second)

    return run


def _run_many(scalar: Callable[..., Value], *parts: Run) -> Run:
    def run(row: Row, env: Environment) -> Value:
        values: list[Any] = []
        for part in parts:
            value = part(row, env)
            if value is None:
                return None
            values.append(value)
        return scalar(*values)

    return run


_RUNS: dict[int, Callable[..., Run]] = {0: _run_none, 1: _run_one, 2: _run_two}
