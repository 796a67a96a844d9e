"""The source of work orders: which entries of the sequence log a micro-batch evaluates. No event goes through Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from lockstep.engine.run.setup import EngineSetup
    from lockstep.engine.spark.tail import Ahead

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
        self._setup: EngineSetup | None = None
        self._ahead: Ahead | None = None
        self._started = 0.0
        """When the last batch was begun, on the clock of this process."""

    def initialOffset(self) -> dict[str, Any]:
        """Before the first entry, or where the state is with which it begins."""
        return {"number": self._known().first, "start": ""}

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: ARG002
        """As far as a batch may go.

        Each start of an engine has a first batch, if only to load the state: what Spark committed and nobody published
        is then evaluated again. And there is one now and then, so that a quiet engine stays warm.
        """
        if start.get("start") != self._known().incarnation:
            return {"number": start["number"], "start": self._known().incarnation}
        if self._known().orders_ended():
            return start
        self._started = self._started or time.monotonic()
        stop = self._stop_after(start["number"])
        if stop != start["number"] or time.monotonic() - self._started > PULSE_S:
            self._started = time.monotonic()
            return {**start, "number": stop, "pulse": start.get("pulse", 0) + (stop == start["number"])}
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One order."""
        return [Order(start["number"], end["number"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The order as a row."""
        assert isinstance(partition, Order)
        yield (self._shard, partition.start, partition.stop)

    def _stop_after(self, start: int) -> int:
        """As far as a batch may go; nowhere while the bus is away."""
        from lockstep.engine.run.outages import BUS_AWAY

        try:
            return self._next().stop_after(start)
        except BUS_AWAY:
            return start

    def _known(self) -> EngineSetup:
        from lockstep.engine.run.setup import EngineSetup

        if self._setup is None:
            self._setup = EngineSetup.of(self._text)
        return self._setup

    def _next(self) -> Ahead:
        from lockstep.engine.spark.tail import Ahead

        if self._ahead is None:
            self._ahead = Ahead.open(self._known(), self._shard)
        return self._ahead

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get a copy without the open log."""
        return {"_text": self._text, "_shard": self._shard, "_setup": None, "_ahead": None, "_started": 0.0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
