"""The connections of a bus: to the servers of the URL, and to whichever server leads a stream.

Publishers and readers have connections of their own, because a server that is short of disk stops listening to those
who publish, and readers must go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rstream import schema

from lockstep.errors import Closed, ServerUnreachable
from lockstep.log.network.address import Address
from lockstep.log.network.retry import Deadline, Retry
from lockstep.log.rabbitmq import errors
from lockstep.log.rabbitmq.connection import IDS, Connection, IoLoop
from lockstep.log.rabbitmq.handshake import Login, ServerInfo, connect
from lockstep.runtime import Runtime

T = TypeVar("T")
Endpoint = tuple[str, int]

READ, PUBLISH = "read", "publish"
_SPREAD, _CONNECTIONS = 1, 6
"""A server pauses a whole connection for a moment at the end of each stream, so readers share one only if they must."""
_NO_LEADER = 65535
_PAUSE_S = 0.1
_FIRST_TRY = 0.6
_TICK_S = 1.0


class RabbitClient:
    """The connections of one bus. Safe to share between threads."""

    def __init__(self, address: Address, login: Login, runtime: Runtime) -> None:
        self.address, self.user = address, login.user
        self.facts: ServerInfo | None = None
        self.watched: set[Callable[[], None]] = set()
        """Called about every second, so that waiters of a stream without a live subscription look again."""
        self._login, self._runtime = login, runtime
        self._lock = threading.Lock()
        self._reached_at: dict[Endpoint, Endpoint] = {}
        self._open: dict[tuple[str, Endpoint], list[Connection]] = {}
        self._io_loop: IoLoop | None = None
        self._ticked = runtime.monotonic()
        self._closed = False

    def now(self) -> float:
        """The monotonic clock."""
        return self._runtime.monotonic()

    def deadline(self, seconds: float | None = None) -> Deadline:
        """The deadline of a call that begins now."""
        return Deadline(self._runtime.monotonic, self.address.timeout_s if seconds is None else seconds)

    def with_retries(self, work: Callable[[Deadline], T], deadline: Deadline) -> T:
        """Do something that may be done twice: once more after a lost connection, and while a stream has no leader."""
        is_first, retry = True, Retry(self._runtime, deadline, pause_s=_PAUSE_S)
        while True:
            try:
                return work(deadline.part(_FIRST_TRY) if is_first else deadline)
            except errors.NotReady as error:
                if not retry.again():
                    reason = "it has nobody to lead the stream at the moment"
                    raise ServerUnreachable(server=self.address.servers, reason=reason) from error
            except ServerUnreachable:
                if not is_first or not deadline.left():
                    raise
                is_first = False

    def any(self, deadline: Deadline) -> Connection:
        """A connection for questions to any of the servers."""
        return self._first_of(deadline, lambda seed, within: self._pick(READ, seed, within, limit=None))

    def fresh(self, deadline: Deadline) -> Connection:
        """A new connection to any of the servers, which the caller must lose after use."""
        return self._first_of(deadline, self._dial)

    def to_leader(self, purpose: str, stream: str, deadline: Deadline) -> Connection:
        """A connection with room to the leader of a stream."""
        advertised, _ = self.topology(stream, deadline)
        asked = self.any(deadline)
        endpoint = asked.endpoint if advertised == asked.advertised else self._reached_at.get(advertised, advertised)
        return self._pick(purpose, endpoint, deadline, limit=_SPREAD if purpose == READ else IDS)

    def topology(self, stream: str, deadline: Deadline) -> tuple[Endpoint, int]:
        """The advertised address of the leader of a stream, and the number of its replicas."""
        answer = self.any(deadline).ask(lambda number: schema.Metadata(number, [stream]), deadline)
        [found] = answer.metadata
        errors.check(found.response_code, server=self.address.servers, user=self.user, action="find", stream=stream)
        brokers = {broker.reference: (broker.host, broker.port) for broker in answer.brokers}
        if found.leader_ref == _NO_LEADER or found.leader_ref not in brokers:
            raise errors.NotReady
        return brokers[found.leader_ref], len(found.replicas_refs)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._closed = True
            io_loop, self._io_loop = self._io_loop, None
        if io_loop is not None:
            io_loop.close()

    def _first_of(self, deadline: Deadline, reach: Callable[[Endpoint, Deadline], Connection]) -> Connection:
        """The first result from one of the servers, connected ones first; each gets a share of the time."""
        fault: ServerUnreachable | None = None
        seeds = sorted(self.address.hosts, key=lambda seed: not self._is_connected(seed))
        for left, seed in zip(range(len(seeds), 0, -1), seeds, strict=True):
            try:
                return reach(seed, deadline.part(1 / left))
            except ServerUnreachable as error:
                fault = error
        assert fault is not None, "an address has a host"
        raise fault

    def _is_connected(self, seed: Endpoint) -> bool:
        return any(one.is_alive for one in self._open.get((READ, seed), []))

    def _pick(self, purpose: str, endpoint: Endpoint, deadline: Deadline, *, limit: int | None) -> Connection:
        with self._locked(deadline):
            usable = [one for one in self._open.get((purpose, endpoint), []) if one.is_alive]
            best = min(usable, key=lambda one: one.load, default=None)
            if limit is not None and len(usable) >= _CONNECTIONS:
                limit = IDS
            if best is None or (limit is not None and best.load >= limit):
                best = self._connect(endpoint, deadline)
                usable.append(best)
            self._open[purpose, endpoint] = usable
            return best

    def _dial(self, endpoint: Endpoint, deadline: Deadline) -> Connection:
        with self._locked(deadline):
            return self._connect(endpoint, deadline)

    def _connect(self, endpoint: Endpoint, deadline: Deadline) -> Connection:
        if self._closed:
            raise Closed(what=f"Bus {self.address.safe_url}")
        connection, self.facts = connect(*endpoint, self._login, deadline, self._runtime.monotonic)
        self._reached_at[connection.advertised] = endpoint
        if self._io_loop is None:
            self._io_loop = IoLoop(str(endpoint[1]), self._tick)
        self._io_loop.add(connection)
        return connection

    @contextmanager
    def _locked(self, deadline: Deadline) -> Iterator[None]:
        if not self._lock.acquire(timeout=deadline.left()):
            raise ServerUnreachable(server=self.address.servers, reason="no connection was made in time")
        try:
            yield
        finally:
            self._lock.release()

    def _tick(self) -> None:
        now = self._runtime.monotonic()
        if now - self._ticked >= _TICK_S:
            self._ticked = now
            for look in list(self.watched):
                look()
