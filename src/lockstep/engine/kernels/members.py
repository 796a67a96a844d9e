"""The rows a copy window holds: read from the log again when they leave, or kept where the log does not have them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.kernels import pages
from lockstep.engine.kernels.flow import Flow, Part, Places
from lockstep.engine.kernels.moments import Pages
from lockstep.engine.kernels.rules import UNKNOWN, Rule, TimeRule
from lockstep.engine.kernels.span import History

_SEGMENT = 65_536
"""Rows that are read, or kept, as one."""


@dataclass(slots=True)
class Chunk:
    """Some rows in the order in which they came, the first `taken` of which have left."""

    part: Part
    anchors: Int64s
    taken: int = 0
    blocks: Int64s | None = None


class Members(ABC):
    """A queue of rows: they come at the end and leave at the front."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.count = 0
        self._dirty = False

    def touched(self) -> None:
        """The rule moved."""
        self._dirty = True

    @abstractmethod
    def first(self) -> Chunk | None:
        """The oldest rows; None if there are none."""

    @abstractmethod
    def floor(self) -> int:
        """The oldest row came at this clock or later."""

    @abstractmethod
    def leave(self, rows: int) -> None:
        """The oldest rows left: at most as many as `first` gave."""

    @abstractmethod
    def come(self, flow: Flow, start: int, anchors: Int64s) -> None:
        """Rows came: the events of a flow from `start` on; those before it have left again already."""

    @abstractmethod
    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """What changed since the last call."""

    @abstractmethod
    def load(self, found: Pages) -> None:
        """Go on from pages."""

    def earliest_block(self) -> int | None:
        """The first block that must stay in the log."""
        return None


class LoggedMembers(Members):
    """Rows of a source that the log holds: only the place of the oldest is remembered.

    `marks` are pairs of a block and a number of rows: where reading may stop, about a segment after each other.
    """

    def __init__(self, rule: Rule, history: History, source: str) -> None:
        super().__init__(rule)
        self._history, self._source = history, source
        self._block, self._skip = 0, 0
        self._floor = UNKNOWN
        self._marks: list[list[int]] = []
        self._refused: Places = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._chunk: Chunk | None = None
        self._read_to = self._first_skip = 0

    def first(self) -> Chunk | None:
        """Read the oldest rows from the log."""
        while self._chunk is None and self.count:
            self._read()
        return self._chunk

    def floor(self) -> int:
        """The clock of the oldest row, or of one before it."""
        return self._floor

    def leave(self, rows: int) -> None:
        """Move the tail."""
        chunk = self._chunk
        assert chunk is not None
        assert chunk.blocks is not None
        chunk.taken += rows
        self.count -= rows
        self._dirty = True
        if chunk.taken == chunk.part.length:
            self._floor = int(chunk.anchors[-1])
            self._next_segment()
        else:
            self._floor = int(chunk.anchors[chunk.taken])
            self._block = int(chunk.blocks[chunk.taken])
            self._skip = chunk.taken - int(np.searchsorted(chunk.blocks, self._block)) + self._hidden(chunk)
        self._forget_refused()

    def come(self, flow: Flow, start: int, anchors: Int64s) -> None:
        """Remember where they are."""
        self._dirty = True
        size = len(flow) - start
        if flow.refused is not None:
            self._refused = _joined(self._refused, flow.refused)
        if not size:
            return
        if not self.count:
            self._block = int(flow.block[start])
            self._skip = start - int(np.searchsorted(flow.block, self._block))
            self._floor = int(anchors[start])
            self._marks, self._chunk = [], None
        last = int(flow.block[-1])
        if self._marks and self._marks[-1][1] + size <= _SEGMENT:
            self._marks[-1] = [last, self._marks[-1][1] + size]
        else:
            self._marks.append([last, size])
        self.count += size
        self._forget_refused()

    def _read(self) -> None:
        last = self._marks[0][0]
        batch = self._history.read(self._source, self._block, last)
        part, block = self._good(batch)
        if not part.length:
            self._next_segment()
            return
        self._chunk = Chunk(part, self._anchors(part), 0, block)
        self._first_skip = self._skip
        self._read_to = last

    def _good(self, batch: EventBatch) -> tuple[Part, Int64s]:
        """The rows of a batch from the oldest on, without those that were refused, and their blocks."""
        part, block = Part.of(batch), batch.block
        if not len(self._refused[0]):
            start = min(int(np.searchsorted(block, self._block)) + self._skip, len(block))
            return part.slice(start, len(block)), block[start:]
        good = np.flatnonzero(~_among(block, self._refused))
        rows = good[np.searchsorted(block[good], self._block) + self._skip :]
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            start, stop = int(rows[0]), int(rows[-1]) + 1
            return part.slice(start, stop), block[start:stop]
        return part.pick(rows), block[rows]

    def _anchors(self, part: Part) -> Int64s:
        rule = self.rule
        if not isinstance(rule, TimeRule) or rule.field is None:
            return np.zeros(part.length, np.int64)
        return rule.anchored(rule.follow(*part.numbers(rule.field), self._floor))

    def _hidden(self, chunk: Chunk) -> int:
        """Rows of the tail's block that had left before the chunk was read."""
        assert chunk.blocks is not None
        return self._first_skip if chunk.blocks[0] == self._block else 0

    def _next_segment(self) -> None:
        read_to = self._marks[0][0] if self._chunk is None else self._read_to
        self._block, self._skip, self._chunk = read_to + 1, 0, None
        while self._marks and self._marks[0][0] <= read_to:
            self._marks.pop(0)

    def _forget_refused(self) -> None:
        blocks, indexes = self._refused
        if len(blocks):
            first = int(np.searchsorted(blocks, self._block)) if self.count else len(blocks)
            self._refused = blocks[first:], indexes[first:]

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """All that is remembered is one page."""
        if self._dirty:
            self._dirty = False
            where = [self.count, self._block, self._skip, self._floor, self._marks, *self._refused]
            yield "tail", pages.pack([self.rule.state(), where])

    def load(self, found: Pages) -> None:
        """Go on from the page."""
        if "tail" in found:
            state, where = pages.unpack(found["tail"])
            self.rule.load(state)
            self.count, self._block, self._skip, self._floor, self._marks, *refused = where
            self._refused = refused[0], refused[1]

    def earliest_block(self) -> int | None:
        """The block of the oldest row."""
        return self._block if self.count else None


class KeptMembers(Members):
    """Rows that are state, in chunks that never change once they are full."""

    def __init__(self, rule: Rule, names: Sequence[str]) -> None:
        super().__init__(rule)
        self._names = tuple(names)
        self._chunks: dict[int, Chunk] = {}
        self._next = 0
        self._changed: set[int] = set()

    def first(self) -> Chunk | None:
        """The oldest chunk."""
        return next(iter(self._chunks.values()), None)

    def floor(self) -> int:
        """The clock of the oldest row."""
        chunk = self.first()
        return UNKNOWN if chunk is None else int(chunk.anchors[chunk.taken])

    def leave(self, rows: int) -> None:
        """Take rows off the oldest chunk."""
        number, chunk = next(iter(self._chunks.items()))
        chunk.taken += rows
        self.count -= rows
        self._dirty = True
        if chunk.taken == chunk.part.length:
            del self._chunks[number]
            self._changed.add(number)

    def come(self, flow: Flow, start: int, anchors: Int64s) -> None:
        """Copy rows that stay."""
        self._dirty = True
        size = len(flow) - start
        if not size:
            return
        rows = pa.array(np.arange(start, len(flow)))
        # Taken, not sliced: a slice would keep the whole span in memory for the few rows that stay.
        part = Part({name: flow.column(name).take(rows) for name in self._names}, size)
        last = self._chunks.get(self._next - 1)
        if last is not None and last.part.length + size <= _SEGMENT // 4:
            columns = {name: pa.concat_arrays([last.part.columns[name], part.columns[name]]) for name in self._names}
            last.part = Part(columns, last.part.length + size)
            last.anchors = np.concatenate([last.anchors, anchors[start:]])
            self._changed.add(self._next - 1)
        else:
            self._chunks[self._next] = Chunk(part, anchors[start:].copy())
            self._changed.add(self._next)
            self._next += 1
        self.count += size

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """Chunks that are new, changed or gone, and where the queue begins."""
        for number in sorted(self._changed):
            chunk = self._chunks.get(number)
            yield (
                f"chunk.{number}",
                None if chunk is None else pages.pack([chunk.anchors, pages.pack_columns(chunk.part)]),
            )
        self._changed.clear()
        if self._dirty:
            self._dirty = False
            first = self.first()
            yield "tail", pages.pack([self.rule.state(), self.count, self._next, 0 if first is None else first.taken])

    def load(self, found: Pages) -> None:
        """Go on from pages."""
        for name in sorted((name for name in found if name != "tail"), key=lambda name: int(name.partition(".")[2])):
            anchors, columns = pages.unpack(found[name])
            self._chunks[int(name.partition(".")[2])] = Chunk(pages.unpack_columns(columns, len(anchors)), anchors)
        if "tail" in found:
            state, self.count, self._next, taken = pages.unpack(found["tail"])
            self.rule.load(state)
            first = self.first()
            if first is not None:
                first.taken = taken


def _joined(left: Places, right: Places) -> Places:
    return np.concatenate([left[0], right[0]]), np.concatenate([left[1], right[1]])


def _among(block: Int64s, positions: Places) -> Any:
    """Which events stand at some positions (block and index in the block)."""
    mask = np.zeros(len(block), np.bool_)
    blocks, indexes = positions
    rows = np.searchsorted(block, blocks) + indexes
    inside = (blocks >= block[0]) & (blocks <= block[-1]) if len(block) else np.zeros(len(blocks), np.bool_)
    mask[rows[inside]] = True
    return mask
