"""One seed of a project: engines that take over from each other, producers, subscribers, and logs that are trimmed."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from lockstep.core import leader
from lockstep.core.outputs import OutState
from lockstep.core.sequence import Entry, Mark
from lockstep.simulation import checks, faults
from lockstep.simulation.engine_audit import audit
from lockstep.simulation.engine_checks import EngineBook, Oracle
from lockstep.simulation.engine_clients import Archive, Operator, Producer, Subscriber
from lockstep.simulation.engine_model import FOREIGN, Decision, Fact, Request
from lockstep.simulation.engine_process import LEAD, Engine
from lockstep.simulation.engine_store import Store
from lockstep.simulation.group_checks import GroupBook, SeatBook, SeatChecks
from lockstep.simulation.logs import Cursor, ForeignCursor, SimLog

if TYPE_CHECKING:
    from lockstep.core.group import Record
    from lockstep.simulation.delivery_checks import Published
    from lockstep.simulation.world import World

INPUTS = ("in1", "in2")
OUTS = ("out1", "out2")
LOSSY_SHARE = 0.3
FOREIGN_SHARE = 0.3  # of the others, some read a stream that is not the project's
LATE_BY_AT_MOST = 6.0
LOST_AT_MOST = 4
TICKS_AFTER_HEALING = 30  # entries that go on: what was lost shows when the numbers pass it
HARDER = 2.5  # faults come more often than elsewhere
LOSE_ALL_ODDS = 0.3
UNSEEN_ODDS = 0.7  # a log that lost records has grown again before a reader looks
UNSEEN_FOR_AT_MOST = 1.5
BEHIND_THE_MARK_ODDS = 0.5
BLIND_FOR_AT_MOST = 2.0


class EngineSim:
    """A project on its logs."""

    def __init__(self, world: World) -> None:
        rng = world.rng
        self.world = world
        share = rng.random()
        self.lossy, has_foreign = share < LOSSY_SHARE, share >= 1.0 - FOREIGN_SHARE
        world.faults.process_odds = {kind: odds * HARDER for kind, odds in world.faults.process_odds.items()}
        self.election: SimLog[Record] = SimLog("election")
        self.control: SimLog[Fact] = SimLog("control")
        self.sequence: SimLog[Mark | Entry] = SimLog("sequence")
        self.requests: SimLog[Request] = SimLog("requests")
        self.inputs: dict[str, SimLog[Published]] = {name: SimLog(name) for name in INPUTS[: rng.randint(1, 2)]}
        self.own_inputs = dict(self.inputs)
        self.foreign: SimLog[Published] | None = SimLog("foreign") if has_foreign else None
        if self.foreign is not None:
            self.inputs["foreign"] = self.foreign
        self.outs: dict[str, SimLog[Any]] = {name: SimLog(name) for name in OUTS[: rng.randint(1, 2)]}
        self.store = Store()
        self.bodies: dict[str, Decision] = {}
        self.finishing = False
        self.ticks_left = TICKS_AFTER_HEALING if self.lossy else 0
        self.book = self._book()
        self._observe_logs()
        self._people()

    def _book(self) -> EngineBook:
        oracle = Oracle.of(self.inputs, list(self.outs))
        early = self.world.variant.acknowledged_is_counted
        return EngineBook(oracle, self.world.report, self.decision, self.lossy, early)

    def _observe_logs(self) -> None:
        self.seats = GroupBook({LEAD: SeatBook()})
        self.seat_checks = SeatChecks(self.seats, self.world.report)
        self.election.landed = self.seats.landed
        self.sequence.landed = self._sequenced
        for name, log in self.outs.items():
            log.landed = partial(self.book.published, name)
        logs: list[SimLog[Any]] = [self.election, self.control, self.sequence, self.requests]
        self.world.logs = [*logs, *self.inputs.values(), *self.outs.values()]

    def _sequenced(self, at: int, record: Mark | Entry) -> None:
        """A new leader's mark landed: now is when an older one that goes on does most harm."""
        self.book.landed(at, record)
        if not isinstance(record, Mark) or self.world.faults.healed:
            return
        if self.world.rng.random() < BEHIND_THE_MARK_ODDS:
            self.sequence.hurry()
        for engine in self.engines:
            if engine.host.alive and leader.leads(engine.leader) and self.world.rng.random() < BEHIND_THE_MARK_ODDS:
                self._blind(engine, at)

    def _blind(self, engine: Engine, at: int) -> None:
        """A leader is awake, and sees for a while neither the mark of the next one nor who won the election."""
        until = self.world.now + self.world.rng.uniform(0.0, BLIND_FOR_AT_MOST)
        engine.host.paused_until = min(engine.host.paused_until, self.world.now)
        engine.driver.reader.stall(until)
        engine.driver.reader.end_while_stalled = engine.driver.reader.index
        engine.sequence.stall(until)
        engine.sequence.end_while_stalled = max(at, engine.sequence.next)

    def _people(self) -> None:
        world, values = self.world, count(1)
        self.engines = [Engine(world, world.host(f"e{n}"), self) for n in range(1, world.rng.randint(2, 3) + 1)]
        self.engines[-1].host.starts_at += world.rng.uniform(0, LATE_BY_AT_MOST)
        inputs = list(self.own_inputs.values())
        self.producers = [
            Producer(world, world.host(f"w{n}"), self, inputs[n % len(inputs)], values) for n in (0, 1)
        ]  # fmt: skip
        if self.foreign is not None:
            self.producers.append(Producer(world, world.host(f"{FOREIGN}1"), self, self.foreign, values))
        self.archive = Archive(world, world.host("a1"), self)
        self.subscribers = [Subscriber(world, world.host("s1"), self)]
        operator = Operator(world, world.host("o1"), self.requests)
        world.processes = [*self.engines, *self.producers, self.archive, *self.subscribers, operator]

    @property
    def goes_on(self) -> bool:
        """Whether a leader decides on more than there is to be done."""
        return not self.finishing or self.ticks_left > 0

    def decision(self, body: str) -> Decision:
        """Read a body once."""
        if body not in self.bodies:
            self.bodies[body] = Decision.of(body)
        return self.bodies[body]

    def cursor(self, name: str, log: SimLog[Published], at: int) -> Cursor[Published]:
        """An engine's place on an input."""
        place = list(self.inputs).index(name)
        return Cursor(log, at) if log is not self.foreign else ForeignCursor(log, partial(self._decided, place), at)

    def _decided(self, place: int) -> int:
        """Up to where what counts takes an input."""
        return self.book.oracle.ends[place]

    def trim(self, below: tuple[int, ...]) -> None:
        """Carry out what an entry says; late or twice does no harm."""
        self.sequence.trim(below[0])
        for log, offset in zip(self.inputs.values(), below[1:], strict=True):
            if log is not self.foreign:
                log.trim(offset)

    def subscriber_stopped(self, who: str, reason: str) -> None:
        """On a bus that loses nothing, a subscriber misses only what was trimmed before it read it."""
        if self.lossy:
            self.book.visible(who, reason)
        elif not any(log.first for log in self.outs.values()):
            self.world.report(checks.SKIP, f"{who}: {reason}")

    def subscriber_warns(self, who: str, reason: str) -> None:
        """Only a sign: a leader that reads its out streams late says less for a while, too."""
        if self.lossy and self.world.faults.healed and not self.book.errors:
            self.book.visible(who, reason)

    def after_tick(self) -> None:
        """Logs are trimmed and lose records; engines agree on who leads."""
        self._befall_logs()
        self.ticks_left -= self.finishing
        running = [e for e in self.engines if e.host.alive and self.world.now >= e.host.paused_until]
        self.seat_checks.at_work(held for engine in running for held in engine.driver.at_work())

    def _befall_logs(self) -> None:
        rng, plan = self.world.rng, self.world.faults
        if plan.for_log(faults.OUT_TRIMMED):
            log = rng.choice(list(self.outs.values()))
            log.trim(rng.choice((log.end, rng.randint(log.first, log.end))))
            self.control.trim(self.control.offsets[-1] if self.control.offsets else 0)
        if self.foreign is not None and plan.for_log(faults.INPUT_TRIMMED):
            self.foreign.trim(rng.choice((self.foreign.end, rng.randint(self.foreign.first, self.foreign.end))))
        if self.lossy and plan.for_log(faults.TAIL_LOST):
            for log in self._losers():
                lost = log.lose(rng.randint(1, LOST_AT_MOST))
                self._hide(log)
                if self.world.trace.on:
                    self.world.trace.add(self.world.now, "", f"{log.name} lost {lost} records")

    def _hide(self, log: SimLog[Any]) -> None:
        """A server that fails over also loses its connections, and may take a leader with it."""
        log.hurry()
        readers = [reader for process in self.world.processes for reader in process.readers if reader.log is log]
        if self.world.rng.random() < UNSEEN_ODDS:
            for engine in self.engines:
                if log is self.sequence and engine.host.alive and leader.leads(engine.leader):
                    self.world.crash(engine.host)
            for reader in readers:
                reader.stall(self.world.now + self.world.rng.uniform(0.0, UNSEEN_FOR_AT_MOST))

    def _losers(self) -> list[SimLog[Any]]:
        """One log, or all of them. The election is not among them: it only decides who tries."""
        logs = [log for log in self.world.logs if log is not self.election]
        return logs if self.world.rng.random() < LOSE_ALL_ODDS else [self.world.rng.choice(logs)]

    def heal(self) -> None:
        """Publish nothing new, and make sure that an engine takes part."""
        self.finishing = True
        for engine in self.engines:
            if engine.host.alive and not engine.takes_part and self.world.rng.random() < 0.5:
                engine.stop_or_rejoin()
        if not any(engine.takes_part for engine in self.engines):
            self.engines[0].stop_or_rejoin()

    def unfinished(self) -> str | None:
        """What has not converged yet, or None."""
        if self.goes_on and self.lossy:
            return "entries go on for a while"
        if any(not process.host.alive for process in self.world.processes):
            return "a process has not started yet"
        if self.book.errors:
            return None
        return self._unled() or self._unsequenced() or self._uncomputed() or self._unpublished()

    def _unled(self) -> str | None:
        leaders = [engine for engine in self.engines if leader.leads(engine.leader)]
        owner = self.seats.seats[LEAD].owner
        if [engine.host.me for engine in leaders] != [owner] or not leaders[0].takes_part:
            return f"{[engine.host.me for engine in leaders]} lead, the seat belongs to {owner}"
        return None

    def _unsequenced(self) -> str | None:
        first = next(engine for engine in self.engines if leader.leads(engine.leader))
        if any(producer.waiting for producer in self.producers) or first.leader.waiting:
            return "a producer or a leader waits"
        if first.decided != tuple(log.end for log in self.inputs.values()):
            return f"{first.host.me} has taken {first.decided}"
        return f"{first.wishes.waiting} is not done" if first.wishes.waiting else None

    def _uncomputed(self) -> str | None:
        states = {(e.fold.number, e.fold.windows.state, bool(e.counted)) for e in self.engines}
        number = len(self.book.oracle.entries)
        if len(states) > 1 or (not self.lossy and {state[0] for state in states} != {number}):
            return f"engines are at {sorted(states)}, the oracle at {number}"
        return None

    def _unpublished(self) -> str | None:
        for name, (last, _) in self.engines[0].fold.windows.outs.items():
            for engine in self.engines:
                if engine.outlets.all[name].known != OutState(last):
                    return f"{engine.host.me}: {name} is out to {engine.outlets.all[name].known}, not to {last}"
            for subscriber in self.subscribers:
                if not subscriber.stopped and subscriber.places[name].out not in (None, OutState(last)):
                    return f"{subscriber.host.me} has {name} to {subscriber.places[name].out}, not to {last}"
        return None

    def finish(self) -> None:
        """The last look, after healing."""
        if self.lossy:
            audit(self)
        else:
            self.book.after_healing()
        self._count()

    def _count(self) -> None:
        seen = self.world.seen
        seen["takeovers"] += max(self.seats.seats[LEAD].epoch - 1, 0)
        seen["blocks delivered"] += sum(len(got) for each in self.subscribers for got in each.delivered.values())
        seen["messages in gaps"] += len(self.book.oracle.gone)
        seen["seeds with a trimmed sequence"] += self.sequence.first > 0
        if self.lossy:
            seen["lossy seeds, an error was told"] += bool(self.book.errors)
            seen["lossy seeds, the output is right"] += not self.book.errors
