"""Threads that several lanes share, and which process an object belongs to."""

from __future__ import annotations

import os
import threading

from lockstep.errors import ForkedProcess, TimedOut
from lockstep.runtime import Crash, Runtime, Step, Task, logger

PUBLISHER_THREADS = 8
"""So many threads serve a publisher at the most, however many shards its stream has."""


class SharedThread:
    """One background task that takes the steps of several in turn. Safe to share between threads."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._runtime, self._name = runtime, name
        self.waiter = runtime.waiter()
        self._lock = threading.Lock()
        self._members: list[SharedTask] = []
        self._task: Task | None = None
        self._stepping: int | None = None

    def spawn(self, step: Step, on_crash: Crash) -> SharedTask:
        """Take a step in, as Runtime.spawn."""
        member = SharedTask(self, step, on_crash)
        with self._lock:
            self._members.append(member)
            if self._task is None:
                self._task = self._runtime.spawn(self._name, self._step, self.waiter, _nothing_more)
        return member

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on it."""
        return self._stepping == threading.get_ident()

    def remove(self, member: SharedTask) -> None:
        """Take no more steps of a member."""
        with self._lock:
            if member in self._members:
                self._members.remove(member)

    def _step(self) -> float | None:
        self._stepping = threading.get_ident()
        try:
            delays = [member.step() for member in list(self._members)]
        finally:
            self._stepping = None
        with self._lock:
            if not self._members:
                self._task = None
                return None
        return min((delay for delay in delays if delay is not None), default=0.0)


def _nothing_more(error: BaseException) -> None:
    """The members catch and tell what goes wrong in their steps."""
    del error


class SharedTask:
    """One of the tasks on a shared thread. It has what a Task of the runtime has."""

    def __init__(self, thread: SharedThread, step: Step, on_crash: Crash) -> None:
        self._thread, self._step, self._on_crash = thread, step, on_crash
        self._working = threading.Lock()
        self._stopped = False

    def step(self) -> float | None:
        """Take one step, unless it was stopped; None when it is finished."""
        with self._working:
            delay: float | None = None
            try:
                delay = None if self._stopped else self._step()
            except BaseException as error:  # noqa: BLE001 - the work ends here, and its owner gets the error
                logger.error("Background work failed", exc_info=error, extra={"action": "task_failed"})
                self._on_crash(error)
            if delay is None:
                self._thread.remove(self)
            return delay

    def wake(self) -> None:
        """Have the step called soon, on the shared thread."""
        self._thread.waiter.wake()

    def stop(self, timeout: float = 10.0) -> None:
        """Call no more steps, and wait for the one that runs."""
        self._stopped = True
        self._thread.remove(self)
        self.wake()
        if self._thread.is_current:
            return
        if not self._working.acquire(timeout=timeout):
            raise TimedOut(what="Stopping a publisher", seconds=timeout)
        self._working.release()


class Process:
    """The process that made an object."""

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what, self._pid = what, os.getpid()

    @property
    def is_forked(self) -> bool:
        """True in a child that inherited the object through fork."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """ForkedProcess in such a child."""
        if os.getpid() != self._pid:
            raise ForkedProcess(bus=self._what, parent=self._pid, child=os.getpid())
