"""The connection to a cluster: one client, whose every call ends in time and whose errors are ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from hazelcast.config import Config, ReconnectMode
from hazelcast.errors import HazelcastError
from hazelcast.future import Future

from lockstep.errors import ServerUnreachable
from lockstep.log.hazelcast.errors import NOT_SENT, meaning, words
from lockstep.log.hazelcast.mending import hear_of_lost_connections, mend_waking
from lockstep.log.hazelcast.starting import settled, started
from lockstep.log.network.address import Address, Tls

T = TypeVar("T")
_PAUSE_S = 0.02
_BACKUP_S = 2.0
_CONNECTED, _DISCONNECTED = "CONNECTED", "DISCONNECTED"


class Unanswered(Exception):
    """Something was sent, and no answer came, or one that does not say whether it was done."""


class Link:
    """See the module. Safe to share between threads."""

    def __init__(
        self, address: Address, cluster: str, clock: Callable[[], float], first: tuple[str, int] | None = None
    ) -> None:
        """`first` is the member to go to first: one that is known to answer."""
        self.server = address.safe_url
        self.timeout_s = address.timeout_s
        self.losses = 0
        """How many members, and connections to them, went away since this was opened."""
        self.clock = clock
        self._connected = threading.Event()
        config = settings(address, cluster, first)
        config.lifecycle_listeners = [self._on_state]
        config.membership_listeners = [(None, self._on_lost)]
        self.client = started(config, address)
        mend_waking(self.client)
        hear_of_lost_connections(self.client, self._on_lost)

    @property
    def members(self) -> list[Any]:
        """The members of the cluster that hold data now, as far as the client was told."""
        return self.client.cluster_service.get_members(lambda member: not member.lite_member)

    def ask(self, call: Callable[[], Future[T]], what: str) -> T:
        """The answer to something that can be asked twice."""
        try:
            return self._outcome(call, what)
        except Unanswered as error:
            cause = error.__cause__
            if cause is None:
                raise ServerUnreachable(server=self.server, reason=str(error)) from None
            raise meaning(cause, self.server, what) from cause

    def answer(self, future: Future[T], what: str) -> T:
        """The answer to something that was asked before; it is not asked again."""
        if not settled(future, self.timeout_s):
            raise ServerUnreachable(server=self.server, reason=f"no answer came within {self.timeout_s:g} s")
        try:
            return future.result()
        except (HazelcastError, OSError) as error:
            raise meaning(error, self.server, what) from error

    def tell(self, call: Callable[[], Future[T]], what: str, known: tuple[type[Exception], ...] = ()) -> T:
        """The answer to something that must not be done twice; Unanswered unless it is certain that it was not done.

        `known` are the client's errors which say that.
        """
        try:
            return self._outcome(call, what)
        except Unanswered as error:
            if isinstance(error.__cause__, known):
                raise meaning(error.__cause__, self.server, what) from error.__cause__
            raise

    def guarded(self, call: Callable[[], T], what: str) -> T:
        """What a call of the client's returns that waits by itself; the heart-beat bounds it."""
        self._await_connection(self.clock() + self.timeout_s)
        try:
            return call()
        except (HazelcastError, OSError) as error:
            raise meaning(error, self.server, what) from error

    def close(self) -> None:
        """End the client and its thread."""
        self.client.shutdown()

    def _outcome(self, call: Callable[[], Future[T]], what: str) -> T:
        end = self.clock() + self.timeout_s
        while True:
            self._await_connection(end)
            future = call()
            if not settled(future, end - self.clock()):
                reason = f"no answer came within {self.timeout_s:g} s"
                raise Unanswered(reason)
            try:
                return future.result()
            except NOT_SENT as error:
                if self.clock() >= end:
                    raise meaning(error, self.server, what) from error
                threading.Event().wait(_PAUSE_S)  # the connection is being lost or made: its state tells shortly
            except (HazelcastError, OSError) as error:
                raise Unanswered(words(error)) from error

    def _await_connection(self, end: float) -> None:
        if not self._connected.wait(max(end - self.clock(), 0.0)):
            raise ServerUnreachable(server=self.server, reason=f"there was no connection for {self.timeout_s:g} s")

    def _on_state(self, state: str) -> None:
        if state == _CONNECTED:
            self._connected.set()
        elif state == _DISCONNECTED:
            self._connected.clear()

    def _on_lost(self, gone: object) -> None:
        del gone
        self.losses += 1


def settings(address: Address, cluster: str, first: tuple[str, int] | None = None) -> Any:
    """How the client is set up: everything bounded, nothing guessed, reconnecting for ever."""
    make: Any = Config  # which has no hints
    config = make()
    config.cluster_name = cluster
    hosts = sorted(address.hosts, key=lambda host: host != first)
    config.cluster_members = [f"{host}:{port}" for host, port in hosts]
    config.shuffle_member_list = False  # the client waits for the one that it tries, however long that hangs
    if address.user is not None:
        config.creds_username = address.user
    if address.password is not None:
        config.creds_password = address.password.reveal()
    config.connection_timeout = address.timeout_s
    config.reconnect_mode = ReconnectMode.ASYNC  # calls fail at once while there is no connection; we wait ourselves
    config.retry_initial_backoff, config.retry_max_backoff, config.retry_multiplier = 0.1, 1.0, 1.5
    config.invocation_timeout, config.invocation_retry_pause = address.timeout_s, 0.1
    config.heartbeat_interval, config.heartbeat_timeout = address.timeout_s / 4, address.timeout_s
    config.redo_operation = False  # an append must not be sent twice behind our back
    config.fail_on_indeterminate_operation_state = True  # a copy that is missing is no acknowledgement
    config.operation_backup_timeout = min(_BACKUP_S, address.timeout_s / 2)
    if address.tls is not None:
        _set_tls(config, address.tls)
    return config


def _set_tls(config: Any, tls: Tls) -> None:
    config.ssl_enabled, config.ssl_check_hostname = True, True
    for setting, file in (("ssl_cafile", tls.ca), ("ssl_certfile", tls.cert), ("ssl_keyfile", tls.key)):
        if file is not None:
            setattr(config, setting, file)
