"""The bus on Redis."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from lockstep.errors import Closed, Conflict, ForkedProcess, StreamNotFound, TimedOut, UnsupportedByBackend
from lockstep.log.config import StreamConfig
from lockstep.log.embedded.tables import nested_write
from lockstep.log.network.checks import Finding
from lockstep.log.port import LogWaiter, Transaction
from lockstep.log.redis import checks, scripts
from lockstep.log.redis.catalogue import Stored, altered, check_name, decode, encode
from lockstep.log.redis.checks import Facts
from lockstep.log.redis.client import Server
from lockstep.log.redis.layout import Keys
from lockstep.log.redis.listener import Follower, RedisWaiter
from lockstep.log.redis.log import RedisLog
from lockstep.log.redis.transaction import Changes, Stale, View
from lockstep.runtime import Runtime, release_when_dropped

T = TypeVar("T")

_LAST_PAUSE_S = 0.05


class RedisBus:
    """See Bus. Owned by one process; safe to share between threads."""

    def __init__(
        self, server: Server, keys: Keys, facts: Facts, runtime: Runtime, *, wait_replicas: int, wait_ms: int
    ) -> None:
        self.url, self.server, self.keys = server.url, server, keys
        self.wait_replicas, self.wait_ms = wait_replicas, wait_ms
        self.promises = checks.promises(facts, wait_replicas)
        self._limits = checks.limits(facts)
        self._runtime = runtime
        self._follower = Follower(server.connector, runtime)
        self._turn = threading.Lock()
        self._inside = threading.local()
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._finalizer = release_when_dropped(
            self, runtime, f"The connection to {self.url}", partial(_release, self._follower, server)
        )

    def create(self, name: str, config: StreamConfig) -> RedisLog:
        """See Bus."""
        self.check_may_write()
        check_name(name)
        entry = self._find(name) or self._add(name, config)
        stored = decode(entry)
        stored.config.check_same(name, config)
        return self.handle(name, stored)

    def open(self, name: str) -> RedisLog:
        """See Bus."""
        self.check_open()
        return self.handle(name, decode(self._get(name)))

    def alter(self, name: str, config: StreamConfig) -> RedisLog:
        """See Bus."""
        self.check_may_write()
        done = 0
        while not done:  # as long as others alter it at the same time
            entry = self._get(name)
            decode(entry).config.check_alterable(name, config)
            arguments = (name, entry, altered(entry, config))
            [done] = self.server.ask(scripts.ALTER.call((self.keys.changes, self.keys.catalogue), arguments), what=name)
        return self.open(name)

    def stored(self, name: str) -> Stored:
        """What the catalogue says about a log now; StreamNotFound if there is none."""
        return decode(self._get(name))

    def delete(self, name: str) -> None:
        """See Bus."""
        self.check_may_write()
        keys = self.keys.log(name)
        entry = self._get(name)
        self.server.ask(
            scripts.DELETE.call((self.keys.changes, self.keys.catalogue, *keys.stored), (name, entry, keys.bell)),
            what=name,
        )

    def names(self) -> list[str]:
        """See Bus."""
        self.check_open()
        [names] = self.server.ask(("HKEYS", self.keys.catalogue))
        return sorted(name.decode() for name in names)

    def waiter(self) -> LogWaiter:
        """See Bus."""
        self.check_open()
        return RedisWaiter(self._follower, self.keys, self._runtime.waiter())

    def atomic(self, work: Callable[[Transaction], T]) -> T:
        """See Bus. The work is done again if somebody else changed what it is based on."""
        self.check_may_write()
        with self._my_turn():
            end, pause_s = self.monotonic() + self.server.timeout_s, 0.0
            while True:
                changes = Changes(self)
                result, is_done = self._try(work, changes)
                if is_done:
                    return result
                if self.monotonic() >= end:
                    reason = f"Others changed what this transaction is based on, for {self.server.timeout_s:g} s"
                    raise Conflict(reason=f"{reason}; nothing was written.")
                self._runtime.waiter().wait(pause_s * self._runtime.random())
                pause_s = min(2 * pause_s + 0.001, _LAST_PAUSE_S)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """See Bus."""
        self.check_open()
        with self._within():
            yield View(self)

    def check(self) -> list[Finding]:
        """What would break the promises."""
        self.check_open()
        facts = checks.ask_facts(self.server)
        return checks.findings(facts, self.wait_replicas) + checks.lone(facts)

    def close(self) -> None:
        """See Bus."""
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        _release(self._follower, self.server)

    def check_open(self) -> None:
        """Raise Closed after close, ForkedProcess in a child that inherited it."""
        if self._closed:
            raise Closed(what=f"Bus {self.url}")
        if os.getpid() != self._pid:
            raise ForkedProcess(bus=self.url, parent=self._pid, child=os.getpid())

    def check_may_write(self) -> None:
        """The same, and IllegalState inside a transaction or snapshot of this thread."""
        self.check_open()
        if getattr(self._inside, "depth", 0):
            raise nested_write()

    def now_ns(self) -> int:
        """The wall clock, for stamps."""
        return self._runtime.wall_ns()

    def monotonic(self) -> float:
        """The clock for bounds."""
        return self._runtime.monotonic()

    def handle(self, name: str, stored: Stored) -> RedisLog:
        """A log by what the catalogue says about it."""
        return RedisLog(self, name, stored.identity, stored.config, self._limits)

    def _find(self, name: str) -> bytes | None:
        [entry] = self.server.ask(("HGET", self.keys.catalogue, name), what=name)
        return None if entry is None else bytes(entry)

    def _get(self, name: str) -> bytes:
        entry = self._find(name)
        if entry is None:
            raise StreamNotFound(name=name, bus=self.url)
        return entry

    def _add(self, name: str, config: StreamConfig) -> bytes:
        if config.history is not None:
            raise UnsupportedByBackend(bus=self.url, feature="keep old records in a history")
        stored = Stored(self._runtime.new_id().hex(), config)
        keys = (self.keys.changes, self.keys.catalogue, *self.keys.log(name).stored)
        arguments = (name, encode(stored, self.now_ns()), stored.identity)
        [entry] = self.server.ask(scripts.CREATE.call(keys, arguments), what=name)
        return bytes(entry)

    def _try(self, work: Callable[[Transaction], T], changes: Changes) -> tuple[T, bool]:
        """The result of the work, and whether it counts."""
        result: T | None = None
        try:
            with self._within():
                result = work(changes)
                changes.check_whole()
        except Stale:
            return result, False  # type: ignore[return-value]
        except Exception:
            if not changes.is_stale:
                raise
        return result, not changes.is_stale and changes.commit()  # type: ignore[return-value]

    @contextmanager
    def _within(self) -> Iterator[None]:
        """Marks this thread: what it writes around a transaction would be no part of it."""
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        try:
            yield
        finally:
            self._inside.depth -= 1

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        """Transactions of one process one after the other: they would only undo each other's work."""
        if not self._turn.acquire(timeout=self.server.timeout_s):
            raise TimedOut(what="Waiting for another transaction of this process", seconds=self.server.timeout_s)
        try:
            yield
        finally:
            self._turn.release()


def _release(follower: Follower, server: Server) -> None:
    follower.close()
    server.close()
