"""Transactional blocks out of lines: a broken line keeps its place, and its block is refused whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lockstep.engine.events.columns import EventBatch, Int64s, concat
from lockstep.engine.events.csv_rows import BadLine, RowReader, shorten

TRANSACTION = "transaction"
REFUSED_WHOLE = "another line of its block is no event"


@dataclass(frozen=True, slots=True)
class _Span:
    """Records in a row that are events: which places they have, and where they stand in the file."""

    place: int
    count: int
    line: int
    data: bytes


class Places:
    """Which place each record of a file has, counting broken ones too."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows
        self.next = 0
        self._spans: deque[_Span] = deque()
        self._broken: list[int] = []

    def good(self, count: int, line: int, data: bytes) -> None:
        """So many events, in records that begin at a line."""
        if count:
            self._spans.append(_Span(self.next, count, line, data))
            self.next += count

    def bad(self) -> None:
        """A record that is no event."""
        self._broken.append(self.next)
        self.next += 1

    def of_events(self, count: int) -> Int64s:
        """The places of the next events that were not dropped yet."""
        parts = [np.arange(span.place, span.place + span.count, dtype=np.int64) for span in self._spans]
        return np.concatenate([np.empty(0, np.int64), *parts])[:count]

    def refused(self, size: int) -> Int64s:
        """The blocks that have a broken record."""
        return np.unique(np.array(self._broken, np.int64) // size)

    def drop(self, before: int) -> None:
        """Forget what lies before a place."""
        while self._spans and self._spans[0].place + self._spans[0].count <= before:
            self._spans.popleft()
        if self._spans and self._spans[0].place < before:
            self._spans[0] = self._cut(self._spans[0], before)
        self._broken = [place for place in self._broken if place >= before]

    def lines(self, places: Sequence[int]) -> Iterator[BadLine]:
        """The records at places, in order, as lines that were refused with their block."""
        spans, wanted = iter(self._spans), deque(places)
        for span in spans:
            records = self._records(span) if wanted and wanted[0] < span.place + span.count else []
            for place, (line, record) in enumerate(records, span.place):
                if wanted and wanted[0] == place:
                    wanted.popleft()
                    yield BadLine(line, TRANSACTION, REFUSED_WHOLE, shorten(record))

    def _cut(self, span: _Span, before: int) -> _Span:
        gone = before - span.place
        line, _ = self._records(span)[gone]
        data = b"".join(record for _, record in self._records(span)[gone:])
        return _Span(before, span.count - gone, line, data)

    def _records(self, span: _Span) -> list[tuple[int, bytes]]:
        """The records of a span that are not empty, each with its line."""
        found, at, line = [], 0, span.line
        while at < len(span.data):
            end, _ = self._rows.record_end(span.data, at, is_last=True)
            record = span.data[at:end]
            if record.strip(b"\r\n"):
                found.append((line, record))
            at, line = end, line + record.count(b"\n")
        return found


def whole_blocks(
    batches: Iterator[EventBatch], places: Places, size: int, chunk: int, on_bad: Callable[[BadLine], None]
) -> Iterator[EventBatch]:
    """Blocks of so many records without a broken one, numbered from 1 on, in batches of whole blocks."""
    wanted = -(-chunk // size) * size
    waiting: list[EventBatch] = []
    count = done = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        if count < wanted:
            continue
        joined, end = concat(waiting), places.next // size * size
        whole = int(np.searchsorted(places.of_events(count), end))
        kept = _kept(joined.slice(0, whole), places, size, done, on_bad)
        places.drop(end)
        waiting, count = [joined.slice(whole, count)], count - whole
        if len(kept):
            done = int(kept.block[-1])
            yield kept
    if count:
        kept = _kept(concat(waiting), places, size, done, on_bad)
        if len(kept):
            yield kept


def _kept(batch: EventBatch, places: Places, size: int, done: int, on_bad: Callable[[BadLine], None]) -> EventBatch:
    """The events of sound blocks, with the numbers that follow on; the others are told one by one."""
    at = places.of_events(len(batch))
    is_refused = np.isin(at // size, places.refused(size))
    if is_refused.any():
        for line in places.lines(at[is_refused].tolist()):
            on_bad(line)
        batch, at = batch.take(np.flatnonzero(~is_refused)), at[~is_refused]
    _, block = np.unique(at // size, return_inverse=True)
    return replace(batch, block=block.astype(np.int64) + done + 1)
