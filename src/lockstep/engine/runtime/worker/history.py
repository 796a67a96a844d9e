"""The input of blocks that were evaluated before, read from the log again: windows need not keep copies of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.schema import Schema
from lockstep.engine.kernels.span import Span
from lockstep.engine.runtime.sequence.position import Position
from lockstep.engine.runtime.worker.divided_reader import Reader
from lockstep.errors import DataError

_CACHED_EVENTS = 500_000
"""Events kept decoded: what leaves a short window was read a moment ago."""
_CACHED_SPANS = 256
"""Ranges kept, however small: a quiet engine has many."""
_SEGMENT_EVENTS = 50_000
"""Positions are remembered about this far apart."""


class LogHistory:
    """Reads any block from the earliest one needed on. It is what `lockstep.engine.kernels.span.History` asks for.

    `marks` are positions in order; what lies between two of them is read, and kept for a while, as one.
    """

    def __init__(self, reader: Reader, schemas: dict[str, Schema], marks: Sequence[Position]) -> None:
        self.reader, self._schemas = reader, schemas
        self._marks = list(marks)
        self._is_sealed = True
        """Whether the last mark stays where it is: what follows it is not to be read together with what is before."""
        self._spans: list[Span] = []

    def add(self, start: Position, end: Position, span: Span) -> None:
        """Remember a range that was just read; it begins where the last one ended."""
        if not self._marks:
            self._marks = [start, end]
        elif not self._is_sealed and len(self._marks) > 1 and end.events - self._marks[-2].events <= _SEGMENT_EVENTS:
            self._marks[-1] = end
        else:
            self._marks.append(end)
        self._is_sealed = False
        self._keep(span)

    def seal(self, position: Position) -> None:
        """An entry that turns something was passed: ranges end before it and begin behind it."""
        if self._marks:
            self._marks.append(position)
        self._is_sealed = True

    def forget_before(self, block: int | None) -> None:
        """Drop what lies wholly before `block`; None: nothing of the past is needed."""
        keep = len(self._marks) - 1 if block is None else self._segment_of(block)
        del self._marks[: max(keep, 0)]

    @property
    def earliest(self) -> Position | None:
        """The first position that is remembered: the logs must reach back to it."""
        return self._marks[0] if self._marks else None

    @property
    def marks(self) -> tuple[Position, ...]:
        """The positions that it reads from."""
        return tuple(self._marks)

    def read(self, source: str, first_block: int, last_block: int) -> EventBatch:
        """The raw input events of some blocks, for one source window."""
        parts, block = [EventBatch.empty(self._schemas[source])], first_block
        while block <= last_block:
            span = self._span_with(block)
            batch = span.inputs.get(source)
            if batch is not None:
                low, high = np.searchsorted(batch.block, [block, last_block + 1])
                parts.append(batch.slice(int(low), int(high)))
            block = span.last + 1
        return concat(parts[1:] or parts)

    def _span_with(self, block: int) -> Span:
        for span in reversed(self._spans):
            if span.first <= block <= span.last:
                return span
        at = self._segment_of(block)
        if not 0 <= at < len(self._marks) - 1:
            raise DataError(reason=f"Block {block} was asked for again, but the place of its input was forgotten.")
        position, upto = self._marks[at], self._marks[at + 1].number
        while True:
            taken = self.reader.read(position, upto)
            position = taken.end
            self._keep(taken.span)
            if taken.span.last >= block or position.number >= upto:
                return taken.span

    def _segment_of(self, block: int) -> int:
        return bisect_right(self._marks, block - 1, key=lambda mark: mark.block) - 1

    def _keep(self, span: Span) -> None:
        self._spans.append(span)
        while len(self._spans) > _CACHED_SPANS or (len(self._spans) > 2 and self._size() > _CACHED_EVENTS):
            del self._spans[0]

    def _size(self) -> int:
        return sum(len(batch) for span in self._spans for batch in span.inputs.values())
