"""Sockets as sources and targets of connectors: HOST:PORT is connected to, :PORT waits for others.

What goes over a socket cannot be read again: after a takeover, input may be lost, and output may be
duplicated.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, cast

from lockstep.connectors.errors import ConnectorDown
from lockstep.connectors.files import piece_of
from lockstep.connectors.forms import OnBad, ReadForm, WriteForm
from lockstep.connectors.port import REST_S, Note, Pace, Piece
from lockstep.connectors.properties import Properties
from lockstep.events.subscriber import Block

_CONNECT_S = _SEND_S = 10.0
_READ = 1 << 16


def address_of(properties: Properties) -> tuple[str, int]:
    """Host and port; an empty host waits for others."""
    text = properties.text("fsname") or f"{properties.text('host')}:{properties.text('port')}"
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not int(port) < 65_536:
        raise properties.refused(
            reason=f"{text!r} is not HOST:PORT or :PORT", remedy="Give it fsname, or host and port."
        )
    return host, int(port)


def is_address(text: str) -> bool:
    """Whether the fsname of a connector names a socket."""
    _, colon, port = text.rpartition(":")
    return bool(colon) and port.isascii() and port.isdigit() and "/" not in text


class Links:
    """Connections one after the other: made, or taken."""

    def __init__(self, address: tuple[str, int], connector: str, pace: Pace) -> None:
        self._address, self._connector, self._pace = address, connector, pace
        self._server: socket.socket | None = None
        self.link: socket.socket | None = None

    @property
    def waits(self) -> bool:
        """Whether others connect here."""
        return not self._address[0]

    def open(self) -> socket.socket:
        """The next connection."""
        self.drop()
        try:
            self.link = self._accepted() if self.waits else socket.create_connection(self._address, _CONNECT_S)
        except OSError as error:
            raise self.down(error) from error
        self.link.settimeout(_SEND_S)
        return self.link

    def down(self, error: OSError) -> ConnectorDown:
        """The other side is not there."""
        host, port = self._address
        reason = error.strerror or str(error) or type(error).__name__
        return ConnectorDown(connector=self._connector, server=f"{host}:{port}", reason=reason)

    def drop(self) -> None:
        """Close the connection, and wait for another."""
        if self.link is not None:
            with suppress(OSError):
                self.link.shutdown(socket.SHUT_WR)
            self.link.close()
            self.link = None

    def close(self) -> None:
        """Close everything."""
        self.drop()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accepted(self) -> socket.socket:
        if self._server is None:
            self._server = socket.create_server(("127.0.0.1", self._address[1]))
        while not select.select([self._server], [], [], REST_S)[0]:
            self._pace.check()
        return self._server.accept()[0]


class _Incoming:
    """The bytes of a connection as they arrive."""

    def __init__(self, links: Links, pace: Pace) -> None:
        self._links, self._pace = links, pace
        self._buffer = b""

    def read(self, size: int = -1) -> bytes:
        """Return the bytes available, at least one; empty at the end."""
        if not self._buffer:
            self._buffer = self._more()
        most = len(self._buffer) if size < 0 else size
        given, self._buffer = self._buffer[:most], self._buffer[most:]
        return given

    def readline(self) -> bytes:
        """Return a line, or the rest of the input if it has no newline."""
        while b"\n" not in self._buffer and (more := self._more()):
            self._buffer += more
        line, end, self._buffer = self._buffer.partition(b"\n")
        return line + end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _more(self) -> bytes:
        link = self._links.link
        assert link is not None
        while not select.select([link], [], [], REST_S)[0]:
            self._pace.check()
        try:
            return link.recv(_READ)
        except OSError as error:
            raise self._links.down(error) from error


class SocketSource:
    """Events from a connection; where others connect, from one after the other."""

    is_numbered = False

    def __init__(self, links: Links, form: ReadForm, pace: Pace, on_bad: OnBad) -> None:
        self._links, self._form, self._pace, self._on_bad = links, form, pace, on_bad

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Yield blocks as they arrive, from each connection in turn; what was read cannot be read again."""
        del after, note  # what was read can't be read again
        number = 1
        while True:
            self._links.open()
            file = cast("BinaryIO", _Incoming(self._links, self._pace))
            for batch in self._form.blocks(file, self._on_bad, 1):
                piece = piece_of(batch, number, self._form)
                number += len(piece.numbers)
                yield piece
                yield None
            if not self._links.waits:
                return

    def start(self) -> Note | None:
        """Return None: a connection has no position."""
        return None

    def close(self) -> None:
        """Close the connection."""
        self._links.close()


class SocketTarget:
    """Events to a connection. What was handed to the system counts as sent."""

    def __init__(self, links: Links, form: WriteForm) -> None:
        self._links, self._form = links, form

    def open(self, note: Note) -> int | None:
        """Connect and send the header of the format, if it has one; returns None, as a socket keeps no block number."""
        del note
        self._links.open()
        self._write(self._form.first())
        return None

    def send(self, blocks: Sequence[Block]) -> None:
        """Hand the blocks to the operating system; raises if the connection is lost."""
        self._write(b"".join(self._form.part(block) for block in blocks))

    def mark(self) -> Mapping[str, Any]:
        """Return nothing: the number of the last block is enough."""
        return {}

    def idle(self) -> None:
        """Raise if the other side has closed the connection, so that this is noticed before the next block."""
        link = self._links.link
        if link is not None and select.select([link], [], [], 0)[0]:
            try:
                gone = not link.recv(_READ)
            except OSError as error:
                raise self._links.down(error) from error
            if gone:
                raise self._links.down(ConnectionResetError("the other side has closed"))

    def close(self) -> None:
        """Close the connection."""
        self._links.close()

    def _write(self, data: bytes) -> None:
        link = self._links.link
        assert link is not None
        try:
            link.sendall(data)
        except OSError as error:
            raise self._links.down(error) from error
