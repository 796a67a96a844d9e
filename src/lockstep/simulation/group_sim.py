"""One seed of a group: publishers, streams, and members that share the streams between them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from lockstep.simulation.consuming import Consumer
from lockstep.simulation.delivery_checks import DeliveryChecks, Published, StreamBook
from lockstep.simulation.group_checks import GroupBook, SeatBook, SeatChecks
from lockstep.simulation.logs import SimLog
from lockstep.simulation.publishing import Publisher

if TYPE_CHECKING:
    from lockstep.core.group import Record
    from lockstep.simulation.world import World

STREAM_NAMES = ("a", "b", "c", "d")


class GroupSim:
    """A group on its log."""

    def __init__(self, world: World) -> None:
        rng = world.rng
        self.world = world
        names = STREAM_NAMES[: rng.randint(1, 4)]
        self.group: SimLog[Record] = SimLog("group")
        self.logs: dict[str, SimLog[Published]] = {name: SimLog(name) for name in names}
        self.streams = {name: StreamBook(log) for name, log in self.logs.items()}
        self.book = GroupBook({name: SeatBook() for name in names})
        self.seat_checks = SeatChecks(self.book, world.report)
        self.delivery = DeliveryChecks(self.book, self.streams, world.report)
        self._observe_logs()
        values = count()
        self.publishers = [Publisher(world, world.host(f"w{n}"), self.streams, values) for n in (1, 2)]
        self.members = [self._member(n) for n in range(1, rng.randint(2, 4) + 1)]
        world.processes = [*self.publishers, *self.members]

    def _observe_logs(self) -> None:
        self.group.landed = self.book.landed
        for book in self.streams.values():
            book.log.landed = book.landed
        self.world.logs = [self.group, *self.logs.values()]

    def _member(self, number: int) -> Consumer:
        checks = (self.seat_checks, self.delivery)
        host = self.world.host(f"p{number}")
        return Consumer(self.world, host, self.group, self.logs, tuple(self.logs), checks)

    def after_tick(self) -> None:
        """Check that no two running members believe that they hold the same seat."""
        running = [m for m in self.members if m.host.alive and self.world.now >= m.host.paused_until]
        self.seat_checks.at_work(held for member in running for held in member.driver.at_work())

    def heal(self) -> None:
        """Publish nothing new, and make sure that a member takes part."""
        for publisher in self.publishers:
            publisher.finishing = True
        for member in self.members:
            if member.host.alive and not member.takes_part and self.world.rng.random() < 0.5:
                member.stop_or_rejoin()
        if not self._taking_part() and self.members[0].host.alive:
            self.members[0].stop_or_rejoin()

    def unfinished(self) -> str | None:
        """What has not converged yet, or None."""
        if any(not process.host.alive for process in self.world.processes):
            return "a process has not started yet"
        for publisher in self.publishers:
            if publisher.waiting is not None:
                return f"{publisher.host.me} waits for an acknowledgement"
        return self._unowned() or self._unbalanced() or self._unconfirmed()

    def finish(self) -> None:
        """The last look, after healing."""
        self.delivery.after_healing()

    def _taking_part(self) -> list[Consumer]:
        return [member for member in self.members if member.host.alive and member.takes_part]

    def _unowned(self) -> str | None:
        living = {member.host.me for member in self._taking_part()}
        for name, seat in self.book.seats.items():
            if seat.owner not in living:
                return f"{name} belongs to {seat.owner}"
        for member in self.members:
            for name, seat in self.book.seats.items():
                works = member.driver.holds(name)
                if works != (seat.epoch if seat.owner == member.host.me else None):
                    return f"{member.host.me} works on {name} in epoch {works}, owner is {seat.owner}#{seat.epoch}"
        return None

    def _unbalanced(self) -> str | None:
        load = {member.host.me: 0 for member in self._taking_part()}
        for seat in self.book.seats.values():
            load[str(seat.owner)] += 1
        return f"load is {load}" if max(load.values()) - min(load.values()) > 1 else None

    def _unconfirmed(self) -> str | None:
        for name, book in self.streams.items():
            left = [at for at in book.first_copies if at >= self.book.seats[name].resume]
            if left:
                return f"{name}: {left} not confirmed"
        return None
