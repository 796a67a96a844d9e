"""Calling Python code of the user for a window: what it gives back is checked, and an error says where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any, NoReturn

from lockstep.engine.errors import UserCodeFailed
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.types import FieldType, fits, is_writable
from lockstep.engine.model.graph import Node
from lockstep.engine.windows.operator import Tree

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
