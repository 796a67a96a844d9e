"""Procedural windows: a Python handler makes the rows.

The handler is a function handler(event, state), or a class whose objects have on_event(event, state). It gives back
events or rows (a row is inserted), or nothing. An update comes once, as UPDATE_BLOCK with the new row. `state` is a
dict that is kept from event to event: what it holds must be None, bool, int, float, str, bytes, lists and dicts with
texts as keys. What the handler gives back must follow from the event and the state alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from lockstep.engine.errors import UserCodeFailed
from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.types import fits, is_writable
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import ProceduralWindow
from lockstep.engine.windows.function_rows import KeptRows
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.plugs import load_name

MAX_DEPTH = 64

Handler = Callable[[Event, dict[str, Any]], Iterable[Event | Row] | None]


class ProceduralOperator(Operator):
    """Calls the handler."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, ProceduralWindow), "made by kind"
        self._what = f"The handler {window.module}.{window.handler}"
        self._block = 0
        self._handler = self._found(window)
        self._state: dict[str, Any] = {}
        self._rows = KeptRows(node)

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - the handler sees the new row
        """Hand an event over, and take what comes back."""
        self._block = moment.block
        for made in self._answers(event):
            answer = self._checked(made, event)
            found = self._rows.resolve(*answer)
            if isinstance(found, str):
                self.refuse(answer, found, f"{self._what} made it", moment)
            else:
                out.extend(found)

    def _found(self, window: ProceduralWindow) -> Handler:
        found = load_name(window.module, window.handler, self.node.path)
        try:
            handler = found().on_event if isinstance(found, type) else found
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise self._failure(None, f"it can't be loaded: {type(error).__name__}: {error}") from error
        if not callable(handler):
            self._fail(None, "it is neither a function nor a class with on_event")
        return handler  # type: ignore[no-any-return]

    def _answers(self, event: Event) -> list[Any]:
        try:
            made = self._handler(event, self._state)
            is_list = made is None or _is_list(made)
            answers = list(made or ()) if is_list else []
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            raise self._failure(event, f"{type(error).__name__}: {error}") from error
        if not is_list:
            self._fail(event, f"it gave {_shown(made)}; give back a list of rows")
        return answers

    def _checked(self, made: Any, event: Event) -> Event:
        """An answer as an event, if it is one and its values fit the schema."""
        if isinstance(made, Event):
            opcode, flags, values = made
        else:
            opcode, flags, values = Opcode.INSERT, Flag.NORMAL, made
        if not isinstance(opcode, Opcode) or not isinstance(flags, Flag) or not flags or not isinstance(values, tuple):
            self._fail(event, f"it gave {_shown(made)}, which is neither an event nor a row")
        if len(values) != len(self.node.schema):
            self._fail(event, f"it gave a row of {len(values)} fields, but the schema has {len(self.node.schema)}")
        for field, value in zip(self.node.schema, values, strict=True):
            if not fits(field.type, value):
                self._fail(event, f"it gave {_shown(value)} for {field.name}, which is a {field.type.value}")
            if not is_writable(value):
                self._fail(event, f"it gave {_shown(value)} for {field.name}, which UTF-8 can't write")
        return Event(opcode, flags, values)

    def _fail(self, event: Event | None, reason: str) -> NoReturn:
        raise self._failure(event, reason)

    def _failure(self, event: Event | None, reason: str) -> UserCodeFailed:
        return UserCodeFailed(
            what=self._what,
            window=self.node.path,
            block=self._block,
            event="-" if event is None else _shown(tuple(event.values)),
            reason=reason.rstrip("."),
        )

    def dump(self) -> Tree:
        """The handler's state, and the rows."""
        return {"state": self._kept(self._state, 0), "rows": self._rows.dump(), "block": self._block}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._state = self._kept(state["state"], 0)
        self._rows.load(state["rows"])
        self._block = state["block"]

    def _kept(self, value: Any, depth: int) -> Any:
        """A copy of the state, if it can be kept."""
        if depth > MAX_DEPTH:
            self._fail(None, f"its state is nested deeper than {MAX_DEPTH}")
        if value is None or type(value) in (bool, float, bytes) or (type(value) is str and is_writable(value)):
            return value
        if type(value) is int and -(2**63) <= value < 2**64:
            return value
        if type(value) is list:
            return [self._kept(item, depth + 1) for item in value]
        if type(value) is dict and all(type(name) is str and is_writable(name) for name in value):
            return {name: self._kept(item, depth + 1) for name, item in value.items()}
        self._fail(None, f"its state holds {_shown(value)}, which can't be kept")


def _is_list(made: Any) -> bool:
    """Whether a handler gave several rows, as it should, and not one row or event, or something else."""
    if isinstance(made, tuple):
        return not isinstance(made, Event) and all(isinstance(item, tuple) for item in made)
    return isinstance(made, Iterable) and not isinstance(made, str | bytes | dict)


def _shown(value: Any) -> str:
    written = repr(value)
    return written if len(written) <= 200 else written[:200] + "..."
