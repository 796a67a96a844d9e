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
from lockstep.engine.events.types import FieldType, Value, fits, is_writable
from lockstep.engine.windows.functions import Function
from lockstep.engine.windows.index import key_tree, row_tree, tree_key, tree_row
from lockstep.engine.windows.operator import Tree

PlugFunction = Callable[[list[Row]], Any]


def load_function(module: str, name: str, window: str) -> Callable[..., Any]:
    """The function `name` of a module, which must be importable."""
    found = load_name(module, name, window)
    if not callable(found):
        raise _fault(window, f"{module}.{name} is not a function")
    return found  # type: ignore[no-any-return]


def load_name(module: str, name: str, window: str) -> Any:
    """What a module calls `name`; whatever goes wrong with that is a fault of the model's surroundings."""
    try:
        loaded = import_module(module)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except ModuleNotFoundError as error:
        reason = f"the module {module} can't be loaded: {error}; the folder it is in must be on PYTHONPATH"
        raise _fault(window, reason) from error
    except BaseException as error:
        raise _fault(window, f"the module {module} can't be loaded: {type(error).__name__}: {error}") from error
    if not hasattr(loaded, name):
        raise _fault(window, f"{module}.{name} can't be loaded: the module has no {name}")
    return getattr(loaded, name)


def _fault(window: str, problem: str) -> ModelInvalid:
    return ModelInvalid(name=window, count=1, faults=f"  {window}: {problem}")


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
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            raise PlugFailed(reason) from error
        if self.kind is FieldType.DOUBLE and type(made) is int:
            return float(made)
        if not fits(self.kind, made):
            reason = f"it gave {made!r:.80}, which is not of type {self.kind.value}"
            raise PlugFailed(reason)
        if not is_writable(made):
            reason = f"it gave {made!r:.80}, which UTF-8 can't write"
            raise PlugFailed(reason)
        return made

    def dump(self) -> Tree:
        """Keys and rows in order."""
        return [[key_tree(key), row_tree(row)] for key, row in self.rows.items()]

    def load(self, state: Tree) -> None:
        """Go on from dumped rows."""
        self.rows = OrderedDict((tree_key(key), tree_row(row)) for key, row in state)
