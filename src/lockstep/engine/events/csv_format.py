"""Events as CSV lines: `opcode,flag,fields...`, for example I,N,17,IBM,101.5 and UB,N,... followed by D,N,....

An empty field is null, "" is the empty string; fields with a delimiter, quote or line end are quoted. A line that can't
be understood becomes a bad record with its number and the reason, and everything around it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lockstep.engine.errors import FileMissing
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.csv_reader import (
    BadLine,
    ColumnReader,
    CsvOptions,
    CsvOutput,
    Places,
    RowReader,
    shorten,
    well_formed,
    whole_blocks,
)
from lockstep.engine.events.csv_writer import format_line, header_line, lines_of, write_csv
from lockstep.engine.events.event import Event
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import UNPARSABLE, BadText
from lockstep.errors import from_os_error

__all__ = ["BadLine", "CsvOptions", "CsvOutput", "format_line", "header_line", "lines_of", "read_csv", "write_csv"]

_READ = 4 << 20
_FEW = 64
_CHUNK = 50_000

OnBad = Callable[[BadLine], None]


def read_csv(
    source: str | Path | BinaryIO,
    schema: Schema,
    options: CsvOptions,
    on_bad: OnBad,
    *,
    chunk: int | None = _CHUNK,
    by_columns: bool = True,
) -> Iterator[EventBatch]:
    """The events of a file, in batches of about `chunk`, blocks numbered from 1 on and never cut.

    Without a `chunk`, a batch holds all whole blocks of what a read of the file gave: nothing waits for more to come.
    Lines that are no events go to `on_bad`, and are not part of any block. If blocks are transactional such a line
    keeps its place, and the events of its block go to `on_bad` too. `by_columns` is only a matter of speed.
    """
    held = open_file(source) if isinstance(source, str | Path) else nullcontext(source)
    reader = _Reader(schema, options, on_bad, by_columns)
    batches = _limit(reader.read(held), options.max_events)
    if reader.places is not None:
        return whole_blocks(batches, reader.places, options.block_size, chunk or 1, on_bad)
    return _number(batches, options.block_size, chunk)


def open_file(path: str | Path) -> BinaryIO:
    """A file to be read."""
    try:
        return Path(path).open("rb")
    except OSError as fault:
        if isinstance(fault, PermissionError):
            raise from_os_error(fault, str(path)) from None
        raise FileMissing(path=str(path), reason=fault.strerror or str(fault)) from fault


class _Reader:
    """Cuts a file into pieces of whole records, reads them by columns, and what that can't do line by line."""

    def __init__(self, schema: Schema, options: CsvOptions, on_bad: OnBad, by_columns: bool) -> None:
        self.schema, self.options, self.on_bad = schema, options, on_bad
        self.rows = RowReader(schema, options)
        self.columns = ColumnReader(schema, options) if by_columns else None
        self.simple = well_formed(options.delimiter)
        self.places = Places(self.rows) if options.transactional and not options.ignore_errors else None
        self.line = 1

    def read(self, held: AbstractContextManager[BinaryIO]) -> Iterator[EventBatch]:
        with held as file:
            for _ in range(self.options.header):
                self.line += file.readline().endswith(b"\n")
            rest = b"" if self.options.header else file.read(3).removeprefix(b"\xef\xbb\xbf")
            while more := file.read(_READ):
                rest = yield from self._take(rest + more, is_last=False)
            yield from self._take(rest if not rest or rest.endswith(b"\n") else rest + b"\n", is_last=True)

    def _take(self, data: bytes, is_last: bool) -> Generator[EventBatch, None, bytes]:
        """Read all whole records; what is left is the beginning of the next."""
        at = 0
        while at < len(data):
            end = self._simple_end(data, at)
            if end > at:
                yield from self._piece(data[at:end])
            else:
                end, is_record = self.rows.record_end(data, at, is_last)
                if not end:
                    break
                yield self._by_rows([data[at:end]], is_record)
            at = end
        return data[at:]

    def _simple_end(self, data: bytes, at: int) -> int:
        """How far records go in which every quote is where it should be."""
        if b'"' not in data:
            return data.rfind(b"\n", at) + 1
        found = self.simple.match(data, at)
        return found.end() if found else at

    def _piece(self, piece: bytes) -> Iterator[EventBatch]:
        """Halve what can't be read by columns, until few lines are left to be read one by one."""
        batch = self.columns.read(piece) if self.columns else None
        if batch is not None:
            if self.places is not None:
                self.places.good(len(batch), self.line, piece)
            self.line += piece.count(b"\n")
            yield batch
            return
        few = self.columns is None or piece.count(b"\n") <= _FEW
        middle = len(piece) if few else self._middle(piece)
        if middle == len(piece):
            ends = self._record_ends(piece)
            yield self._by_rows([piece[start:end] for start, end in pairwise([0, *ends])], is_record=True)
            return
        yield from self._piece(piece[:middle])
        yield from self._piece(piece[middle:])

    def _middle(self, piece: bytes) -> int:
        """The end of a record about half way, or of the only one."""
        if b'"' not in piece:
            return piece.rfind(b"\n", 0, len(piece) // 2) + 1 or piece.find(b"\n") + 1
        ends = self._record_ends(piece)
        return ends[(len(ends) - 1) // 2]

    def _record_ends(self, piece: bytes) -> list[int]:
        ends, at = [], 0
        while at < len(piece):
            at, _ = self.rows.record_end(piece, at, is_last=True)
            ends.append(at)
        return ends

    def _by_rows(self, records: Iterable[bytes], is_record: bool) -> EventBatch:
        found: list[Event] = []
        for record in records:
            event = self._event(record, is_record)
            if event is not None:
                found.append(event)
                if self.places is not None:
                    self.places.good(1, self.line, record)
            self.line += record.count(b"\n")
        return EventBatch.of(self.schema, [(0, found)])

    def _event(self, record: bytes, is_record: bool) -> Event | None:
        try:
            if not is_record:
                raise BadText(UNPARSABLE, "a quoted field is not closed")
            return self.rows.event(record)
        except BadText as fault:
            if not self.options.ignore_errors:
                self.on_bad(BadLine(self.line, fault.reason, fault.detail, shorten(record)))
            if self.places is not None:
                self.places.bad()
            return None


def _limit(batches: Iterator[EventBatch], most: int | None) -> Iterator[EventBatch]:
    left = most
    for batch in batches:
        if left is None or len(batch) < left:
            yield batch
        else:
            yield batch.slice(0, left)
            return
        left = None if left is None else left - len(batch)


def _number(batches: Iterator[EventBatch], block_size: int, chunk: int | None) -> Iterator[EventBatch]:
    """Blocks of so many events, in batches of whole blocks."""
    size = -(-(chunk or 1) // block_size) * block_size
    waiting: list[EventBatch] = []
    count = done = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        if count < size:
            continue
        joined = concat(waiting)
        whole = count // size * size
        step = whole if chunk is None else size
        for start in range(0, whole, step):
            yield _numbered(joined.slice(start, start + step), done + start, block_size)
        waiting, count, done = [joined.slice(whole, count)], count - whole, done + whole
    if count:
        yield _numbered(concat(waiting), done, block_size)


def _numbered(batch: EventBatch, start: int, block_size: int) -> EventBatch:
    return replace(batch, block=np.arange(start, start + len(batch), dtype=np.int64) // block_size + 1)
