"""Requests in Spark's workers: checked in Arrow batches, then written, the last one for each id."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame

from lockstep.core.agenda import Upsert
from lockstep.engine.spark.sources import check_host, open_shared, opened
from lockstep.log.batch import Headers, pack
from lockstep.log.port import Bus, Log
from lockstep.runtime import ThreadRuntime
from lockstep.schedule import requests
from lockstep.schedule.spark.session import partitions
from lockstep.schedule.validation import Rejection, checked_event
from lockstep.streams.shards import logs_of, shard_of

REJECTED = -1
"""The shard of lines that are no requests."""
MINUTE_MS = 60_000
_CSV_FIELD_MAX = 1 << 30
"""The usual limit is below the size that a payload may have; a larger one is rejected with that reason."""
LINES = "value binary, place string, start long, row long"
"""What is checked. `row` is null where rows are counted as they come."""
CHECKED = "shard int, key binary, place string, start long, row long, minute long, value binary, reason string"
_CHECKED_SCHEMA = pa.schema([
    ("shard", pa.int32()), ("key", pa.binary()), ("place", pa.string()), ("start", pa.int64()), ("row", pa.int64()),
    ("minute", pa.int64()), ("value", pa.binary()), ("reason", pa.string()),
])  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LineCheck:
    """Checks lines. It travels to the workers as it is."""

    tenants: frozenset[str]
    shards: int
    partitioner: str
    run: bytes
    """What event ids are made of, beside the place: the same for a task that runs again, another for each load."""
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By place: the columns of files of comma-separated values. Other lines are JSON."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Short names for places, in the same order."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each line that is not blank."""
        counter, named = _RowCounter(), dict[str, str]()
        for batch in batches:
            columns: list[list[Any]] = [[] for _ in _CHECKED_SCHEMA]
            given = (batch.column(name).to_pylist() for name in ("value", "place", "start", "row"))
            for line, uri, start, row in zip(*given, strict=True):
                if uri not in named:
                    named[uri] = place_of(uri)
                place = named[uri]
                number = counter.next(place, start) if row is None else row
                found = self._checked(line, place, start, number)
                if found is not None:
                    for column, item in zip(columns, found, strict=True):
                        column.append(item)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, kind.type) for column, kind in zip(columns, _CHECKED_SCHEMA, strict=True)],
                schema=_CHECKED_SCHEMA,
            )

    def _checked(self, line: bytes | None, place: str, start: int, row: int) -> tuple[Any, ...] | None:
        short = self.places.get(place, place)
        header = self.headers.get(place)
        if header is not None and start == 0 and row == 0:
            return None  # it is the header
        fields = _fields(line or b"", header, is_first=start == 0 and row == 0)
        if fields is None:
            return None
        found = fields
        if not isinstance(fields, Rejection):
            found = checked_event(fields, self.tenants.__contains__, lambda: self._id(short, start, row))
        if isinstance(found, Rejection):
            return REJECTED, None, short, start, row, None, line, found.message
        key, value = requests.encode(found)
        minute = found.at // MINUTE_MS if isinstance(found, Upsert) else None
        return shard_of(key, self.shards, self.partitioner), key, short, start, row, minute, value, None

    def _id(self, place: str, start: int, row: int) -> bytes:
        return blake2b(f"{place}\0{start}\0{row}".encode(), digest_size=16, key=self.run).digest()


def place_of(uri: str) -> str:
    """Return the place that Spark names by a URI: the path of a file of this machine, else the URI itself."""
    return "/" + unquote(uri.removeprefix("file:")).lstrip("/") if uri.startswith("file:") else uri


class _RowCounter:
    """Counts rows within a part of a file; a task may read several parts, one after the other."""

    def __init__(self) -> None:
        self._part: tuple[str, int] | None = None
        self._row = 0

    def next(self, place: str, start: int) -> int:
        """Return the number of the next row."""
        if self._part != (place, start):
            self._part, self._row = (place, start), -1
        self._row += 1
        return self._row


def _fields(line: bytes, header: Sequence[str] | None, *, is_first: bool) -> Any:
    """Return the fields of a line, why there are none, or None for a blank line."""
    try:
        text = line.decode("utf-8-sig" if is_first else "utf-8")
    except UnicodeDecodeError:
        return Rejection("the line is not UTF-8")
    if not text.strip():
        return None
    if header is not None:
        return _csv_fields(text, header)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return Rejection(f"the line is not JSON: {error}"[:200])


def _csv_fields(text: str, header: Sequence[str]) -> Any:
    csv.field_size_limit(_CSV_FIELD_MAX)
    try:
        [cells] = csv.reader([text.rstrip("\r\n")], strict=True)
    except (csv.Error, ValueError):
        return Rejection("the line is not CSV: a quoted value must end on the same line")
    if len(cells) != len(header):
        return Rejection(f"the line has {len(cells)} values, and the header {len(header)}")
    return {name: cell for name, cell in zip(header, cells, strict=True) if cell}


BATCH_RECORDS, BATCH_BYTES = 4000, 1 << 20
WRITTEN, REPLACED, REFUSED, MINUTE = "written", "replaced", "rejected", "minute"
SUMMARY = "kind string, place string, start long, row long, reason string, count long"
_WRITTEN_SCHEMA = pa.schema([
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
        columns = list(zip(*rows, strict=True)) or [()] * len(_WRITTEN_SCHEMA)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _WRITTEN_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_WRITTEN_SCHEMA)
