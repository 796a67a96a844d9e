"""A process without a process: its clocks, its background work and its way to the bus, to be killed, paused and woken.

All machines of a test share one virtual clock. A machine stands still between two steps, or, with a trap, at an append
in the middle of one: while it does, everybody else goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockstep.errors import ServerUnreachable
from lockstep.log.batch import Batch
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.log.port import READ_BYTES_DEFAULT, Bounds, Entry
from lockstep.runtime import Crash, Step, Task, Waiter
from lockstep.testing.faults import FaultyBus, FaultyLog
from lockstep.testing.virtual import VirtualRuntime

ASLEEP_S = 1e6
APPENDS, READS = "appends", "reads"


class Killed(BaseException):
    """The process is gone, in the middle of what it did."""


class Machine:
    """See Runtime. Its steps come at random moments, not sooner than `pace_s` after each other, as on a busy host."""

    def __init__(self, clock: VirtualRuntime, name: str, seed: int, pace_s: float = 0.04) -> None:
        self.clock, self.name, self.pace_s = clock, name, pace_s
        self._chance = random.Random(f"{name} {seed}")
        self._tasks: list[Task] = []
        self.is_dead = self.is_paused = False
        self._wall_ahead_ns = 0
        self.monotonic, self.new_id = clock.monotonic, clock.new_id
        self.random, self.waiter = self._chance.random, clock.waiter

    def wall_ns(self) -> int:
        """See Runtime. Machines agree on how fast time passes, and on nothing else."""
        return self.clock.wall_ns() + self._wall_ahead_ns

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock of this machine forward or back."""
        self._wall_ahead_ns += round(seconds * 1e9)

    def spawn(self, name: str, step: Step, waiter: Waiter, on_crash: Crash) -> Task:
        """See Runtime."""
        task = self.clock.spawn(f"{self.name} {name}", lambda: self._step(step), waiter, on_crash)
        self._tasks.append(task)
        return task

    def kill(self) -> None:
        """Nothing of it runs any more."""
        self.is_dead = True
        for task in self._tasks:
            task.stop()

    def pause(self) -> None:
        self.is_paused = True

    def wake(self) -> None:
        self.is_paused = False
        for task in self._tasks:
            task.wake()

    def stand_still(self, meanwhile: Callable[[], None]) -> None:
        """As if it was stopped right here while something else happens; to be called from within one of its steps."""
        self.pause()
        meanwhile()
        self.wake()
        if self.is_dead:
            raise Killed

    def die(self) -> None:
        """As if it was killed right here; to be called from within one of its steps."""
        self.kill()
        raise Killed

    def _step(self, step: Step) -> float | None:
        if self.is_dead or self.is_paused:
            return None if self.is_dead else ASLEEP_S
        delay = step()
        if delay is None or self.is_dead:
            return None
        return max(delay, self.pace_s) * (0.5 + self.random())


@dataclass(slots=True)
class Trap:
    """Something that happens at an append to a stream whose name ends so, `left` such appends from now."""

    ending: str
    act: Callable[[], None]
    left: int
    after: bool


class MachineBus(FaultyBus):
    """The bus as one process sees it; traps wait at its appends."""

    def __init__(self, grid: MemoryBroker, machine: Machine, url: str) -> None:
        super().__init__(grid.bus(machine, url))
        self._machine, self._traps = machine, list[Trap]()
        self._outage_until, self._outage_of = 0.0, frozenset[str]()
        self.before_trim: Callable[[str], None] = lambda _: None

    def trap(self, ending: str, act: Callable[[], None], *, skip: int = 0, after: bool = False) -> None:
        """Have something happen before (or right after) an append takes place; each trap once."""
        self._traps.append(Trap(ending, act, skip, after))

    def clear_traps(self) -> None:
        """Nothing more happens."""
        self._traps.clear()
        self._outage_until = 0.0

    def cut_off(self, seconds: float, operations: frozenset[str]) -> None:
        """The server can't be reached from this machine for a while: `operations` of appends and reads fail."""
        self._outage_until, self._outage_of = self._machine.monotonic() + seconds, operations

    def reach(self, operation: str) -> None:
        """Raise if the server can't be reached."""
        if operation in self._outage_of and self._machine.monotonic() < self._outage_until:
            raise ServerUnreachable(server=self.url, reason="a test cut it off")

    def create(self, name: str, config: StreamConfig) -> TrappedLog:
        """See Bus."""
        self.reach(READS)
        return TrappedLog(self, super().create(name, config).inner)

    def open(self, name: str) -> TrappedLog:
        """See Bus."""
        self.reach(READS)
        return TrappedLog(self, super().open(name).inner)

    def names(self) -> list[str]:
        """See Bus."""
        self.reach(READS)
        return super().names()

    def pass_by(self, name: str, *, after: bool) -> None:
        """An append is about to happen, or did."""
        if self._machine.is_dead:
            raise Killed
        due = [trap for trap in self._traps if trap.after == after and name.endswith(trap.ending)]
        for trap in due:
            trap.left -= 1
            if trap.left < 0:
                self._traps.remove(trap)
                trap.act()


class TrappedLog(FaultyLog):
    """See Log."""

    def append(self, batches: Sequence[Batch], *, expected_next: int | None = None, wake: bool = True) -> list[int]:
        """See Log."""
        bus = self._machine_bus()
        bus.pass_by(self.name, after=False)
        bus.reach(APPENDS)
        bases = super().append(batches, expected_next=expected_next, wake=wake)
        bus.pass_by(self.name, after=True)
        return bases

    def read(self, offset: int, *, max_bytes: int = READ_BYTES_DEFAULT) -> list[Entry]:
        """See Log."""
        self._machine_bus().reach(READS)
        return super().read(offset, max_bytes=max_bytes)

    def reread(self, offset: int) -> Entry | None:
        """See Log."""
        self._machine_bus().reach(READS)
        return super().reread(offset)

    def bounds(self) -> Bounds:
        """See Log."""
        self._machine_bus().reach(READS)
        return super().bounds()

    def trim(self, before: int) -> None:
        """See Log."""
        self._machine_bus().reach(APPENDS)
        self._machine_bus().before_trim(self.name)
        super().trim(before)

    def _machine_bus(self) -> MachineBus:
        assert isinstance(self._bus, MachineBus)
        return self._bus
