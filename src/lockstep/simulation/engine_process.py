"""One engine: it computes every entry that counts; when it leads, it also decides, publishes and says what is out."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from lockstep.core import leader
from lockstep.core.doubts import contradicts
from lockstep.core.leader import Apply, LeaderState, Send, StepDown
from lockstep.core.sequence import Entry, Mark, SequenceState, fold
from lockstep.core.snapshots import is_complete
from lockstep.simulation import faults
from lockstep.simulation.engine_model import Decision, Fact, Fold, checksum
from lockstep.simulation.engine_outlets import PATIENCE, CanNotPublish, Doubt, Outlets
from lockstep.simulation.engine_store import Saved, heads, save
from lockstep.simulation.engine_wishes import Wishes
from lockstep.simulation.logs import Cursor, LogShorter, LogTrimmed
from lockstep.simulation.member_driver import MemberDriver
from lockstep.simulation.world import REFUSED, Host, Process, World

if TYPE_CHECKING:
    from lockstep.core.group import Record
    from lockstep.simulation.delivery_checks import Published
    from lockstep.simulation.engine_sim import EngineSim

LEAD = "lead"
SEND_FIRST_ODDS = 0.5
FACT_EVERY = 0.2
DRAIN_FOR_AT_MOST = 2.0
PROGRESS = 2  # entries after which a doubt is forgotten


class Counted(NamedTuple):
    """An entry that counts, and the state of the sequence log after it."""

    at: int
    entry: Entry
    sequence: SequenceState


class Engine(Process):
    """Everything in memory is gone with a crash; snapshots and logs stay."""

    immune = frozenset({faults.RESET})

    def __init__(self, world: World, host: Host, sim: EngineSim) -> None:
        super().__init__(world, host)
        self.sim = sim
        self.takes_part = True

    def boot(self) -> None:
        """A new incarnation: it begins at a snapshot, and finds out anew who leads."""
        self.takes_part = True
        self.stopped = ""
        self.doubted_at: int | None = None
        self.yield_asked_at: float | None = None
        self.driver = MemberDriver(self, self, self.sim.election, (LEAD,), self.sim.seat_checks)
        self.leader = LeaderState(self.host.me)
        self._begin()

    def _begin(self) -> None:
        """Read on from the newest snapshot that the logs still reach, or from the first record."""
        sim = self.sim
        saved = sim.store.newest(heads(sim.sequence, sim.own_inputs))
        if saved is None:
            fold, sequence, outs = Fold.first(sim.inputs, sim.outs), SequenceState(), {}
        else:
            fold, sequence, outs = saved.fold.copy(), saved.sequence, dict(saved.snapshot.outs)
        self.fold = fold
        self.decided = fold.ends  # how far the inputs are taken by what was read of the sequence log
        self.leader = LeaderState(self.host.me, sequence)
        self.counted: deque[Counted] = deque()
        self.pending: list[Saved] = []
        self.outlets = Outlets(self, sim.outs, outs)
        self.wishes = Wishes(self)
        self.facts: Cursor[Fact] = Cursor(sim.control, sim.control.first)
        self.sequence: Cursor[Mark | Entry] = Cursor(sim.sequence, sequence.upto + 1)
        self.inbox: dict[str, list[tuple[int, Published]]] = {name: [] for name in sim.inputs}
        self.inputs = {
            name: sim.cursor(name, log, at) for (name, log), at in zip(sim.inputs.items(), fold.ends, strict=True)
        }
        self.short_of_input_since: float | None = None
        self.fact_due = 0.0
        others: list[Any] = [each.cursor for each in self.outlets.all.values()]
        self.readers = [self.driver.reader, self.sequence, self.sequence, *self.inputs.values(), *others, self.facts]

    def act(self) -> None:
        """One round; whatever can't be so ends in a new beginning, and the second time in an error."""
        if self.stopped:
            return
        try:
            self._round()
        except LogTrimmed as trimmed:
            self._begin_again(f"{trimmed} was trimmed")
        except CanNotPublish as broken:
            self.sim.book.can_not_publish(self.host.me, str(broken))
            self._doubt(str(broken))
        except (Doubt, LogShorter) as doubt:
            self._doubt(str(doubt))

    def _round(self) -> None:
        if self.world.rng.random() < SEND_FIRST_ODDS:
            self._send_due()
        self.driver.act()
        self._read_facts()
        self._read_sequence()
        self.outlets.read()
        self._read_inputs()
        self._compute()
        self._look_at_snapshots()
        if leader.leads(self.leader):
            self.wishes.propose()
        self._send_due()
        self._tell_facts()
        self._drain()

    def _doubt(self, reason: str) -> None:
        """Rebuild; if that was done before and nothing came of it, stop and say why."""
        if self.doubted_at is None:
            self.doubted_at = self.leader.sequence.number
            self._begin_again(reason)
        else:
            self.stop(reason)

    def stop(self, reason: str) -> None:
        """A visible error, which an operator has to look into."""
        self.stopped = reason
        self.sim.book.visible(self.host.me, reason)

    def _begin_again(self, reason: str) -> None:
        if self.world.trace.on:
            self.say(f"begins again: {reason}")
        self.driver.drained(LEAD)
        self.yield_asked_at = None
        reach = heads(self.sim.sequence, self.sim.own_inputs)
        if self.sim.store.newest(reach) is None and (reach.sequence or any(reach.inputs.values())):
            self.stop("the logs are trimmed below every snapshot")
            return
        self._begin()
        if self.sequence.next > self.sim.sequence.end:
            self.stop("the sequence log ends before the snapshot")

    def assigned(self, seat: str, epoch: int, resume: int | None) -> None:
        """The election says: lead."""
        _ = seat, resume
        self.yield_asked_at = None
        self._step(leader.Won(epoch))

    def revoked(self, seat: str, epoch: int) -> None:
        """The election says that another engine leads, or none."""
        _ = seat, epoch
        self._follow()

    def asked_to_yield(self, seat: str) -> None:
        """Finish what is in flight, then let another lead."""
        _ = seat
        self.yield_asked_at = self.world.now

    def first_offset(self, seat: str) -> int | None:
        """A lead has no position."""
        _ = seat
        return None

    def read_back(self, at: int, record: Record) -> None:
        """Nothing here waits for records of the election."""

    def stop_or_rejoin(self) -> None:
        """A clean stop, or the end of one."""
        self.takes_part = not self.takes_part
        self.driver.set_active(self.takes_part)

    def _follow(self) -> None:
        self._step(leader.Lost())
        self.leader = replace(self.leader, waiting=())
        self.outlets.lead(None)

    def _read_facts(self) -> None:
        try:
            batch = self.facts.read(self.world.now)
        except (LogTrimmed, LogShorter):  # the newest one says all
            self.facts.next = self.sim.control.first
            batch = self.facts.read(self.world.now)
        for _, fact in batch:
            self.outlets.told(fact)

    def _read_sequence(self) -> None:
        """Never waits for computing: a takeover would wait with it."""
        for at, record in self.sequence.read(self.world.now):
            self.world.events += 1
            seen = self.world.variant.read_sequence(self.leader.sequence, record)
            if isinstance(seen, Entry) and contradicts(self.leader.sequence, seen):
                message = f"sequence @{at}: number {seen.number} can't stand behind {self.leader.sequence.number}"
                raise Doubt(message)
            number = self.leader.sequence.number
            self._step(leader.Observed(at, seen))
            if isinstance(record, Entry):
                self.wishes.saw(self.sim.decision(record.body))
            if self.leader.sequence.number == number:
                self.sim.book.passed(self.host.me, at)

    def _step(self, event: leader.Event) -> None:
        self.leader, actions = leader.step(self.leader, event)
        for action in actions:
            match action:
                case Send(record):
                    self._send(record)
                case Apply(entry):
                    self._count(self.leader.sequence, entry)
                case StepDown():
                    self.yield_asked_at = None
                    self._follow()
                    self.driver.drained(LEAD)

    def _send(self, record: Mark | Entry) -> None:
        told = self.append(self.sim.sequence, record)
        if self.world.variant.acknowledged_is_counted and told is not None and told != REFUSED:
            state, counts = fold(self.leader.sequence, told, record)
            if counts and isinstance(record, Entry):
                self._count(state, record)

    def _count(self, sequence: SequenceState, entry: Entry) -> None:
        """To be computed; the rest of it happens now."""
        if entry.number != self.fold.number + len(self.counted) + 1:
            return  # only where the acknowledgement was taken for the read-back
        self.counted.append(Counted(sequence.upto, entry, sequence))
        decision = self.sim.decision(entry.body)
        self.decided = decision.ends
        self.wishes.sequenced(decision)
        if decision.trim is not None:
            self.sim.trim(decision.trim)

    def _read_inputs(self) -> None:
        for name, cursor in self.inputs.items():
            self.inbox[name] += cursor.read(self.world.now)

    def taken(self, starts: tuple[int, ...], ends: tuple[int, ...]) -> list[Published]:
        """What lies between two places of the inputs, one after the other."""
        ranges = zip(self.inbox.values(), starts, ends, strict=True)
        return [message for inbox, low, high in ranges for at, message in inbox if low <= at < high]

    def _compute(self) -> None:
        """A full buffer stops it, and so does input that is not read yet."""
        while self.counted and not self.outlets.is_full:
            decision = self.sim.decision(self.counted[0].entry.body)
            for each, gone in zip(self.inputs.values(), decision.gaps or (), strict=False):
                each.next = max(each.next, gone)  # what the entry says is gone is not waited for
            if any(each.next < end for each, end in zip(self.inputs.values(), decision.ends, strict=True)):
                self._wait_for_input()
                return
            self.short_of_input_since = None
            self._apply(self.counted.popleft(), decision)

    def _wait_for_input(self) -> None:
        now = self.world.now
        if self.short_of_input_since is None:
            self.short_of_input_since = now
        if now - self.short_of_input_since > PATIENCE:
            message = "the inputs end before the sequence says"
            raise Doubt(message)

    def _apply(self, counted: Counted, decision: Decision) -> None:
        messages = self.taken(decision.starts or decision.begin(self.fold.ends), decision.ends)
        if self.world.variant.digests and checksum(messages) != decision.crc:
            message = f"number {counted.entry.number}: its input is not what it was"
            raise Doubt(message)
        if self.world.variant.own_gaps:
            messages = self.taken(self.fold.ends, decision.ends)
        if self.world.variant.own_clock and decision.tick is not None:
            decision = replace(decision, tick=self.host.wall(self.world.now))
        accepted, output = self.fold.apply(decision, messages)
        self.sim.book.applied(self.host.me, counted, accepted, self.fold)
        self.outlets.add(output)
        for inbox, end in zip(self.inbox.values(), self.fold.ends, strict=True):
            inbox[:] = [item for item in inbox if item[0] >= end]
        if decision.persist == self.host.me:
            name = f"{self.host.me}/{self.fold.number}"
            self.pending.append(save(name, counted.sequence, self.fold, list(self.sim.inputs)))
        if self.doubted_at is not None and self.fold.number > self.doubted_at + PROGRESS:
            self.doubted_at = None

    def _look_at_snapshots(self) -> None:
        """A snapshot may be used when everything up to it is out."""
        outs = self.outlets.known()
        for saved in list(self.pending):
            if is_complete(saved.snapshot, outs) or self.world.variant.saves_at_once:
                self.pending.remove(saved)
                self.sim.store.put(saved, saved.snapshot.outs if self.world.variant.saves_at_once else outs)
                if self.world.trace.on:
                    self.say(f"snapshot {saved.snapshot.name} may be used")

    def _send_due(self) -> None:
        self._step(leader.Tick(self.host.monotonic(self.world.now)))
        self.outlets.lead(self.leader.epoch if leader.leads(self.leader) else None)
        self.outlets.send()

    def _tell_facts(self) -> None:
        if leader.leads(self.leader) and self.world.now >= self.fact_due:
            self.fact_due = self.world.now + FACT_EVERY
            fact = Fact(self.leader.sequence.epoch, self.host.me, self.leader.sequence.number, self.outlets.facts())
            self.append(self.sim.control, fact)

    def _drain(self) -> None:
        if self.yield_asked_at is None:
            return
        if not self.leader.waiting or self.world.now - self.yield_asked_at > DRAIN_FOR_AT_MOST:
            self.yield_asked_at = None
            self._follow()
            self.driver.drained(LEAD)
