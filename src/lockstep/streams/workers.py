"""Handling records in parallel without losing their order: one lane for each share of the keys.

A totally ordered stream is seen as k streams, each in order, worked on side by side. Only the unbroken beginning of
what is done may be confirmed, so a crash repeats some records and never skips one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from lockstep.runtime import Runtime
from lockstep.streams.handling import Call, Delivery, Handler, OnFailure
from lockstep.streams.record import Record

_IDLE_S = 3600.0
_LEAST_WAIT_S = 0.001


class Progress:
    """Which records are done, and up to where without a hole."""

    def __init__(self, epoch: int | None = None) -> None:
        self.epoch = epoch
        """The epoch in which the records were read: in another they would be read again."""
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self.prefix: int | None = None
        """The last offset of the unbroken beginning."""

    def begin(self, offset: int) -> None:
        """A record is being worked on; offsets come in order."""
        self._open.append(offset)

    def done(self, offset: int) -> None:
        """A record is finished with."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            self.prefix = self._open.popleft()
            self._done.discard(self.prefix)

    @property
    def in_flight(self) -> int:
        """Records begun and not yet part of the beginning."""
        return len(self._open)


@dataclass(slots=True)
class _Job:
    record: Record
    epoch: int | None
    attempt: int = 0
    due: float = 0.0


Outcome = Callable[[Record, int, BaseException | None], bool]
"""Told of a record that is finished with, or failed for good; False: keep it and stand still."""


class Worker:
    """Handles its records one after the other."""

    def __init__(
        self,
        handler: Handler,
        policy: OnFailure,
        runtime: Runtime,
        *,
        decode: Callable[[Record], Record],
        outcome: Outcome,
        extend: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self._call, self._policy, self._runtime = Call(handler), policy, runtime
        self._decode, self._outcome, self._extend, self._failed = decode, outcome, extend, failed
        self._jobs: deque[_Job] = deque()
        self._jobs_lock = threading.Lock()
        self.stopped = False

    def give(self, record: Record, epoch: int | None) -> None:
        """Add a record behind the others."""
        with self._jobs_lock:
            self._jobs.append(_Job(record, epoch))

    def drop(self, stream: str) -> None:
        """Forget what was not begun of a stream that is no longer ours."""
        with self._jobs_lock:
            self._jobs = deque(job for job in self._jobs if job.record.stream != stream)

    def step(self) -> float:
        """Handle what is due; returns seconds until there is something to do."""
        while (job := self._next()) is not None and not self.stopped:
            wait = job.due - self._runtime.monotonic()
            if wait > 0:
                return max(wait, _LEAST_WAIT_S)
            self._handle(job)
        return _IDLE_S

    def close(self) -> None:
        """End what the handler may have started."""
        self._call.close()

    def _next(self) -> _Job | None:
        with self._jobs_lock:
            return self._jobs[0] if self._jobs else None

    def _handle(self, job: _Job) -> None:
        job.attempt += 1
        try:
            self._call(self._decode(job.record), Delivery(job.epoch, job.attempt, self._extend))
        except Exception as error:  # noqa: BLE001 - the policy decides
            self._failed()
            if job.attempt <= self._policy.retries:
                job.due = self._runtime.monotonic() + self._policy.pause(job.attempt)
                return
            self._settle(job, error)
            return
        self._settle(job, None)

    def _settle(self, job: _Job, error: BaseException | None) -> None:
        if not self._outcome(job.record, job.attempt, error):
            self.stopped = True
            return
        with self._jobs_lock:
            if self._jobs and self._jobs[0] is job:  # it may have been dropped meanwhile
                self._jobs.popleft()
