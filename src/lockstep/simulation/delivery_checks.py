"""The observer of streams: what was published, acknowledged, refused, handed on and confirmed."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from lockstep.simulation import checks

if TYPE_CHECKING:
    from lockstep.simulation.group_checks import GroupBook, Report
    from lockstep.simulation.logs import SimLog

NOTHING_HANDED = -1


class Published(NamedTuple):
    """One record on a stream: who published it, its producer sequence, and a value that is never used twice."""

    producer: str
    number: int
    value: int

    def __str__(self) -> str:
        """As the trace shows it."""
        return f"{self.producer}/{self.number} v{self.value}"


@dataclass(slots=True)
class StreamBook:
    """One stream: which records are first copies, and which were handed on."""

    log: SimLog[Published]
    first_copies: list[int] = field(default_factory=list)  # offsets
    numbers: set[tuple[str, int]] = field(default_factory=set)
    offset_of: dict[int, int] = field(default_factory=dict)  # value -> offset it was handed on at
    handed: set[int] = field(default_factory=set)
    excused: set[int] = field(default_factory=set)  # an operator moved past them
    acknowledged: list[int] = field(default_factory=list)  # values
    refused: set[int] = field(default_factory=set)  # values

    def landed(self, at: int, record: Published) -> None:
        """A producer's number counts once."""
        if (record.producer, record.number) not in self.numbers:
            self.numbers.add((record.producer, record.number))
            self.first_copies.append(at)

    def between(self, start: int, end: int) -> list[int]:
        """First copies from `start` to before `end`."""
        return self.first_copies[bisect_left(self.first_copies, start) : bisect_left(self.first_copies, end)]


class DeliveryChecks:
    """Follows every record from its publisher to the last handler."""

    def __init__(self, book: GroupBook, streams: dict[str, StreamBook], report: Report) -> None:
        self.book = book
        self.streams = streams
        self.report = report
        self.last: dict[tuple[str, int], int] = {}
        self.last_value: dict[tuple[str, int, str], int] = {}
        book.confirmed = self._confirmed
        book.moved = self._moved

    def handed(self, stream: str, epoch: int, at: int, record: Published) -> None:
        """A record was given to a handler in a generation."""
        book = self.streams[stream]
        self._right_record(book, at, record)
        self._next_in_generation(stream, epoch, at)
        order = (stream, epoch, record.producer)
        if record.value <= self.last_value.get(order, -1):
            self.report(checks.REORDER, f"{stream}: {record} after v{self.last_value[order]}")
        self.last_value[order] = record.value
        book.handed.add(at)

    def _right_record(self, book: StreamBook, at: int, record: Published) -> None:
        index = bisect_left(book.log.offsets, at)
        if book.log.records[index : index + 1] != [record]:
            self.report(checks.INCONSISTENT_OFFSETS, f"{book.log.name} @{at}: {record}")
        if record.value in book.refused:
            self.report(checks.ABORTED_READ, f"{book.log.name} @{at}: {record}")
        first = book.offset_of.setdefault(record.value, at)
        if first != at:
            self.report(checks.DUPLICATE, f"{book.log.name}: {record} at {first} and {at}")

    def _next_in_generation(self, stream: str, epoch: int, at: int) -> None:
        last = self.last.get((stream, epoch), NOTHING_HANDED)
        if at <= last:
            self.report(checks.BACKWARDS, f"{stream}#{epoch}: {at} after {last}")
        start = last + 1 if last != NOTHING_HANDED else self.book.resume_of.get((stream, epoch), 0)
        if at < start and last == NOTHING_HANDED:
            self.report(checks.BACKWARDS, f"{stream}#{epoch}: {at} although it begins at {start}")
        passed_over = self.streams[stream].between(start, at)
        if passed_over:
            self.report(checks.SKIP, f"{stream}#{epoch}: {passed_over} passed over before {at}")
        self.last[stream, epoch] = at

    def _confirmed(self, stream: str, resume: int, offset: int) -> None:
        book = self.streams[stream]
        never_handed = [at for at in book.between(resume, offset + 1) if at not in book.handed]
        if never_handed:
            self.report(checks.LOST, f"{stream}: confirmed to {offset}, never handed on: {never_handed}")

    def _moved(self, stream: str, resume: int, start: int) -> None:
        self.streams[stream].excused.update(self.streams[stream].between(resume, start))

    def told_confirmed(self, stream: str, epoch: int, member: str, offset: int) -> None:
        """A handler was promised that this confirmation counts."""
        book = self.book.seats[stream]
        now = book.confirmed if self.book.in_force(stream, epoch, member) else self._confirmed_then(stream, epoch)
        if now is None or now < offset:
            self.report(checks.TOLD_CONFIRMED, f"{stream}#{epoch} {member}: told {offset}, counted {now}")

    def _confirmed_then(self, stream: str, epoch: int) -> int | None:
        """What the generation had confirmed when it ended: it may have ended before its owner could know."""
        of_epoch = [facts[stream][3] for facts in self.book.history.values() if facts[stream][0] == epoch]
        return of_epoch[-1] if of_epoch else None

    def after_healing(self) -> None:
        """Everything that was acknowledged is there, and was handed on."""
        for name, book in self.streams.items():
            offset_of = {book.log.records[book.log.index_after(at) - 1].value: at for at in book.first_copies}
            furthest = max(book.handed, default=NOTHING_HANDED)
            for value in book.acknowledged:
                at = offset_of.get(value)
                if at is None:
                    self.report(checks.TOLD_ACKNOWLEDGED, f"{name}: v{value}")
                elif at not in book.handed and at not in book.excused:
                    self.report(checks.LOST if at < furthest else checks.UNSEEN, f"{name} @{at}: v{value}")
