"""An expression that is ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.code import Code, Environment, Row, Run
from lockstep.engine.expressions.vectors import Inputs, Vector

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
