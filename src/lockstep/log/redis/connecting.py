"""Making connections: to the primary, if several servers are named."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from typing import Any, Protocol, cast

import redis
from redis.exceptions import NoPermissionError

from lockstep.errors import ServerRefused, ServerUnreachable
from lockstep.log.network.address import Address
from lockstep.log.redis.errors import NotNow, is_passing, translate
from lockstep.log.redis.scripts import Command

_READ_BYTES = 1 << 18
_DB_KINDS = ("DB index is out of range", "SELECT is not allowed in cluster mode")


class Line(Protocol):
    """As much as is used of a connection of redis-py."""

    def connect(self) -> None:
        """Connect, log in, choose the database."""

    def disconnect(self) -> None:
        """Close the socket."""

    def pack_commands(self, commands: Sequence[Command]) -> list[bytes]:
        """As they go over the wire."""

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None:
        """Send."""

    def read_response(self, *, timeout: float = ...) -> Any:
        """The next answer."""

    def can_read(self, timeout: float = 0) -> bool:
        """Whether there is an answer, within a time."""


class Connector:
    """Where the server is, and how to get in."""

    def __init__(self, address: Address, database: int) -> None:
        self.address = address
        self._database = database
        self._lock = threading.Lock()
        self._hosts = list(address.hosts)

    def connect(self, what: str) -> Line:
        """A connection to the first server that takes writes. NotNow if there is none now, ServerRefused for ever."""
        error: NotNow | None = None
        for host in self._in_order():
            try:
                line = self._connect(host, what)
            except NotNow as refused:
                error = refused
                continue
            self.prefer(host)
            return line
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

    def _connect(self, host: tuple[str, int], what: str) -> Line:
        name = f"{host[0]}:{host[1]}"
        line = self._line(host)
        try:
            line.connect()
            self._greet(line, name, what)
        except redis.RedisError as error:
            line.disconnect()
            if isinstance(error, redis.AuthenticationError) or not isinstance(
                error, (redis.ConnectionError, redis.TimeoutError)
            ):
                raise self._refused(error, name, what) from error
            raise NotNow(_unreachable(name, error)) from error
        except BaseException:
            line.disconnect()
            raise
        return line

    def _greet(self, line: Line, name: str, what: str) -> None:
        """Find out now whether it answers, so that a server at its limit of clients is not asked for anything."""
        line.send_packed_command(line.pack_commands([("PING",)]), check_health=False)
        line.read_response()
        if len(self._hosts) > 1 and not _is_primary(line):
            error = redis.ReadOnlyError("it is a replica", status_code="READONLY")
            raise NotNow(translate(error, name, what))

    def _refused(self, error: redis.RedisError, name: str, what: str) -> Exception:
        if is_passing(error):
            return NotNow(translate(error, name, what))
        if any(kind in str(error) for kind in _DB_KINDS):
            return ServerRefused(server=name, reason=f"it has no database {self._database}")
        return translate(error, name, what)

    def _line(self, host: tuple[str, int]) -> Line:
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
            return cast("Line", redis.Connection(**settings))  # type: ignore[no-untyped-call]
        tls = address.tls
        return cast(
            "Line",
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


def _is_primary(line: Line) -> bool:
    line.send_packed_command(line.pack_commands([("ROLE",)]), check_health=False)
    try:
        return bool(line.read_response()[0] == b"master")
    except NoPermissionError:
        return True  # a replica will say so when it is written to
