"""The observer of a group's log: plain bookkeeping of who owns what, against which every process is held.

It sees each record once, when it lands, and shares no code with the fold it checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lockstep.core.group import Beat, Claim, Confirm, GroupState, Record, Release, Reset
from lockstep.simulation import checks

Report = Callable[[str, str], None]
Facts = tuple[int, str | None, int | None, int | None]  # epoch, owner, start, confirmed


@dataclass(slots=True)
class SeatBook:
    """One seat, as an observer who reads everything in order keeps it."""

    epoch: int = 0
    owner: str | None = None
    last_sign: int = -1  # the offset of the last claim, beat, release or reset that counted
    start: int | None = None
    confirmed: int | None = None

    def facts(self) -> Facts:
        """What every process must find at the same place."""
        return self.epoch, self.owner, self.start, self.confirmed

    @property
    def resume(self) -> int:
        """The next offset an owner reads."""
        return (self.start or 0) if self.confirmed is None else self.confirmed + 1


@dataclass(slots=True)
class GroupBook:
    """The truth about a group at every offset, and what changed on the way."""

    seats: dict[str, SeatBook]
    history: dict[int, dict[str, Facts]] = field(default_factory=dict)
    requests: set[str] = field(default_factory=set)
    resume_of: dict[tuple[str, int], int] = field(default_factory=dict)
    outdated_claims: dict[int, str] = field(default_factory=dict)  # offset -> the sign of life their maker had not read
    ended_by_reset: set[tuple[str, int]] = field(default_factory=set)
    stale_confirms: dict[int, str] = field(default_factory=dict)  # offset -> who owned the seat instead
    confirmed: Callable[[str, int, int], None] = lambda _seat, _resume, _offset: None
    moved: Callable[[str, int, int], None] = lambda _seat, _resume, _start: None

    def landed(self, at: int, record: Record) -> None:
        """Take down what a record changes."""
        match record:
            case Beat():
                for name, epoch in record.held.items():
                    self._sign(name, epoch, record.member, at)
            case Claim():
                self._claim(at, record)
            case Release(member, seat, epoch):
                if self._sign(seat, epoch, member, at):
                    self.seats[seat].owner = None
            case Confirm():
                self._confirm(at, record)
            case Reset() if record.request not in self.requests:
                self._reset(at, record)
        self.history[at] = {name: book.facts() for name, book in self.seats.items()}

    def in_force(self, seat: str, epoch: int, member: str) -> bool:
        """Whether this member owns the seat in this epoch."""
        book = self.seats[seat]
        return book.owner == member and book.epoch == epoch

    def _sign(self, seat: str, epoch: int, member: str, at: int) -> bool:
        if not self.in_force(seat, epoch, member):
            return False
        self.seats[seat].last_sign = at
        return True

    def _claim(self, at: int, claim: Claim) -> None:
        book = self.seats[claim.seat]
        made_on_an_old_view = claim.seen < book.last_sign
        if made_on_an_old_view and book.owner is not None:
            self.outdated_claims[at] = f"read to {claim.seen}, but {book.owner} gave a sign of life at {book.last_sign}"
        if made_on_an_old_view or claim.epoch <= book.epoch:
            return
        if book.start is None and book.confirmed is None:
            book.start = claim.start
            self.moved(claim.seat, 0, claim.start or 0)
        book.epoch, book.owner, book.last_sign = claim.epoch, claim.member, at
        self.resume_of[claim.seat, claim.epoch] = book.resume

    def _confirm(self, at: int, confirm: Confirm) -> None:
        book = self.seats[confirm.seat]
        if not self.in_force(confirm.seat, confirm.epoch, confirm.member):
            self.stale_confirms[at] = f"{book.owner} owned it in epoch {book.epoch}"
        elif book.confirmed is None or confirm.offset > book.confirmed:
            self.confirmed(confirm.seat, book.resume, confirm.offset)
            book.confirmed = confirm.offset

    def _reset(self, at: int, reset: Reset) -> None:
        book = self.seats[reset.seat]
        self.requests.add(reset.request)
        self.moved(reset.seat, book.resume, reset.start)
        self.ended_by_reset.add((reset.seat, book.epoch))
        book.epoch += 1
        book.owner, book.last_sign, book.start, book.confirmed = None, at, reset.start, None


@dataclass(slots=True)
class SeatChecks:
    """Holds what each process counted against the book."""

    book: GroupBook
    report: Report
    owner_of: dict[tuple[str, int], str] = field(default_factory=dict)

    def folded(self, who: str, at: int, record: Record, before: GroupState, after: GroupState) -> None:
        """A process folded one record."""
        match record:
            case Claim(seat=seat):
                self._claimed(who, at, record, before, after)
            case Confirm(seat=seat):
                self._confirmed(who, at, record, before, after)
            case Release(seat=seat):
                pass
            case _:
                return
        was, now = before.seat(seat).confirmed, after.seat(seat).confirmed
        if was is not None and (now is None or now < was):
            self.report(checks.CONFIRM_BACK, f"{who}: {seat} from {was} to {now} at {at}")

    def _claimed(self, who: str, at: int, claim: Claim, before: GroupState, after: GroupState) -> None:
        had, has = before.seat(claim.seat), after.seat(claim.seat)
        counted = (had.epoch, had.owner) != (has.epoch, has.owner)
        if counted and at in self.book.outdated_claims:
            text = f"{who} at {at}: claim of {claim.member} on {claim.seat} {self.book.outdated_claims[at]}"
            self.report(checks.NEEDLESS_TAKEOVER, text)

    def _confirmed(self, who: str, at: int, confirm: Confirm, before: GroupState, after: GroupState) -> None:
        had, has = before.seat(confirm.seat), after.seat(confirm.seat)
        if had.confirmed != has.confirmed and at in self.book.stale_confirms:
            text = f"{who} at {at}: {confirm.seat}#{confirm.epoch} by {confirm.member}, {self.book.stale_confirms[at]}"
            self.report(checks.STALE_CONFIRM, text)

    def compare(self, who: str, group: GroupState) -> None:
        """A process read up to here: does it know what the book says?"""
        truth = self.book.history.get(group.upto, {})
        for name, facts in truth.items():
            seat = group.seat(name)
            if seat.owner is not None and self.owner_of.setdefault((name, seat.epoch), seat.owner) != seat.owner:
                text = f"{name}#{seat.epoch}: {seat.owner} and {self.owner_of[name, seat.epoch]}"
                self.report(checks.TWO_OWNERS, text)
            found = (seat.epoch, seat.owner, seat.start, seat.confirmed)
            if found != facts:
                self.report(checks.MISCOUNTED, f"{who} at {group.upto}: {name} is {found}, and should be {facts}")

    def at_work(self, holders: Iterable[tuple[str, str, int]]) -> None:
        """Who believes to hold which seat in which epoch right now, among the processes that run.

        An operator's reset waits for nobody: the process that held the seat before finds out when it reads the reset.
        """
        alone: dict[str, str] = {}
        for seat, who, epoch in holders:
            if (seat, epoch) not in self.book.ended_by_reset and alone.setdefault(seat, who) != who:
                self.report(checks.TWO_AT_WORK, f"{seat}: {alone[seat]} and {who}")
