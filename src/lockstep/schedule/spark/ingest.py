"""Requests from any streaming source of Spark, batch by batch: as a load, over and over.

A batch that Spark runs again after a crash is written under the same producer numbers, so a bus that drops copies
stores each request once. Records that are no requests go to a stream of their own, with the reason in a header.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from uuid import UUID

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from lockstep.engine.errors import SparkFailed
from lockstep.engine.spark.rows import register
from lockstep.engine.spark.sources import this_host
from lockstep.errors import BadArgument
from lockstep.schedule.scheduler import Scheduler
from lockstep.schedule.spark import requests as writes
from lockstep.schedule.spark.load import as_json
from lockstep.schedule.spark.requests import CHECKED, LineCheck, RequestWriter, in_order
from lockstep.schedule.spark.session import reason_of
from lockstep.schedule.validation import EVENT_FIELDS, NewId

IDENTITY = "lockstep.id"
"""The file in a checkpoint that identifies it."""
FILES = ("json", "csv", "parquet", "orc", "text", "xml", "avro")
_DEFAULTS = {
    "json": {"lineSep": "\n"},
    "csv": {"header": "true", "enforceSchema": "false", "escape": '"'},
}
"""Of a file with a header its names count, and a later file with other names is refused."""
_SCHEMA = StructType([StructField(name, StringType()) for name in sorted(EVENT_FIELDS)])


class Ingestion:
    """A streaming query that takes requests in. Counts grow with each batch."""

    def __init__(
        self,
        spark: SparkSession,
        scheduler: Scheduler,
        *,
        url: str,
        checkpoint: Path,
        kind: str,
        options: Mapping[str, str],
    ) -> None:
        self._spark, self._scheduler, self._url, self._checkpoint = spark, scheduler, url, checkpoint
        self._kind, self._options = kind, options
        self.accepted = self.replaced = self.rejected = self.batches = 0
        self.rejected_stream = f"{scheduler.streams.name}.rejected"
        self._query: StreamingQuery | None = None
        if self.rejected_stream not in scheduler.bus.bus.names():
            scheduler.bus.create(self.rejected_stream)
        self._identity = identity_of(checkpoint, scheduler.bus.runtime.new_id)

    def start(self, *, every_s: float = 1.0, available_now: bool = False) -> None:
        """Begin; with `available_now` it ends when all that is there now is taken in."""
        lines = _lines(self._source(), self._kind)
        writer = lines.writeStream.option("checkpointLocation", str(self._checkpoint.absolute()))
        trigger = (
            {"availableNow": True} if available_now else {"processingTime": f"{round(every_s * 1000)} milliseconds"}
        )
        self._query = writer.foreachBatch(self._take).trigger(**trigger).start()  # type: ignore[arg-type, unused-ignore]

    @property
    def is_active(self) -> bool:
        """Whether it works; SparkFailed if it ended with an error."""
        assert self._query is not None, "it was started"
        self._check(self._query)
        return self._query.isActive

    def stop(self) -> None:
        """End after the batch under way."""
        assert self._query is not None, "it was started"
        self._query.stop()
        self._check(self._query)

    def _check(self, query: StreamingQuery) -> None:
        error: StreamingQueryException | None = query.exception()  # type: ignore[assignment, unused-ignore]
        if error is not None:
            raise SparkFailed(project=self._scheduler.name, reason=reason_of(error)) from error

    def _source(self) -> DataFrame:
        if self._kind == "lockstep":
            register(self._spark)
        options = {**_DEFAULTS.get(self._kind, {}), **self._options}
        if self._kind == "json" and options.get("multiLine", "false").lower() != "true":
            # As lines, which are checked here: Spark's reader would drop what is no JSON, and fields it does not know.
            return self._spark.readStream.format("text").options(**options).load()
        reader = self._spark.readStream.format(self._kind).options(**options)
        if self._kind == "csv":
            columns = self._spark.read.format("csv").options(**options).load().columns
            reader = reader.schema(StructType([StructField(name, StringType()) for name in columns]))
        elif self._kind in FILES and self._kind != "text":
            reader = reader.schema(_SCHEMA)
        return reader.load()

    def _take(self, lines: DataFrame, batch: int) -> None:
        scheduler = self._scheduler
        logs = scheduler.bus.logs(scheduler.streams.requests)
        tenants = frozenset(scheduler.tenants())
        run = run_of(self._identity, batch, tenants)
        check = LineCheck(tenants=tenants, shards=len(logs), partitioner=logs[0].config.partitioner, run=run)
        writer = RequestWriter(
            url=self._url, host=this_host(), stream=scheduler.streams.requests, run=run,
            rejected_stream=self.rejected_stream, listed=0,
        )  # fmt: skip
        for row in in_order(lines.mapInArrow(check, CHECKED)).mapInArrow(writer, writes.SUMMARY).collect():
            self.accepted += row["count"] if row["kind"] == writes.WRITTEN else 0
            self.replaced += row["count"] if row["kind"] == writes.REPLACED else 0
            self.rejected += row["count"] if row["kind"] == writes.REFUSED else 0
        self.batches += 1


def run_of(identity: bytes, batch: int, tenants: frozenset[str]) -> bytes:
    """Return what the producer numbers of a batch are made of: the same when Spark runs it again.

    The tenants are part of it, as they decide which records are requests: if they changed since, the bus must not take
    other requests for copies of those that were written before.
    """
    known = "\0".join(sorted(tenants)).encode()
    return blake2b(identity + batch.to_bytes(8, "big") + known, digest_size=16).digest()


def identity_of(checkpoint: Path, new_id: NewId) -> bytes:
    """Return the id of a checkpoint, which is made with it; a kill leaves a whole one or none."""
    path = checkpoint / IDENTITY
    if not path.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".new")
        written.write_text(new_id().hex())
        written.replace(path)
    try:
        return UUID(hex=path.read_text()).bytes
    except ValueError:
        reason = "it is no id of a checkpoint; name another folder for --checkpoint"
        raise BadArgument(name="checkpoint", value=str(path), reason=reason) from None


def _lines(rows: DataFrame, kind: str) -> DataFrame:
    """Rows as lines with places: the order of the source, where it has one."""
    names = set(rows.columns)
    value = f.col("value").cast("binary") if "value" in names else as_json(rows)
    place, start, row = _place(kind, names)
    return rows.select(value.alias("value"), place.alias("place"), start.alias("start"), row.alias("row"))


def _place(kind: str, names: set[str]) -> tuple[Column, Column, Column]:
    nothing, counted = f.lit(0).cast("long"), f.lit(None).cast("long")
    if {"topic", "partition", "offset"} <= names:
        return f.format_string("%s/%010d", f.col("topic"), f.col("partition")), nothing, f.col("offset")
    if "offset" in names:
        return f.col("stream") if "stream" in names else f.lit(""), nothing, f.col("offset")
    if kind == "parquet":
        return f.col("_metadata.file_path"), nothing, f.col("_metadata.row_index")
    if kind in FILES:
        return f.col("_metadata.file_path"), f.col("_metadata.file_block_start"), counted
    return f.lit(""), f.spark_partition_id().cast("long"), counted
