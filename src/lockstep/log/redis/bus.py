"""The bus on Redis: opening it, its streams and transactions, and what its server promises.

redis://127.0.0.1:6379/0?prefix=shop
redis://app@one:6379,two:6379?password_file=/run/secrets/redis&tls=true&wait_replicas=1&wait_ms=500

"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from lockstep.errors import (
    BadUrl,
    Closed,
    Conflict,
    ForkedProcess,
    ServerRefused,
    ServerUnfit,
    StreamNotFound,
    TimedOut,
    UnsupportedByBackend,
)
from lockstep.log.config import StreamConfig
from lockstep.log.embedded.tables import nested_write
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.driver import Finding, login_findings, report_findings
from lockstep.log.port import DROPPED_BY_BUS, Bus, Limits, LogWaiter, Promises, Transaction
from lockstep.log.redis import scripts
from lockstep.log.redis.client import Connector, RedisClient
from lockstep.log.redis.layout import CatalogueEntry, Keys, altered_entry, check_name, decode_entry, encode_entry
from lockstep.log.redis.listener import Listener, RedisWaiter
from lockstep.log.redis.log import RedisLog
from lockstep.log.redis.transaction import Changes, Stale, View
from lockstep.runtime import Runtime, release_when_dropped

OPTIONS = ("wait_replicas", "wait_ms")
_PORT = 6379


def open_bus(target: str, options: dict[str, str], runtime: Runtime, environ: Mapping[str, str]) -> RedisBus:
    """Open the bus whose URL has this target and these options."""
    address = parse_address("redis", target, options, environ=environ, default_port=_PORT, known=OPTIONS)
    keys = Keys(_prefix(address))
    report_findings(login_findings(address), strict=address.strict)
    wait_replicas, wait_ms = address.whole("wait_replicas", 0), _wait_ms(address)
    client = RedisClient(Connector(address, _database(address)), runtime)
    try:
        facts = ask_facts(client, patient=False)
        found = server_findings(facts, wait_replicas) + (replica_findings(facts) if address.strict else [])
        report_findings(found, strict=address.strict)
    except BaseException:
        client.close()
        raise
    return RedisBus(client, keys, facts, runtime, wait_replicas=wait_replicas, wait_ms=wait_ms)


def _database(address: Address) -> int:
    if address.path and not (address.path.isascii() and address.path.isdigit()):
        raise BadUrl(url=address.safe_url, reason=f"its database must be a number, not {address.path!r}")
    return int(address.path or 0)


def _prefix(address: Address) -> str:
    if set("{}") & set(address.prefix):
        raise BadUrl(url=address.safe_url, reason="its option prefix must not have braces")
    return address.prefix


def _wait_ms(address: Address) -> int:
    most = int(address.timeout_s * 1000)
    wait_ms = address.whole("wait_ms", max(most // 2, 1))
    if not 0 < wait_ms < most:
        reason = f"its option wait_ms must be above 0 and below timeout_s, {most} ms"
        raise BadUrl(url=address.safe_url, reason=reason)
    return wait_ms


T = TypeVar("T")

_LAST_PAUSE_S = 0.05


class RedisBus(Bus):
    """A bus on one Redis server or cluster slot. Owned by one process; safe to share between threads."""

    def __init__(
        self, client: RedisClient, keys: Keys, facts: Facts, runtime: Runtime, *, wait_replicas: int, wait_ms: int
    ) -> None:
        self.url, self.client, self.keys = client.url, client, keys
        self.wait_replicas, self.wait_ms = wait_replicas, wait_ms
        self.promises = promises_of(facts, wait_replicas)
        self._limits = limits_of(facts)
        self._runtime = runtime
        self._listener = Listener(client.connector, runtime)
        self._turn = threading.Lock()
        self._inside = threading.local()
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._finalizer = release_when_dropped(
            self, runtime, f"The connection to {self.url}", partial(_release, self._listener, client)
        )

    def create(self, name: str, config: StreamConfig) -> RedisLog:
        self.check_may_write()
        check_name(name)
        entry = self._find(name) or self._add(name, config)
        stored = decode_entry(entry)
        stored.config.check_same(name, config)
        return self.handle(name, stored)

    def open(self, name: str) -> RedisLog:
        self.check_open()
        return self.handle(name, decode_entry(self._get(name)))

    def alter(self, name: str, config: StreamConfig) -> RedisLog:
        self.check_may_write()
        done = 0
        while not done:  # as long as others alter it at the same time
            entry = self._get(name)
            decode_entry(entry).config.check_alterable(name, config)
            arguments = (name, entry, altered_entry(entry, config))
            [done] = self.client.ask(scripts.ALTER.call((self.keys.changes, self.keys.catalogue), arguments), what=name)
        return self.open(name)

    def stored(self, name: str) -> CatalogueEntry:
        """The catalogue entry of a log. Raises StreamNotFound."""
        return decode_entry(self._get(name))

    def delete(self, name: str) -> None:
        self.check_may_write()
        keys = self.keys.log(name)
        entry = self._get(name)
        self.client.ask(
            scripts.DELETE.call((self.keys.changes, self.keys.catalogue, *keys.stored), (name, entry, keys.channel)),
            what=name,
        )

    def names(self) -> list[str]:
        self.check_open()
        [names] = self.client.ask(("HKEYS", self.keys.catalogue))
        return sorted(name.decode() for name in names)

    def waiter(self) -> LogWaiter:
        self.check_open()
        return RedisWaiter(self._listener, self.keys, self._runtime.waiter())

    def atomic(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` as a transaction, again if others changed what it has read. Conflict if they go on doing so."""
        self.check_may_write()
        with self._my_turn():
            end, pause_s = self.monotonic() + self.client.timeout_s, 0.0
            while True:
                changes = Changes(self)
                result, is_done = self._try(work, changes)
                if is_done:
                    return result
                if self.monotonic() >= end:
                    reason = f"Others changed what this transaction is based on, for {self.client.timeout_s:g} s"
                    raise Conflict(reason=f"{reason}; nothing was written.")
                self._runtime.waiter().wait(pause_s * self._runtime.random())
                pause_s = min(2 * pause_s + 0.001, _LAST_PAUSE_S)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        self.check_open()
        with self._within():
            yield View(self)

    def check(self) -> list[Finding]:
        """Findings about the server: settings that would break a promise."""
        self.check_open()
        facts = ask_facts(self.client)
        return server_findings(facts, self.wait_replicas) + replica_findings(facts)

    def close(self) -> None:
        with self._lock:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        _release(self._listener, self.client)

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
        """The wall clock, for append times."""
        return self._runtime.wall_ns()

    def monotonic(self) -> float:
        """The monotonic clock."""
        return self._runtime.monotonic()

    def handle(self, name: str, stored: CatalogueEntry) -> RedisLog:
        """A handle on the log of a catalogue entry."""
        return RedisLog(self, name, stored.identity, stored.config, self._limits)

    def _find(self, name: str) -> bytes | None:
        [entry] = self.client.ask(("HGET", self.keys.catalogue, name), what=name)
        return None if entry is None else bytes(entry)

    def _get(self, name: str) -> bytes:
        entry = self._find(name)
        if entry is None:
            raise StreamNotFound(name=name, bus=self.url)
        return entry

    def _add(self, name: str, config: StreamConfig) -> bytes:
        if config.history is not None:
            raise UnsupportedByBackend(bus=self.url, feature="keep old records in a history")
        stored = CatalogueEntry(self._runtime.new_id().hex(), config)
        keys = (self.keys.changes, self.keys.catalogue, *self.keys.log(name).stored)
        arguments = (name, encode_entry(stored, self.now_ns()), stored.identity)
        [entry] = self.client.ask(scripts.CREATE.call(keys, arguments), what=name)
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
        if not self._turn.acquire(timeout=self.client.timeout_s):
            raise TimedOut(what="Waiting for another transaction of this process", seconds=self.client.timeout_s)
        try:
            yield
        finally:
            self._turn.release()


def _release(listener: Listener, client: RedisClient) -> None:
    listener.close()
    client.close()


VERSION_LEAST = (7, 0)
_SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy", "proto-max-bulk-len")
_BULK_BYTES_DEFAULT = 512 << 20
_BULK_OVERHEAD = 1024
_MAY_LOSE = {
    "fsync": "nothing while the disk of the server is whole (it has appendfsync always)",
    "relaxed": "the last seconds before the server or its machine fails, or its disk is full",
    "memory": "everything since the server's last snapshot when it ends",
}
_FAILOVER = "; what a replica lacks when it is made the primary"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server tells about itself; None where it does not."""

    server: str
    version: tuple[int, int] | None = None
    replicas: int | None = None
    is_replica: bool = False
    settings: Mapping[str, str] | None = field(default=None)

    @property
    def durability(self) -> str:
        """When a write is acknowledged; the least, where the server does not tell."""
        if self.settings is None or self.settings.get("appendonly") != "yes":
            return "memory"
        always = self.settings.get("appendfsync") == "always" and not self.pauses_syncing
        return "fsync" if always else "relaxed"

    @property
    def pauses_syncing(self) -> bool:
        """Whether it acknowledges without the disk while it rewrites its file."""
        return (self.settings or {}).get("no-appendfsync-on-rewrite") == "yes"


def ask_facts(client: RedisClient, *, patient: bool = True) -> Facts:
    """Ask the server about itself; what this user may not ask stays unknown."""
    info = _ask_info(client, patient=patient)
    settings = _ask_settings(client)
    version = str(info.get("redis_version", "")).split(".")
    replicas = info.get("connected_slaves")
    return Facts(
        server=client.name,
        version=(int(version[0]), int(version[1])) if len(version) > 1 else None,
        replicas=None if replicas is None else int(replicas),
        is_replica=info.get("role") == "slave",
        settings=settings,
    )


def promises_of(facts: Facts, wait_replicas: int) -> Promises:
    """What the bus promises on such a server."""
    followers = facts.replicas or 0
    return Promises(
        durability=facts.durability,
        may_lose=_MAY_LOSE[facts.durability] + (_FAILOVER if followers else ""),
        opened_by="network",
        retention=("capacity", "bytes", "age", "protect"),
        sync_replicas=wait_replicas,
        async_replicas=max(followers - wait_replicas, 0),
        atomic=True,
        conditional=True,
        dedupe=True,
        notifies=True,
        copies=DROPPED_BY_BUS,
        ordered_times=True,
        takes_back=True,
    )


def limits_of(facts: Facts) -> Limits:
    """How much the server takes in one append."""
    most = int((facts.settings or {}).get("proto-max-bulk-len", _BULK_BYTES_DEFAULT))
    return Limits(append_bytes=most - _BULK_OVERHEAD, append_setting="proto-max-bulk-len")


def server_findings(facts: Facts, wait_replicas: int) -> list[Finding]:
    """Findings about the server, the most serious first."""
    found = _about_server(facts) + (
        _about_settings(facts) if facts.settings is not None else [_unknown_settings(facts)]
    )
    if facts.replicas is not None and facts.replicas < wait_replicas:
        problem = f"{facts.replicas} replicas follow it, and every append waits for {wait_replicas}"
        found.append(Finding(facts.server, problem, "wait_replicas in the URL, or its replicas"))
    return found


def replica_findings(facts: Facts) -> list[Finding]:
    """A finding if the server has no replica; reported on demand only, as every test server has none."""
    if facts.replicas != 0 or facts.is_replica:
        return []
    problem = "no replica follows it: if its disk is lost, the streams are"
    return [Finding(facts.server, problem, "it to have a replica (replicaof), and wait_replicas in the URL")]


def _about_server(facts: Facts) -> list[Finding]:
    found = []
    if facts.version is not None and facts.version < VERSION_LEAST:
        problem = f"it is Redis {facts.version[0]}.{facts.version[1]}, and streams need 7.0 or later"
        found.append(Finding(facts.server, problem, "its version", fatal=True))
    if facts.is_replica:
        problem = "it is a replica, and takes no writes"
        found.append(Finding(facts.server, problem, "the address to that of the primary", fatal=True))
    return found


def _about_settings(facts: Facts) -> list[Finding]:
    settings, found = facts.settings or {}, []
    if settings.get("appendonly") != "yes":
        problem = "its append-only file is off: what was acknowledged is lost when it ends"
        found.append(Finding(facts.server, problem, "appendonly to yes"))
    elif settings.get("appendfsync") != "always":
        problem = "it acknowledges before the disk has it: the last seconds are lost if it fails"
        found.append(Finding(facts.server, problem, "appendfsync to always"))
    elif facts.pauses_syncing:
        problem = "it acknowledges before the disk has it while it rewrites its file: seconds are lost if it fails then"
        found.append(Finding(facts.server, problem, "no-appendfsync-on-rewrite to no"))
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy.startswith("allkeys"):
        problem = f"it drops streams when its memory is full (maxmemory-policy is {policy})"
        found.append(Finding(facts.server, problem, "maxmemory-policy to noeviction"))
    return found


def _unknown_settings(facts: Facts) -> Finding:
    problem = "it does not tell its settings, so nothing is known about its disk"
    return Finding(facts.server, problem, "the rights of the user (CONFIG GET)")


def _ask_info(client: RedisClient, *, patient: bool) -> dict[str, str]:
    try:
        replies = client.ask(("INFO", "server"), ("INFO", "replication"), patient=patient)
    except (ServerRefused, ServerUnfit) as error:
        if "NOPERM" not in str(error) and "no permissions" not in str(error):
            raise
        return {}
    lines = b"\n".join(replies).decode().splitlines()
    return dict(connection.split(":", 1) for connection in lines if ":" in connection)


def _ask_settings(client: RedisClient) -> dict[str, str] | None:
    try:
        [reply] = client.ask(("CONFIG", "GET", *_SETTINGS))
    except (ServerRefused, ServerUnfit):  # managed servers forbid it or do not know it; older ones take one name only
        return None
    return _pairs(reply)


def _pairs(reply: list[Any]) -> dict[str, str]:
    texts = [part.decode() for part in reply]
    return dict(zip(texts[::2], texts[1::2], strict=True))
