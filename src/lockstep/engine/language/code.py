"""What a piece of an expression becomes: a closure for one row, and the same for whole columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.engine.events.schema import FieldType, Value

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


Numbers = npt.NDArray[Any]
"""Of int64 or float64."""
Bools = npt.NDArray[np.bool_]


class Vector:
    """Values of one type; null where it is not valid. What stands in the place of a null number is of no meaning."""

    __slots__ = ("_arrow", "_items", "_numbers", "length", "type")

    def __init__(
        self,
        kind: FieldType,
        length: int,
        *,
        numbers: tuple[Numbers, Bools] | None = None,
        items: list[Value] | None = None,
        arrow: pa.Array | None = None,
    ) -> None:
        self.type = kind
        self.length = length
        self._numbers = numbers
        self._items = items
        self._arrow = arrow

    @classmethod
    def constant(cls, kind: FieldType, value: Value, length: int) -> Vector:
        """One value again and again."""
        if not kind.is_numeric:
            return cls(kind, length, items=[value] * length)
        number = np.full(length, 0 if value is None else value, _dtype(kind))
        return cls(kind, length, numbers=(number, np.full(length, value is not None)))

    def numbers(self) -> tuple[Numbers, Bools]:
        """Values and where they are valid; numeric types only."""
        if self._numbers is None:
            array = self.arrow()
            values = array.fill_null(0) if array.null_count else array
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            self._numbers = values.to_numpy(zero_copy_only=False).astype(_dtype(self.type), copy=False), valid
        return self._numbers

    def items(self) -> list[Value]:
        """The values one by one."""
        if self._items is None:
            values = self._plain() if self._numbers is None else _listed(*self._numbers)
            self._items = values
        return self._items

    def arrow(self) -> pa.Array:
        """The values as a column of their type."""
        if self._arrow is None:
            if self._numbers is None:
                self._arrow = pa.array(self._items, self.type.arrow)
            else:
                values, valid = self._numbers
                plain = np.where(valid, values, 0).astype(self.type.arrow.to_pandas_dtype(), copy=False)
                self._arrow = pa.array(plain, self.type.arrow, mask=~valid, from_pandas=False)
        return self._arrow

    def _plain(self) -> list[Value]:
        assert self._arrow is not None
        values = self._arrow.to_pylist()
        if self.type.element is None:
            return list(values)
        return [None if item is None else tuple(item) for item in values]


class Inputs:
    """The columns an expression is run on; `names` and types are those of its scope, in order."""

    def __init__(self, names: tuple[tuple[str, FieldType], ...], columns: Mapping[str, pa.Array], length: int) -> None:
        self.length = length
        self._types = dict(names)
        self._columns = columns
        self._vectors: dict[str, Vector] = {}

    def vector(self, name: str) -> Vector:
        """A field's column."""
        if name not in self._vectors:
            self._vectors[name] = Vector(self._types[name], self.length, arrow=self._columns[name])
        return self._vectors[name]

    def narrowed(self, count: int, names: tuple[tuple[str, FieldType], ...], given: Mapping[str, Vector]) -> Inputs:
        """The first `count` columns only, followed by the given ones."""
        found = Inputs((*list(self._types.items())[:count], *names), self._columns, self.length)
        found._vectors = {**self._vectors, **given}
        return found

    def rows(self, used: frozenset[str]) -> Iterator[tuple[Value, ...]]:
        """Row by row in the order of the scope; fields that are not used are null."""
        columns = [self.vector(name).items() if name in used else repeat(None, self.length) for name in self._types]
        return zip(*columns, strict=True) if columns else repeat((), self.length)


def _dtype(kind: FieldType) -> type[np.int64] | type[np.float64]:
    return np.float64 if kind is FieldType.DOUBLE else np.int64


def _listed(values: Numbers, valid: Bools) -> list[Value]:
    items: list[Value] = values.tolist()
    if not valid.all():
        for place in np.flatnonzero(~valid).tolist():
            items[place] = None
    return items
