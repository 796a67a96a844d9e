"""Getting in: connect, greet, log in, agree on sizes, open a virtual host. All within a deadline."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from rstream import schema

from lockstep.errors import LockstepError, ServerUnfit, ServerUnreachable
from lockstep.log.network.address import Secret, Tls
from lockstep.log.network.retry import Deadline
from lockstep.log.rabbitmq import errors, frames
from lockstep.log.rabbitmq.connection import Connection

_FRAME_MAX_WANTED = 1 << 30
_HEARTBEAT_MAX_S = 60
_GREETING_MAX = 1 << 20
_HINT = "check that it is the stream port, and that the plugin rabbitmq_stream is enabled"


@dataclass(frozen=True, slots=True)
class Login:
    """Who we are, and where we want to go."""

    user: str
    password: Secret
    vhost: str
    tls: Tls | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says about itself."""

    version: str
    frame_max: int
    """The most bytes in one frame; 0: no limit."""


def connect(
    host: str, port: int, login: Login, deadline: Deadline, clock: Callable[[], float]
) -> tuple[Connection, ServerInfo]:
    """A connection that is logged in, and what the server says about itself."""
    server = f"{host}:{port}"
    sock = _dial(host, port, login.tls, server, deadline)
    try:
        greeting = _Handshake(sock, server, login.user, deadline)
        version = greeting.introduce()
        frame_max, heartbeat = greeting.log_in(login)
        advertised = greeting.open(login.vhost)
        return Connection(sock, (host, port), advertised, float(heartbeat), clock), ServerInfo(version, frame_max)
    except BaseException as error:
        sock.close()
        if isinstance(error, LockstepError) or not isinstance(error, OSError):
            raise
        reason = (
            "it did not greet in time" if isinstance(error, TimeoutError) else f"{error.strerror or error}; {_HINT}"
        )
        raise ServerUnreachable(server=server, reason=reason) from error


def _dial(host: str, port: int, tls: Tls | None, server: str, deadline: Deadline) -> socket.socket:
    try:
        sock = socket.create_connection((host, port), timeout=deadline.left() or 0.001)
    except TimeoutError as error:
        raise ServerUnreachable(server=server, reason="it did not answer in time") from error
    except OSError as error:
        raise ServerUnreachable(server=server, reason=f"{error.strerror or error}; {_HINT}") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        return sock
    try:
        return _context(tls).wrap_socket(sock, server_hostname=host)
    except OSError as error:
        sock.close()
        reason = getattr(error, "verify_message", "") or error.strerror or str(error)
        raise ServerUnreachable(server=server, reason=f"no encrypted connection can be made: {reason}") from error


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context


class _Handshake:
    """Requests and answers in turn, before there is anybody else on the connection."""

    def __init__(self, sock: socket.socket, server: str, user: str, deadline: Deadline) -> None:
        self._sock, self._server, self._user, self._deadline = sock, server, user, deadline
        self._ids = count(1)

    def introduce(self) -> str:
        """The version of the server."""
        ours = [schema.Property("product", "lockstep"), schema.Property("platform", "Python")]
        answer = self._ask(lambda number: schema.PeerProperties(number, ours))
        return next((item.value for item in answer.properties if item.key == "version"), "")

    def log_in(self, login: Login) -> tuple[int, int]:
        """Say who we are; the frame size and the seconds between signs of life that hold from now on."""
        ways = self._ask(schema.SaslHandshake).mechanisms
        if "PLAIN" not in ways:
            reason = f"it lets nobody in by password, only by {', '.join(ways)}"
            raise ServerUnfit(server=self._server, reason=reason, setting="auth_mechanisms in rabbitmq.conf")
        secret = f"\0{login.user}\0{login.password.reveal()}".encode()
        answer = self._ask(lambda number: schema.SaslAuthenticate(number, "PLAIN", secret))
        errors.check(answer.response_code, server=self._server, user=self._user, action="log in")
        tune = self._read()
        frame_max = min(tune.frame_max or _FRAME_MAX_WANTED, _FRAME_MAX_WANTED)
        heartbeat = max(1, min(tune.heartbeat or _HEARTBEAT_MAX_S, _HEARTBEAT_MAX_S, round(login.timeout_s)))
        self._sock.sendall(frames.encode(schema.Tune(frame_max, heartbeat)))
        return frame_max, heartbeat

    def open(self, vhost: str) -> tuple[str, int]:
        """Enter a virtual host; the address that the server tells its clients."""
        answer = self._ask(lambda number: schema.Open(number, vhost))
        errors.check(answer.response_code, server=self._server, user=self._user, action="open", stream=vhost)
        told = {item.key: item.value for item in answer.properties}
        return told.get("advertised_host", ""), int(told.get("advertised_port", 0))

    def _ask(self, build: frames.Build) -> Any:
        self._sock.settimeout(self._deadline.left() or 0.001)
        self._sock.sendall(frames.encode(build(next(self._ids))))
        return self._read()

    def _read(self) -> Any:
        length = int.from_bytes(self._exactly(4), "big")
        if length > _GREETING_MAX:
            raise self._unfit()
        payload = self._exactly(length)
        try:
            frame = frames.decode(payload)
        except (ValueError, KeyError) as error:
            raise self._unfit() from error
        if isinstance(frame, schema.Close):
            raise ServerUnfit(server=self._server, reason=f"it says {frame.reason!r}", setting="the server")
        return frame

    def _exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            self._sock.settimeout(self._deadline.left() or 0.001)
            piece = self._sock.recv(size - len(parts))
            if not piece:
                raise ConnectionResetError(0, "it closed the connection")
            parts += piece
        return parts

    def _unfit(self) -> ServerUnfit:
        setting = "the port in the URL: the stream port of RabbitMQ is 5552 unless configured"
        return ServerUnfit(server=self._server, reason="it does not speak the stream protocol", setting=setting)
