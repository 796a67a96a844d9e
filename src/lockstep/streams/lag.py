"""How far subscribers are behind, measured without making a scrape wait for the bus.

A scrape asks for a measurement and waits for it, but only for a moment: it is made on a thread of its own, with handles
of its own. While the bus is away, or a poll holds a handle, the scrape returns the last values that are known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.errors import LockstepError, StreamNotFound, Unavailable
from lockstep.log.batch import peek
from lockstep.log.offsets import records_between
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime, Waiter
from lockstep.streams.cursor import Cursor

SCRAPE_WAITS_S = 0.25
"""So long a scrape waits for new values."""
CLOSE_WAITS_S = 1.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a subscriber is behind the end of a stream."""

    records: int
    """Records not handed out."""
    seconds: float
    """Time since the oldest of them was appended."""
    age_s: float = 0.0
    """Time since this was measured."""


class LagProbe:
    """The lag of one subscriber in each stream it reads, as it was last measured."""

    def __init__(self, cursors: Mapping[str, Cursor], runtime: Runtime) -> None:
        self._cursors, self._runtime = cursors, runtime
        self._known: dict[str, tuple[Lag, float]] = {}
        """By stream, with the time at which it was measured."""

    def known(self) -> dict[str, Lag]:
        """What was last measured of the streams that it still reads."""
        now = self._runtime.monotonic()
        found = {name: self._known.get(name) for name in list(self._cursors)}
        return {name: replace(known[0], age_s=now - known[1]) for name, known in found.items() if known is not None}

    def logs(self) -> list[Log]:
        """The logs it reads now."""
        return [cursor.log for cursor in list(self._cursors.values())]

    def measure(self, open_log: Callable[[Log], Log]) -> None:
        """Measure each stream, one after the other; one that can't be reached keeps its last value."""
        for name, cursor in list(self._cursors.items()):
            try:
                lag = _lag(open_log(cursor.log), cursor.position, self._runtime.wall_ns())
                self._known[name] = lag, self._runtime.monotonic()
            except Unavailable:
                continue
            except LockstepError:  # polling reports what is wrong with the stream; a metric does not
                self._known.pop(name, None)
        for name in self._known.keys() - set(self._cursors):
            del self._known[name]


class LagReader:
    """Measures the lag of all subscribers of a connection in the background, once for each scrape."""

    def __init__(self, bus: Bus, runtime: Runtime) -> None:
        self._bus, self._runtime = bus, runtime
        self._lock = threading.Lock()
        self._handles: dict[str, Log] = {}
        """By the identity of the log."""
        self._waiting: list[Waiter] = []
        self._probes: Sequence[LagProbe] = ()
        self._measuring = self._closed = False

    def refresh(self, probes: Sequence[LagProbe]) -> None:
        """Have new values measured, and wait for them a moment; a measurement that still runs is not doubled."""
        if not probes:
            return
        with self._lock:
            if self._closed:
                return
            waiter = self._runtime.waiter()
            self._waiting.append(waiter)
            if not self._measuring:
                self._measuring, self._probes = True, probes
                self._runtime.spawn("lockstep-lag", self._measure, self._runtime.waiter(), _nothing_more)
        self._wait(waiter, SCRAPE_WAITS_S)

    def close(self) -> None:
        """Measure no more, and let a measurement that runs end if it does so soon."""
        with self._lock:
            self._closed = True
            waiter = self._runtime.waiter()
            self._waiting.append(waiter)
        self._wait(waiter, CLOSE_WAITS_S)

    def _wait(self, waiter: Waiter, timeout: float) -> None:
        end = self._runtime.monotonic() + timeout
        while self._measuring and (left := end - self._runtime.monotonic()) > 0:
            waiter.wait(left)
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def _measure(self) -> None:
        try:
            self._close_unused({log.identity for probe in self._probes for log in probe.logs()})
            for probe in self._probes:
                if not self._closed:
                    probe.measure(self._open)
        finally:
            with self._lock:
                self._measuring = False
                waiting = list(self._waiting)
            for waiter in waiting:
                waiter.wake()

    def _open(self, polled: Log) -> Log:
        """A handle that polling does not use: reads through it neither wait for a poll nor spoil its read-ahead."""
        handle = self._handles.get(polled.identity)
        if handle is None:
            handle = self._bus.open(polled.name)
            if handle.identity != polled.identity:  # deleted, and another one has its name
                raise StreamNotFound(name=polled.name, bus=self._bus.url)
            self._handles[polled.identity] = handle
        return handle

    def _close_unused(self, used: set[str]) -> None:
        for identity in self._handles.keys() - used:
            self._handles.pop(identity).close()


def _lag(log: Log, position: int, now_ns: int) -> Lag:
    behind = records_between(log, position, log.bounds().next)
    entries = log.read(position, max_bytes=1) if behind > 0 else []
    waited = (now_ns - peek(entries[0].data)[1]) / 1e9 if entries else 0.0
    return Lag(behind, max(waited, 0.0))


def _nothing_more(error: BaseException) -> None:
    """What went wrong was logged; the next scrape measures again."""
    del error
