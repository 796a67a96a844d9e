"""How many commands run at once: those beyond the limit wait in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from lockstep.monitor.agent.machine import Done, Finished, Machine

WAITING_MAX = 10_000


class Commands:
    """Runs commands, at most `limit` at once."""

    def __init__(self, machine: Machine, limit: int) -> None:
        self._machine, self._limit = machine, limit
        self._waiting: deque[Callable[[], None]] = deque()
        self.running = 0

    def run(self, command: str, data: bytes | None, timeout: float | None, done: Done) -> bool:
        """Run a command now or when it is its turn; False if too many wait already."""
        return self._in_turn(lambda: self._machine.start(command, data, timeout, self._ended(done)))

    def run_function(self, work: Callable[[], Finished], done: Done) -> bool:
        """The same for a function."""
        return self._in_turn(lambda: self._machine.in_background(work, self._ended(done)))

    def _in_turn(self, begin: Callable[[], None]) -> bool:
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append(begin)
        self._begin_next()
        return True

    def _ended(self, done: Done) -> Done:
        def ended(finished: Finished) -> None:
            self.running -= 1
            try:
                done(finished)
            finally:
                self._begin_next()

        return ended

    def _begin_next(self) -> None:
        while self._waiting and self.running < self._limit:
            self.running += 1
            self._waiting.popleft()()
