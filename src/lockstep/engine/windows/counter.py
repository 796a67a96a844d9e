"""Counter windows: for each input window how many events came, in the last interval and in all.

Rows are made on ticks of the model's clock, at the multiples of the count interval from the first tick on, or on each
tick if none is given. Every event counts, an update as one. Rates are events a second: the interval's since the last
row, the total's since the input's first event (or the first tick, if that is later). Without an index each row is an
insert. An input that was silent for the
clear interval loses its row and begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.types import Value
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import CounterWindow
from lockstep.engine.windows.function_rows import restored
from lockstep.engine.windows.operator import Moment, Operator, Tree

_SECOND = 1_000_000


@dataclass(slots=True)
class _Count:
    """What is known of one input."""

    total: int = 0
    interval: int = 0
    since_us: int | None = None
    active_us: int | None = None
    row: Row | None = None


class CounterOperator(Operator):
    """Counts events."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, CounterWindow), "made by kind"
        self._window = window
        self._counts = [_Count() for _ in node.parents]
        self._origin_us: int | None = None
        self._last_us = 0

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - an event is an event
        """Count an event."""
        count = self._counts[port]
        count.total += 1
        count.interval += 1
        if self._origin_us is not None:
            count.active_us = moment.clock_us
            if count.since_us is None:
                count.since_us = moment.clock_us

    def on_tick(self, moment: Moment, out: list[Event]) -> None:
        """Make rows if an interval has passed."""
        now = moment.clock_us
        if self._origin_us is None:
            self._begin(now)
            return
        self._clear(now, out)
        if self._is_due(now):
            for port, count in enumerate(self._counts):
                if count.total:
                    self._emit(self.node.parents[port].name, count, now, out)
            self._last_us = now

    def _begin(self, now: int) -> None:
        """The first tick: what came before it counts as come now, for want of a clock."""
        self._origin_us = self._last_us = now
        for count in self._counts:
            if count.total:
                count.since_us = count.active_us = now

    def _is_due(self, now: int) -> bool:
        assert self._origin_us is not None, "a tick came before"
        step = self._window.count_us
        if not step:
            return now > self._last_us
        return (now - self._origin_us) // step > (self._last_us - self._origin_us) // step

    def _clear(self, now: int, out: list[Event]) -> None:
        limit = self._window.clear_us
        for port, count in enumerate(self._counts):
            if limit and count.active_us is not None and now - count.active_us >= limit:
                if count.row is not None:
                    out.append(Event(Opcode.DELETE, Flag.NORMAL, count.row))
                self._counts[port] = _Count()

    def _emit(self, name: str, count: _Count, now: int, out: list[Event]) -> None:
        since = now if count.since_us is None else count.since_us
        known: dict[str, Value] = {
            "input": name,
            "totalCount": count.total,
            "totalSeconds": (now - since) / _SECOND,
            "totalRate": _rate(count.total, now - since),
            "intervalCount": count.interval,
            "intervalSeconds": (now - self._last_us) / _SECOND,
            "intervalRate": _rate(count.interval, now - self._last_us),
        }
        row = tuple([known.get(field.name) for field in self.node.schema])
        count.interval = 0
        if not self.node.is_indexed:
            out.append(Event(Opcode.INSERT, Flag.NORMAL, row))
            return
        if count.row is None:
            out.append(Event(Opcode.INSERT, Flag.NORMAL, row))
        else:
            out.append(Event(Opcode.UPDATE_BLOCK, Flag.NORMAL, row))
            out.append(Event(Opcode.DELETE, Flag.NORMAL, count.row))
        count.row = row

    def dump(self) -> Tree:
        """All counts, and when the last rows were made."""
        counts = [
            [count.total, count.interval, count.since_us, count.active_us, None if count.row is None else [*count.row]]
            for count in self._counts
        ]
        return {"origin": self._origin_us, "last": self._last_us, "counts": counts}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._origin_us, self._last_us = state["origin"], state["last"]
        self._counts = [
            _Count(total, interval, since, active, None if row is None else restored(row))
            for total, interval, since, active, row in state["counts"]
        ]


def _rate(events: int, microseconds: int) -> float | None:
    """Events a second; null if no time has passed."""
    return events * _SECOND / microseconds if microseconds > 0 else None
