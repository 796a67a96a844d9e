"""The Structured Streaming query of one shard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.spark.orders import OrderSource
from lockstep.engine.spark.processor import RESULT, WindowProcessor

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
