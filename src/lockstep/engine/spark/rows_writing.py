"""Writing as Spark does it: tasks stage their rows, one commit publishes them, a batch that comes again is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lockstep.engine.spark import rows_staging as staging
from lockstep.engine.spark.rows_bus import OpenBus, check_host, open_shared, opened, this_host
from lockstep.engine.spark.rows_columns import record_form
from lockstep.engine.spark.rows_options import WriteOptions
from lockstep.engine.spark.rows_staging import Author, Form, Staged
from lockstep.errors import BadConfig, UnsupportedByBackend
from lockstep.log.port import Bus
from lockstep.runtime import Runtime, ThreadRuntime
from lockstep.streams.shards import logs_of

_ONE_SHOT = 0
"""The batch number of a write that is never tried again."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a task knows of itself."""

    partition: int
    query: str | None = None
    batch: int | None = None


def this_task() -> Task:
    """From Spark, inside a worker."""
    context = TaskContext.get()
    assert context is not None, "rows are written by Spark's tasks"
    batch = context.getLocalProperty("streaming.sql.batchId")
    return Task(
        context.partitionId(),
        context.getLocalProperty("sql.streaming.queryId"),
        None if batch is None else int(batch),
    )


class RowSink:
    """Both ways of writing."""

    def __init__(
        self, options: WriteOptions, schema: StructType, open_url: OpenBus = open_shared, form: Form | None = None
    ) -> None:
        self.form = form or record_form(schema)
        self.options, self.open_url, self.host = options, open_url, this_host()

    def check(self) -> None:
        """Refuse early what could not be written at the end."""
        with opened(self.open_url, self.options.url) as bus:
            logs_of(bus, self.options.stream)
            self._check_promises(bus)

    def stage(
        self, rows: Iterator[pa.RecordBatch], author: Author, batch: int, partition: int, runtime: Runtime
    ) -> Staged:
        """In a worker."""
        with opened(self.open_url, self.options.url) as bus:
            check_host(bus, self.host)
            return staging.stage(bus, self.options.stream, author, batch, partition, rows, runtime, self.form)

    def publish(self, author: Author, batch: int, staged: Sequence[Staged]) -> None:
        """In the driver's process, when all tasks are done."""
        stream = self.options.stream
        with opened(self.open_url, self.options.url) as bus:
            self._check_promises(bus)
            staging.check_room(bus, staged)
            if bus.promises.atomic:
                staging.publish(bus, stream, author, batch, staged)
            else:
                staging.publish_at_least_once(bus, staged)
            staging.discard(bus, stream, author, batch)

    def discard(self, author: Author, batch: int) -> None:
        """When a task failed."""
        with opened(self.open_url, self.options.url) as bus:
            staging.discard(bus, self.options.stream, author, batch)

    def _check_promises(self, bus: Bus) -> None:
        if not bus.promises.atomic and not self.options.allow_duplicates:
            feature = "write rows exactly once; option allowDuplicates=true writes them at least once"
            raise UnsupportedByBackend(bus=bus.url, feature=feature)


class RowWriter(DataSourceArrowWriter):
    """`df.write.format("lockstep")`: all rows of a DataFrame in one step, or none."""

    def __init__(
        self, options: WriteOptions, schema: StructType, runtime: Runtime | None = None,
        open_url: OpenBus = open_shared, task: Callable[[], Task] = this_task, form: Form | None = None,
    ) -> None:  # fmt: skip
        self._sink, self._task = RowSink(options, schema, open_url, form), task
        self._runtime = runtime or ThreadRuntime()
        once = options.writer is None
        self._author = Author(options.writer or self._runtime.new_id().hex(), once=once)
        self._batch = _ONE_SHOT if options.batch is None else options.batch
        self._sink.check()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """See DataSourceArrowWriter. Inside foreachBatch a task knows the query, whose numbers the batches have."""
        task, author = self._task(), self._author
        known = author if author.once else replace(author, query=task.query)
        return self._sink.stage(iterator, known, self._batch, task.partition, self._runtime)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """See DataSourceWriter."""
        staged = _staged(messages)
        if staged:
            self._sink.publish(staged[0].author, self._batch, staged)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """See DataSourceWriter."""
        self._sink.discard(self._author, self._batch)


class RowStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("lockstep")`: every batch of a query once, whatever is killed and run again."""

    def __init__(
        self, options: WriteOptions, schema: StructType, runtime: Runtime | None = None,
        open_url: OpenBus = open_shared, task: Callable[[], Task] = this_task, form: Form | None = None,
    ) -> None:  # fmt: skip
        self._sink, self._task, self._writer = RowSink(options, schema, open_url, form), task, options.writer
        self._runtime = runtime or ThreadRuntime()
        self._sink.check()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """See DataSourceStreamArrowWriter."""
        task = self._task()
        name = self._writer or task.query
        if name is None or task.batch is None:
            reason = "Spark does not tell this task its query and batch, so rows can't be written exactly once"
            raise BadConfig(field="writer", value=self._writer, reason=reason)
        return self._sink.stage(iterator, Author(name, task.query), task.batch, task.partition, self._runtime)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """See DataSourceStreamWriter."""
        staged = _staged(messages)
        if staged:
            self._sink.publish(staged[0].author, batchId, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """See DataSourceStreamWriter. If no task got far enough to tell its query, the next commit tidies up."""
        for author in {message.author for message in _staged(messages)}:
            self._sink.discard(author, batchId)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]
