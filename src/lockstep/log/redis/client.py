"""Connections to Redis: to the primary, kept for the next caller, answers within the time, nothing sent twice."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from typing import Any, Protocol, cast

import redis
from redis.exceptions import MovedError, NoPermissionError, NoScriptError

from lockstep.errors import Closed, ServerRefused, ServerUnreachable
from lockstep.log.network.address import Address
from lockstep.log.network.retry import Deadline, Retry
from lockstep.log.redis.errors import NotNow, Unanswered, code_of, is_transient, translate
from lockstep.log.redis.scripts import SCRIPTS, Command
from lockstep.runtime import Runtime

CONNECTIONS_MAX = 64
_IDLE_MAX = 8
_FIRST_PAUSE_S = 0.01
_LAST_PAUSE_S = 0.25


class RedisClient:
    """The connections of a bus to a server, or to a primary with replicas. Safe to share between threads."""

    def __init__(self, connector: Connector, runtime: Runtime) -> None:
        self.url, self.name = connector.address.safe_url, connector.address.servers
        self.timeout_s, self._patience_s = connector.address.timeout_s, connector.address.patience_s
        self.losses = 0
        """How often a connection was lost or the primary changed. What was read before may be gone."""
        self.connector = connector
        self._runtime = runtime
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    def ask(self, *commands: Command, what: str = "", patient: bool = True) -> list[Any]:
        """The answers to commands that may be run twice. They are sent again until `patience_s` has passed.

        An impatient caller is told at once that nobody answers.
        """
        return self._run(commands, what or self.url, again=True, patient=patient)

    def change(self, *commands: Command, what: str) -> list[Any]:
        """The answers to commands that must not be run twice. Unanswered if they may have been run.

        Only a refusal of the first is raised: if that was done, what became of the others must not hide it.
        """
        return self._run(commands, what, again=False, patient=True)

    def close(self) -> None:
        """Close all connections; those in use are closed when they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()

    def _run(self, commands: Sequence[Command], what: str, *, again: bool, patient: bool) -> list[Any]:
        deadline = Deadline(self._runtime.monotonic, self._patience_s)
        retry = Retry(self._runtime, deadline, pause_s=_FIRST_PAUSE_S, pause_most_s=_LAST_PAUSE_S)
        while True:
            try:
                return self._run_once(commands, what, again=again)
            except NotNow as refused:
                error = refused.error
            except Unanswered as lost:
                if not again:
                    raise
                error = ServerUnreachable(server=self.name, reason=str(lost))
            if not patient or not retry.again():
                raise error

    def _run_once(self, commands: Sequence[Command], what: str, *, again: bool) -> list[Any]:
        if not self._room.acquire(timeout=self.timeout_s):
            reason = f"all {CONNECTIONS_MAX} connections of this process are in use"
            raise NotNow(ServerUnreachable(server=self.name, reason=reason))
        try:
            connection = self._take(what)
            replies = self._exchange(connection, commands, what)
            self._keep(connection)
        finally:
            self._room.release()
        judged = replies if again else replies[:1]
        refusal = next((reply for reply in judged if isinstance(reply, redis.RedisError)), None)
        if refusal is not None:
            raise self._refusal(refusal, what) from refusal
        return replies

    def _exchange(self, connection: Connection, commands: Sequence[Command], what: str) -> list[Any]:
        try:
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            replies = [_reply(connection) for _ in commands]
            if any(isinstance(reply, NoScriptError) for reply in replies):
                refusal = _load_scripts(connection)
                replies = [refusal] if refusal is not None else self._exchange_again(connection, commands)
        except (redis.BusyLoadingError, redis.AuthenticationError) as error:
            self._lose(connection)
            raise self._refusal(error, what) from error
        except (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse) as error:
            self._lose(connection)
            raise Unanswered(str(error).rstrip(".")) from error
        except BaseException:
            connection.disconnect()  # its answers would be taken for those of the next caller
            raise
        return replies

    def _exchange_again(self, connection: Connection, commands: Sequence[Command]) -> list[Any]:
        """Whatever came with a script that the server did not know may be run twice: WAIT and questions."""
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        return [_reply(connection) for _ in commands]

    def _refusal(self, error: redis.RedisError, what: str) -> Exception:
        refusal = translate(error, self.name, what)
        if isinstance(error, MovedError):
            self.connector.prefer((error.host, error.port))
        if isinstance(error, MovedError) or code_of(error) == "READONLY":
            self._drop_idle()
            return NotNow(refusal)
        return NotNow(refusal) if is_transient(error) else refusal

    def _take(self, what: str) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise Closed(what=f"Bus {self.url}")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self.connector.connect(what)
            if _is_quiet(connection):
                return connection
            self._lose(connection)

    def _keep(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(connection)
                return
        connection.disconnect()

    def _lose(self, connection: Connection) -> None:
        connection.disconnect()
        with self._lock:
            self.losses += 1

    def _drop_idle(self) -> None:
        with self._lock:
            self.losses += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()


def _reply(connection: Connection) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


def _load_scripts(connection: Connection) -> redis.ResponseError | None:
    """Load all scripts; return the server's error, or None."""
    commands: list[Command] = [("SCRIPT", "LOAD", script.text) for script in SCRIPTS]
    connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    replies = [_reply(connection) for _ in commands]
    return next((reply for reply in replies if isinstance(reply, redis.ResponseError)), None)


def _is_quiet(connection: Connection) -> bool:
    """Whether an idle connection is still good: a server that went away has closed it."""
    try:
        return not connection.can_read(0)
    except redis.RedisError:
        return False


_READ_BYTES = 1 << 18
_DB_KINDS = ("DB index is out of range", "SELECT is not allowed in cluster mode")


class Connection(Protocol):
    """The part of redis-py's connection that is used here."""

    def connect(self) -> None:
        """Connect, log in, choose the database."""

    def disconnect(self) -> None:
        """Close the socket."""

    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]:
        """Encode commands."""

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None:
        """Send."""

    def read_response(self, *, timeout: float = ...) -> Any:
        """The next answer."""

    def can_read(self, timeout: float = 0) -> bool:
        """Whether an answer arrives within a time."""


class Connector:
    """Connects to the server that takes writes."""

    def __init__(self, address: Address, database: int) -> None:
        self.address = address
        self._database = database
        self._lock = threading.Lock()
        self._hosts = list(address.hosts)

    def connect(self, what: str) -> Connection:
        """A connection to the first server that takes writes. NotNow if there is none now, ServerRefused for ever."""
        error: NotNow | None = None
        for host in self._in_order():
            try:
                connection = self._connect(host, what)
            except NotNow as refused:
                error = refused
                continue
            self.prefer(host)
            return connection
        assert error is not None, "an address names at least one host"
        raise error

    def prefer(self, host: tuple[str, int]) -> None:
        """Try this server first from now on."""
        with self._lock:
            if self._hosts[0] != host:
                self._hosts = [host, *(other for other in self._hosts if other != host)]

    def _in_order(self) -> list[tuple[str, int]]:
        with self._lock:
            return list(self._hosts)

    def _connect(self, host: tuple[str, int], what: str) -> Connection:
        name = f"{host[0]}:{host[1]}"
        connection = self._connection(host)
        try:
            connection.connect()
            self._greet(connection, name, what)
        except redis.RedisError as error:
            connection.disconnect()
            if isinstance(error, redis.AuthenticationError) or not isinstance(
                error, (redis.ConnectionError, redis.TimeoutError)
            ):
                raise self._refused(error, name, what) from error
            raise NotNow(_unreachable(name, error)) from error
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _greet(self, connection: Connection, name: str, what: str) -> None:
        """Find out now whether it answers, so that a server at its limit of clients is not asked for anything."""
        connection.send_packed_command(connection.pack_commands([("PING",)]), check_health=False)
        connection.read_response()
        if len(self._hosts) > 1 and not _is_primary(connection):
            error = redis.ReadOnlyError("it is a replica", status_code="READONLY")
            raise NotNow(translate(error, name, what))

    def _refused(self, error: redis.RedisError, name: str, what: str) -> Exception:
        if is_transient(error):
            return NotNow(translate(error, name, what))
        if any(kind in str(error) for kind in _DB_KINDS):
            return ServerRefused(server=name, reason=f"it has no database {self._database}")
        return translate(error, name, what)

    def _connection(self, host: tuple[str, int]) -> Connection:
        address = self.address
        settings: dict[str, Any] = {
            "host": host[0],
            "port": host[1],
            "db": self._database,
            "username": address.user,
            "password": address.password.reveal() if address.password else None,
            "socket_timeout": address.timeout_s,
            "socket_connect_timeout": address.timeout_s,
            "socket_keepalive": True,
            "socket_read_size": _READ_BYTES,
            "protocol": 2,
            "driver_info": None,
        }
        if address.tls is None:
            return cast("Connection", redis.Connection(**settings))  # type: ignore[no-untyped-call]
        tls = address.tls
        return cast(
            "Connection",
            redis.SSLConnection(
                **settings,
                ssl_ca_certs=tls.ca,
                ssl_certfile=tls.cert,
                ssl_keyfile=tls.key,
                ssl_min_version=ssl.TLSVersion.TLSv1_2,
            ),
        )


def _unreachable(name: str, error: redis.RedisError) -> ServerUnreachable:
    text = str(error).rstrip(".") or type(error).__name__
    return ServerUnreachable(server=name, reason=text)


def _is_primary(connection: Connection) -> bool:
    connection.send_packed_command(connection.pack_commands([("ROLE",)]), check_health=False)
    try:
        return bool(connection.read_response()[0] == b"master")
    except NoPermissionError:
        return True  # a replica will say so when it is written to
