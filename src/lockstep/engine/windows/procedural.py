"""Procedural windows: a Python handler makes the rows.

The handler is a function handler(event, state), or a class whose objects have on_event(event, state). It gives back
events or rows (a row is inserted), or nothing. An update comes once, as UPDATE_BLOCK with the new row. `state` is a
dict that is kept from event to event: what it holds must be None, bool, int, float, str, bytes, lists and dicts with
texts as keys. What the handler gives back must follow from the event and the state alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lockstep.engine.events.event import Event, Row
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import ProceduralWindow
from lockstep.engine.windows.function_rows import KeptRows
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.plugs import load_name
from lockstep.engine.windows.user_code import UserCode

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
