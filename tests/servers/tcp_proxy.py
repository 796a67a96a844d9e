"""A TCP proxy whose connections can be cut, stalled (both ways or one) and refused."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Iterator

from lockstep.dev.processes import free_ports
from lockstep.runtime import ThreadRuntime

HOST = "127.0.0.1"
_PIECE = 65_536
_LOOK_S = 0.05
_JOIN_S = 10.0
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends a reset, as a machine that went away would


class Connection:
    """A client and its server, with a thread for each direction."""

    def __init__(
        self, client: socket.socket, server: socket.socket, asking: threading.Event, answering: threading.Event
    ) -> None:
        """`asking` and `answering` are set while bytes are forwarded to the server, and back."""
        self._ends, self._cut = (client, server), threading.Event()
        for end in self._ends:
            end.settimeout(_LOOK_S)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._threads = [
            threading.Thread(target=self._forward, args=ends, daemon=True)
            for ends in ((client, server, asking), (server, client, answering))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_open(self) -> bool:
        """Whether neither side has closed it, and nobody has cut it."""
        return not self._cut.is_set()

    def cut(self) -> None:
        """Reset both sides, whatever is under way."""
        self._cut.set()
        for thread in self._threads:
            thread.join(_JOIN_S)
            assert not thread.is_alive(), "a connection could not be cut"
        for end in self._ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.close()

    def close(self) -> None:
        """Let go of a connection that has ended."""
        for thread in self._threads:
            thread.join(_JOIN_S)
        for end in self._ends:
            end.close()

    def _forward(self, source: socket.socket, target: socket.socket, is_open: threading.Event) -> None:
        with contextlib.suppress(OSError):  # reset by one side: the other is told by closing
            while piece := self._receive(source, is_open):
                self._send(target, piece, is_open)
        self._cut.set()

    def _receive(self, source: socket.socket, is_open: threading.Event) -> bytes:
        """The next bytes; none if the connection has ended."""
        while not self._cut.is_set():
            if is_open.wait(_LOOK_S):
                with contextlib.suppress(TimeoutError):  # nothing yet; look whether all is as it was
                    return source.recv(_PIECE)
        return b""

    def _send(self, target: socket.socket, piece: bytes, is_open: threading.Event) -> None:
        while piece and not self._cut.is_set():
            if is_open.wait(_LOOK_S):
                with contextlib.suppress(TimeoutError):  # the reader is slow; look whether all is as it was
                    piece = piece[target.send(piece) :]


class TcpProxy:
    """Forwards from `port` to `target`, until told otherwise. Set `target` before clients connect."""

    def __init__(self, target: int = 0) -> None:
        self.target, self.accepted = target, 0
        self._asking, self._answering, self._closing = (threading.Event() for _ in range(3))
        self.resume()
        self._accepting = True
        self._lock = threading.Lock()
        self._connections: list[Connection] = []
        (self.port,) = free_ports(1, ThreadRuntime.random)
        self._listener = socket.create_server((HOST, self.port))
        self._thread = threading.Thread(target=self._accept, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where clients connect, as HOST:PORT."""
        return f"{HOST}:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return sum(connection.is_open for connection in self._connections)

    def cut(self) -> None:
        """Reset every connection; new ones are let through."""
        with self._lock:
            for connection in self._connections:
                connection.cut()
            self._connections.clear()

    def stall(self) -> None:
        """Forward nothing, on old connections and on new ones; they stay open."""
        self._asking.clear()
        self._answering.clear()

    def stall_answers(self) -> None:
        """Forward what clients send, and nothing that the server answers."""
        self._answering.clear()

    def refuse(self) -> None:
        """Reset every connection, and every new one at once."""
        self._accepting = False
        self.cut()

    def resume(self) -> None:
        """Forward again, what was held back first."""
        self._accepting = True
        self._asking.set()
        self._answering.set()

    def close(self) -> None:
        """Cut everything and listen no more."""
        self._closing.set()
        self._thread.join(_JOIN_S)
        self.refuse()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            ready, _, _ = select.select([self._listener], [], [], _LOOK_S)
            self._let_go()
            if ready:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        with self._lock:  # not while others are being cut, or one would slip through a refusal
            try:
                if not self._accepting:
                    raise ConnectionRefusedError
                server = socket.create_connection((HOST, self.target), timeout=_JOIN_S)
            except OSError:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
                return
            self.accepted += 1
            self._connections.append(Connection(client, server, self._asking, self._answering))

    def _let_go(self) -> None:
        with self._lock:
            ended = [connection for connection in self._connections if not connection.is_open]
            self._connections = [connection for connection in self._connections if connection.is_open]
        for connection in ended:
            connection.close()


@contextlib.contextmanager
def proxied(target: int = 0) -> Iterator[TcpProxy]:
    """A proxy that is closed in the end."""
    proxy = TcpProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
