"""Copy windows on columns: rows that come once leave in the order in which they came, by computed positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lockstep.engine.events.columns import Bytes, Int64s
from lockstep.engine.kernels import loops
from lockstep.engine.kernels.flow import DELETE, Flow, Mask, Part, frozen
from lockstep.engine.kernels.members import LoggedMembers, Members
from lockstep.engine.kernels.moments import ColumnOperator, Moments, Pages, Yield
from lockstep.engine.kernels.rules import Causes
from lockstep.engine.kernels.sharding import Own, Share
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
        return Leaving(parts, _joined(rows), _joined(found), _joined(numbers), number + gone - first)

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


def _joined(arrays: Sequence[Int64s]) -> Int64s:
    if not arrays:
        return np.zeros(0, np.int64)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
