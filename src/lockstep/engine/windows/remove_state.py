"""Remove-state windows: every event as an insert under a number of its own, from 1 on without gaps.

`remove` leaves out kinds of events: updates and deletes that retention did not cause, retentionUpdates and
retentionDeletes that it did, updateBlockDeletes, the old halves of updates. Without updates there are no old halves.
"""

from __future__ import annotations

from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.types import Value
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import RemoveStateWindow
from lockstep.engine.windows.operator import Moment, Operator, Tree

_KINDS = {
    Opcode.UPDATE: "updates",
    Opcode.UPSERT: "updates",
    Opcode.UPDATE_BLOCK: "updates",
    Opcode.DELETE: "deletes",
    Opcode.SAFEDELETE: "deletes",
}
_BY_RETENTION = {"updates": "retentionUpdates", "deletes": "retentionDeletes"}


class RemoveStateOperator(Operator):
    """Numbers events."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, RemoveStateWindow), "made by kind"
        self._removed = frozenset(window.remove)
        self._number = 0
        self._places = [node.inputs[0].places.get(field.name) for field in node.schema]
        self._own = {node.schema.places[name]: name for name in _OWN if name in node.schema}

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - time does not matter
        """Pass an event on as an insert, unless its kind is left out."""
        kind = kind_of(event)
        if kind in self._removed:
            return
        self._emit(event, event.values, event.opcode.letter, out)
        if event.opcode is Opcode.UPDATE_BLOCK and old is not None and "updateBlockDeletes" not in self._removed:
            self._emit(event, old, Opcode.DELETE.letter, out)

    def _emit(self, event: Event, row: Row, letters: str, out: list[Event]) -> None:
        number, self._number = self._number, self._number + 1
        own: dict[str, Value] = {
            "eventNumber": number + 1,
            "originalOC": letters,
            "originalFL": event.flags.letters,
        }
        values = [
            own[self._own[place]] if place in self._own else _at(row, given) for place, given in enumerate(self._places)
        ]
        out.append(Event(Opcode.INSERT, Flag.NORMAL, tuple(values)))

    def dump(self) -> Tree:
        """The number of the last event."""
        return {"number": self._number}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._number = state["number"]


_OWN = ("eventNumber", "originalOC", "originalFL")


def kind_of(event: Event) -> str | None:
    """The kind of an event, as `remove` names it; inserts have none."""
    kind = _KINDS.get(event.opcode)
    return _BY_RETENTION[kind] if kind is not None and event.flags & Flag.RETENTION else kind


def _at(row: Row, place: int | None) -> Value:
    return None if place is None else row[place]
