"""The client of a Hazelcast cluster: it starts in time, every call ends in time, and its errors are ours.

Some faults of the library are patched here from outside. A version whose parts have other names is left as it is.

"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from hazelcast.client import HazelcastClient
from hazelcast.config import Config, ReconnectMode
from hazelcast.errors import HazelcastError, HazelcastSerializationError
from hazelcast.future import Future, combine_futures
from hazelcast.serialization.serializer import PythonObjectSerializer

from lockstep.errors import ServerUnfit, ServerUnreachable
from lockstep.log.hazelcast.errors import NOT_SENT, first_line, translated
from lockstep.log.network.address import Address, Tls
from lockstep.log.network.retry import Deadline, Retry
from lockstep.runtime import Runtime

T = TypeVar("T")
_PAUSE_S = 0.02
_BACKUP_S = 2.0
_CONNECTED, _DISCONNECTED = "CONNECTED", "DISCONNECTED"


class Unanswered(Exception):
    """A request was sent, and it is not known whether it was done."""


class ClusterClient:
    """One connected client whose every call ends within the time-out. Safe to share between threads."""

    def __init__(self, address: Address, cluster: str, runtime: Runtime, first: tuple[str, int] | None = None) -> None:
        """`first` is the member to connect to first: one that is known to answer."""
        self.server = address.safe_url
        self.timeout_s = address.timeout_s
        self.losses = 0
        """How many members and connections were lost since this was opened."""
        self.clock, self._runtime = runtime.monotonic, runtime
        self._connected = threading.Event()
        config = settings(address, cluster, first)
        config.lifecycle_listeners = [self._on_state]
        config.membership_listeners = [(None, self._on_lost)]
        self.library = start_client(config, address)
        patch_waking(self.library)
        listen_to_lost_connections(self.library, self._on_lost)

    @property
    def members(self) -> list[Any]:
        """The members of the cluster that hold data now, as far as the client knows."""
        return self.library.cluster_service.get_members(lambda member: not member.lite_member)

    def ask(self, call: Callable[[], Future[T]], what: str) -> T:
        """The answer to a call that may be made twice."""
        try:
            return self._outcome(call, what)
        except Unanswered as error:
            cause = error.__cause__
            if cause is None:
                raise ServerUnreachable(server=self.server, reason=str(error)) from None
            raise translated(cause, self.server, what) from cause

    def answer(self, future: Future[T], what: str) -> T:
        """The answer to a call that was made before; it is not made again."""
        if not wait_for(future, self.timeout_s):
            raise ServerUnreachable(server=self.server, reason=f"no answer came within {self.timeout_s:g} s")
        try:
            return future.result()
        except (HazelcastError, OSError) as error:
            raise translated(error, self.server, what) from error

    def tell(self, call: Callable[[], Future[T]], what: str, known: tuple[type[Exception], ...] = ()) -> T:
        """The answer to a call that must not be made twice. Raises Unanswered if it may have had an effect.

        `known` are the client's errors which say that.
        """
        try:
            return self._outcome(call, what)
        except Unanswered as error:
            if isinstance(error.__cause__, known):
                raise translated(error.__cause__, self.server, what) from error.__cause__
            raise

    def guarded(self, call: Callable[[], T], what: str) -> T:
        """The result of a blocking call of the client, which its heartbeat bounds."""
        self._await_connection(Deadline(self.clock, self.timeout_s))
        try:
            return call()
        except (HazelcastError, OSError) as error:
            raise translated(error, self.server, what) from error

    def close(self) -> None:
        """End the client and its thread."""
        self.library.shutdown()

    def _outcome(self, call: Callable[[], Future[T]], what: str) -> T:
        retry = Retry(self._runtime, Deadline(self.clock, self.timeout_s), pause_s=_PAUSE_S)
        while True:
            self._await_connection(retry.deadline)
            future = call()
            if not wait_for(future, retry.deadline.left()):
                reason = f"no answer came within {self.timeout_s:g} s"
                raise Unanswered(reason)
            try:
                return future.result()
            except NOT_SENT as error:
                if not retry.again():  # the connection is being lost or made: its state tells shortly
                    raise translated(error, self.server, what) from error
            except (HazelcastError, OSError) as error:
                raise Unanswered(first_line(error)) from error

    def _await_connection(self, deadline: Deadline) -> None:
        if not self._connected.wait(deadline.left()):
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
    """The configuration of the client: every wait bounded, no hidden retries, reconnecting for ever."""
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
    config.redo_operation = False  # the client must not send an append twice by itself
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


_GIVEN_UP_S = 1.0
_FOR_OTHERS = 0.5
"""The part of the time-out that may be spent on members that do not answer."""


class PatientClient(HazelcastClient):
    """A client that knows every member that answers when it has started, and waits so long for those that do not.

    It could be told to start in the background, but then it connects to the others a second later only, and until then
    no copy that they make is acknowledged.
    """

    def __init__(self, config: Any, others_s: float, server: str) -> None:
        self._others_s, self._server = others_s, server
        super().__init__(config)

    def _start(self) -> None:
        refuse_pickle(getattr(self, "_serialization_service", None), self._server)
        bound_connecting(self._connection_manager, self.cluster_service.get_members, self._others_s)
        start: Any = super()._start  # which has no hints
        start()


def bound_connecting(manager: Any, members: Callable[[], list[Any]], within_s: float) -> None:
    """Have the client's start wait for all members at once, and not for ever; it goes on trying by itself.

    A version whose parts have other names is left as it is.
    """
    if not all(hasattr(manager, part) for part in ("_get_or_connect_to_member", "_start_connect_all_members_timer")):
        return

    def connect(sync_start: bool) -> None:
        del sync_start
        wait_for(combine_futures([manager._get_or_connect_to_member(member) for member in members()]), within_s)
        manager._start_connect_all_members_timer()

    manager.connect_to_all_cluster_members = connect


def wait_for(future: Future[Any], within_s: float) -> bool:
    """Wait for a future of the client; return whether it is done in time. Its own wait has no time-out."""
    if future.done():
        return True
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    return done.wait(max(within_s, 0.0))


def start_client(config: Any, address: Address) -> HazelcastClient:
    """Start a client within the time-out. Its constructor has no time-out, so it runs on a thread."""
    client = PatientClient.__new__(PatientClient)
    problems: list[BaseException] = []
    given_up = threading.Event()

    def build() -> None:
        try:
            PatientClient.__init__(client, config, address.timeout_s * _FOR_OTHERS, address.safe_url)
            if given_up.is_set():
                client.shutdown()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits for it
            problems.append(error)

    thread = threading.Thread(target=build, name="lockstep-hazelcast-opening", daemon=True)
    thread.start()
    thread.join(address.timeout_s)
    if thread.is_alive():
        given_up.set()
        with suppress(AttributeError):  # so early that there is nothing to end yet
            client.shutdown()
        thread.join(_GIVEN_UP_S)
        reason = f"the client could not connect within {address.timeout_s:g} s"
        raise ServerUnreachable(server=address.safe_url, reason=reason)
    if problems:
        raise _start_problem(problems[0], address) from problems[0]
    return client


def _start_problem(error: BaseException, address: Address) -> BaseException:
    if isinstance(error, HazelcastError | OSError):
        return translated(error, address.safe_url, "")
    return error


class NoPickle(PythonObjectSerializer):
    """A serializer that refuses objects which the client would pickle."""

    def read(self, inp: Any) -> Any:
        """Refuse."""
        del inp
        reason = "it is a pickled object, which would run code of whoever wrote it; it is not loaded"
        raise HazelcastSerializationError(reason)

    def write(self, out: Any, obj: Any) -> None:
        """Refuse."""
        del out
        reason = f"a {type(obj).__name__} would be pickled"
        raise HazelcastSerializationError(reason)


def refuse_pickle(serialization: Any, server: str) -> None:
    """Make a client refuse pickled objects. Raises ServerUnfit if its version can't do that."""
    refusing: Any = NoPickle()
    registry: Any = getattr(serialization, "_registry", None)
    if not all(hasattr(registry, part) for part in ("_id_dict", "_python_serializer", "serializer_by_type_id")):
        reason = "the installed client loads pickled objects, and can't be told not to"
        raise ServerUnfit(server=server, reason=reason, setting="the version of hazelcast-python-client")
    registry._id_dict[refusing.get_type_id()] = registry._python_serializer = refusing


def patch_waking(client: Any) -> None:
    """Wake the client's thread for each call that is sent.

    The client wakes its thread only if it thinks that it is not awake. If a call comes while the thread goes through
    its wake-ups, the mark stays and nobody wakes it again: from then on every call waits for the thread to look by
    itself, which costs 10 ms.
    """
    waker = getattr(getattr(getattr(client, "_reactor", None), "_loop", None), "waker", None)
    if waker is None:
        return
    wake = waker.wake

    def always() -> None:
        waker.awake = False
        wake()

    waker.wake = always


def listen_to_lost_connections(client: Any, lost: Callable[[object], None]) -> None:
    """Call `lost` when a connection is gone, before the client asks another member."""
    manager: Any = getattr(client, "_connection_manager", None)
    if hasattr(manager, "add_listener"):
        manager.add_listener(None, lost)
