"""A gate by ZooKeeper: every engine has an ephemeral, sequential node below one root, and the smallest is active.

Nodes carry the name of a group, and only those of the own group count: several clusters and projects may share a root.
Each watches the node right below its own, and no other. A session that is lost takes its node with it: the engine makes
a new one, at the end of the line. That an engine is active is believed for as long as the session is sure to live: one
session time-out from the moment a request was sent that was answered.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lockstep.engine.gates.port import Gate, needed
from lockstep.errors import ServerRefused, ServerUnreachable
from lockstep.log.network.address import Address
from lockstep.log.network.driver import Finding, report_findings
from lockstep.runtime import Runtime, logger

PREFIX = "server-n_"
_NODE = re.compile(re.escape(PREFIX) + r"\d{10}")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the line: `below` is the greatest node that is less than one's own; without one it is active."""

    below: str | None = None

    @property
    def is_active(self) -> bool:
        """Whether it is first in line."""
        return self.below is None


def place_in_line(children: Iterable[str], mine: str, is_ours: Callable[[str], bool]) -> Place | None:
    """The place of a node among the children of the root, whatever else is there; None if it is not among them.

    `is_ours` says whether another node is of the same group, and is asked of no more than it takes.
    """
    line = {name for name in children if _NODE.fullmatch(name)}  # of one width, so that text sorts as numbers do
    if mine not in line:
        return None
    before = sorted((name for name in line if name < mine), reverse=True)
    return Place(next(filter(is_ours, before), None))


TICK_MS_MAX = 500
_ANSWER_BYTES = 65_536
_CONNECT = struct.Struct(">iqiqi16s?")
"""Version, last transaction seen, time-out, session, length of the password, password, read-only."""
_CONNECTED = struct.Struct(">iii")
"""Length of the answer, version, time-out granted."""
_GOODBYE = struct.pack(">iii", 8, 1, -11)


@dataclass(frozen=True, slots=True)
class Facts:
    """Milliseconds; None: it does not tell."""

    tick_ms: int | None = None
    session_ms: int | None = None
    """How long a session lasts there that was asked to last as long as the address says."""


def ask_facts(address: Address) -> Facts:
    """Ask the first server that answers; the ports of TLS are not asked."""
    for host, port in address.hosts if address.tls is None else ():
        try:
            return Facts(_tick_ms(host, port, address.timeout_s), _session_ms(host, port, address.timeout_s))
        except OSError:  # the client itself finds out whether any of them answers
            continue
    return Facts()


def judge_facts(address: Address, facts: Facts) -> list[Finding]:
    """What keeps a dead engine from being noticed in the time that was asked for."""
    server, asked_ms = address.safe_url, address.timeout_s * 1000
    if facts.tick_ms is not None and facts.tick_ms > TICK_MS_MAX:
        problem = f"its tickTime is {facts.tick_ms} ms, so a dead engine is noticed later than within a second"
        return [Finding(server, problem, f"tickTime to {TICK_MS_MAX} or less on {server}")]
    if facts.session_ms is not None and facts.session_ms > asked_ms:
        problem = f"a session there lasts {facts.session_ms} ms, not {asked_ms:.0f}: a dead engine is noticed later"
        return [Finding(server, problem, f"tickTime to {TICK_MS_MAX} or less, or minSessionTimeout, on {server}")]
    return []


def _tick_ms(host: str, port: int, timeout_s: float) -> int | None:
    """By the command conf, which many servers do not answer."""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(b"conf")
        answer = b""
        while len(answer) < _ANSWER_BYTES and (piece := connection.recv(4096)):
            answer += piece
    found = re.search(rb"^tickTime=(\d{1,9})$", answer, re.MULTILINE)
    return int(found[1]) if found else None


def _session_ms(host: str, port: int, timeout_s: float) -> int | None:
    """By a session of no use, which is closed at once; every server answers that."""
    body = _CONNECT.pack(0, 0, int(timeout_s * 1000), 0, 16, bytes(16), False)
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = b""
        while len(answer) < _CONNECTED.size and (piece := connection.recv(4096)):
            answer += piece
        connection.sendall(_GOODBYE)
    if len(answer) < _CONNECTED.size:
        return None
    return int(_CONNECTED.unpack_from(answer)[2])


ROOT = "ESP"
_OPEN_S = 10.0
"""A server that does not answer for so long when an engine starts is an error."""
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_LOOKS = 3
_NEVER = float("-inf")


def open_zookeeper(address: Address, runtime: Runtime, group: str) -> ZooKeeperGate:
    """Connect, and check what can be checked; the engine is not in line yet."""
    kazoo = needed("kazoo.client", "zookeeper")
    facts = ask_facts(address)
    report_findings(judge_facts(address, facts), strict=address.strict)
    session_s = min(address.timeout_s, (facts.session_ms or 3_600_000) / 1000)
    client = kazoo.KazooClient(
        hosts=address.servers, timeout=address.timeout_s, connection_retry=dict(_RETRY),
        logger=logger.getChild("zookeeper"), **_login(address), **_tls(address),
    )  # fmt: skip
    root = "/" + (address.path.strip("/") or ROOT)
    gate = ZooKeeperGate(client, root, group, runtime, session_s, address.safe_url)
    gate.connect()
    return gate


def _login(address: Address) -> dict[str, Any]:
    if address.user is None or address.password is None:
        return {}
    security = needed("kazoo.security", "zookeeper")
    login = f"{address.user}:{address.password.reveal()}"
    return {"auth_data": [("digest", login)], "default_acl": security.CREATOR_ALL_ACL}


def _tls(address: Address) -> dict[str, Any]:
    if address.tls is None:
        return {}
    tls = address.tls
    return {"use_ssl": True, "ca": tls.ca, "certfile": tls.cert, "keyfile": tls.key, "check_hostname": True}


class ZooKeeperGate(Gate):
    """A place in a line of ZooKeeper's sequential nodes."""

    def __init__(self, client: Any, root: str, group: str, runtime: Runtime, session_s: float, shown: str) -> None:
        """`session_s` is how long a session is sure to live after the server heard of it."""
        self._client, self._root, self._runtime = client, root, runtime
        self._group = group.encode()
        self._session_s, self._shown = session_s, shown
        self._lock = threading.Lock()
        self._is_connected, self._session = False, 0
        """Sessions are counted: what was learned in one says nothing in the next."""
        self._place: Place | None = None
        self._sure_until = _NEVER
        self._wanted = self._leaving = False
        self._node, self._node_session = "", -1
        self._moved = True
        """Whether the line may have changed since it was looked at."""
        self._crash: BaseException | None = None
        exceptions, handlers = needed("kazoo.exceptions", "zookeeper"), needed("kazoo.handlers.threading", "zookeeper")
        self._trouble = (exceptions.KazooException, handlers.KazooTimeoutError)
        self._refusals = (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError)
        self._gone, self._unreadable = exceptions.NoNodeError, exceptions.NoAuthError
        self._waiter = runtime.waiter()

    def connect(self) -> None:
        """Begin; an error if the server can't be reached or used within a bound."""
        self._client.add_listener(self._on_state)
        try:
            self._client.start(timeout=_OPEN_S)
            self._ask(self._client.ensure_path_async(self._root))
        except self._trouble as error:
            self._stop_client()
            if isinstance(error, self._refusals):
                raise ServerRefused(server=self._shown, reason=f"{type(error).__name__} on {self._root}") from error
            raise ServerUnreachable(server=self._shown, reason=str(error) or type(error).__name__) from error
        self._task = self._runtime.spawn("lockstep-gate", self._step, self._waiter, self._crashed)

    def enter(self) -> None:
        """Stand in line, at its end; one that stands there stays where it is."""
        if not self._wanted:
            self._wanted = True
            self._waiter.wake()

    def leave(self) -> None:
        """Leave the line, so that the next may try; `enter` begins at its end."""
        if self._wanted:
            self._wanted, self._leaving = False, True
            self._waiter.wake()

    def may_lead(self) -> bool:
        """Whether this engine may try to lead; False while that is not sure."""
        with self._lock:
            is_active = self._is_connected and self._place is not None and self._place.is_active
            is_wanted = self._wanted and not self._leaving
            return is_wanted and is_active and self._runtime.monotonic() < self._sure_until

    def state(self) -> str:
        """Where it stands, for people; no secrets."""
        return f"{self._shown}: {self._state()}"

    def _state(self) -> str:
        place = self._place
        if not self._is_connected:
            return "suspended, not connected"
        if not self._wanted:
            return "not in line"
        if place is None:
            return "waiting for its node"
        if not place.is_active:
            return f"standby as {self._node} behind {place.below}"
        return f"{'active' if self.may_lead() else 'unsure'} as {self._node}"

    def check(self) -> None:
        """Raise what ended it, if anything did."""
        if self._crash is not None:
            raise self._crash

    def close(self) -> None:
        """Leave for good and let go of the connection."""
        self._wanted = False
        self._task.stop()
        self._stop_client()

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except self._trouble as error:  # its session ends by itself then
            logger.warning("ZooKeeper was left without a word", extra={"action": "gate", "reason": str(error)})

    def _on_state(self, state: str) -> None:
        """In the client's thread: a connection that is lost leaves the place unsure, a lost session takes it away."""
        with self._lock:
            was, self._is_connected = self._is_connected, state == "CONNECTED"
            if state == "LOST":
                self._session += 1
                self._place, self._sure_until = None, _NEVER
        if was and not self._is_connected:
            logger.info("ZooKeeper session is %s: standby", state.lower(), extra={"action": "gate"})
        self._moved = True
        self._waiter.wake()

    def _on_change(self, _event: Any) -> None:
        """In the client's thread: the node below changed, or its watch is gone with the connection."""
        self._moved = True
        self._waiter.wake()

    def _step(self) -> float:
        try:
            if self._is_connected:
                self._work(self._session)
        except self._trouble as error:
            self._moved = True
            logger.debug("ZooKeeper did not answer: %r", error, extra={"action": "gate_retry"})
        return self._session_s / 4

    def _work(self, session: int) -> None:
        if self._leaving or not self._wanted:
            self._drop(session)
        if not self._wanted:
            return
        if self._node_session != session:
            self._make(session)
        sent_at, place = self._runtime.monotonic(), self._place
        if self._moved or place is None:
            self._moved = False
            place = self._look()
        elif self._ask(self._client.exists_async(f"{self._root}/{self._node}")) is None:
            place = None
        self._settle(session, place, sent_at)

    def _settle(self, session: int, place: Place | None, sent_at: float) -> None:
        with self._lock:
            if session != self._session:
                return
            before, self._place = self._place, place
            self._sure_until = sent_at + self._session_s if place is not None else _NEVER
        if place is None:
            self._node_session = -1
            logger.info("ZooKeeper node %s is gone: a new one is made", self._node, extra={"action": "gate"})
            self._waiter.wake()
        elif place != before:
            words = f"standby behind {place.below}" if place.below else "active"
            logger.info("ZooKeeper node %s is %s", self._node, words, extra={"action": "gate"})

    def _look(self) -> Place | None:
        """Its place now; the one below it is watched, and no other."""
        place = None
        for _ in range(_LOOKS):  # the one below may go before it is watched
            place = place_in_line(self._children(), self._node, self._is_ours)
            if place is None or place.below is None or self._watch(place.below):
                return place
        self._moved = True
        return place

    def _children(self) -> list[str]:
        try:
            found: list[str] = self._ask(self._client.get_children_async(self._root))
        except self._gone:  # the root was removed: it is created again with the next node
            return []
        return found

    def _is_ours(self, name: str) -> bool:
        try:
            found, _ = self._ask(self._client.get_async(f"{self._root}/{name}"))
        except (self._gone, self._unreadable):  # one that may not be read is another user's
            return False
        return bool(found == self._group)

    def _watch(self, name: str) -> bool:
        try:  # not by `exists`, which would go on watching a node that is gone
            self._ask(self._client.get_async(f"{self._root}/{name}", watch=self._on_change))
        except self._gone:
            return False
        return True

    def _make(self, session: int) -> None:
        """A node of its own at the end of the line; what an unanswered request may have left is removed first."""
        self._remove_mine()
        path, kind = f"{self._root}/{PREFIX}", {"ephemeral": True, "sequence": True, "makepath": True}
        made = self._ask(self._client.create_async(path, self._group, **kind))
        self._node, self._node_session, self._moved = made.rpartition("/")[2], session, True
        logger.info("ZooKeeper node %s is made", self._node, extra={"action": "gate"})

    def _drop(self, session: int) -> None:
        if self._node_session == session:
            self._remove_mine()
            logger.info("ZooKeeper node %s is removed", self._node, extra={"action": "gate"})
        self._node_session = -1
        with self._lock:
            self._place, self._sure_until, self._leaving = None, _NEVER, False

    def _remove_mine(self) -> None:
        """Every node of this session: there is one, or a request for it was carried out and never answered."""
        owner = (self._client.client_id or (None,))[0]
        for name in self._children():
            path = f"{self._root}/{name}"
            found = self._ask(self._client.exists_async(path))
            if name.startswith(PREFIX) and found is not None and found.owner_session_id == owner:
                self._ask(self._client.delete_async(path))

    def _ask(self, answer: Any) -> Any:
        return answer.get(timeout=max(self._session_s, 1.0))

    def _crashed(self, error: BaseException) -> None:
        self._crash = error
        self._place = None
