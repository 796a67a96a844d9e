"""The Structured Streaming query of one shard: a source of work orders, and the one stateful operator.

No event goes through Spark: an order says which entries of the sequence log a micro-batch evaluates, and results leave
through the spool. Spark imports this module in four processes for each shard, of which one evaluates; so what is heavy
is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

if TYPE_CHECKING:
    from lockstep.engine.compute.planner import BatchPlanner, SequenceTail
    from lockstep.engine.runtime.setup import EngineSetup
    from lockstep.log.port import LogWaiter

_IDLE_S = 0.1
SCHEMA = "shard int, start bigint, stop bigint"
RESULT = (
    "shard int, stop bigint, first_block bigint, last_block bigint, events bigint, output_bytes bigint,"
    " pages int, page_bytes bigint"
)
"""One row for each batch of a shard: what was done, for Spark's own figures."""
_NAME = StructType([StructField("name", StringType())])
_PAGE = StructType([StructField("page", BinaryType())])
SHARD_VARIABLE = "LOCKSTEP_SHARD"
OBSERVED = "windows"
"""How the figures of a batch are called in Spark's progress."""


def start_query(spark: SparkSession, setup: EngineSetup, project: str, shard: int, checkpoint: str) -> StreamingQuery:
    """Orders, one stateful operator, nothing to write: results leave through the spool.

    Each shard is a query of its own, with workers of its own: Spark keeps a pool of Python workers for each
    environment, so a variable in it is what keeps a shard with the process that has its state. It is set before the
    source is registered, so that the source's tasks, which never run at the same time, are done by the same process.
    """
    with _environment(spark, SHARD_VARIABLE, str(shard)):
        spark.dataSource.register(OrderSource)
        orders = spark.readStream.format(OrderSource.name()).option("setup", setup.text()).option("shard", shard)
        results = (
            orders.load()
            .groupBy("shard")
            .transformWithState(
                statefulProcessor=WindowProcessor(setup.text()),
                outputStructType=RESULT,
                outputMode="append",
                timeMode="none",
            )
        )
        writer = _observed(results).writeStream.format("noop").outputMode("append").queryName(f"{project}-{shard}")
        return writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()


def _observed(results: DataFrame) -> DataFrame:
    """Tell Spark what its batches are about: it sees one row each. It stands in `observedMetrics` of their progress."""
    sums = ("events", "output_bytes", "pages", "page_bytes")
    blocks = (functions.min("first_block").alias("first_block"), functions.max("last_block").alias("last_block"))
    return results.observe(OBSERVED, *blocks, *(functions.sum(name).alias(name) for name in sums))


@contextmanager
def _environment(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A variable for the Python workers of what is made meanwhile; others that use this Spark do not get it."""
    variables = spark.sparkContext.environment
    before = variables.get(name)
    variables[name] = value
    try:
        yield
    finally:
        if before is None:
            del variables[name]
        else:
            variables[name] = before


class OrderSource(DataSource):
    """`spark.readStream.format("lockstep-orders").option("setup", ...).option("shard", ...)`."""

    @classmethod
    def name(cls) -> str:
        """How Spark calls it."""
        return "lockstep-orders"

    def schema(self) -> str:
        """The columns of its rows."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002 - Spark's name
        """Reads what comes, batch by batch."""
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
        """Where the first batch of a new checkpoint begins."""
        return self._planned().first()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: ARG002
        """Spark asks again at once, so where there is nothing to do it is let wait for something."""
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


class WindowProcessor(StatefulProcessor):
    """Its plan does not depend on the model: whatever the windows are, Spark sees shards, orders and pages."""

    def __init__(self, setup: str) -> None:
        self._setup = setup

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state in which pages are kept."""
        self._pages = handle.getMapState("pages", _NAME, _PAGE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Evaluate the orders of one shard."""
        # Here, not at the top: of the processes that Spark makes for this class only one does the work.
        from lockstep.engine.runtime.setup import EngineSetup
        from lockstep.engine.spark.worker_process import run_orders_patiently

        shard, orders = key[0], sorted((row["start"], row["stop"]) for row in rows)
        pages, done = run_orders_patiently(EngineSetup.of(self._setup), shard, orders, self._stored, self._stored_head)
        for name, page in pages.items():
            if page is not None:
                self._pages.updateValue((name,), (page,))
            elif self._pages.containsKey((name,)):
                self._pages.removeKey((name,))
        size = sum(len(page) for page in pages.values() if page is not None)
        yield Row(
            shard=shard, stop=orders[-1][1], first_block=done.first, last_block=done.last, events=done.events,
            output_bytes=done.output_bytes, pages=len(pages), page_bytes=size,
        )  # fmt: skip

    def _stored(self) -> dict[str, bytes]:
        return {name[0]: bytes(page[0]) for name, page in self._pages.iterator()}

    def _stored_head(self) -> bytes | None:
        from lockstep.engine.runtime.snapshots.format import HEAD

        found = self._pages.getValue((HEAD,)) if self._pages.containsKey((HEAD,)) else None
        return None if found is None else bytes(found[0])

    def close(self) -> None:
        """Nothing is left open."""
