"""Simulated logs: they append and read in order, may be trimmed, and promise nothing else."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")


class LogTrimmed(Exception):
    """What was to be read is no longer there."""


class LogShorter(Exception):
    """What was read before is no longer there: a bus lost records that it had acknowledged."""


@dataclass(slots=True)
class SimLog(Generic[R]):
    """What landed, in order, at growing offsets with gaps; and what is still on its way."""

    name: str
    offsets: list[int] = field(default_factory=list)  # with those that are trimmed: the observer forgets nothing
    records: list[R] = field(default_factory=list)
    first: int = 0  # nobody else reads what is below
    on_its_way: list[tuple[float, R, int]] = field(default_factory=list)
    landed: Callable[[int, R], None] = lambda _at, _record: None

    def land(self, record: R, gap: int) -> int:
        """Add a record, `gap` offsets after the last one, and tell the observer."""
        at = self.end + gap
        self.offsets.append(at)
        self.records.append(record)
        self.landed(at, record)
        return at

    def send(self, record: R, due: float, gap: int) -> None:
        """Let a record land later."""
        self.on_its_way.append((due, record, gap))

    def hurry(self) -> None:
        """Let everything that is on its way land next."""
        self.on_its_way = [(0.0, record, gap) for _, record, gap in self.on_its_way]

    def land_due(self, now: float) -> None:
        """Land what was on its way until now, in the order in which it was due."""
        if not self.on_its_way:
            return
        due = sorted((item for item in self.on_its_way if item[0] <= now), key=lambda item: item[0])
        self.on_its_way = [item for item in self.on_its_way if item[0] > now]
        for _, record, gap in due:
            self.land(record, gap)

    @property
    def end(self) -> int:
        """The offset after the last record, or the one the log was trimmed to."""
        return max(self.offsets[-1] + 1, self.first) if self.offsets else self.first

    def trim(self, below: int) -> None:
        """Trim the records below an offset."""
        self.first = min(max(self.first, below), self.end)

    def lose(self, count: int) -> int:
        """Lose the last records, but none that is trimmed; how many there were."""
        lost = min(count, len(self.offsets) - bisect_left(self.offsets, self.first))
        del self.offsets[len(self.offsets) - lost :], self.records[len(self.records) - lost :]
        return lost

    def between(self, start: int, stop: int) -> list[tuple[int, R]]:
        """What lies between two offsets, trimmed or not."""
        low, high = bisect_left(self.offsets, start), bisect_left(self.offsets, stop)
        return list(zip(self.offsets[low:high], self.records[low:high], strict=True))

    def index_after(self, offset: int) -> int:
        """The index of the first record after `offset`."""
        return bisect_right(self.offsets, offset)


@dataclass(slots=True)
class Reader(Generic[R]):
    """One process's view of a log: a prefix, which may be stale without showing it."""

    log: SimLog[R]
    index: int = 0
    stalled_until: float = 0.0
    slow_until: float = 0.0
    end_while_stalled: int = 0
    at_end: bool = False

    def stall(self, until: float) -> None:
        """Until then the log seems to end where it ends now."""
        self.end_while_stalled = max(len(self.log.offsets), self.index)
        self.stalled_until = until

    def heal(self) -> None:
        """From now on everything is seen."""
        self.stalled_until = self.slow_until = 0.0

    def read(self, now: float) -> list[tuple[int, R]]:
        """What is new; `at_end` says whether the log seems to end there."""
        end = self.end_while_stalled if now < self.stalled_until else len(self.log.offsets)
        upto = min(end, self.index + 1) if now < self.slow_until else end
        self.at_end = upto >= end
        batch = list(zip(self.log.offsets[self.index : upto], self.log.records[self.index : upto], strict=True))
        self.index = max(upto, self.index)
        return batch


@dataclass(slots=True)
class Cursor(Generic[R]):
    """One process's place on a log that may be trimmed, or lose its end."""

    log: SimLog[R]
    next: int = 0
    stalled_until: float = 0.0
    slow_until: float = 0.0
    end_while_stalled: int = 0
    at_end: bool = False

    def stall(self, until: float) -> None:
        """Until then the log seems to end where it ends now."""
        self.end_while_stalled = max(self.log.end, self.next)
        self.stalled_until = until

    def heal(self) -> None:
        """From now on everything is seen."""
        self.stalled_until = self.slow_until = 0.0

    def read(self, now: float) -> list[tuple[int, R]]:
        """What is new. Raises LogTrimmed or LogShorter."""
        if self.next < self.log.first:
            raise LogTrimmed(self.log.name)
        stalled = now < self.stalled_until
        if self.next > self.log.end and not stalled:
            raise LogShorter(self.log.name)
        batch = self.log.between(self.next, self.end_while_stalled if stalled else self.log.end)
        self.at_end = True
        if now < self.slow_until and len(batch) > 1:
            batch, self.at_end = batch[:1], False
        if batch:
            self.next = batch[-1][0] + 1
        return batch


class ForeignCursor(Cursor[R]):
    """An engine's place on another owner's stream, which trims records even while they are read.

    It stops before a gap: only an entry says how far that goes. What is decided on stays readable. A real engine that
    finds it gone ends with an error, and nothing else is to be seen of that.
    """

    def __init__(self, log: SimLog[R], decided: Callable[[], int], at: int) -> None:
        super().__init__(log, at)
        self._decided = decided

    def read(self, now: float) -> list[tuple[int, R]]:
        """What is new before the next gap."""
        if self.next >= self.log.first:
            return super().read(now)
        stop = min(self._decided(), self.log.first)
        if now < self.stalled_until:
            stop = min(stop, self.end_while_stalled)
        batch = self.log.between(self.next, stop)
        self.next = max(self.next, stop)  # not only after the last record: the log may begin between two
        return batch
