"""A bus in memory, for one process. It behaves like the one on disk and is lost with the process."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from lockstep.log.embedded.bus import EmbeddedBus, Notifier
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import TABLES, Store, Tables, nested_write
from lockstep.log.history import HeapHistory, History
from lockstep.log.port import DROPPED_BY_BUS, DROPPED_BY_READERS, Log, LogWaiter, Promises
from lockstep.runtime import Runtime, Waiter

T = TypeVar("T")

PROMISES = Promises(
    durability="memory",
    may_lose="everything when the process ends",
    opened_by="process",
    retention=("capacity", "bytes", "age", "protect"),
    atomic=True,
    ordered_cells=True,
    conditional=True,
    dedupe=True,
    notifies=True,
    history=True,
    copies=DROPPED_BY_BUS,
    ordered_times=True,
)


class MemoryBroker:
    """The state that buses in memory share: buses of the same broker see the same streams.

    With dedupe=False it stores a producer's batch as often as it comes, like a bus that can't tell copies.
    """

    def __init__(self, *, dedupe: bool = True) -> None:
        copies = DROPPED_BY_BUS if dedupe else DROPPED_BY_READERS
        self.promises = replace(PROMISES, dedupe=dedupe, copies=copies)
        self.store = MemoryStore()
        self.notifier = MemoryNotifier()
        self.histories: dict[str, HeapHistory] = {}

    def bus(self, runtime: Runtime, url: str = "memory:") -> EmbeddedBus:
        """A bus over this broker."""
        notifier = MemoryNotifier(self.notifier.listeners, runtime)
        return EmbeddedBus(url, self.store, notifier, self.promises, runtime, self._open_history)

    def _open_history(self, url: str, stream: str) -> History:
        return self.histories.setdefault(f"{url}/{stream}", HeapHistory())


class MemoryStore(Store):
    """Ordered tables in memory. One lock; a job that fails is undone."""

    def __init__(self) -> None:
        self._tables = MemoryTables()
        self._lock = threading.RLock()
        self._views = 0

    @contextmanager
    def read(self) -> Iterator[MemoryTables]:
        with self._lock:
            self._views += 1
            try:
                yield self._tables
            finally:
                self._views -= 1

    def write(self, job: Callable[[MemoryTables], T]) -> T:
        with self.read() as tables:
            if self._views > 1:  # the lock lets its own thread in again, and the outer view would change underfoot
                raise nested_write()
            tables.undo.clear()
            try:
                return job(tables)
            except BaseException:
                tables.roll_back()
                raise

    def close(self) -> None:
        """The broker owns the tables, so nothing is given back here."""


class MemoryTables(Tables):
    """Sorted tables in memory, with what is needed to undo a job."""

    def __init__(self) -> None:
        self._values: dict[str, dict[bytes, bytes]] = {name: {} for name in TABLES}
        self._keys: dict[str, list[bytes]] = {name: [] for name in TABLES}
        self.undo: list[tuple[str, bytes, bytes | None]] = []

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._values[table].get(key)

    def put(self, table: str, key: bytes, value: bytes, *, reserved: bool = False) -> None:  # noqa: ARG002
        self.undo.append((table, key, self.get(table, key)))
        self._put(table, key, value)

    def delete(self, table: str, key: bytes) -> None:
        if key in self._values[table]:
            self.undo.append((table, key, self._values[table][key]))
            self._delete(table, key)

    def scan(self, table: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys, values = self._keys[table], self._values[table]
        for at in range(bisect.bisect_left(keys, start), len(keys)):
            yield keys[at], values[keys[at]]

    def scan_down(self, table: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys, values = self._keys[table], self._values[table]
        for at in range(bisect.bisect_right(keys, start) - 1, -1, -1):
            yield keys[at], values[keys[at]]

    def roll_back(self) -> None:
        """Undo everything since the job began, last change first."""
        while self.undo:
            table, key, before = self.undo.pop()
            if before is None:
                self._delete(table, key)
            else:
                self._put(table, key, before)

    def _put(self, table: str, key: bytes, value: bytes) -> None:
        if key not in self._values[table]:
            bisect.insort(self._keys[table], key)
        self._values[table][key] = value

    def _delete(self, table: str, key: bytes) -> None:
        del self._values[table][key]
        keys = self._keys[table]
        del keys[bisect.bisect_left(keys, key)]


class MemoryNotifier(Notifier):
    """Wakes the waiters of this process. `listeners` is shared by all buses of a broker."""

    def __init__(self, listeners: dict[str, list[Waiter]] | None = None, runtime: Runtime | None = None) -> None:
        self.listeners: dict[str, list[Waiter]] = {} if listeners is None else listeners
        self._runtime = runtime

    def notify(self, info: LogInfo) -> None:
        for waiter in list(self.listeners.get(info.identity, ())):
            waiter.wake()

    def waiter(self) -> LogWaiter:
        assert self._runtime is not None, "only a broker's own notifier has no runtime, and nobody waits on that one"
        return MemoryWaiter(self.listeners, self._runtime.waiter())

    def forget(self, info: LogInfo) -> None:
        """Waiters that still watch keep the list, to take themselves out of it."""
        if not self.listeners.get(info.identity):
            self.listeners.pop(info.identity, None)

    def close(self) -> None:
        """Does nothing."""


class MemoryWaiter(LogWaiter):
    """A waiter that is woken by appends of the same process."""

    def __init__(self, listeners: dict[str, list[Waiter]], inner: Waiter) -> None:
        self._listeners, self._inner = listeners, inner
        self._watched: set[str] = set()

    def wait(self, timeout: float) -> None:
        self._inner.wait(timeout)

    def wake(self) -> None:
        self._inner.wake()

    def watch(self, log: Log) -> None:
        if log.identity not in self._watched:
            self._watched.add(log.identity)
            self._listeners.setdefault(log.identity, []).append(self._inner)

    def unwatch(self, log: Log) -> None:
        if log.identity in self._watched:
            self._watched.discard(log.identity)
            self._listeners[log.identity].remove(self._inner)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        for identity in self._watched:
            self._listeners[identity].remove(self._inner)
        self._watched.clear()
