"""A process in virtual time: it can be paused and killed, and its wall clock may be wrong.

clock = VirtualRuntime(seed=7)
process = ProcessRuntime(clock)
bus = lockstep.connect("memory:", runtime=process)
process.pause(3.0)     # none of its background work runs for three seconds
process.kill()         # nor ever again
"""

from __future__ import annotations

from lockstep.runtime import Crash, Step, Waiter
from lockstep.testing.virtual import VirtualRuntime, VirtualTask, VirtualWaiter


class Killed(BaseException):
    """The process is gone: nothing may catch this."""


class ProcessRuntime:
    """The virtual runtime as one process sees it: its wall clock may be wrong, and it can be paused or killed."""

    def __init__(self, clock: VirtualRuntime) -> None:
        self.clock = clock
        self.ahead_ns = self.latest_ns = 0
        """How far its wall clock is ahead, and the latest time it has shown."""
        self.dead = False
        self._paused_until = 0.0

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 on this process's wall clock, `ahead_ns` ahead of the shared one."""
        now = self.clock.wall_ns() + self.ahead_ns
        self.latest_ns = max(self.latest_ns, now)
        return now

    def monotonic(self) -> float:
        """Virtual seconds on the clock that all processes share."""
        return self.clock.monotonic()

    def random(self) -> float:
        """A number from 0 up to 1, determined by the clock's seed."""
        return self.clock.random()

    def new_id(self) -> bytes:
        """Sixteen bytes determined by the clock's seed."""
        return self.clock.new_id()

    def waiter(self) -> VirtualWaiter:
        """Return a waiter on the shared clock."""
        return self.clock.waiter()

    def spawn(self, name: str, step: Step, waiter: Waiter, on_crash: Crash) -> VirtualTask:
        """Add background work that is put off while the process is paused, and ends when it is killed."""

        def guarded() -> float | None:
            if self.dead:
                return None
            left = self._paused_until - self.monotonic()
            return left if left > 0 else step()

        return self.clock.spawn(name, guarded, waiter, on_crash)

    def kill(self) -> None:
        """None of its tasks runs again."""
        self.dead = True

    def pause(self, seconds: float) -> None:
        """None of its tasks runs for so long; time passes for it all the same."""
        self._paused_until = max(self._paused_until, self.monotonic() + seconds)

    def go_on(self) -> None:
        """End the pause."""
        self._paused_until = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether it is paused now."""
        return self._paused_until > self.monotonic()

    def hang(self, seconds: float) -> None:
        """The thread that calls this stands still, and the others go on; it stands still while the process is paused.

        Raises Killed in a process that was killed meanwhile.
        """
        self.clock.waiter().wait(seconds)
        while self.is_paused and not self.dead:
            self.clock.waiter().wait(0.5)
        if self.dead:
            raise Killed
