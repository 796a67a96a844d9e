"""Lines of requests checked in Arrow batches: the API's validator in Spark's workers.

A line is known by its place: the file or partition it is from, where its part of the file begins, and its row in there.
Places have an order, by which the last request for a tenant and id is found, whichever task read it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lockstep.core.agenda import Upsert
from lockstep.schedule import requests
from lockstep.schedule.validation import Rejection, checked_event
from lockstep.streams.shards import shard_of

REJECTED = -1
"""The shard of lines that are no requests."""
MINUTE_MS = 60_000
_CSV_FIELD_MAX = 1 << 30
"""The usual limit is below the size that a payload may have; a larger one is rejected with that reason."""
LINES = "value binary, place string, start long, row long"
"""What is checked. `row` is null where rows are counted as they come."""
CHECKED = "shard int, key binary, place string, start long, row long, minute long, value binary, reason string"
_SCHEMA = pa.schema([
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
            columns: list[list[Any]] = [[] for _ in _SCHEMA]
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
                [pa.array(column, kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
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
