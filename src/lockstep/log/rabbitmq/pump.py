"""The thread that reads all connections of a bus."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable

from lockstep.errors import TimedOut
from lockstep.log.rabbitmq.connection import Connection

_TICK_S = 0.5
_STOP_S = 10.0


class Pump:
    """Reads connections, gives signs of life, and calls `tick` now and then."""

    def __init__(self, name: str, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)
        self._new: list[Connection] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq-{name}", daemon=True)
        self._thread.start()

    def add(self, connection: Connection) -> None:
        """Read this one too, from now on; it is closed when it is lost."""
        self._new.append(connection)
        self._ring()

    def close(self) -> None:
        """Close all connections, and return when nothing runs any more."""
        self._stopping = True
        self._ring()
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            raise TimedOut(what=f"Stopping {self._thread.name}", seconds=_STOP_S)
        self._bell.close()
        self._ear.close()

    def _ring(self) -> None:
        try:
            self._bell.send(b"\0")
        except BlockingIOError:
            return  # it has been rung often enough

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            reading: list[Connection] = []
            try:
                while not self._stopping:
                    self._look(selector, reading)
            finally:
                for connection in [*reading, *self._new]:
                    connection.lose("the bus is closed")
                    connection.sock.close()

    def _look(self, selector: selectors.BaseSelector, reading: list[Connection]) -> None:
        events = selector.select(_TICK_S)
        for key, _ in events:
            if key.data is None:
                self._ear.recv(1 << 16)
            else:
                key.data.on_readable()
        while self._new:
            connection = self._new.pop()
            reading.append(connection)
            selector.register(connection.sock, selectors.EVENT_READ, connection)
        for connection in reading:
            connection.on_tick()
        for connection in [one for one in reading if not one.is_alive]:
            reading.remove(connection)
            selector.unregister(connection.sock)
            connection.sock.close()
        self._tick()
