"""Handling records in parallel without losing their order: one lane for each share of the keys.

A totally ordered stream is seen as k streams, each in order, worked on side by side. Only the unbroken beginning of
what is done may be confirmed, so a crash repeats some records and never skips one.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from lockstep.errors import LockstepError
from lockstep.runtime import Runtime
from lockstep.streams.handlers import Call, Delivery, Handler, HandlerLoop, OnFailure, pause_after, pause_for_letter
from lockstep.streams.record import Record

_IDLE_S = 3600.0
_LEAST_WAIT_S = 0.001
_SLICE_S = 0.02
_LOOK_AGAIN_S = 0.05


class Progress:
    """Which records are done, and up to where without a hole."""

    def __init__(self, epoch: int | None = None) -> None:
        self.epoch = epoch
        """The epoch in which the records were read: in another they would be read again."""
        self.leaving = False
        """The stream is to be handed over: begin nothing new."""
        self._reached = -1
        self._open: deque[int] = deque()
        self._done: set[int] = set()
        self.prefix: int | None = None
        """The last offset of the unbroken beginning, until it is confirmed."""
        self._handled: int | None = None

    def add(self, offset: int) -> None:
        """A record is to be worked on; offsets come in order."""
        self._open.append(offset)

    def begin(self, offset: int) -> None:
        """Its handler is about to be called."""
        self._reached = max(self._reached, offset)

    def fills_a_hole(self, offset: int) -> bool:
        """True if it or a later one was begun: if it were left undone, later ones that are done would be done again."""
        return offset <= self._reached

    @property
    def has_begun(self) -> bool:
        """True while something is begun, or a hole is left before it."""
        return bool(self._open) and self.fills_a_hole(self._open[0])

    def done(self, offset: int) -> None:
        """A record is finished with."""
        self._done.add(offset)
        while self._open and self._open[0] in self._done:
            self.prefix = self._handled = self._open.popleft()
            self._done.discard(self.prefix)

    def reaches(self, at_hand: int | None) -> int | None:
        """The last offset up to which everything is done, counting the record at hand as done."""
        is_next = at_hand is not None and bool(self._open) and self._open[0] == at_hand
        return at_hand if is_next else self._handled

    @property
    def in_flight(self) -> int:
        """Records taken and not yet part of the beginning."""
        return len(self._open)


@dataclass(slots=True)
class _Job:
    record: Record
    epoch: int | None
    attempt: int = 0
    due: float = 0.0
    error: BaseException | None = None
    """Why it failed for good, while that can't be settled: its letter can't be stored now."""
    letters: int = 0
    """How often its letter could not be stored."""


class Verdict(enum.Enum):
    """What becomes of a record whose turn it is."""

    HANDLE = enum.auto()
    WAIT = enum.auto()
    DROP = enum.auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """What a worker asks and tells the receiver it works for."""

    decode: Callable[[Record], Record]
    begin: Callable[[Record, int | None], Verdict]
    """Asked right before each call: may a record, read in that epoch, be handled now?"""
    outcome: Callable[[Record, int | None, int, BaseException | None], bool]
    """Told of a record that is finished with, or failed for good; False: keep it and stand still."""
    refused: Callable[[Record, LockstepError], None]
    """Told that a dead letter could not be stored; it is tried again."""
    extend: Callable[[], None]
    failed: Callable[[], None]
    rested: Callable[[], None]
    """Told after a slice of work in which something was done."""


_calling: ContextVar[tuple[Worker, Record] | None] = ContextVar("lockstep-handler", default=None)
"""Who calls the handler in which this code runs, and the record. Async handlers of several workers share a thread."""


def calling() -> tuple[Worker, Record] | None:
    """The worker on whose behalf the caller runs, and the record that it had then; None outside of handlers."""
    return _calling.get()


class Worker:
    """Handles its records one after the other."""

    def __init__(self, handler: Handler, policy: OnFailure, runtime: Runtime, owner: Owner, loop: HandlerLoop) -> None:
        self._call, self._policy, self._runtime, self._owner = Call(handler, loop), policy, runtime, owner
        self._jobs: deque[_Job] = deque()
        self._jobs_lock = threading.Lock()
        self._stands_still = self._ending = False
        self.ended = False
        """True when it will do nothing any more, and what the handler needed is closed."""
        self.calls = 0
        """How often the handler returned or raised."""
        self.at_hand: Record | None = None
        """The record that the handler has now, if it is called."""

    def give(self, record: Record, epoch: int | None) -> None:
        """Add a record after the others."""
        with self._jobs_lock:
            self._jobs.append(_Job(record, epoch))

    def drop(self, stream: str) -> None:
        """Forget what was not begun of a stream that is no longer ours."""
        with self._jobs_lock:
            self._jobs = deque(job for job in self._jobs if job.record.stream != stream)

    def end(self) -> None:
        """Begin nothing more; the next step is the last."""
        self._ending = True

    def step(self) -> float | None:
        """Handle what is due, for a slice of time; returns seconds until there is something to do."""
        before = self.calls
        try:
            delay = self._work()
        except BaseException:
            self._close()
            raise
        if self.calls != before:
            self._owner.rested()
        if not self._ending:
            return delay
        self._close()
        return None

    def _work(self) -> float:
        end = self._runtime.monotonic() + _SLICE_S
        while not self._ending and not self._stands_still and (job := self._next()) is not None:
            now = self._runtime.monotonic()
            if job.due > now:
                return max(job.due - now, _LEAST_WAIT_S)
            if now >= end:
                return 0.0
            verdict = self._owner.begin(job.record, job.epoch)
            if verdict is Verdict.WAIT:
                return _LOOK_AGAIN_S
            if verdict is Verdict.DROP:
                self._remove(job)
            else:
                self._handle(job)
        return _IDLE_S

    def _close(self) -> None:
        """Here and not in the receiver's close: the handler may still be at work then."""
        self._ending = True
        try:
            self._call.close()
        finally:
            self.ended = True

    def _next(self) -> _Job | None:
        with self._jobs_lock:
            return self._jobs[0] if self._jobs else None

    def _remove(self, job: _Job) -> None:
        with self._jobs_lock:
            if self._jobs and self._jobs[0] is job:  # it may have been dropped meanwhile
                self._jobs.popleft()

    def _handle(self, job: _Job) -> None:
        if job.error is not None:
            self._settle(job, job.error)
            return
        job.attempt += 1
        self.at_hand = job.record
        token = _calling.set((self, job.record))
        try:
            self._try(job)
        finally:
            _calling.reset(token)
            self.at_hand = None
            self.calls += 1

    def _try(self, job: _Job) -> None:
        try:
            self._call(self._owner.decode(job.record), Delivery(job.epoch, job.attempt, self._owner.extend))
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - the policy decides
            self._owner.failed()
            if job.attempt <= self._policy.retries:
                job.due = self._runtime.monotonic() + pause_after(self._policy, job.attempt)
                return
            self._settle(job, error)
            return
        self._settle(job, None)

    def _settle(self, job: _Job, error: BaseException | None) -> None:
        try:
            goes_on = self._owner.outcome(job.record, job.epoch, job.attempt, error)
        except LockstepError as refusal:  # its letter can't be stored now: try again, and never end because of it
            job.error = error
            job.due = self._runtime.monotonic() + pause_for_letter(self._policy, job.letters)
            job.letters += 1
            self._owner.refused(job.record, refusal)
            return
        if goes_on:
            self._remove(job)
        else:
            self._stands_still = True
