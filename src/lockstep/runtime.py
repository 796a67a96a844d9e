"""Time, chance and background work, passed in so that tests can replace them.

Background work is a `step()` that never blocks: it does what is due and says how many seconds later it wants to be
called again, or None when it is finished. A real runtime calls it from a thread; a virtual one from the test.
"""

from __future__ import annotations

import _thread
import logging
import os
import random
import threading
import time
import uuid
import warnings
from collections.abc import Callable
from typing import Any, Protocol
from weakref import finalize

from lockstep.errors import LockstepError, TimedOut

logger = logging.getLogger("lockstep")

Step = Callable[[], float | None]
Crash = Callable[[BaseException], None]


class Waiter(Protocol):
    """Something to wait on that others can end."""

    def wait(self, timeout: float) -> None:
        """Return when woken or after `timeout` seconds, whichever is first; perhaps earlier, for no reason."""

    def wake(self) -> None:
        """End the current wait, or the next one if none is under way."""


class Task(Protocol):
    """Background work that was started."""

    def wake(self) -> None:
        """Have the step called soon."""

    def stop(self, timeout: float = 10.0) -> None:
        """Call no more steps; wait for the one that runs. Safe to call from within the step and more than once."""


class Runtime(Protocol):
    """What a process takes from its machine."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970: a label on records, never a basis for decisions."""

    def monotonic(self) -> float:
        """Seconds on a clock that only this process reads."""

    def random(self) -> float:
        """A number from 0 up to 1, for jitter."""

    def new_id(self) -> bytes:
        """Sixteen bytes that no other call returns, here or elsewhere."""

    def waiter(self) -> Waiter:
        """A waiter that only `wake` ends."""

    def spawn(self, name: str, step: Step, waiter: Waiter, on_crash: Crash) -> Task:
        """Start background work. If a step raises, the work ends and `on_crash` gets the error."""


class ThreadRuntime:
    """The real thing: the machine's clocks, and a daemon thread for each task."""

    wall_ns = staticmethod(time.time_ns)  # as they are: every record that is published asks for the time
    monotonic = staticmethod(time.monotonic)
    random = staticmethod(random.SystemRandom().random)  # leaves the state of users' random numbers alone

    def new_id(self) -> bytes:
        """Return the sixteen bytes of a random UUID."""
        return uuid.uuid4().bytes

    def waiter(self) -> Waiter:
        """Return a new waiter, which is not woken yet."""
        return EventWaiter()

    def spawn(self, name: str, step: Step, waiter: Waiter, on_crash: Crash) -> Task:
        """Start a daemon thread that calls `step`; if a step raises, the thread ends and `on_crash` gets the error."""
        return ThreadTask(name, step, waiter, on_crash)


class EventWaiter:
    """A waiter within one process."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, timeout: float) -> None:
        """Block the thread until `wake` is called or `timeout` seconds have passed."""
        self._event.wait(timeout)
        self._event.clear()

    def wake(self) -> None:
        """End the current wait, or the next one if no thread waits."""
        self._event.set()


class ThreadTask:
    """A step called from its own thread until it is finished, stopped or fails."""

    def __init__(self, name: str, step: Step, waiter: Waiter, on_crash: Crash) -> None:
        self._step, self._waiter, self._on_crash = step, waiter, on_crash
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """End the pause between two steps, so that the next step runs at once."""
        self._waiter.wake()

    def stop(self, timeout: float = 10.0) -> None:
        """Call no more steps and wait for the running one; raise TimedOut if it takes longer than `timeout` seconds."""
        self._stopping = True
        self._waiter.wake()
        if self._thread is threading.current_thread():
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimedOut(what=f"Stopping {self._thread.name}", seconds=timeout)

    def _run(self) -> None:
        try:
            while not self._stopping:
                delay = self._step()
                if delay is None:
                    return
                if delay > 0 and not self._stopping:
                    self._waiter.wait(delay)
        except BaseException as error:  # the work ends here, and `on_crash` gets the error
            logger.error(
                "Background work failed", exc_info=error, extra={"action": "task_failed", "task": self._thread.name}
            )
            self._on_crash(error)


def release_when_dropped(
    owner: object, runtime: Runtime, what: str, release: Callable[[], None], *, warn: bool = True
) -> finalize[[str, Callable[[], None], int, bool], Any] | None:
    """Have `release`, which must not refer to the owner, called in the background if the owner is dropped unclosed.

    Not from the finalizer itself: that runs wherever the collector strikes, perhaps with a lock held that is needed.
    Without real threads there is nothing to release.
    """
    if not isinstance(runtime, ThreadRuntime):
        return None
    found = finalize(owner, _dropped, what, release, os.getpid(), warn)
    found.atexit = False
    return found


def _dropped(what: str, release: Callable[[], None], pid: int, warn: bool) -> None:
    if os.getpid() != pid:
        return  # a child inherited it; it is the parent's to release
    if warn:
        warnings.warn(f"{what} was dropped without close(); use 'with' or close it", ResourceWarning, stacklevel=2)
    _thread.start_new_thread(_start_release, (what, release))  # takes no lock that the caller may hold


def _start_release(what: str, release: Callable[[], None]) -> None:
    """A thread that the threading module knows, so that it is forgotten when it ends."""
    threading.Thread(target=_release, args=(what, release), name="lockstep-release", daemon=True).start()


def _release(what: str, release: Callable[[], None]) -> None:
    try:
        release()
    except LockstepError as error:  # its bus may be closed by now
        logger.info("%s was released late: %s", what, error, extra={"action": "released"})
