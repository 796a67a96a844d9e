"""What all shards of a node share, and how they write into the history."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from lockstep.core.agenda import Event
from lockstep.core.ladder import Ladder
from lockstep.schedule import bodies
from lockstep.schedule.rows import Change, Outgoing
from lockstep.schedule.store.port import Store
from lockstep.schedule.streams import SchedulerStreams


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardContext:
    """Store, streams and settings that all shards of a node use."""

    streams: SchedulerStreams
    store: Store
    node: str
    ladder: Ladder
    keep_ms: int
    lapse_ms: int = 0
    largest: Callable[[str], int] = lambda _: sys.maxsize
    """How many bytes a record of a stream may have."""

    def history(self, change: Change, value: bytes) -> None:
        """Have a record of the history written with a change."""
        change.outgoing.append(Outgoing(self.streams.history, value))

    def tell(self, change: Change, what: str, event: Event, now: int, **more: int | str) -> None:
        """Have the history tell what happened to an event."""
        self.history(change, bodies.history(what, event, now, self.node, **more))
