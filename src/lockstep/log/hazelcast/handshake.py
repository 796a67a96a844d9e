"""A first look at a member over a plain socket: is it there, may we in, and which version is it?

The client itself tells nobody why it could not connect: it goes on trying. So opening a bus asks once by hand.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from hazelcast import __version__ as client_version
from hazelcast.core import CLIENT_TYPE, SERIALIZATION_VERSION
from hazelcast.protocol import client_message
from hazelcast.protocol.codec import client_authentication_codec

from lockstep.errors import LockstepError, ServerRefused, ServerUnfit, ServerUnreachable
from lockstep.log.network.address import Address, Tls

VERSION_LEAST = (4, 0)
_PROTOCOL = b"CP2"
_HEADER = struct.Struct("<iH")
_ANSWER_BYTES_MAX = 1 << 20
_ACCEPTED, _WRONG_CREDENTIALS, _OTHER_SERIALIZATION = 0, 1, 2
_codec: Any = client_authentication_codec
_frames: Any = client_message
_SETTING = "the server to Hazelcast 4.0 or later"


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """What a member tells about itself when a client logs in."""

    status: int
    version: str
    host: tuple[str, int]


def find_member(address: Address, cluster: str, identity: bytes, clock: Callable[[], float]) -> MemberInfo:
    """The first member that accepts the login. If none does, raise the most telling error."""
    end, problems = clock() + address.timeout_s, list[LockstepError]()
    for left, host in zip(range(len(address.hosts), 0, -1), address.hosts, strict=True):
        try:
            return _ask_member(host, address, cluster, identity, max((end - clock()) / left, 0.05))
        except (ServerRefused, ServerUnfit, ServerUnreachable) as error:
            problems.append(error)
    raise min(problems, key=lambda error: isinstance(error, ServerUnreachable))


def _ask_member(host: tuple[str, int], address: Address, cluster: str, identity: bytes, within_s: float) -> MemberInfo:
    server = f"{host[0]}:{host[1]}"
    try:
        with _connected(host, address.tls, within_s) as connection:
            connection.sendall(_PROTOCOL + _question(address, cluster, identity))
            member = _understood(_answer(connection), server, host)
    except ssl.SSLError as error:
        raise ServerRefused(server=server, reason=f"no TLS connection ({error.reason or error})") from error
    except TimeoutError as error:
        raise ServerUnreachable(server=server, reason=f"nothing came within {within_s:.2g} s") from error
    except OSError as error:
        raise ServerUnreachable(server=server, reason=error.strerror or str(error)) from error
    _check_accepted(member, server, cluster)
    return member


def _connected(host: tuple[str, int], tls: Tls | None, within_s: float) -> socket.socket:
    plain = socket.create_connection(host, timeout=within_s)
    if tls is None:
        return plain
    try:
        return tls_context(tls).wrap_socket(plain, server_hostname=host[0])
    except BaseException:
        plain.close()
        raise


def tls_context(tls: Tls) -> ssl.SSLContext:
    """The TLS context for an encrypted connection."""
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context


def _question(address: Address, cluster: str, identity: bytes) -> bytes:
    secret = address.password.reveal() if address.password else None
    request = _codec.encode_request(
        cluster, address.user, secret, UUID(bytes=identity), CLIENT_TYPE, SERIALIZATION_VERSION, client_version,
        "lockstep", [],
    )  # fmt: skip
    request.set_correlation_id(1)
    return bytes(request.buf)


def _answer(connection: socket.socket) -> Any:
    """The frames of one message; None if it is not a message of Hazelcast."""
    message = None
    while True:
        size, flags = _HEADER.unpack(_exactly(connection, _HEADER.size))
        if not _HEADER.size <= size <= _ANSWER_BYTES_MAX:
            return None
        frame = _frames.Frame(_exactly(connection, size - _HEADER.size), flags)
        if message is None:
            message = _frames.InboundMessage(frame)
        else:
            message.add_frame(frame)
        if frame.is_final_frame():
            return message


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionResetError(None, "it closed the connection")
        parts += part
    return parts


def _understood(message: Any, server: str, host: tuple[str, int]) -> MemberInfo:
    problem = "it does not answer as Hazelcast 4.0 and later do"
    if message is None:
        raise ServerUnfit(server=server, reason=problem, setting=_SETTING)
    try:
        answer = _codec.decode_response(message)
        return MemberInfo(answer["status"], answer["server_hazelcast_version"], host)
    except (struct.error, ValueError, AttributeError, IndexError) as error:
        raise ServerUnfit(server=server, reason=problem, setting=_SETTING) from error


def _check_accepted(member: MemberInfo, server: str, cluster: str) -> None:
    if member.status == _WRONG_CREDENTIALS:
        reason = f"its cluster is not called {cluster!r}, or user and password are wrong"
        raise ServerRefused(server=server, reason=reason)
    if member.status == _OTHER_SERIALIZATION:
        raise ServerUnfit(server=server, reason="it serializes in another way than the client", setting=_SETTING)
    if member.status != _ACCEPTED:
        raise ServerRefused(server=server, reason="it does not take clients of this kind")
    check_version(member.version, server)


def check_version(version: str, server: str) -> None:
    """Raise ServerUnfit for a server that is too old."""
    digits = version.split("-")[0].split(".")[:2]
    known = tuple(int(part) for part in digits if part.isdigit())
    if known < VERSION_LEAST:
        raise ServerUnfit(server=server, reason=f"it is Hazelcast {version}", setting=_SETTING)
