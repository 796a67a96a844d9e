"""Writing rows: they wait beside a stream until their whole batch is there, and then appear in it in one step.

Each task writes its rows to hidden logs of its own on the same bus. The commit moves them all, in the order of Spark's
partitions, in one transaction that also notes which batch of which writer this was. A batch that comes again finds
that note and adds nothing. Logs of tasks that failed are removed with the next commit or abort of the same writer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain

import pyarrow as pa
from google_crc32c import value as crc32c
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lockstep.engine.errors import BatchTooLarge
from lockstep.engine.spark.rows_columns import Rows, record_form
from lockstep.engine.spark.rows_options import WriteOptions
from lockstep.engine.spark.sources import OpenBus, check_host, open_shared, opened, this_host
from lockstep.errors import BadConfig, Conflict, DataError, NotFound, StreamNotFound, UnsupportedByBackend
from lockstep.log.batch import HEADER, NO_PRODUCER, Batch, BatchView, codec_by_name, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus, Entry, Log, Transaction
from lockstep.runtime import Runtime, ThreadRuntime
from lockstep.streams.shards import check_size, logs_of, shard_of

PREFIX = "_staging."
_CELL = b"spark\0"


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes: a name that stays the same when the batch comes again, and the streaming query, if any."""

    name: str
    query: str | None = None
    once: bool = False
    """It writes one batch and never again, so nothing is remembered of it."""

    def prefix(self, stream: str) -> str:
        """How the names of its hidden logs begin."""
        return f"{PREFIX}{hashlib.sha256(f'{self.name} {stream}'.encode()).hexdigest()[:32]}."


@dataclass(frozen=True, slots=True)
class StagedLog:
    """A hidden log and where its rows belong."""

    name: str
    target: str
    identity: str
    rows: int
    size: int = 0
    """Bytes as they are stored."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task tells the commit."""

    author: Author
    partition: int
    logs: tuple[StagedLog, ...]


Form = Callable[[pa.RecordBatch, str, int], Iterable[Rows]]
"""Makes records of an Arrow batch, for a stream, at a time in nanoseconds."""


def stage(
    bus: Bus,
    stream: str,
    author: Author,
    batch: int,
    partition: int,
    rows: Iterable[pa.RecordBatch],
    runtime: Runtime,
    form: Form,
) -> Staged:
    """Write the rows of one task to hidden logs; if it fails they are removed again."""
    targets = logs_of(bus, stream)
    taken = 0
    counts: dict[int, int] = {}
    sizes: dict[int, int] = {}
    logs: dict[int, Log] = {}
    with ExitStack() as undo:
        for part in rows:
            records = form(part, stream, runtime.wall_ns())
            for shard, chosen in chain.from_iterable(_by_shard(one, targets, partition + taken) for one in records):
                if shard not in logs:
                    name = f"{author.prefix(stream)}{batch}.{runtime.new_id().hex()}"
                    undo.callback(_delete, bus, name)
                    config = StreamConfig(capacity=None, max_record_bytes=targets[shard].config.max_record_bytes)
                    logs[shard] = bus.create(name, config)
                packed = _packed(chosen, targets[shard], stream)
                logs[shard].append([packed], wake=False)
                counts[shard] = counts.get(shard, 0) + len(chosen.values)
                sizes[shard] = sizes.get(shard, 0) + len(packed.body)
            taken += part.num_rows
        undo.pop_all()
    staged = [
        StagedLog(logs[shard].name, targets[shard].name, targets[shard].identity, counts[shard], sizes[shard])
        for shard in sorted(logs)
    ]
    return Staged(author, partition, tuple(staged))


def check_room(bus: Bus, staged: Sequence[Staged]) -> None:
    """Refuse a batch of which a bounded stream would keep only the end."""
    targets = [log for message in staged for log in message.logs]
    for name in sorted({log.target for log in targets}):
        config = bus.open(name).config
        if config.history is not None:  # what it does not keep goes there
            continue
        for bound, unit in (("capacity", "rows"), ("retain_bytes", "size")):
            most, wanted = getattr(config, bound), sum(getattr(log, unit) for log in targets if log.target == name)
            if most is not None and wanted > most:
                raise BatchTooLarge(stream=name, wanted=wanted, bound=bound, most=most)


def publish(bus: Bus, stream: str, author: Author, batch: int, staged: Sequence[Staged]) -> bool:
    """Move staged rows to their stream in one step. False if this batch was there already."""

    def work(changes: Transaction) -> bool:
        identity = changes.identity(stream)
        if not author.once and is_written(changes, stream, identity, author, batch):
            return False
        for log in _in_order(staged):
            if changes.identity(log.target) != log.identity:
                raise StreamNotFound(name=log.target, bus=bus.url)  # deleted, and made anew as another stream
            changes.append(log.target, _moved(log, changes.read(log.name, 0)))
        if not author.once:
            changes.put(_cell(stream, author), json.dumps(asdict(_Note(identity, author.query, batch))).encode())
        return True

    return bus.atomic(work)


def publish_at_least_once(bus: Bus, staged: Sequence[Staged]) -> None:
    """Move staged rows log by log: a kill in between, and the batch that comes again doubles some."""
    for log in _in_order(staged):
        bus.open(log.target).append(_moved(log, _all_entries(bus.open(log.name))))


def is_written(changes: Transaction, stream: str, identity: str, author: Author, batch: int) -> bool:
    """Whether the stream has this batch; Conflict if another query uses the name."""
    data = changes.get(_cell(stream, author))
    note = None if data is None else _Note(**json.loads(data))
    if note is None or note.identity != identity:  # what another stream of that name had is no matter
        return False
    if note.query != author.query:
        reason = (
            f"The writer {author.name!r} of stream {stream!r} belongs to another query ({note.query}). "
            "Its batches have other numbers: give this query another writer name."
        )
        raise Conflict(reason=reason)
    return batch <= note.batch


def discard(bus: Bus, stream: str, author: Author, batch: int) -> int:
    """Remove the hidden logs of a writer up to a batch; returns how many there were."""
    prefix = author.prefix(stream)
    names = [name for name in bus.names() if name.startswith(prefix)]
    old = [name for name in names if int(name[len(prefix) :].partition(".")[0]) <= batch]
    for name in old:
        _delete(bus, name)
    return len(old)


def discard_all(bus: Bus) -> int:
    """Remove the hidden logs of every writer; returns how many there were."""
    names = [name for name in bus.names() if name.startswith(PREFIX)]
    for name in names:
        _delete(bus, name)
    return len(names)


@dataclass(frozen=True, slots=True)
class _Note:
    identity: str
    query: str | None
    batch: int


def _cell(stream: str, author: Author) -> bytes:
    return _CELL + stream.encode() + b"\0" + author.name.encode()


def _in_order(staged: Sequence[Staged]) -> Iterator[StagedLog]:
    for message in sorted(staged, key=lambda message: message.partition):
        yield from message.logs


def _by_shard(rows: Rows, targets: Sequence[Log], turn: int) -> Iterator[tuple[int, Rows]]:
    """Rows by the shard of their key; those without one take turns, the same turns when the batch comes again."""
    shards, partitioner = len(targets), targets[0].config.partitioner
    if shards == 1:
        if rows.values:
            yield 0, rows
        return
    chosen: dict[int, list[int]] = {}
    for index, key in enumerate(rows.keys):
        shard = (turn + index) % shards if key is None else shard_of(key, shards, partitioner)
        chosen.setdefault(shard, []).append(index)
    for shard in sorted(chosen):
        yield shard, rows.take(chosen[shard])


def _packed(rows: Rows, target: Log, stream: str) -> Batch:
    for value, key, headers in zip(rows.values, rows.keys, rows.headers, strict=True):
        check_size(value, key, headers, target.config.max_record_bytes, stream)
    return pack(
        rows.values,
        producer=NO_PRODUCER,
        sequence=0,
        created_ns=rows.times_ns,
        keys=rows.keys if any(key is not None for key in rows.keys) else None,
        headers=rows.headers if any(rows.headers) else None,
        codec=codec_by_name(target.config.compression),
    )


def _moved(log: StagedLog, entries: Iterable[Entry]) -> list[Batch]:
    batches = [_unsealed(entry, log.name) for entry in entries]
    if sum(batch.count for batch in batches) != log.rows:
        raise DataError(reason=f"The staged rows in {log.name} are not complete; nothing was published.")
    return batches


def _unsealed(entry: Entry, name: str) -> Batch:
    """A stored batch as it was before it was stored: its body is not packed a second time."""
    BatchView(entry.base, entry.data, name)  # checks it
    (_, _, codec, _, count, raw_size, flags, _, value_size, _, _, _, created_ns) = HEADER.unpack_from(entry.data)
    body = bytes(entry.data[HEADER.size :])
    return Batch(count, NO_PRODUCER, 0, codec, flags, raw_size, value_size, created_ns, body, crc32c(body))


def _all_entries(log: Log) -> Iterator[Entry]:
    at, stop = 0, log.bounds().next
    while at < stop:
        for entry in log.read(at):
            yield entry
            at = entry.base + HEADER.unpack_from(entry.data)[4]


def _delete(bus: Bus, name: str) -> None:
    try:
        bus.delete(name)
    except NotFound:
        return  # another process removed it, or it was never created


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
            return stage(bus, self.options.stream, author, batch, partition, rows, runtime, self.form)

    def publish(self, author: Author, batch: int, staged: Sequence[Staged]) -> None:
        """In the driver's process, when all tasks are done."""
        stream = self.options.stream
        with opened(self.open_url, self.options.url) as bus:
            self._check_promises(bus)
            check_room(bus, staged)
            if bus.promises.atomic:
                publish(bus, stream, author, batch, staged)
            else:
                publish_at_least_once(bus, staged)
            discard(bus, stream, author, batch)

    def discard(self, author: Author, batch: int) -> None:
        """When a task failed."""
        with opened(self.open_url, self.options.url) as bus:
            discard(bus, self.options.stream, author, batch)

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
        """Inside foreachBatch a task knows the query, whose numbers the batches have."""
        task, author = self._task(), self._author
        known = author if author.once else replace(author, query=task.query)
        return self._sink.stage(iterator, known, self._batch, task.partition, self._runtime)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what all tasks staged."""
        staged = _staged(messages)
        if staged:
            self._sink.publish(staged[0].author, self._batch, staged)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Remove what tasks staged."""
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
        """Stage the rows of one task."""
        task = self._task()
        name = self._writer or task.query
        if name is None or task.batch is None:
            reason = "Spark does not tell this task its query and batch, so rows can't be written exactly once"
            raise BadConfig(field="writer", value=self._writer, reason=reason)
        return self._sink.stage(iterator, Author(name, task.query), task.batch, task.partition, self._runtime)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish what all tasks staged."""
        staged = _staged(messages)
        if staged:
            self._sink.publish(staged[0].author, batchId, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """If no task got far enough to tell its query, the next commit tidies up."""
        for author in {message.author for message in _staged(messages)}:
            self._sink.discard(author, batchId)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]
