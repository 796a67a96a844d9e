"""Union windows: the rows of several windows with the same schema.

Strict: a key may come from one input only, as long as its row is there. Else the last writer has the row: an insert
of a known key is an update, and a delete by an input that is not the last writer is nothing, because its row is not the
one that is there.
"""

from __future__ import annotations

from typing import cast

from lockstep.engine.events.event import Event, Row
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import UnionWindow
from lockstep.engine.windows.copy import pass_on
from lockstep.engine.windows.index import DELETE, INSERT, RESOLVED, SAFEDELETE, UPSERT, Index, Key
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.source import details


class UnionOperator(Operator):
    """Knows for each row which input wrote it."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._is_strict = cast(UnionWindow, node.window).strict
        self._index = Index(node.schema) if node.is_indexed else None
        self._writers: dict[Key, int] = {}

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Take one change of one input."""
        index = self._index
        if index is None:
            pass_on(event, old, out)
            return
        key = index.key_of(event.values)
        writer = self._writers.get(key)
        if self._is_strict:
            if writer is not None and writer != port:
                self.refuse(event, "strict-union", f"the row with this key is from input {writer + 1}", moment)
                return
        elif event.opcode is INSERT:
            event = Event(UPSERT, RESOLVED[event.flags], event.values)
        elif writer != port and (event.opcode is DELETE or event.opcode is SAFEDELETE):
            return
        reason = index.take(event, out)
        if reason is not None:
            self.refuse(event, reason, details(reason), moment)
        elif key in index.rows:
            self._writers[key] = port
        else:
            self._writers.pop(key, None)

    def dump(self) -> Tree:
        """The rows with their writers."""
        if self._index is None:
            return None
        return {"index": self._index.dump(), "writers": [self._writers[key] for key in self._index.rows]}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if self._index is not None:
            self._index.load(state["index"])
            self._writers = dict(zip(self._index.rows, state["writers"], strict=True))
