"""Python code of the user: checked calls, functions that make fields of aggregates, procedural windows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from importlib import import_module
from types import GeneratorType
from typing import Any, ClassVar, NoReturn

from lockstep.engine.errors import ModelInvalid, UserCodeFailed
from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import FieldType, Value, fits, is_writable
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import ProceduralWindow
from lockstep.engine.reference.aggregate_functions import Function
from lockstep.engine.reference.functional import KeptRows
from lockstep.engine.reference.index import key_tree, row_tree, tree_key, tree_row
from lockstep.engine.reference.operator import Moment, Operator, Tree

MAX_DEPTH = 64
_PLAIN = {FieldType.DOUBLE: float, FieldType.STRING: str}
"""Types whose values need no second look, but for text beyond ASCII."""


class UserCode:
    """The code of one window; `what` it is called in errors. `block` is the one that is evaluated."""

    def __init__(self, what: str, node: Node) -> None:
        self.what, self.node, self.block = what, node, 0
        self._plain = [(field, _PLAIN.get(field.type)) for field in node.schema]

    def call(self, cause: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of a function; `cause` is the event, or whatever else it is called for."""
        try:
            return function(*arguments)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise self.failure(cause, f"{type(error).__name__}: {error}") from error

    def answers(self, cause: Any, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The answers of a function that gives several, or None for none; a generator is run to its end."""
        try:
            made = function(*arguments)
            is_list = made is None or _is_list(made)
            answers = list(made or ()) if is_list else []
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise self.failure(cause, f"{type(error).__name__}: {error}") from error
        if not is_list:
            self.fail(cause, f"it gave {shown(made)}; give back a list of rows")
        return answers

    def checked(self, made: Any, cause: Any, row_opcode: Opcode = Opcode.INSERT) -> Event:
        """An answer as an event, if it is one and its values fit the schema; a row gets an opcode."""
        if isinstance(made, Event):
            opcode, flags, values = made
        else:
            opcode, flags, values = row_opcode, Flag.NORMAL, made
        schema = self.node.schema
        if not isinstance(opcode, Opcode) or not isinstance(flags, Flag) or not flags or not isinstance(values, tuple):
            self.fail(cause, f"it gave {shown(made)}, which is neither an event nor a row")
        if len(values) != len(schema):
            self.fail(cause, f"it gave a row of {len(values)} fields, but the schema has {len(schema)}")
        for (field, plain), value in zip(self._plain, values, strict=True):
            if type(value) is plain and (not isinstance(value, str) or value.isascii()):
                continue
            if not fits(field.type, value):
                self.fail(cause, f"it gave {shown(value)} for {field.name}, which is a {field.type.value}")
            if not is_writable(value):
                self.fail(cause, f"it gave {shown(value)} for {field.name}, which UTF-8 can't write")
        return Event(opcode, flags, values)

    def kept(self, value: Any, depth: int = 0) -> Tree:
        """A copy of a state, if it can be kept."""
        if depth > MAX_DEPTH:
            self.fail(None, f"its state is nested deeper than {MAX_DEPTH}")
        if value is None or type(value) in (bool, float, bytes) or (type(value) is str and is_writable(value)):
            return value
        if type(value) is int and -(2**63) <= value < 2**64:
            return value
        if type(value) is list:
            return [self.kept(item, depth + 1) for item in value]
        if type(value) is dict and all(type(name) is str and is_writable(name) for name in value):
            return {name: self.kept(item, depth + 1) for name, item in value.items()}
        self.fail(None, f"its state holds {shown(value)}, which can't be kept")

    def fail(self, cause: Any, reason: str) -> NoReturn:
        """Stop with an error of the user's code."""
        raise self.failure(cause, reason)

    def failure(self, cause: Any, reason: str) -> UserCodeFailed:
        """An error of the user's code, with the window, the block and the event."""
        if isinstance(cause, Event):
            cause = tuple(cause.values)
        return UserCodeFailed(
            what=self.what,
            window=self.node.path,
            block=self.block,
            event="-" if cause is None else cause if isinstance(cause, str) else shown(cause),
            reason=reason.rstrip("."),
        )


def _is_list(made: Any) -> bool:
    """Whether code gave several rows, as it should, and not one row or event, or something else."""
    if type(made) in (list, GeneratorType):
        return True
    if isinstance(made, tuple):
        return not isinstance(made, Event) and all(isinstance(item, tuple) for item in made)
    return isinstance(made, Iterable) and not isinstance(made, str | bytes | dict)


def shown(value: Any) -> str:
    """A value in a message, cut off if it is long."""
    written = repr(value)
    return written if len(written) <= 200 else written[:200] + "..."


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


Handler = Callable[[Event, dict[str, Any]], Iterable[Event | Row] | None]


class ProceduralOperator(Operator):
    """Calls the handler."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, ProceduralWindow), "made by kind"
        self._code = UserCode(f"The handler {window.module}.{window.handler}", node)
        self._handler = self._found(window)
        self._state: dict[str, Any] = {}
        self._rows = KeptRows(node)

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - the handler sees the new row
        """Hand an event over, and take what comes back."""
        self._code.block = moment.block
        for made in self._code.answers(event, self._handler, event, self._state):
            answer = self._code.checked(made, event)
            found = self._rows.resolve(*answer)
            if isinstance(found, str):
                self.refuse(answer, found, f"{self._code.what} made it", moment)
            else:
                out.extend(found)

    def _found(self, window: ProceduralWindow) -> Handler:
        found = load_name(window.module, window.handler, self.node.path)
        try:
            handler = found().on_event if isinstance(found, type) else found
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise self._code.failure(None, f"it can't be loaded: {type(error).__name__}: {error}") from error
        if not callable(handler):
            self._code.fail(None, "it is neither a function nor a class with on_event")
        return handler  # type: ignore[no-any-return]

    def dump(self) -> Tree:
        """The handler's state, and the rows."""
        return {"state": self._code.kept(self._state), "rows": self._rows.dump(), "block": self._code.block}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._state = self._code.kept(state["state"])
        self._rows.load(state["rows"])
        self._code.block = state["block"]
