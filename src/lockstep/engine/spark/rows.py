"""Streams as rows for any Spark program.

from lockstep.engine.spark.rows import register

register(spark)
orders = spark.readStream.format("lockstep").option("url", "lmdb:./events").option("stream", "orders").load()
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lockstep.engine.spark.rows_bus import all_logs, open_shared, opened
from lockstep.engine.spark.rows_columns import DEFAULT, schema_of
from lockstep.engine.spark.rows_options import ReadOptions, WriteOptions
from lockstep.engine.spark.rows_reading import RowReader, RowStreamReader
from lockstep.engine.spark.rows_staging import discard_all
from lockstep.engine.spark.rows_writing import RowStreamWriter, RowWriter
from lockstep.errors import BadConfig


def register(spark: SparkSession) -> None:
    """Let a session know `format("lockstep")`."""
    spark.dataSource.register(LockstepSource)


def tidy(url: str) -> int:
    """Remove the rows that killed writes staged and never published; returns of how many tasks.

    Streaming queries do that by themselves. It is for one-shot writes, and for a time when nobody writes rows: a write
    that is under way would fail, and leave nothing.
    """
    with opened(open_shared, url) as bus:
        return discard_all(bus)


class LockstepSource(DataSource):
    """`format("lockstep")` for read, readStream, write and writeStream."""

    @classmethod
    def name(cls) -> str:
        """How Spark calls it."""
        return "lockstep"

    def schema(self) -> StructType:
        """The columns asked for, or all usual ones; with the name of the log if there are several."""
        options = ReadOptions.of(self.options)
        with opened(open_shared, options.url) as bus:
            several = len(all_logs(bus, options.streams)) > 1
        return schema_of(options.columns or (*DEFAULT, *(("stream",) if several else ())))

    def reader(self, schema: StructType) -> RowReader:
        """See DataSource."""
        return RowReader(ReadOptions.of(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> RowStreamReader:
        """See DataSource."""
        return RowStreamReader(ReadOptions.of(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> RowWriter:
        """See DataSource."""
        _check_append(overwrite)
        return RowWriter(WriteOptions.of(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowStreamWriter:
        """See DataSource."""
        _check_append(overwrite)
        return RowStreamWriter(WriteOptions.of(self.options, streaming=True), schema)


def _check_append(overwrite: bool) -> None:
    if overwrite:
        raise BadConfig(field="mode", value="overwrite", reason="a stream can only be appended to; use mode append")
