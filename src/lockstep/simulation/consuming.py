"""A group member at work: reads its streams, hands records on, confirms, and drains a seat it has to yield."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.core.group import Confirm, Record, Reset, Snapshot
from lockstep.core.producers import Window, admit
from lockstep.simulation.logs import Reader, SimLog
from lockstep.simulation.member_driver import MemberDriver
from lockstep.simulation.world import REFUSED, Host, Process, World

if TYPE_CHECKING:
    from lockstep.simulation.delivery_checks import DeliveryChecks, Published
    from lockstep.simulation.group_checks import SeatChecks

LATEST_ODDS = 0.2
CONFIRM_ODDS = 0.3
CONFIRM_FIRST_ODDS = 0.5
SNAPSHOT_ODDS = 0.02
REPEAT_AFTER = 0.4
DRAIN_FOR_AT_MOST = 2.0
HANDED_AT_ONCE = 3


@dataclass(slots=True)
class Input:
    """A stream as one process reads it: copies dropped."""

    reader: Reader[Published]
    window: Window = field(default_factory=Window)
    offsets: list[int] = field(default_factory=list)
    records: list[Published] = field(default_factory=list)

    def read(self, now: float) -> None:
        """Take in what is new."""
        for at, record in self.reader.read(now):
            self.window, seen = admit(self.window, record.producer.encode(), record.number, 1)
            if not seen:
                self.offsets.append(at)
                self.records.append(record)


@dataclass(slots=True)
class Work:
    """The work on one seat in one generation."""

    epoch: int
    next_offset: int
    handled: int | None = None
    asked: int | None = None  # the confirmation that was sent and not read back
    asked_at: float = 0.0
    yield_asked_at: float | None = None


class Consumer(Process):
    """One process of the group."""

    def __init__(
        self, world: World, host: Host, group: SimLog[Record], streams: dict[str, SimLog[Published]],
        wants: tuple[str, ...], checks: tuple[SeatChecks, DeliveryChecks],
    ) -> None:  # fmt: skip
        super().__init__(world, host)
        self.group = group
        self.streams = streams
        self.wants = wants
        self.seat_checks, self.delivery = checks
        self.takes_part = True
        self.begins_at_latest = world.rng.random() < LATEST_ODDS

    def boot(self) -> None:
        """Everything in memory is gone."""
        self.work: dict[str, Work] = {}
        self.takes_part = True
        self.driver = MemberDriver(self, self, self.group, self.wants, self.seat_checks)
        self.inputs = {name: Input(Reader(self.streams[name])) for name in self.wants}
        self.readers = [self.driver.reader, self.driver.reader, *(source.reader for source in self.inputs.values())]

    def act(self) -> None:
        """Read, let time pass, work; or let a handler that just finished confirm before anything new is read."""
        if self.world.rng.random() < CONFIRM_FIRST_ODDS:
            self._confirm_all()
        self.driver.act()
        for name, source in self.inputs.items():
            source.read(self.world.now)
            work = self.work.get(name)
            if work is not None and work.yield_asked_at is None and self.driver.holds(name) is not None:
                self._hand_on(name, work, source)
        self._confirm_all()
        if self.world.rng.random() < SNAPSHOT_ODDS:
            state = self.driver.state.group
            self.append(self.group, Snapshot(state.upto, state))

    def assigned(self, seat: str, epoch: int, resume: int | None) -> None:
        """Begin where the group left off."""
        self.work[seat] = Work(epoch, resume or 0)

    def revoked(self, seat: str, epoch: int) -> None:
        """Drop the work at hand."""
        _ = epoch
        self.work.pop(seat, None)

    def asked_to_yield(self, seat: str) -> None:
        """Hand on nothing more, confirm what was handled, then give the seat up."""
        self.work[seat].yield_asked_at = self.world.now

    def first_offset(self, seat: str) -> int | None:
        """The earliest, or the latest as far as this process knows; the first claim that wins decides."""
        known = self.inputs[seat].offsets
        return known[-1] + 1 if self.begins_at_latest and known else None

    def read_back(self, at: int, record: Record) -> None:
        """A confirmation is done when it was read back and counted."""
        _ = at
        if not isinstance(record, Confirm) or record.member != self.host.me:
            return
        work = self.work.get(record.seat)
        seat = self.driver.state.group.seat(record.seat)
        counted = (seat.epoch, seat.owner) == (record.epoch, self.host.me) and seat.confirmed is not None
        if work is not None and work.epoch == record.epoch and counted and work.asked == record.offset:
            work.asked = None
            self._told(record)

    def stop_or_rejoin(self) -> None:
        """A clean stop, or the end of one."""
        self.takes_part = not self.takes_part
        self.driver.set_active(self.takes_part)

    def reset(self) -> None:
        """An operator moves one stream's position, to anywhere."""
        rng = self.world.rng
        seat = rng.choice(self.wants)
        offsets = self.streams[seat].offsets
        start = rng.choice(offsets) if offsets else 0
        self.append(self.group, Reset(seat, start, f"{self.host.me}/{self.world.now:.3f}"))

    def _confirm_all(self) -> None:
        """Nobody asks whether the lease still runs: a handler confirms when it is done."""
        for seat, work in list(self.work.items()):
            leaving = work.yield_asked_at is not None
            if work.asked is not None:
                if self.world.now - work.asked_at >= REPEAT_AFTER:
                    self._confirm(seat, work, work.asked)
            elif work.handled is not None and (leaving or self.world.rng.random() < CONFIRM_ODDS):
                self._confirm(seat, work, work.handled)
                work.handled = None
            self._drain(seat, work)

    def _hand_on(self, seat: str, work: Work, source: Input) -> None:
        index = bisect_left(source.offsets, work.next_offset)
        for at, record in zip(source.offsets[index : index + HANDED_AT_ONCE], source.records[index:], strict=False):
            if self.world.trace.on:
                self.say(f"handed {seat}#{work.epoch} @{at} {record}")
            self.delivery.handed(seat, work.epoch, at, record)
            work.handled, work.next_offset = at, at + 1

    def _confirm(self, seat: str, work: Work, offset: int) -> None:
        work.asked, work.asked_at = offset, self.world.now
        record = Confirm(self.host.me, seat, work.epoch, offset)
        told = self.append(self.group, record)
        if self.world.variant.acknowledged_is_counted and told is not None and told != REFUSED:
            work.asked = None
            self._told(record)

    def _told(self, record: Confirm) -> None:
        if self.world.trace.on:
            self.say(f"told confirmed {record.seat}#{record.epoch} upto={record.offset}")
        self.delivery.told_confirmed(record.seat, record.epoch, self.host.me, record.offset)

    def _drain(self, seat: str, work: Work) -> None:
        if work.yield_asked_at is None:
            return
        if (work.asked is None and work.handled is None) or self.world.now - work.yield_asked_at > DRAIN_FOR_AT_MOST:
            del self.work[seat]
            self.driver.drained(seat)
