"""A gate by ZooKeeper: every engine has an ephemeral, sequential node below one root, and the smallest is active.

Nodes carry the name of a group, and only those of the own group count: several clusters and projects may share a root.
Each watches the node right below its own, and no other. A session that is lost takes its node with it: the engine makes
a new one, at the end of the line. That an engine is active is believed for as long as the session is sure to live: one
session time-out from the moment a request was sent that was answered.
"""

from __future__ import annotations

import threading
from typing import Any

from lockstep.engine.gates.line import PREFIX, Place, place_in_line
from lockstep.engine.gates.packages import needed
from lockstep.engine.gates.zookeeper_facts import ask_facts, judge_facts
from lockstep.errors import ServerRefused, ServerUnreachable
from lockstep.log.network.address import Address
from lockstep.log.network.driver import report_findings
from lockstep.runtime import Runtime, logger

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


class ZooKeeperGate:
    """See module."""

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
        """See Gate."""
        if not self._wanted:
            self._wanted = True
            self._waiter.wake()

    def leave(self) -> None:
        """See Gate."""
        if self._wanted:
            self._wanted, self._leaving = False, True
            self._waiter.wake()

    def may_lead(self) -> bool:
        """See Gate."""
        with self._lock:
            is_active = self._is_connected and self._place is not None and self._place.is_active
            is_wanted = self._wanted and not self._leaving
            return is_wanted and is_active and self._runtime.monotonic() < self._sure_until

    def state(self) -> str:
        """See Gate."""
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
        """See Gate."""
        if self._crash is not None:
            raise self._crash

    def close(self) -> None:
        """See Gate."""
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
        except self._gone:  # somebody removed the root: it is made again with the next node
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
