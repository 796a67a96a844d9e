"""The source of work orders: which entries of the sequence log a micro-batch evaluates. No event goes through Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from lockstep.engine.compute.planner import BatchPlanner

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

    def initialOffset(self) -> dict[str, Any]:
        """See BatchPlanner."""
        return self._planned().first()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: ARG002
        """See BatchPlanner."""
        return self._planned().next_after(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One order."""
        return [Order(start["number"], end["number"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The order as a row."""
        assert isinstance(partition, Order)
        yield (self._shard, partition.start, partition.stop)

    def _planned(self) -> BatchPlanner:
        if self._planner is None:
            self._planner = _planner(self._text, self._shard)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a copy without the open log."""
        return {"_text": self._text, "_shard": self._shard, "_planner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _planner(text: str, shard: int) -> BatchPlanner:
    """A planner on a bus of its own."""
    from lockstep.engine.compute.planner import BatchPlanner, SequenceTail
    from lockstep.engine.run.setup import EngineSetup
    from lockstep.log.urls import open_bus
    from lockstep.runtime import ThreadRuntime

    setup = EngineSetup.of(text)
    return BatchPlanner(
        setup, shard, lambda: SequenceTail.open(setup, open_bus(setup.url, ThreadRuntime(), create=False))
    )
