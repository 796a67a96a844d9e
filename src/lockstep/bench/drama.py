"""Who is killed and who is put to sleep in the demonstration, and how soon another member goes on in their place."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from lockstep.bench.cast import PUBLISHERS, Plan, Stage
from lockstep.bench.crew import Crew

LEASE_S = 1.0
_ASLEEP_S = LEASE_S + 1.5
_BLOCKED_S = 0.5


@dataclass(slots=True)
class Takeover:
    """One reader that fell out."""

    what: str
    member: int
    at: float
    seconds: float | None = None


@dataclass(slots=True)
class Drama:
    """Goes on whenever `step` is called. `members` has the crew numbers of the group's members."""

    crew: Crew
    plan: Plan
    stage: Stage
    members: list[int]
    takeovers: list[Takeover] = field(default_factory=list)
    reader: int | None = None
    awake: bool = True
    _epoch: int = -1
    _scene: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to happen."""
        return self._scene == 2 and self.awake and self._took_over()

    def hear(self, number: int, at: float, epoch: int) -> None:
        """A member was handed its first records in an epoch; one that wakes from an older epoch is no reader."""
        if epoch <= self._epoch:
            return
        self.reader, self._epoch = number, epoch
        if self.takeovers and self.takeovers[-1].seconds is None:
            self.takeovers[-1].seconds = at - self.takeovers[-1].at

    def step(self) -> None:
        """Do what is due. Publishers are let on only so far that the next scene still has records to play with."""
        self.stage.allowed.value = 1.0 if self.is_over else (0.4, 0.8, 0.99)[self._scene]
        if not self.awake and time.monotonic() - self.takeovers[-1].at > _ASLEEP_S and self._took_over():
            self.wake()
        part = sum(self.stage.sent) / self.plan.records
        if self.reader is None or not self._took_over() or not self.awake:
            return
        if self._scene == 0 and part >= 0.2:
            self._kill(self.reader)
        elif self._scene == 1 and part >= 0.6:
            self._put_to_sleep(self.reader)

    def wake(self) -> None:
        """Let the sleeping member go on."""
        if not self.awake:
            self.awake = True
            self.crew.signal(self.takeovers[-1].member, signal.SIGCONT)

    def _took_over(self) -> bool:
        return not self.takeovers or self.takeovers[-1].seconds is not None

    def _kill(self, reader: int) -> None:
        self.takeovers.append(Takeover("killed with -9", reader, time.monotonic()))
        self.crew.signal(reader, signal.SIGKILL)
        self._scene = 1

    def _put_to_sleep(self, reader: int) -> None:
        at = time.monotonic()
        self.crew.signal(reader, signal.SIGSTOP)
        if self._is_blocked():
            # Stopped in the middle of its commit, it holds the lock that all writers share. Try again at another time.
            self.crew.signal(reader, signal.SIGCONT)
            return
        self.takeovers.append(Takeover("paused longer than its lease", reader, at))
        self.awake = False
        self._scene = 2

    def _is_blocked(self) -> bool:
        before, end = sum(self.stage.sent), time.monotonic() + _BLOCKED_S
        while time.monotonic() < end:
            if sum(self.stage.sent) > before + PUBLISHERS:
                return False
            time.sleep(0.005)
        return True
