"""Streams and windows as data frames for any Spark program.

from lockstep.engine.spark.rows import register

register(spark)
lockstep = spark.readStream.format("lockstep").option("url", "lmdb:./events")
orders = lockstep.option("stream", "orders").load()
prices = lockstep.option("project", "desk").option("window", "Prices").load()
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from lockstep.engine.model.graph import Node
from lockstep.engine.spark.rows_columns import DEFAULT, schema_of
from lockstep.engine.spark.rows_options import ReadOptions, WriteOptions
from lockstep.engine.spark.rows_reader import PushingRowReader, RowReader, RowStreamReader
from lockstep.engine.spark.rows_writer import Form, RowStreamWriter, RowWriter, discard_all
from lockstep.engine.spark.sources import all_logs, open_shared, opened
from lockstep.engine.spark.window_columns import FrameForm, frame_schema
from lockstep.engine.spark.window_options import WindowReadOptions, WindowWriteOptions, names_window
from lockstep.engine.spark.window_reader import PushingWindowReader, WindowReader, WindowStreamReader
from lockstep.errors import BadConfig

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Let a session know `format("lockstep")`. If it lets Python sources see conditions, ours makes use of them."""
    pushes = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(PushingSource if pushes else LockstepSource)


def tidy(url: str) -> int:
    """Remove the rows that killed writes staged and never published; returns of how many tasks.

    Streaming queries do that by themselves. It is for one-shot writes, and for a time when nobody writes rows: a write
    that is under way would fail, and leave nothing.
    """
    with opened(open_shared, url) as bus:
        return discard_all(bus)


class LockstepSource(DataSource):
    """`format("lockstep")` for read, readStream, write and writeStream: of streams, and of windows of a project."""

    @classmethod
    def name(cls) -> str:
        """How Spark calls it."""
        return "lockstep"

    def schema(self) -> StructType:
        """The columns asked for, or all usual ones; with the name of the log if there are several."""
        if names_window(self.options):
            wish = WindowReadOptions.of(self.options)
            return frame_schema(_published(wish).schema, wish.columns, integers=wish.integers)
        options = ReadOptions.of(self.options)
        with opened(open_shared, options.url) as bus:
            several = len(all_logs(bus, options.streams)) > 1
        return schema_of(options.columns or (*DEFAULT, *(("stream",) if several else ())))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a range once."""
        if names_window(self.options):
            wish = WindowReadOptions.of(self.options, streaming=False)
            return self._window_reader()(wish, _published(wish), schema)
        return self._row_reader()(ReadOptions.of(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads what comes, batch by batch."""
        if names_window(self.options):
            wish = WindowReadOptions.of(self.options, streaming=True)
            return WindowStreamReader(wish, _published(wish), schema)
        return RowStreamReader(ReadOptions.of(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> RowWriter:
        """Writes one batch of rows."""
        options, form = self._target(schema, overwrite, streaming=False)
        return RowWriter(options, schema, form=form)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowStreamWriter:
        """Writes the batches of a streaming query."""
        options, form = self._target(schema, overwrite, streaming=True)
        return RowStreamWriter(options, schema, form=form)

    def _target(self, schema: StructType, overwrite: bool, *, streaming: bool) -> tuple[WriteOptions, Form | None]:
        """Where rows go, and what they become; None: records."""
        if overwrite:
            reason = "a stream can only be appended to; use mode append, and outputMode append"
            raise BadConfig(field="mode", value="overwrite", reason=reason)
        if not names_window(self.options):
            return WriteOptions.of(self.options, streaming=streaming), None
        wish = WindowWriteOptions.of(self.options)
        with opened(open_shared, wish.place.url) as bus:
            node = wish.place.source(bus)
        return wish.on_stream(wish.place.streams.input(node), streaming=streaming), FrameForm.of(schema, node, wish)

    def _window_reader(self) -> type[WindowReader]:
        return WindowReader

    def _row_reader(self) -> type[RowReader]:
        return RowReader


class PushingSource(LockstepSource):
    """For sessions that let Python sources see conditions: Spark refuses readers that look at them elsewhere."""

    def _window_reader(self) -> type[WindowReader]:
        return PushingWindowReader

    def _row_reader(self) -> type[RowReader]:
        return PushingRowReader


def _published(options: WindowReadOptions) -> Node:
    with opened(open_shared, options.place.url) as bus:
        return options.place.published(bus)
