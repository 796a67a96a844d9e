"""Runs one `core.member` machine for a process: reads its log, carries out what it says, watches what it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lockstep.core import member
from lockstep.core.group import Claim, GroupState, Record, Snapshot, restore
from lockstep.core.member import Assigned, MemberState, Revoked, Send, Timing, Yield
from lockstep.simulation.logs import Reader
from lockstep.simulation.world import LEASE

if TYPE_CHECKING:
    from lockstep.simulation.group_checks import SeatChecks
    from lockstep.simulation.logs import SimLog
    from lockstep.simulation.world import Process

TIMING = Timing(beat=LEASE / 5, lease=LEASE)


class Owner(Protocol):
    """The part of a process that is told about its seats."""

    def assigned(self, seat: str, epoch: int, resume: int | None) -> None:
        """The seat is ours."""

    def revoked(self, seat: str, epoch: int) -> None:
        """The seat is no longer ours."""

    def asked_to_yield(self, seat: str) -> None:
        """Finish, then drain."""

    def first_offset(self, seat: str) -> int | None:
        """Where to begin on a seat that never had a position."""

    def read_back(self, at: int, record: Record) -> None:
        """A record of the log was folded."""


class MemberDriver:
    """A member of a group, on a process that may stop at any moment."""

    def __init__(
        self, process: Process, owner: Owner, log: SimLog[Record], wants: tuple[str, ...], checks: SeatChecks
    ) -> None:
        self.process = process
        self.owner = owner
        self.log = log
        self.checks = checks
        self.reader = Reader(log)
        self.state = MemberState(process.host.me, wants, TIMING, self._begin(), beat_due=0.0)
        self.reader.index = log.index_after(self.state.group.upto)

    def _begin(self) -> GroupState:
        """A restarted process folds from the first record, or from a snapshot it finds."""
        rng = self.process.world.rng
        if rng.random() < 0.5:
            return GroupState()
        return next((restore(r) for r in reversed(self.log.records) if isinstance(r, Snapshot)), GroupState())

    def clock(self) -> float:
        """Now, on the clock that leases are measured on."""
        world = self.process.world
        return world.variant.clock(self.process.host, world.now)

    def holds(self, seat: str) -> int | None:
        """The epoch in which the member may work on the seat right now."""
        return member.holds(self.state, seat, self.clock())

    def at_work(self) -> list[tuple[str, str, int]]:
        """The seats it may work on right now: seat, member, epoch."""
        return [(seat, self.state.me, epoch) for seat, epoch in self.state.held.items() if self.holds(seat) is not None]

    def act(self) -> None:
        """Read what is new, then let time pass."""
        world = self.process.world
        batch = self.reader.read(world.now)
        for at, record in batch:
            self._observe(at, record)
        if batch:
            self.checks.compare(self.process.host.me, self.state.group)
        self._step(member.Tick(self.clock(), self.reader.at_end, world.rng.random()))
        self.state = world.variant.after_tick(self.state)

    def _observe(self, at: int, record: Record) -> None:
        self.process.world.events += 1
        before = self.state.group
        seen = self.process.world.variant.read_group(before, record)
        self._step(member.Observed(at, seen, self.clock()))
        self.checks.folded(self.process.host.me, at, record, before, self.state.group)
        self.owner.read_back(at, record)

    def drained(self, seat: str) -> None:
        """The work on a seat is done: give it up."""
        self._step(member.Drained(seat, self.clock()))

    def set_active(self, active: bool) -> None:
        """Take part, or step back."""
        if self.process.world.trace.on:
            self.process.say("active again" if active else "stops cleanly")
        self._step(member.SetActive(active, self.clock()))

    def _step(self, event: member.Event) -> None:
        self.state, actions = member.step(self.state, event)
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: member.Action) -> None:
        tracing = self.process.world.trace.on
        match action:
            case Send(Claim() as claim):
                self.process.append(self.log, replace(claim, start=self.owner.first_offset(claim.seat)))
                return
            case Send(record):
                self.process.append(self.log, record)
                return
            case Assigned(seat, epoch, resume):
                self.owner.assigned(seat, epoch, resume)
            case Revoked(seat, epoch):
                self.owner.revoked(seat, epoch)
            case Yield(seat, epoch):
                self.owner.asked_to_yield(seat)
        if tracing:
            self.process.say(f"{type(action).__name__.lower()} {seat}#{epoch}")
