"""One seed of an election: engines that elect a leader on a control log, and compute what it puts in sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lockstep.core import leader
from lockstep.core.leader import Apply, LeaderState, Send, StepDown
from lockstep.core.sequence import Entry, Mark, SequenceState
from lockstep.simulation import faults
from lockstep.simulation.group_checks import GroupBook, SeatBook, SeatChecks
from lockstep.simulation.leader_checks import Block, SequenceBook
from lockstep.simulation.logs import Reader, SimLog
from lockstep.simulation.member_driver import MemberDriver
from lockstep.simulation.world import REFUSED, Host, Process, World

if TYPE_CHECKING:
    from lockstep.core.group import Record

LEAD = "lead"
PROPOSE_ODDS = 0.25
SEND_FIRST_ODDS = 0.5
PERSIST_ODDS = 0.05
WAITING_AT_MOST = 3
DRAIN_FOR_AT_MOST = 2.0


class Engine(Process):
    """Applies what counts; when it leads, it also decides and publishes."""

    immune = frozenset({faults.RESET})

    def __init__(self, world: World, host: Host, sim: LeaderSim) -> None:
        super().__init__(world, host)
        self.sim = sim
        self.takes_part = True
        self.proposals = 0
        self.persisted: tuple[SequenceState, tuple[str, ...]] = (SequenceState(), ())

    def boot(self) -> None:
        """Begin at the last persisted state; who leads is found out anew."""
        sequence, applied = self.persisted
        self.takes_part = True
        self.leader = LeaderState(self.host.me, sequence)
        self.applied = list(applied)
        self.yield_asked_at: float | None = None
        self.driver = MemberDriver(self, self, self.sim.control, (LEAD,), self.sim.seat_checks)
        self.sequence = Reader(self.sim.sequence, self.sim.sequence.index_after(sequence.upto))
        self.out = Reader(self.sim.out)
        self.last_block = 0
        self.readers = [self.driver.reader, self.sequence, self.sequence, self.out]

    def act(self) -> None:
        """Find out who leads, apply what counts, decide what is next; or act on what it knew before."""
        if self.world.rng.random() < SEND_FIRST_ODDS:
            self._step(leader.Tick(self.host.monotonic(self.world.now)))
        self.driver.act()
        for at, record in self.sequence.read(self.world.now):
            self._observe(at, record)
        self._step(leader.Tick(self.host.monotonic(self.world.now)))
        self._propose()
        self._publish()
        self._drain()
        if self.world.rng.random() < PERSIST_ODDS:
            self.persisted = (self.leader.sequence, tuple(self.applied))

    def assigned(self, seat: str, epoch: int, resume: int | None) -> None:
        """The control log says: lead."""
        _ = seat, resume
        self.yield_asked_at = None
        self._step(leader.Won(epoch))

    def revoked(self, seat: str, epoch: int) -> None:
        """The control log says that another engine leads, or none."""
        _ = seat, epoch
        self._step(leader.Lost())

    def asked_to_yield(self, seat: str) -> None:
        """Finish what is in flight, then let another lead."""
        _ = seat
        self.yield_asked_at = self.world.now

    def first_offset(self, seat: str) -> int | None:
        """A lead has no position."""
        _ = seat
        return None

    def read_back(self, at: int, record: Record) -> None:
        """Nothing here waits for records of the control log."""

    def stop_or_rejoin(self) -> None:
        """A clean stop, or the end of one."""
        self.takes_part = not self.takes_part
        self.driver.set_active(self.takes_part)

    def _observe(self, at: int, record: Mark | Entry) -> None:
        self.world.events += 1
        place = len(self.applied)
        self._step(leader.Observed(at, self.world.variant.read_sequence(self.leader.sequence, record)))
        if not isinstance(record, Entry):
            return
        if len(self.applied) == place:
            self.sim.book.passed(self.host.me, at)
            return
        self.sim.book.applied(self.host.me, at, record, place + 1)
        if record.owner == self.host.me:
            self._tell(record)

    def _step(self, event: leader.Event) -> None:
        self.leader, actions = leader.step(self.leader, event)
        for action in actions:
            match action:
                case Send(record):
                    self._send(record)
                case Apply(entry):
                    self.applied.append(entry.body)
                case StepDown():
                    self.yield_asked_at = None
                    self.driver.drained(LEAD)

    def _send(self, record: Mark | Entry) -> None:
        told = self.append(self.sim.sequence, record)
        if not self.world.variant.acknowledged_is_counted or told is None or told == REFUSED:
            return
        if isinstance(record, Entry):
            self._tell(record)
            self.append(self.sim.out, Block(record.number, record.body))

    def _tell(self, entry: Entry) -> None:
        if self.world.trace.on:
            self.say(f"told sequenced {entry.body}")
        self.sim.book.told_sequenced(entry.body)

    def _propose(self) -> None:
        busy = len(self.leader.waiting) >= WAITING_AT_MOST or self.yield_asked_at is not None or self.sim.finishing
        if leader.leads(self.leader) and not busy and self.world.rng.random() < PROPOSE_ODDS:
            self.proposals += 1
            self._step(leader.Propose(f"{self.host.me}-{self.proposals}"))

    def _publish(self) -> None:
        """Publish what follows the last block on the out stream, as far as it was applied."""
        for _, block in self.out.read(self.world.now):
            if block.number == self.last_block + 1:
                self.last_block += 1
        if leader.leads(self.leader) and self.last_block < len(self.applied):
            self.append(self.sim.out, Block(self.last_block + 1, self.applied[self.last_block]))

    def _drain(self) -> None:
        if self.yield_asked_at is None:
            return
        if not self.leader.waiting or self.world.now - self.yield_asked_at > DRAIN_FOR_AT_MOST:
            self.yield_asked_at = None
            self._step(leader.Lost())
            self.leader = replace(self.leader, waiting=())
            self.driver.drained(LEAD)


class LeaderSim:
    """Engines, a control log, a sequence log and an out stream."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.control: SimLog[Record] = SimLog("control")
        self.sequence: SimLog[Mark | Entry] = SimLog("sequence")
        self.out: SimLog[Block] = SimLog("out")
        self.seats = GroupBook({LEAD: SeatBook()})
        self.seat_checks = SeatChecks(self.seats, world.report)
        self.book = SequenceBook(world.report)
        self.control.landed = self.seats.landed
        self.sequence.landed = self.book.landed
        self.out.landed = self._published
        self.published = 0
        self.finishing = False
        world.logs = [self.control, self.sequence, self.out]
        self.engines = [Engine(world, world.host(f"e{n}"), self) for n in range(1, world.rng.randint(2, 4) + 1)]
        world.processes = [*self.engines]

    def _published(self, _at: int, block: Block) -> None:
        """A subscriber delivers the block that follows, and drops what it has."""
        if block.number == self.published + 1:
            self.published += 1
            self.book.delivered(block)

    def after_tick(self) -> None:
        """Check that no two running engines believe that they lead, and that engines agree."""
        running = [e for e in self.engines if e.host.alive and self.world.now >= e.host.paused_until]
        self.seat_checks.at_work(held for engine in running for held in engine.driver.at_work())
        self.book.compare({e.host.me: e.applied for e in self.engines if e.host.alive})

    def heal(self) -> None:
        """Propose nothing new, and make sure that an engine takes part."""
        self.finishing = True
        for engine in self.engines:
            if engine.host.alive and not engine.takes_part and self.world.rng.random() < 0.5:
                engine.stop_or_rejoin()
        if not any(e.takes_part for e in self.engines):
            self.engines[0].stop_or_rejoin()

    def unfinished(self) -> str | None:
        """What has not converged yet, or None."""
        if any(not e.host.alive for e in self.engines):
            return "an engine has not started yet"
        leaders = [e for e in self.engines if leader.leads(e.leader)]
        if [e.host.me for e in leaders] != [self.seats.seats[LEAD].owner] or not leaders[0].takes_part:
            return f"{[e.host.me for e in leaders]} lead, the seat belongs to {self.seats.seats[LEAD].owner}"
        if leaders[0].leader.waiting:
            return f"{leaders[0].host.me} has unsequenced proposals"
        behind = [e.host.me for e in self.engines if e.applied != self.book.sequence]
        if behind:
            return f"{behind} are behind"
        return None if self.published == len(self.book.sequence) else f"published {self.published} blocks"

    def finish(self) -> None:
        """The last look, after healing."""
        for body in self.book.told:
            if body not in self.book.sequence:
                self.book.told_sequenced(body)
