"""What is counted of every window."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lockstep.engine.events.event import Event, Opcode
from lockstep.engine.windows.operator import Tree

INSERT, DELETE, UPDATE_BLOCK = Opcode.INSERT, Opcode.DELETE, Opcode.UPDATE_BLOCK


@dataclass(slots=True)
class WindowCounts:
    """Rows that are there (inserts minus deletes), events in and out, and bad events by reason.

    Rows are counted as the window made them; events out are those that its output options let pass.
    """

    rows: int = 0
    events_in: int = 0
    events_out: int = 0
    bad: dict[str, int] = field(default_factory=dict)

    def count_bad(self, reason: str) -> None:
        """One more bad event."""
        self.bad[reason] = self.bad.get(reason, 0) + 1

    def __add__(self, other: WindowCounts) -> WindowCounts:
        """The counts of a window that is divided over shards."""
        bad = {reason: self.bad.get(reason, 0) + other.bad.get(reason, 0) for reason in {**self.bad, **other.bad}}
        return WindowCounts(
            self.rows + other.rows, self.events_in + other.events_in, self.events_out + other.events_out, bad
        )

    def dump(self) -> Tree:
        """To be kept."""
        return [self.rows, self.events_in, self.events_out, dict(self.bad)]

    @classmethod
    def load(cls, state: Tree) -> WindowCounts:
        """Go on from dumped counts."""
        rows, events_in, events_out, bad = state
        return cls(rows, events_in, events_out, dict(bad))


def rows_added(events: Iterable[Event]) -> int:
    """How many rows more there are after these events; the two halves of an update cancel each other."""
    added = 0
    for opcode, _, _ in events:
        if opcode is INSERT or opcode is UPDATE_BLOCK:
            added += 1
        elif opcode is DELETE:
            added -= 1
    return added
