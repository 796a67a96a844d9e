"""Checked requests written to a scheduler's stream by Spark's workers: the last one for each tenant and id.

A task has all requests of its shards, sorted by key and place. Its appends carry a producer number made of the run and
the shard, so a task that runs again adds nothing on a bus that drops copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from lockstep.engine.spark.sources import check_host, open_shared, opened
from lockstep.log.batch import Headers, pack
from lockstep.log.port import Bus, Log
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.spark.checks import REJECTED
from lockstep.schedule.spark.session import partitions
from lockstep.streams.shards import logs_of

BATCH_RECORDS, BATCH_BYTES = 4000, 1 << 20
WRITTEN, REPLACED, REFUSED, MINUTE = "written", "replaced", "rejected", "minute"
SUMMARY = "kind string, place string, start long, row long, reason string, count long"
_SCHEMA = pa.schema([
    ("kind", pa.string()), ("place", pa.string()), ("start", pa.int64()), ("row", pa.int64()),
    ("reason", pa.string()), ("count", pa.int64()),
])  # fmt: skip
REASON_HEADER = "Lockstep-Rejected"
Row = tuple[int, bytes | None, str, int, int, int | None, bytes | None, str | None]


def in_order(checked: DataFrame) -> DataFrame:
    """Bring all requests of a shard into one partition, sorted by key and place."""
    count = partitions()
    placed = checked.selectExpr("*", f"pmod(shard, {count}) AS part")
    sorted_rows = placed.repartitionById(count, "part").sortWithinPartitions("shard", "key", "place", "start", "row")
    return sorted_rows.drop("part")


@dataclass(frozen=True, kw_only=True)
class RequestWriter:
    """Writes what it gets, or only counts it. It travels to the workers as it is."""

    url: str | None
    """The bus; None for a dry run."""
    host: str
    stream: str
    run: bytes
    rejected_stream: str | None = None
    """Where rejected lines go; None if they are only listed."""
    listed: int = 100
    """Rejected lines to tell of."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write, and yield a summary."""
        rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
        summary = _Summary(self.listed)
        if self.url is None:
            for shard, parts in groupby(rows, key=lambda row: row[0]):
                self._take(shard, parts, None, summary)
        else:
            with opened(open_shared, self.url) as bus:
                check_host(bus, self.host)
                for shard, parts in groupby(rows, key=lambda row: row[0]):
                    self._take(shard, parts, bus, summary)
        yield summary.batch()

    def _take(self, shard: int, rows: Iterator[Row], bus: Bus | None, summary: _Summary) -> None:
        if shard == REJECTED:
            self._reject(rows, bus, summary)
            return
        out = None if bus is None else _Appender(logs_of(bus, self.stream)[shard], self._producer(shard))
        for row in last_of_each(rows, summary):
            summary.minutes[row[5]] += out is None and row[5] is not None
            if out is not None:
                out.add(row[6] or b"", row[1], ())
        if out is not None:
            out.flush()

    def _reject(self, rows: Iterator[Row], bus: Bus | None, summary: _Summary) -> None:
        out = None
        if bus is not None and self.rejected_stream is not None:
            out = _Appender(logs_of(bus, self.rejected_stream)[0], self._producer(REJECTED))
        for row in rows:
            summary.reject(row)
            if out is not None:
                out.add(row[6] or b"", None, ((REASON_HEADER, (row[7] or "").encode()),))
        if out is not None:
            out.flush()

    def _producer(self, shard: int) -> bytes:
        return blake2b(self.run + shard.to_bytes(4, "big", signed=True), digest_size=16).digest()


def last_of_each(rows: Iterator[Row], summary: _Summary) -> Iterator[Row]:
    """Yield the last row of each key, of rows that are sorted by key and place."""
    for _, same in groupby(rows, key=lambda row: row[1]):
        last = None
        for row in same:
            summary.counts[REPLACED] += last is not None
            last = row
        assert last is not None
        summary.counts[WRITTEN] += 1
        yield last


class _Appender:
    """Appends records to one log in large batches."""

    def __init__(self, log: Log, producer: bytes) -> None:
        self._log, self._producer, self._runtime = log, producer, ThreadRuntime()
        self._values: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._headers: list[Headers] = []
        self._size = self._sequence = 0

    def add(self, value: bytes, key: bytes | None, headers: Headers) -> None:
        """Take a record."""
        self._values.append(value)
        self._keys.append(key)
        self._headers.append(headers)
        self._size += len(value)
        if len(self._values) >= BATCH_RECORDS or self._size >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Store what was taken."""
        if not self._values:
            return
        batch = pack(
            self._values, producer=self._producer, sequence=self._sequence, created_ns=self._runtime.wall_ns(),
            keys=self._keys if any(self._keys) else None, headers=self._headers if any(self._headers) else None,
        )  # fmt: skip
        self._log.append([batch])
        self._sequence += len(self._values)
        self._values, self._keys, self._headers, self._size = [], [], [], 0


class _Summary:
    """What a task tells the driver."""

    def __init__(self, listed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.minutes: Counter[int | None] = Counter()
        self._listed, self._rejected = listed, list[tuple[Any, ...]]()

    def reject(self, row: Row) -> None:
        """Count a rejected line, and keep the first ones."""
        self.counts[REFUSED] += 1
        if len(self._rejected) < self._listed:
            self._rejected.append((REFUSED, row[2], row[3], row[4], row[7], 0))

    def batch(self) -> pa.RecordBatch:
        """Return everything as rows."""
        rows: list[tuple[Any, ...]] = [(kind, None, None, None, None, count) for kind, count in self.counts.items()]
        rows += [(MINUTE, None, minute, None, None, count) for minute, count in self.minutes.items() if count]
        rows += self._rejected
        columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
