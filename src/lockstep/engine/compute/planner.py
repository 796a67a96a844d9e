"""Which entries of the sequence log a micro-batch evaluates next."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lockstep.core.sequence import SequenceState
from lockstep.engine.runtime.output.spool import Spool
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition, counted
from lockstep.engine.runtime.sequence.outages import BUS_AWAY
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.errors import DataError
from lockstep.log.port import Bus, Log

PULSE_S = 20.0
"""Spark ends Python workers that had nothing to do for a minute, and their hot state with them: so they have."""

Offset = dict[str, Any]
"""How far a shard is: `number` of the entry, `start` of which incarnation, and now and then a `pulse`."""


class BatchPlanner:
    """Plans the batches of one shard: bounded in events, and none while too much waits to be published."""

    def __init__(
        self,
        setup: EngineSetup,
        shard: int,
        open_tail: Callable[[], SequenceTail],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._setup, self._open_tail, self._monotonic = setup, open_tail, monotonic
        self._spool = Spool(setup.spool(shard))
        self._tail: SequenceTail | None = None
        self._began: float | None = None
        """When the last batch was begun."""

    def first(self) -> Offset:
        """Before the first entry, or where the state is with which it begins."""
        return {"number": self._setup.first, "start": ""}

    def next_after(self, done: Offset) -> Offset:
        """As far as the next batch may go; `done` itself if there is nothing to do.

        Each start of an engine has a first batch, if only to load the state: what was committed and nobody published
        is then evaluated again. And there is one now and then, so that a quiet engine stays warm.
        """
        if done.get("start") != self._setup.incarnation:
            return {"number": done["number"], "start": self._setup.incarnation}
        if self._setup.orders_ended():
            return done
        now = self._monotonic()
        if self._began is None:
            self._began = now
        stop = self._stop_after(done["number"])
        if stop != done["number"] or self._monotonic() - self._began > PULSE_S:
            self._began = self._monotonic()
            return {**done, "number": stop, "pulse": done.get("pulse", 0) + (stop == done["number"])}
        return done

    def newest(self) -> Offset:
        """The last entry that the last look at the sequence log has seen."""
        return {"number": 0 if self._tail is None else self._tail.number}

    def _stop_after(self, start: int) -> int:
        """The last entry of a batch that begins after `start`; `start` itself also while the bus is away."""
        waiting = self._spool.fill()
        if waiting.blocks >= self._setup.buffer_blocks or waiting.size >= self._setup.buffer_bytes:
            return start
        try:
            if self._tail is None:
                self._tail = self._open_tail()
            return self._tail.next_stop(start, self._setup.batch_events)
        except BUS_AWAY:
            return start


class SequenceTail:
    """Follows a sequence log and remembers how many events its newest entries hold."""

    def __init__(
        self, sequence: Log, newest: SequencePosition | None = None, known: SequencePosition | None = None
    ) -> None:
        """It begins at `newest`, or, if batches begin earlier, at `known`."""
        self._sequence, self._known = sequence, known or SequencePosition()
        self._state, self._events = SequenceState(), {0: 0}
        self._begin(newest or self._known)

    @classmethod
    def open(cls, setup: EngineSetup, bus: Bus) -> SequenceTail:
        """From the newest position that is published."""
        streams = setup.streams(setup.graph())
        newest, known = last_beat(bus.open(streams.control)).position, setup.known
        positions = [SequencePosition.of(position) if position else None for position in (newest, known)]
        return cls(bus.open(streams.sequence), *positions)

    @property
    def number(self) -> int:
        """The last entry that was seen."""
        return self._state.number

    def next_stop(self, start: int, max_events: int) -> int:
        """The last entry after `start` that keeps within `max_events`, at least one; `start` if there is none."""
        if start < min(self._events):  # the state is older than what is published: read from where it is
            self._begin(self._known)
        if start < min(self._events):
            name, noted = self._sequence.name, min(self._events)
            raise DataError(
                reason=f"The state stands at entry {start} of {name}, and its note says {noted}: one of them was"
                " removed. Begin anew with another --state folder."
            )
        for state, entry in counted(self._sequence, self._state):
            self._state = state
            self._events[state.number] = Decision.of(entry).events
        if start > self._state.number:
            name, last = self._sequence.name, self._state.number
            raise DataError(reason=f"The checkpoint is at entry {start} of {name}, which ends at {last}.")
        for number in [number for number in self._events if number < start]:
            del self._events[number]
        stop, room = start, self._events.get(start, 0) + max_events
        while stop + 1 in self._events and (stop == start or self._events[stop + 1] <= room):
            stop += 1
        return stop

    def _begin(self, known: SequencePosition) -> None:
        self._state, self._events = known.sequence, {known.number: known.events}
