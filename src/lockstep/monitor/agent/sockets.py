"""The local sockets for results of other programs: TCP and UDP, port 3030."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from lockstep.errors import UsageError
from lockstep.monitor.agent.machine import Timer
from lockstep.monitor.core.documents import parse
from lockstep.runtime import logger

PING, PONG, OK, INVALID = b"ping", b"pong", b"ok", b"invalid"
WAIT_S = 0.5
MESSAGE_BYTES = 8 << 20
CONNECTIONS = 1_000
Take = Callable[[Any], None]
"""Takes a parsed document; UsageError if it holds no result."""
_SHOWN = 200


class Connections:
    """How many connections are open, and how many may be."""

    def __init__(self, limit: int = CONNECTIONS) -> None:
        self._limit = limit
        self._open: set[asyncio.BaseTransport] = set()

    def add(self, transport: asyncio.BaseTransport) -> bool:
        """Note one more; False if there are too many."""
        if len(self._open) >= self._limit:
            return False
        self._open.add(transport)
        return True

    def remove(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that one has ended."""
        if transport is not None:
            self._open.discard(transport)

    def close(self) -> None:
        """End all of them."""
        for transport in list(self._open):
            transport.close()


class TcpSocket(asyncio.Protocol):
    """One connection: what comes is looked at with each piece, until it is a whole document or nothing more comes."""

    def __init__(
        self,
        take: Take,
        call_later: Callable[[float, Callable[[], None]], Timer],
        connections: Connections,
    ) -> None:
        self._take, self._call_later, self._connections = take, call_later, connections
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._watchdog: Timer | None = None
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if not self._connections.add(transport):
            self._answered = True
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._stop_watchdog()
        self._connections.remove(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._stop_watchdog()
        self._buffer += data
        answer = self._answer()
        if answer is None and len(self._buffer) > MESSAGE_BYTES:
            answer = INVALID
        if answer is None:
            self._watchdog = self._call_later(WAIT_S, self._give_up)
        else:
            self._respond(answer)

    def _answer(self) -> bytes | None:
        """The answer to what has come so far; None if more may come."""
        text = bytes(self._buffer).strip()
        if text == PING:
            return PONG
        if text[-1:] not in (b"}", b"]"):
            return None  # no document ends so: looking at each piece of a long one would take for ever
        try:
            document = parse(text)
        except ValueError:
            return None
        return OK if taken(self._take, document) else INVALID

    def _give_up(self) -> None:
        logger.warning(
            "Data from a socket was dropped: it is no JSON: %r", bytes(self._buffer[:_SHOWN]),
            extra={"action": "socket_invalid"},
        )  # fmt: skip
        self._respond(INVALID)

    def _respond(self, answer: bytes) -> None:
        self._answered = True
        self._buffer.clear()
        if self._transport is not None:
            self._transport.write(answer)
            self._transport.close()

    def _stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None


class UdpSocket(asyncio.DatagramProtocol):
    """Datagrams: one is one document. Nobody is answered."""

    def __init__(self, take: Take) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: Any) -> None:  # noqa: ARG002
        text = data.strip()
        if text == PING:
            return
        try:
            document = parse(text)
        except ValueError as error:
            logger.error("A datagram was dropped: %s", error, extra={"action": "socket_invalid"})
            return
        taken(self._take, document)


def taken(take: Take, document: Any) -> bool:
    """Hand a document on; False, with a line in the log, if it holds no result."""
    try:
        take(document)
    except UsageError as error:
        logger.error("failed to process check result from socket: %s", error, extra={"action": "socket_invalid"})
        return False
    return True
