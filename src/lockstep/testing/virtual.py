"""Virtual time: background work runs inside the test's own calls, one step after the other, always in the same order.

    clock = VirtualRuntime(seed=7)
    bus = MemoryBroker().bus(clock)
    ...                    # spawn tasks, publish, subscribe
    clock.advance(30.0)    # thirty seconds later, in no time
    clock.jump_wall(-3600) # the administrator sets the clock back; monotonic time does not care

Steps run inside `advance`, `run_until_idle` and every `waiter().wait(timeout)`: whatever is due or woken runs in the
order of time, then the clock jumps to the next thing that is due. Everything happens on the calling thread.
"""

from __future__ import annotations

import math
import random
from collections import Counter

from lockstep.errors import BadArgument, IllegalState
from lockstep.runtime import Crash, Step, Waiter

WALL_START_NS = 1_700_000_000 * 10**9
STEPS_PER_INSTANT_MAX = 10_000
STEPS_PER_CALL_MAX = 1_000_000

_NS = 10**9


class VirtualRuntime:
    """A runtime in virtual time: two with the same seed and the same calls do exactly the same."""

    def __init__(
        self,
        seed: int = 0,
        *,
        wall_ns: int = WALL_START_NS,
        max_steps_per_instant: int = STEPS_PER_INSTANT_MAX,
        max_steps_per_call: int = STEPS_PER_CALL_MAX,
    ) -> None:
        self._now_ns = 0
        self._wall_ahead_ns = wall_ns
        self._chance = random.Random(f"chance {seed}")
        self._ids = random.Random(f"ids {seed}")  # apart, so that jitter does not change who is who
        self._tasks: list[VirtualTask] = []
        self._steps_done = 0
        self._max_per_instant, self._max_per_call = max_steps_per_instant, max_steps_per_call
        self._adopting: list[VirtualWaiter] | None = None

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 on the virtual wall clock, which tests can set."""
        return self._wall_ahead_ns + self._now_ns

    def monotonic(self) -> float:
        """Virtual seconds since this runtime was created."""
        return self._now_ns / _NS

    def random(self) -> float:
        """A number from 0 up to 1, determined by the seed."""
        return self._chance.random()

    def new_id(self) -> bytes:
        """Sixteen bytes determined by the seed; the same seed gives the same ids in the same order."""
        return self._ids.randbytes(16)

    def waiter(self) -> VirtualWaiter:
        """Return a waiter that runs background work while it waits."""
        return VirtualWaiter(self)

    def spawn(self, name: str, step: Step, waiter: Waiter, on_crash: Crash) -> VirtualTask:
        """Add background work; its first step runs when time may pass, not here."""
        task = VirtualTask(self, name, step, self._virtual_part(waiter), on_crash)
        self._tasks.append(task)
        return task

    @property
    def task_names(self) -> list[str]:
        """The tasks that are neither finished nor stopped nor crashed."""
        return [task.name for task in self._tasks if not task.ended]

    def set_wall(self, wall_ns: int) -> None:
        """Set the wall clock; monotonic time goes on as if nothing had happened."""
        self._wall_ahead_ns = wall_ns - self._now_ns

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock forward or back; monotonic time goes on as if nothing had happened."""
        self._wall_ahead_ns += round(seconds * _NS)

    def advance(self, seconds: float) -> None:
        """Let time pass, and run everything that falls due on the way."""
        if not 0 <= seconds < math.inf:
            raise BadArgument(name="seconds", value=seconds, reason="time goes forward, by a finite amount")
        self._run_until(self._now_ns + round(seconds * _NS), None)

    def skip(self, seconds: float) -> None:
        """Let time pass as for a process that sleeps: what fell due meanwhile runs once, when time may pass again."""
        if not 0 <= seconds < math.inf:
            raise BadArgument(name="seconds", value=seconds, reason="time goes forward, by a finite amount")
        self._now_ns += round(seconds * _NS)

    def run_until_idle(self) -> None:
        """Run what is due or woken now, until nothing is; the clock stands still."""
        self._run_until(self._now_ns, None)

    def wait(self, waiter: VirtualWaiter, timeout: float) -> None:
        """What VirtualWaiter.wait does."""
        end_ns = None if timeout == math.inf else self._now_ns + math.ceil(max(timeout, 0.0) * _NS)
        self._run_until(end_ns, waiter)

    def adopt(self, waiter: VirtualWaiter) -> None:
        """Called by every waiter that is woken: spawn learns from it which virtual waiters the given one wakes."""
        if self._adopting is not None:
            self._adopting.append(waiter)

    def now_ns(self) -> int:
        """Monotonic time, exact."""
        return self._now_ns

    def next_turn(self) -> int:
        """A number for each step; among tasks that are due together, the one that waited longest is next."""
        self._steps_done += 1
        return self._steps_done

    def _virtual_part(self, waiter: Waiter) -> list[VirtualWaiter]:
        """The virtual waiters that waking `waiter` wakes: it may be one, or have one inside."""
        self._adopting = []
        try:
            waiter.wake()
            return self._adopting
        finally:
            self._adopting = None

    def _run_until(self, end_ns: int | None, woken_by: VirtualWaiter | None) -> None:
        """Run tasks in the order of time until `end_ns`, or until the waiter is woken."""
        busy = _Busy(self._max_per_instant, self._max_per_call)
        while woken_by is None or not woken_by.woken:
            task = self._next_due(end_ns)
            if task is None:
                self._stand_at(end_ns)
                break
            if task.due_ns() > self._now_ns:
                self._now_ns = task.due_ns()
                busy.new_instant()
            busy.count(task)
            task.run()
        if woken_by is not None:
            woken_by.woken = False

    def _next_due(self, end_ns: int | None) -> VirtualTask | None:
        """The task to run next. Called for every step of a simulation, so each task is asked once."""
        if any(task.ended for task in self._tasks):
            self._tasks = [task for task in self._tasks if not task.ended]
        found, earliest = None, (math.inf if end_ns is None else end_ns, math.inf)
        for task in self._tasks:
            if not task.running and (due := (task.due_ns(), task.turn)) < earliest:
                found, earliest = task, due
        return found

    def _stand_at(self, end_ns: int | None) -> None:
        if end_ns is None:
            raise IllegalState(what="Virtual time", action="move on", reason="a wait without end has nobody to end it")
        self._now_ns = max(self._now_ns, end_ns)  # a wait inside a step may have gone further


class VirtualWaiter:
    """A waiter in virtual time: waiting runs background work."""

    def __init__(self, runtime: VirtualRuntime) -> None:
        self._runtime = runtime
        self.woken = False

    def wait(self, timeout: float) -> None:
        """Run background work until this is woken or `timeout` virtual seconds have passed."""
        self._runtime.wait(self, timeout)

    def wake(self) -> None:
        """End the current wait, or the next one."""
        self.woken = True
        self._runtime.adopt(self)


class VirtualTask:
    """A step that the virtual runtime calls on the test's own thread until it finishes, is stopped or fails."""

    def __init__(
        self, runtime: VirtualRuntime, name: str, step: Step, waiters: list[VirtualWaiter], on_crash: Crash
    ) -> None:
        self.name = name
        self.running = self.ended = False
        self.turn = 0
        self._runtime, self._step, self._waiters, self._on_crash = runtime, step, waiters, on_crash
        self._due_ns = runtime.now_ns()
        self._woken = False

    def wake(self) -> None:
        """Make the next step due now."""
        self._woken = True

    def stop(self, timeout: float = 10.0) -> None:  # noqa: ARG002 - nothing runs beside the caller, so nobody waits
        """Call no more steps; returns at once, whatever the timeout."""
        self.ended = True

    def due_ns(self) -> int:
        """When the next step is to run: now if woken."""
        now_ns = self._runtime.now_ns()
        if self._due_ns <= now_ns or self._woken:
            return now_ns
        for waiter in self._waiters:
            if waiter.woken:
                return now_ns
        return self._due_ns

    def run(self) -> None:
        """One step."""
        self._woken = False
        for waiter in self._waiters:
            waiter.woken = False
        self.turn, self.running = self._runtime.next_turn(), True
        try:
            delay = self._step()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - as on a thread: the work ends, and its owner is told why
            self.ended = True
            self._on_crash(error)
            return
        finally:
            self.running = False
        if delay is None:
            self.ended = True
        else:
            self._due_ns = self._runtime.now_ns() + max(0, math.ceil(delay * _NS))


class _Busy:
    """Counts steps, so that work that never rests is an error and not a test that hangs."""

    def __init__(self, per_instant: int, per_call: int) -> None:
        self._limits = (per_instant, per_call)
        self._instant: Counter[str] = Counter()
        self._call: Counter[str] = Counter()

    def new_instant(self) -> None:
        self._instant.clear()

    def count(self, task: VirtualTask) -> None:
        for counter, limit in zip((self._instant, self._call), self._limits, strict=True):
            counter[task.name] += 1
            if counter.total() > limit:
                name, steps = counter.most_common(1)[0]
                where = "without time passing" if counter is self._instant else "in one call"
                raise IllegalState(
                    what="Virtual time", action="move on", reason=f"task {name!r} ran {steps} steps {where}"
                )
