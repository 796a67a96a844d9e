"""The thread that reads all connections of a bus."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable

from lockstep.errors import TimedOut
from lockstep.log.rabbitmq.connection import Connection
from lockstep.runtime import logger

_TICK_S = 0.5
_STOP_S = 10.0
_CLOSED = "the bus is closed"


class Pump:
    """Reads connections, gives signs of life, and calls `tick` now and then.

    A connection that can't be handled is lost, and the others go on. If the thread itself fails, all connections are
    lost, whoever used them is told, and it goes on with those that are made from then on.
    """

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
        reading: list[Connection] = []
        while not self._stopping:
            try:
                self._read(reading)
            except Exception as error:  # noqa: BLE001 - every call on the bus relies on this thread
                _report("The thread that reads from RabbitMQ failed and is started again", error)
                _lose(reading, f"reading failed: {error!r}")
                threading.Event().wait(_TICK_S)
        _lose(reading, _CLOSED)
        _lose(self._new, _CLOSED)

    def _read(self, reading: list[Connection]) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            while not self._stopping:
                self._look(selector, reading)

    def _look(self, selector: selectors.BaseSelector, reading: list[Connection]) -> None:
        for key, _ in selector.select(_TICK_S):
            if key.data is None:
                self._ear.recv(1 << 16)
            else:
                _handle(key.data, key.data.on_readable)
        while self._new:
            connection = self._new.pop()
            reading.append(connection)
            selector.register(connection.sock, selectors.EVENT_READ, connection)
        for connection in reading:
            _handle(connection, connection.on_tick)
        for connection in [one for one in reading if not one.is_alive]:
            reading.remove(connection)
            selector.unregister(connection.sock)
            connection.sock.close()
        try:
            self._tick()
        except Exception as error:  # noqa: BLE001 - what waits for a stream must not stop those who read others
            _report("Looking for news on RabbitMQ failed", error)


def _handle(connection: Connection, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the thread has other connections to read
        _report("A connection to RabbitMQ is given up", error)
        connection.lose(f"reading it failed: {error!r}")


def _lose(connections: list[Connection], reason: str) -> None:
    while connections:
        connection = connections.pop()
        try:
            connection.lose(reason)
        except Exception as error:  # noqa: BLE001 - whoever is told may fail; the others must be told too
            _report("A connection to RabbitMQ was lost, and who used it failed", error)
        connection.sock.close()


def _report(message: str, error: Exception) -> None:
    logger.error(message, exc_info=error, extra={"action": "pump_failed"})
