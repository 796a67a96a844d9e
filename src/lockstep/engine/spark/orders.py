"""The source of work orders: which entries of the sequence log a micro-batch evaluates. No event goes through Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

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

SCHEMA = "shard int, start bigint, stop bigint"
PULSE_S = 20.0
"""Spark ends Python workers that had nothing to do for a minute, and their hot state with them: so they have."""


class OrderSource(DataSource):
    """`spark.readStream.format("lockstep-orders").option("setup", ...).option("shard", ...)`."""

    @classmethod
    def name(cls) -> str:
        """How Spark calls it."""
        return "lockstep-orders"

    def schema(self) -> str:
        """See DataSource."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002 - Spark's name
        """See DataSource."""
        return OrderReader(EngineSetup.of(self.options["setup"]), int(self.options["shard"]))


class Order(InputPartition):
    """Evaluate the entries after `start` through `stop`."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__(0)
        self.start, self.stop = start, stop


class OrderReader(DataSourceStreamReader):
    """Says how far the sequence log can be evaluated next. It lives in one process as long as the query does."""

    def __init__(self, setup: EngineSetup, shard: int) -> None:
        self._setup, self._shard = setup, shard
        self._tail: SequenceTail | None = None
        self._spool: Spool | None = None
        self._started = 0.0
        """When the last batch was begun, on the clock of this process."""

    def initialOffset(self) -> dict[str, Any]:
        """Before the first entry, or where the state is with which it begins."""
        return {"number": self._setup.first, "start": ""}

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: ARG002
        """As far as a batch may go: bounded in events, and not at all while too much waits to be published.

        Each start of an engine has a first batch, if only to load the state: what Spark committed and nobody published
        is then evaluated again. And there is one now and then, so that a quiet engine stays warm.
        """
        if start.get("start") != self._setup.incarnation:
            return {"number": start["number"], "start": self._setup.incarnation}
        if self._tail is None:
            self._tail, self._spool = SequenceTail.open(self._setup), Spool(self._setup.spool(self._shard))
        assert self._spool is not None
        self._started = self._started or time.monotonic()
        stop = self._stop_after(start)
        if stop != start["number"] or time.monotonic() - self._started > PULSE_S:
            self._started = time.monotonic()
            return {**start, "number": stop, "pulse": start.get("pulse", 0) + (stop == start["number"])}
        return start

    def _stop_after(self, start: dict[str, Any]) -> int:
        assert self._tail is not None
        assert self._spool is not None
        waiting = self._spool.fill()
        if waiting.blocks >= self._setup.buffer_blocks or waiting.size >= self._setup.buffer_bytes:
            return int(start["number"])
        return self._tail.next_stop(start["number"], self._setup.batch_events)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One order."""
        return [Order(start["number"], end["number"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The order as a row."""
        assert isinstance(partition, Order)
        yield (self._shard, partition.start, partition.stop)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a copy without the open log."""
        return {"_setup": self._setup, "_shard": self._shard, "_tail": None, "_spool": None, "_started": 0.0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


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
