"""Who led a project and when, as its sequence log tells: each leader begins with a mark of its epoch.

Epochs only grow, so each one's mark is found by halving: some reads for each, however long the log is. What was trimmed
is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.core.sequence import Entry, Mark
from lockstep.engine.runtime.sequence.entries import decode
from lockstep.errors import Trimmed
from lockstep.log.batch import BatchView
from lockstep.log.offsets import step_back
from lockstep.log.port import Log

_LATE = 8
"""Records at an end among which the highest epoch counts: a leader that slept writes a few late."""
_NEAR = 64
"""Records before the place that halving finds, in which the mark stands: late ones may lead it astray."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaderEpoch:
    """One epoch: the incarnation of the engine that led, and since when."""

    epoch: int
    incarnation: str
    at_ns: int | None
    """When its mark was written, on the wall clock of its machine; None if the mark was trimmed."""


@dataclass(frozen=True, slots=True)
class _Found:
    at: int
    record: Mark | Entry
    written_ns: int


def leader_epochs(sequence: Log, most: int) -> list[LeaderEpoch]:
    """The newest epochs, the newest first, at most so many."""
    bounds = sequence.bounds()
    found: list[LeaderEpoch] = []
    end = bounds.next
    while len(found) < most and end > bounds.first:
        below = found[-1].epoch if found else None
        epoch = _epoch_before(sequence, bounds.first, end, below)
        if epoch is None:
            return found
        lead, end = _lead(sequence, bounds.first, end, epoch)
        found.append(lead)
    return found


def _epoch_before(log: Log, first: int, end: int, below: int | None) -> int | None:
    """The highest epoch of the last records before an offset, below that of the one that follows."""
    start = step_back(log, end, _LATE, first)
    epochs = [found.record.epoch for found in _between(log, start, end)]
    return max((epoch for epoch in epochs if below is None or epoch < below), default=None)


def _lead(log: Log, first: int, end: int, epoch: int) -> tuple[LeaderEpoch, int]:
    """An epoch, and where it begins."""
    low, high, place = first, end, first
    while low < high:
        middle = (low + high) // 2
        found = next(_between(log, middle, end, max_bytes=1), None)
        if found is None or found.record.epoch >= epoch:
            high, place = middle, found.at if found is not None else place
        else:
            low = max(middle, found.at) + 1
    near = list(_between(log, step_back(log, place, _NEAR, first), place + 1))
    marks = [found for found in near if isinstance(found.record, Mark) and found.record.epoch == epoch]
    begins = marks[0] if marks else next((found for found in near if found.record.epoch == epoch), None)
    if begins is None:  # trimmed while it was looked for
        return LeaderEpoch(epoch=epoch, incarnation="", at_ns=None), first
    at_ns = begins.written_ns if marks or begins.at > first else None
    return LeaderEpoch(epoch=epoch, incarnation=begins.record.owner, at_ns=at_ns), begins.at


def _between(log: Log, start: int, stop: int, max_bytes: int = 1 << 18) -> Iterator[_Found]:
    """Records from one offset to before another, read in pieces of about so many bytes."""
    while start < stop:
        try:
            stored = log.read(start, max_bytes=max_bytes)
        except Trimmed:
            start = max(start + 1, log.bounds().first)
            continue
        if not stored:
            return
        for entry in stored:
            view = BatchView(entry.base, entry.data, log.name)
            for index, value in enumerate(view.values()):
                if start <= view.base + index < stop:
                    yield _Found(view.base + index, decode(value), view.created_ns)
            start = view.end
