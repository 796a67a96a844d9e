"""The Structured Streaming query of one shard."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lockstep.engine.run.setup import EngineSetup
from lockstep.engine.spark.orders import OrderSource
from lockstep.engine.spark.processor import RESULT, WindowProcessor

SHARD_VARIABLE = "LOCKSTEP_SHARD"


def start_query(spark: SparkSession, setup: EngineSetup, shard: int, checkpoint: str) -> StreamingQuery:
    """Orders, one stateful operator, nothing to write: results leave through the spool.

    Each shard is a query of its own, with workers of its own: Spark keeps a pool of Python workers for each
    environment, so a variable in it is what keeps a shard with the process that has its state. It is set before the
    source is registered, so that the source's tasks, which never run at the same time, are done by the same process.
    """
    spark.sparkContext.environment[SHARD_VARIABLE] = str(shard)
    spark.dataSource.register(OrderSource)
    orders = spark.readStream.format(OrderSource.name()).option("setup", setup.text()).option("shard", shard).load()
    results = orders.groupBy("shard").transformWithState(
        statefulProcessor=WindowProcessor(setup.text()),
        outputStructType=RESULT,
        outputMode="append",
        timeMode="none",
    )
    writer = results.writeStream.format("noop").outputMode("append").queryName(f"lockstep-{shard}")
    return writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
