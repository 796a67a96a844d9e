"""Python functions of the user that make fields of aggregates: f(rows) -> value.

`rows` is a list of tuples, one for each member of the group in the order in which they came, holding the fields that
the model names (all of the input if it names none).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any, ClassVar

from lockstep.engine.errors import ModelInvalid
from lockstep.engine.events.event import Event, Row
from lockstep.engine.events.types import FieldType, Value, fits
from lockstep.engine.windows.functions import Function
from lockstep.engine.windows.index import key_tree, row_tree, tree_key, tree_row
from lockstep.engine.windows.operator import Tree

PlugFunction = Callable[[list[Row]], Any]


def load_function(module: str, name: str, window: str) -> Callable[..., Any]:
    """The function `name` of a module, which must be importable."""
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        faults = f"  {window}: {module}.{name} can't be loaded: {error}"
        raise ModelInvalid(name=window, count=1, faults=faults) from error
    if not callable(found):
        raise ModelInvalid(name=window, count=1, faults=f"  {window}: {module}.{name} is not a function")
    return found  # type: ignore[no-any-return]


def describe(event: Event) -> str:
    """An event in an error message."""
    values = ",".join("" if value is None else str(value) for value in event.values)
    return f"{event.opcode.letter},{event.flags.letters},{values}"[:200]


class PlugFailed(Exception):
    """A function of the user raised an error; the window that called it knows block and event."""


class Plug(Function):
    """Keeps the rows of a group's members for a function of the user."""

    __slots__ = ("function", "kind", "rows")
    sees: ClassVar[str] = "key"

    def __init__(self, function: PlugFunction, kind: FieldType) -> None:
        self.function = function
        self.kind = kind
        self.rows: OrderedDict[Hashable, Row] = OrderedDict()

    def add(self, values: Row) -> None:
        """A member comes in at the end."""
        self.rows[values[-1]] = values[:-1]

    def remove(self, values: Row) -> None:
        """A member leaves."""
        self.rows.pop(values[-1], None)

    def value(self) -> Value:
        """What the function makes of the rows."""
        try:
            made: Value = self.function(list(self.rows.values()))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise PlugFailed(reason) from error
        if self.kind is FieldType.DOUBLE and type(made) is int:
            return float(made)
        if not fits(self.kind, made):
            reason = f"it gave {made!r:.80}, which is not of type {self.kind.value}"
            raise PlugFailed(reason)
        return made

    def dump(self) -> Tree:
        """Keys and rows in order."""
        return [[key_tree(key), row_tree(row)] for key, row in self.rows.items()]

    def load(self, state: Tree) -> None:
        """Go on from dumped rows."""
        self.rows = OrderedDict((tree_key(key), tree_row(row)) for key, row in state)
