"""Copy windows on columns: which rows they hold, and when each leaves, by computed positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.engine.columns import loops, pages
from lockstep.engine.columns.flow import DELETE, Flow, Mask, Part, Places, frozen
from lockstep.engine.columns.rules import UNKNOWN, Causes, Rule, TimeRule
from lockstep.engine.columns.runner import ColumnOperator, History, Moments, Pages, Yield
from lockstep.engine.columns.sharding import Own, Share
from lockstep.engine.events.columns import Bytes, EventBatch, Int64s
from lockstep.engine.model.graph import Node

NO_PLACES: Int64s = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Leaving:
    """Rows that leave: which rows of which part, because of which cause, and their numbers among all that ever came.

    With a share only those of the shard; `count` is how many there are of all shards.
    """

    parts: list[Part]
    rows: Int64s
    causes: Int64s
    numbers: Int64s
    count: int


class PassColumns(ColumnOperator):
    """A copy that keeps everything: events pass as they are."""

    loads_rows = True  # and keeps nothing

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Pass them on."""
        del moments, emit
        return Yield.of(replace(inputs[0], schema=self.node.schema))


class CopyColumns(ColumnOperator):
    """A copy with retention, over rows that come once and are never changed.

    With a share it shows only the rows of its shard; its clock follows all of them.
    """

    def __init__(self, node: Node, members: Members, share: Share | None = None) -> None:
        super().__init__(node)
        self._members, self._rule, self._share = members, members.rule, share

    @property
    def followed(self) -> frozenset[str] | None:
        """The columns that it looks at in rows of other shards; None if it keeps them whole."""
        return self._rule.fields if isinstance(self._members, LoggedMembers) else None

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Let rows in and out."""
        (flow,) = inputs
        if not len(flow) and flow.refused is None and not moments.span.ticks:
            return Yield(None, 0, 0)
        first = self._rule.total - self._members.count
        causes = self._rule.causes(flow, moments.span)
        self._members.touched()
        own = None if self._share is None else self._share.own_of(flow)
        leaving = self._leaving(flow, causes, first, own)
        if not emit and own is None:
            return Yield(None, len(flow) + leaving.count, len(flow) - leaving.count)
        if own is not None:
            return replace(Yield.of(self._divided(flow, causes, leaving, own)), taken=len(own.places))
        return Yield.of(self._merged(flow, causes, leaving))

    def _leaving(self, flow: Flow, causes: Causes, first: int, own: Own | None) -> Leaving:
        parts, rows, found, numbers, base, number = [], [], [], [], 0, first
        while self._members.count and self._may_leave(causes, number):
            chunk = self._members.first()
            assert chunk is not None, "there are members"
            anchors = self._rule.anchored(chunk.anchors[chunk.taken :])
            due = causes.due(self._rule, anchors, number)
            if not due:
                break
            part, places = self._own(chunk.part, chunk.taken, chunk.taken + due)
            parts.append(part)
            rows.append(np.arange(base, base + len(places), dtype=np.int64))
            numbers.append(places + number)
            found.append(causes.find(self._rule.bounds(anchors[places], numbers[-1])))
            base += len(places)
            number += due
            is_end = due < len(anchors)
            self._members.leave(due)
            if is_end:
                break
        gone = 0
        if not self._members.count and len(flow):
            anchors = self._rule.anchored(causes.anchors)
            gone = causes.due(self._rule, anchors, number)
            places = np.arange(gone) if own is None else own.places[: np.searchsorted(own.places, gone)]
            rows.append(base + (flow.rows()[:gone] if own is None else own.rows[: len(places)]))
            numbers.append(places + number)
            found.append(causes.find(self._rule.bounds(anchors[places], numbers[-1])))
        self._members.come(flow, gone, causes.anchors)
        return Leaving(parts, _concatenated(rows), _concatenated(found), _concatenated(numbers), number + gone - first)

    def _own(self, part: Part, start: int, stop: int) -> tuple[Part, Int64s]:
        """Some rows of a part that are of this shard, and which of them they are."""
        if self._share is None:
            return part.slice(start, stop), np.arange(stop - start, dtype=np.int64)
        mine, rows = self._share.own(part)
        low, high = np.searchsorted(rows, [start, stop]).tolist()
        return mine.slice(low, high), rows[low:high] - start

    def _may_leave(self, causes: Causes, number: int) -> bool:
        """Whether the oldest row may be due: it saves reading the log for nothing."""
        if not len(causes.keys):
            return False
        anchor = self._rule.anchored(np.array([self._members.floor()], np.int64))
        return causes.due(self._rule, anchor, number) > 0

    def _merged(self, flow: Flow, causes: Causes, leaving: Leaving) -> Flow:
        parts, left = (*leaving.parts, *flow.parts), leaving.causes
        came_rows = flow.rows() + sum(part.length for part in leaving.parts)
        gone = causes.before[left], causes.block[left], leaving.rows, leaving.numbers
        made, _ = _woven(*gone, NO_PLACES, flow.block, flow.flags, came_rows)
        return Flow(self.node.schema, *made[:3], parts, made[3])

    def _divided(self, flow: Flow, causes: Causes, leaving: Leaving, own: Own) -> Flow:
        """The rows of one shard, with the places that they have among all rows."""
        parts, came, left = (*leaving.parts, *own.parts), own.places, leaving.causes
        came_rows = own.rows + sum(part.length for part in leaving.parts)
        gone = causes.before[left], causes.block[left], leaving.rows, leaving.numbers
        made, orders = _woven(*gone, came, flow.block[came], flow.flags[came], came_rows)
        places = _places(flow, made[1] == DELETE, left, came)
        return Flow(self.node.schema, *made[:3], parts, made[3], (places, orders))

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """Its members, or where they are."""
        return self._members.changed_pages()

    def load(self, pages: Pages) -> None:
        """Go on from pages."""
        self._members.load(pages)

    def earliest_block(self) -> int | None:
        """The block of its oldest member, if that is in the log."""
        return self._members.earliest_block()


def _woven(
    before: Int64s,
    left_block: Int64s,
    left_rows: Int64s,
    numbers: Int64s,
    places: Int64s,
    came_block: Int64s,
    came_flags: Bytes,
    came_rows: Int64s,
) -> tuple[tuple[Int64s, Bytes, Bytes, Int64s], Int64s]:
    """Block, opcode, flags and row of all that came and left, in order; and the order below the cause."""
    size = len(before) + len(came_rows)
    block, rows, order = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    opcode, flags = np.empty(size, np.uint8), np.empty(size, np.uint8)
    given = (before, left_block, left_rows, numbers, places, frozen(came_block), frozen(came_flags), came_rows)
    loops.weave(*given, block, opcode, flags, rows, order)
    return (block, opcode, flags, rows), order


def _places(flow: Flow, is_delete: Mask, left: Int64s, came: Int64s) -> Int64s:
    """The index in its block of the event that let each row go or come."""
    found = np.zeros(len(is_delete), np.int64)  # as the system gives it, which costs next to nothing
    if not flow.has_single_events():
        found[is_delete] = flow.index_in_block(left)
        found[~is_delete] = flow.index_in_block(came)
    return found


def _concatenated(arrays: Sequence[Int64s]) -> Int64s:
    if not arrays:
        return np.zeros(0, np.int64)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


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
