"""How far a sequence log can be evaluated next."""

from __future__ import annotations

from lockstep.core.sequence import SequenceState
from lockstep.engine.run.beats import last_beat
from lockstep.engine.run.decisions import Decision, counted
from lockstep.engine.run.position import Position
from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.run.spool import Spool
from lockstep.errors import DataError
from lockstep.log.port import Bus, Log
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime


class Ahead:
    """What a shard may evaluate next: bounded in events, and nothing while too much waits to be published."""

    def __init__(self, setup: EngineSetup, shard: int, tail: SequenceTail) -> None:
        self._setup, self._tail = setup, tail
        self._spool = Spool(setup.spool(shard))

    @classmethod
    def open(cls, setup: EngineSetup, shard: int) -> Ahead:
        """On a bus of its own."""
        return cls(setup, shard, SequenceTail.open(setup))

    def stop_after(self, start: int) -> int:
        """The last entry of a batch that begins behind `start`; `start` itself if there is nothing to do."""
        waiting = self._spool.fill()
        if waiting.blocks >= self._setup.buffer_blocks or waiting.size >= self._setup.buffer_bytes:
            return start
        return self._tail.next_stop(start, self._setup.batch_events)


class SequenceTail:
    """Follows a sequence log and remembers how many events its newest entries hold."""

    def __init__(self, sequence: Log, newest: Position | None = None, known: Position | None = None) -> None:
        """It begins at `newest`, or, if orders begin earlier, at `known`."""
        self._sequence, self._known = sequence, known or Position()
        self._state, self._events = SequenceState(), {0: 0}
        self._begin(newest or self._known)

    @classmethod
    def open(cls, setup: EngineSetup) -> SequenceTail:
        """On a bus of its own, from the newest position that is published."""
        bus: Bus = open_bus(setup.url, ThreadRuntime(), create=False)
        streams = setup.streams(setup.graph())
        newest, known = last_beat(bus.open(streams.control)).position, setup.known
        positions = [Position.of(position) if position else None for position in (newest, known)]
        return cls(bus.open(streams.sequence), *positions)

    def next_stop(self, start: int, max_events: int) -> int:
        """The last entry behind `start` that keeps within `max_events`, at least one; `start` if there is none."""
        if start < min(self._events):  # Spark is behind what is published: read from where it has its state
            self._begin(self._known)
        for state, entry in counted(self._sequence, self._state):
            self._state = state
            self._events[state.number] = Decision.of(entry).events
        if start > self._state.number:
            name, last = self._sequence.name, self._state.number
            raise DataError(reason=f"Spark's checkpoint is at entry {start} of {name}, which ends at {last}.")
        for number in [number for number in self._events if number < start]:
            del self._events[number]
        stop, room = start, self._events.get(start, 0) + max_events
        while stop + 1 in self._events and (stop == start or self._events[stop + 1] <= room):
            stop += 1
        return stop

    def _begin(self, known: Position) -> None:
        self._state, self._events = known.sequence, {known.number: known.events}
