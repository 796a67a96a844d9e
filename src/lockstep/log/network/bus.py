"""A bus on servers: one implementation of the port for every vendor's driver."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar
from weakref import WeakSet, finalize

from lockstep.errors import Closed, ForkedProcess, ServerUnreachable, StreamNotFound, UnsupportedByBackend
from lockstep.log.config import StreamConfig
from lockstep.log.network.driver import Driver, Finding, StreamEntry, Topic, TopicGone
from lockstep.log.network.log import NetworkLog
from lockstep.log.network.retry import Deadline, Retry
from lockstep.log.port import Bus, Log, LogWaiter, Transaction
from lockstep.runtime import Runtime, Waiter, release_when_dropped

T = TypeVar("T")
IDLE_TOPICS = 32
RETRY_PAUSE_S = 0.1
CREATES_MAX = 10
"""How often `create` tries again while others delete the same stream."""


class NetworkBus(Bus):
    """A bus on the servers of one vendor. Owned by one process; safe to share between threads."""

    def __init__(self, driver: Driver, runtime: Runtime, *, patience_s: float = 0.0) -> None:
        """`patience_s` is how long calls go on trying while the server is unreachable; the driver itself tries once."""
        self._patience_s = patience_s
        self.url, self.promises = driver.url, driver.promises
        self.driver, self._runtime = driver, runtime
        self._lock = threading.Lock()
        self._open: WeakSet[NetworkLog] = WeakSet()
        self._idle: deque[tuple[str, Topic]] = deque()
        """Topics of handles that were dropped, still connected, for the next caller that opens the stream."""
        self._heads: dict[str, int] = {}
        self._closed = False
        self._pid = os.getpid()
        self.has_rings = hasattr(driver, "room")
        """Whether its topics hold a fixed number of messages."""
        self._finalizer = release_when_dropped(
            self, runtime, f"The connection to {self.url}", partial(_release, driver)
        )

    def create(self, name: str, config: StreamConfig) -> NetworkLog:
        for _ in range(CREATES_MAX):
            known = self._made(name, config)
            found = self.with_retries(lambda: self.look_up(name))
            if found is not None and found.identity == known.identity:  # else somebody deleted it meanwhile
                known.config.check_same(name, config)
                return self._log(known)
        raise StreamNotFound(name=name, bus=self.url)

    def open(self, name: str) -> NetworkLog:
        known = self.with_retries(lambda: self.look_up(name))
        if known is None:
            raise StreamNotFound(name=name, bus=self.url)
        return self.with_retries(lambda: self._log(known))

    def alter(self, name: str, config: StreamConfig) -> NetworkLog:
        known = self.with_retries(lambda: self._look_up_verified(name))
        if known is None:
            raise StreamNotFound(name=name, bus=self.url)
        known.config.check_alterable(name, config)
        self._check_possible(config)
        self.with_retries(lambda: self.driver.alter(known, config))  # before anybody counts on it
        self.with_retries(lambda: self.driver.catalogue.alter(known, config))
        return self.open(name)

    def room(self, name: str) -> int | None:
        """How many records a new stream of this name can hold at least; None if there is no limit."""
        ask = getattr(self.driver, "room", None)
        return None if ask is None else self.with_retries(lambda: int(ask(name)))

    def delete(self, name: str) -> None:
        known = self.with_retries(lambda: self._look_up_verified(name))
        if known is None:
            raise StreamNotFound(name=name, bus=self.url)
        steps = [
            self.driver.remove,
            self.driver.catalogue.remove,
        ]  # or a stream made anew would find what this one held
        if getattr(self.driver, "never_uses_a_name_twice", False):
            # A process that is killed in between then leaves a topic without an entry, never an entry without a topic.
            steps.reverse()
        for step in steps:
            self.with_retries(partial(step, known))  # each may be done again
        with self._lock:
            for log in list(self._open):
                if log.identity == known.identity:
                    log.forget()

    def names(self) -> list[str]:
        return sorted(known.name for known in self.with_retries(self.driver.catalogue.all))

    def waiter(self) -> LogWaiter:
        self.check_open()
        return NetworkWaiter(self._runtime.waiter(), self._watch)

    def atomic(self, work: Callable[[Transaction], T]) -> T:
        del work
        raise UnsupportedByBackend(bus=self.url, feature="change several streams in one step")

    def snapshot(self) -> AbstractContextManager[Transaction]:
        raise UnsupportedByBackend(bus=self.url, feature="show several streams at one moment")

    def check(self) -> list[Finding]:
        """Findings about the server and all streams: settings that would break a promise."""
        self.check_open()
        return self.driver.check(self.driver.catalogue.all())

    def mirror_group(self, group: str, positions: Mapping[str, int]) -> None:
        """Copy the positions of a group to a consumer group of the server, for the server's own tools."""
        commit = getattr(self.driver, "commit_group", None)
        if commit is None:
            raise UnsupportedByBackend(bus=self.url, feature="show a group to tools of others")
        self.check_open()
        commit(group, positions)

    def close(self) -> None:
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
        for topic in {log.topic for log in list(self._open)} | {topic for _, topic in list(self._idle)}:
            topic.close()
        if self._finalizer is not None:
            self._finalizer.detach()
        _release(self.driver)

    def with_retries(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; call it again while the server is unreachable, for `patience_s`.

        The time counts from the first failure, because a single try may take as long as the time-out of the driver.
        """
        retry: Retry | None = None
        while True:
            self.check_open()
            try:
                return work()
            except ServerUnreachable:
                if retry is None:
                    retry = Retry(self._runtime, Deadline(self.monotonic, self._patience_s), pause_s=RETRY_PAUSE_S)
                if not retry.again():
                    raise

    def check_open(self) -> None:
        """Raise Closed after close, ForkedProcess in a child that inherited it."""
        if self._closed:
            raise Closed(what=f"Bus {self.url}")
        if os.getpid() != self._pid:
            raise ForkedProcess(bus=self.url, parent=self._pid, child=os.getpid())

    def now_ns(self) -> int:
        """The wall clock, for append times."""
        return self._runtime.wall_ns()

    def monotonic(self) -> float:
        """The clock of this process."""
        return self._runtime.monotonic()

    def look_up(self, name: str) -> StreamEntry | None:
        """The entry of a stream: from the catalogue, or for a topic that another program created."""
        known = self.driver.catalogue.find(name) or self.driver.foreign(name)
        if known is not None:
            self._heads[known.identity] = max(known.head, self.head(known.identity))
        return known

    def note_trim(self, known: StreamEntry, head: int) -> None:
        """Record a trim in the catalogue."""
        self.driver.catalogue.trim(known, head)
        self._heads[known.identity] = max(head, self.head(known.identity))

    def head(self, identity: str) -> int:
        """The offset below which a stream was trimmed, as far as this process knows."""
        return self._heads.get(identity, 0)

    def _look_up_verified(self, name: str) -> StreamEntry | None:
        """The entry of a stream that is about to be changed, after checking that the server has not lost it."""
        self.driver.catalogue.verify()
        return self.look_up(name)

    def _made(self, name: str, config: StreamConfig) -> StreamEntry:
        """The entry of a stream, created if it is missing, with its topic."""
        known = self.with_retries(lambda: self._look_up_verified(name))
        if known is None:
            self._check_possible(config)
            wanted = StreamEntry(name, self._runtime.new_id().hex(), config)
            known = self.with_retries(lambda: self.driver.catalogue.add(wanted))
        made = known
        self.with_retries(
            lambda: self.driver.make(made)
        )  # the process that made the entry may have been killed before this
        return known

    def _log(self, known: StreamEntry) -> NetworkLog:
        topic = self._idle_topic(known.identity) or self._topic(known)
        log = NetworkLog(self, known, topic)
        with self._lock:
            self._open.add(log)
        finalize(log, self._idle.append, (known.identity, topic)).atexit = False
        return log

    def _topic(self, known: StreamEntry) -> Topic:
        try:
            return self.driver.topic(known)
        except TopicGone as gone:
            reason = f"the topic of {known.name} is missing; create the stream again, or delete it"
            raise ServerUnreachable(server=self.url, reason=reason) from gone

    def _idle_topic(self, identity: str) -> Topic | None:
        """An idle topic of this stream, or None. Closes the oldest idle topics beyond a few dozen."""
        with self._lock:
            idle = list(self._idle)  # others may add to it meanwhile
            found = next((item for item in idle if item[0] == identity), None)
            if found is not None:
                self._idle.remove(found)
            old = [self._idle.popleft()[1] for _ in range(len(self._idle) - IDLE_TOPICS)]
        for topic in old:
            topic.close()
        return found[1] if found is not None else None

    def _watch(self, log: Log, wake: Callable[[], None]) -> Callable[[], None]:
        """Watch a log; for a wrapped handle, watch another handle on the same stream."""
        if not isinstance(log, NetworkLog):
            same = [one for one in list(self._open) if one.identity == log.identity]
            log = same[0] if same else self.open(log.name)
        return log.watch(wake)

    def _check_possible(self, config: StreamConfig) -> None:
        if config.protect:
            raise UnsupportedByBackend(bus=self.url, feature="keep what a group has not confirmed (protect)")
        if config.history is not None:
            raise UnsupportedByBackend(bus=self.url, feature="keep old records in a history")
        wanted = {"capacity": config.capacity, "bytes": config.retain_bytes, "age": config.retain_age_s}
        for kind, limit in wanted.items():
            if limit is not None and kind not in self.promises.retention:
                raise UnsupportedByBackend(bus=self.url, feature=f"bound a stream by {kind}")


def _release(driver: Driver) -> None:
    driver.catalogue.close()
    driver.close()


Watch = Callable[[Log, Callable[[], None]], Callable[[], None]]
"""Calls a function whenever a log grows, until the returned function is called."""


class NetworkWaiter(LogWaiter):
    """A waiter of this process that the topics of watched logs wake."""

    def __init__(self, waiter: Waiter, watch: Watch) -> None:
        self._watch = watch
        self._waiter = waiter
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[Log, Callable[[], None]]] = {}
        self._closed = False

    def wait(self, timeout: float) -> None:
        self._waiter.wait(timeout)

    def wake(self) -> None:
        self._waiter.wake()

    def watch(self, log: Log) -> None:
        with self._lock:
            if id(log) not in self._watched and not self._closed:
                self._watched[id(log)] = log, self._watch(log, self.wake)

    def unwatch(self, log: Log) -> None:
        with self._lock:
            _, stop = self._watched.pop(id(log), (None, None))
        if stop is not None:
            stop()

    def fileno(self) -> int | None:
        """None: there is no descriptor."""
        return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            watched, self._watched = self._watched, {}
        for _, stop in watched.values():
            stop()
