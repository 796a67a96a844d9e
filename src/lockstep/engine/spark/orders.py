"""The source of work orders: which entries of the sequence log a micro-batch evaluates. No event goes through Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from lockstep.engine.compute.planner import BatchPlanner, SequenceTail
    from lockstep.engine.runtime.setup import EngineSetup
    from lockstep.log.port import LogWaiter

_IDLE_S = 0.1
SCHEMA = "shard int, start bigint, stop bigint"


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
        return OrderReader(self.options["setup"], int(self.options["shard"]))


class Order(InputPartition):
    """Evaluate the entries after `start` through `stop`."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__(0)
        self.start, self.stop = start, stop


class OrderReader(DataSourceStreamReader):
    """Says how far the sequence log can be evaluated next. It lives in one process as long as the query does.

    Spark makes it in four processes, of which one asks it for more than a row; so only that one loads the engine.
    """

    def __init__(self, setup: str, shard: int) -> None:
        self._text, self._shard = setup, shard
        self._planner: BatchPlanner | None = None
        self._sequence: _Sequence | None = None

    def initialOffset(self) -> dict[str, Any]:
        """See BatchPlanner."""
        return self._planned().first()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: ARG002
        """See BatchPlanner. Spark asks again at once, so where there is nothing to do it is let wait for something."""
        planner = self._planned()
        found = planner.next_after(start)
        if found == start and self._sequence is not None:
            self._sequence.wait()
            found = planner.next_after(start)
        return found

    def reportLatestOffset(self) -> dict[str, Any]:
        """Where the sequence log ends, so that Spark can tell how far behind the shard is."""
        return self._planned().newest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One order."""
        return [Order(start["number"], end["number"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The order as a row."""
        assert isinstance(partition, Order)
        yield (self._shard, partition.start, partition.stop)

    def _planned(self) -> BatchPlanner:
        if self._planner is None:
            from lockstep.engine.compute.planner import BatchPlanner
            from lockstep.engine.runtime.setup import EngineSetup

            setup = EngineSetup.of(self._text)
            self._sequence = _Sequence(setup)
            self._planner = BatchPlanner(setup, self._shard, self._sequence.open)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a copy without the open log."""
        return {"_text": self._text, "_shard": self._shard, "_planner": None, "_sequence": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class _Sequence:
    """The sequence log on a bus of its own, once it is needed."""

    def __init__(self, setup: EngineSetup) -> None:
        self._setup = setup
        self._waiter: LogWaiter | None = None

    def open(self) -> SequenceTail:
        """The log, from the newest position that is published."""
        from lockstep.engine.compute.planner import SequenceTail
        from lockstep.log.urls import open_bus
        from lockstep.runtime import ThreadRuntime

        bus = open_bus(self._setup.url, ThreadRuntime(), create=False)
        tail = SequenceTail.open(self._setup, bus)
        self._waiter = bus.waiter()
        self._waiter.watch(bus.open(self._setup.streams(self._setup.graph()).sequence))
        return tail

    def wait(self) -> None:
        """Until something is appended; not for long, and not when the engine stops: Spark can't be stopped in it."""
        if self._waiter is not None and not self._setup.orders_ended():
            self._waiter.wait(_IDLE_S)
