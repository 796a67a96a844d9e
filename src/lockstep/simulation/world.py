"""Processes on hosts, virtual time, and the faults that befall them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from lockstep.simulation import faults
from lockstep.simulation.checks import Findings
from lockstep.simulation.trace import Trace, show

if TYPE_CHECKING:
    import random

    from lockstep.simulation.logs import Cursor, Reader, SimLog
    from lockstep.simulation.variants import Variant

REFUSED = -1
CLOCK_DRIFT = 0.002  # monotonic clocks differ by at most this share
LATEST_LANDING = 4.0  # seconds an append may be on its way
LEASE = 1.0


@dataclass(slots=True)
class Host:
    """What a process runs on: its clocks, and whether it runs at all."""

    name: str
    rate: float = 1.0
    skew: float = 0.0
    wall_skew: float = 0.0
    incarnation: int = 0
    alive: bool = False
    starts_at: float = 0.0
    paused_until: float = 0.0
    cut_off_until: float = 0.0
    holding_back: bool = False
    held_back: list[tuple[SimLog[Any], Any]] = field(default_factory=list)

    @property
    def me(self) -> str:
        """A name no other start of any process ever has."""
        return f"{self.name}.{self.incarnation}"

    def monotonic(self, now: float) -> float:
        """The clock that nobody sets; it runs a little fast or slow."""
        return self.skew + self.rate * now

    def wall(self, now: float) -> float:
        """The clock that is set now and then."""
        return self.wall_skew + now


class Process(ABC):
    """A program on a host, booted again after every crash."""

    immune: ClassVar[frozenset[str]] = frozenset()  # the kinds of faults that make no sense for it

    def __init__(self, world: World, host: Host) -> None:
        self.world = world
        self.host = host
        self.readers: list[Reader[Any] | Cursor[Any]] = []

    @abstractmethod
    def boot(self) -> None:
        """Begin a new incarnation, with nothing in memory."""

    @abstractmethod
    def act(self) -> None:
        """Do what is to be done now."""

    def stop_or_rejoin(self) -> None:
        """Be asked to stop cleanly, or to take part again."""
        raise NotImplementedError

    def reset(self) -> None:
        """Let an operator on this host move a position."""
        raise NotImplementedError

    def append(self, log: SimLog[Any], record: object) -> int | None:
        """Append and get the offset, REFUSED, or None if nobody knows."""
        return self.world.append(self.host, log, record)

    def say(self, what: str) -> None:
        """Add a line to the trace. Call it only while tracing."""
        self.world.trace.add(self.world.now, self.host.me, what)


class World:
    """Everything in one seed."""

    def __init__(self, rng: random.Random, variant: Variant, trace: Trace) -> None:
        self.rng = rng
        self.variant = variant
        self.trace = trace
        self.faults = faults.plan(rng)
        self.findings = Findings()
        self.seen: Counter[str] = Counter()  # what is good to know, and no fault
        self.now = 0.0
        self.events = 0
        self.logs: list[SimLog[Any]] = []
        self.processes: list[Process] = []

    def host(self, name: str) -> Host:
        """A new host with clocks of its own."""
        rng = self.rng
        rate = 1.0 + rng.uniform(-CLOCK_DRIFT, CLOCK_DRIFT)
        return Host(name, rate, rng.uniform(0, 1000), rng.uniform(0, 1000), starts_at=rng.uniform(0, 2.0))

    def report(self, name: str, detail: str) -> None:
        """The observer found a broken promise."""
        self.findings.report(name, detail)
        if self.trace.on:
            self.trace.add(self.now, "", f"ANOMALY {name}: {detail}")

    def heal(self) -> None:
        """No more faults; what was stopped goes on."""
        self.faults.healed = True
        for process in self.processes:
            process.host.paused_until = process.host.cut_off_until = 0.0
            for reader in process.readers:
                reader.heal()
        if self.trace.on:
            self.trace.add(self.now, "", "healed")

    def tick(self) -> None:
        """Let a little time pass for everybody, in no particular order."""
        self.now += self.rng.uniform(0.06, 0.14)
        for log in self.logs:
            log.land_due(self.now)
        order = self.processes.copy()
        self.rng.shuffle(order)
        for process in order:
            self._run(process)

    def append(self, host: Host, log: SimLog[Any], record: object) -> int | None:
        """Append for a host; what it gets to know is not always what happened."""
        if host.holding_back:
            host.held_back.append((log, record))
            return None
        self.events += 1
        cut_off = self.now < host.cut_off_until
        fate = faults.APPEND_LOST if cut_off else self.faults.for_append()
        landed, told = self._land(log, record, fate)
        if self.trace.on:
            note = {
                faults.ACK_LOST: f"@{landed} not told",
                None: f"@{landed}",
                faults.APPEND_DOUBLED: f"@{landed} doubled",
            }
            self.trace.add(self.now, host.me, f"{log.name} <- {show(record)}: {note.get(fate, str(fate))}")
        return told

    def _land(self, log: SimLog[Any], record: object, fate: str | None) -> tuple[int | None, int | None]:
        gap = 0 if self.rng.random() < 0.8 else self.rng.randrange(1, 4)
        if fate in (faults.APPEND_LATE, faults.APPEND_DOUBLED):
            log.send(record, self.now + self.rng.uniform(0.1, LATEST_LANDING), gap)
        if fate == faults.APPEND_REFUSED:
            return None, REFUSED
        if fate in (faults.APPEND_LOST, faults.APPEND_LATE):
            return None, None
        at = log.land(record, gap)
        return at, None if fate == faults.ACK_LOST else at

    def _run(self, process: Process) -> None:
        host = process.host
        if not host.alive:
            if self.now < host.starts_at:
                return
            self._boot(process)
        if self.now < host.paused_until:
            return
        self._let_go(host)
        kind = self.faults.for_process(process.immune)
        if kind is not None:
            self._strike(process, kind)
        if host.alive and self.now >= host.paused_until:
            self.events += 1
            process.act()
        if host.holding_back:
            self._end_in_act(process, str(kind))

    def _boot(self, process: Process) -> None:
        process.host.incarnation += 1
        process.host.alive = True
        process.boot()
        if self.trace.on:
            process.say("boot")

    def _let_go(self, host: Host) -> None:
        held, host.held_back = host.held_back, []
        for log, record in held:
            self.append(host, log, record)

    def _end_in_act(self, process: Process, kind: str) -> None:
        process.host.holding_back = False
        if kind == faults.PAUSE_IN_ACT:
            self._pause(process.host)
        else:
            self.crash(process.host)

    def _pause(self, host: Host) -> None:
        host.paused_until = self.now + self.rng.choice((0.4, 1.5, 1.5, 2.5)) * self.rng.uniform(0.7, 1.3) * LEASE

    def crash(self, host: Host) -> None:
        """End a process; it starts again after a while."""
        host.alive = False
        host.held_back = []
        host.starts_at = self.now + self.rng.uniform(0.1, 4.0)

    def _strike(self, process: Process, kind: str) -> None:
        rng, host = self.rng, process.host
        if self.trace.on:
            process.say(f"fault {kind}")
        match kind:
            case faults.PAUSE:
                self._pause(host)
            case faults.CRASH:
                self.crash(host)
            case faults.PAUSE_IN_ACT | faults.CRASH_IN_ACT:
                host.holding_back = True
            case faults.CUT_OFF:
                host.cut_off_until = self.now + rng.uniform(0.3, 3.0)
            case faults.WALL_JUMP:
                host.wall_skew += rng.choice((-1, 1)) * rng.choice((0.5, 2.0, 60.0, 3600.0))
            case faults.READ_STALL | faults.READ_SLOW:
                self._hinder_reading(process, kind)
            case faults.CLEAN_STOP:
                process.stop_or_rejoin()
            case faults.RESET:
                process.reset()

    def _hinder_reading(self, process: Process, kind: str) -> None:
        reader = self.rng.choice(process.readers)
        until = self.now + self.rng.uniform(0.3, 4.0)
        if kind == faults.READ_STALL:
            reader.stall(until)
        else:
            reader.slow_until = until
