"""One connection to RabbitMQ, and the thread that reads all connections of a bus.

A connection carries requests with their answers, and what the server sends by itself to subscriptions and publishers.

"""

from __future__ import annotations

import contextlib
import select
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from rstream import schema

from lockstep.errors import ServerUnreachable, TimedOut
from lockstep.log.network.retry import Deadline
from lockstep.log.rabbitmq import frames
from lockstep.runtime import logger

_READ_BYTES = 1 << 18
WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
IDS = 200
"""Subscriptions, and publishers, that share a connection; the protocol numbers them in one byte."""


class Receiver(Protocol):
    """A subscription or publisher, which gets what the server sends. Called from the reading thread."""

    stream: str

    def on_chunk(self, chunk: frames.Chunk) -> None:
        """Messages have arrived."""

    def on_refusal(self, publishing_id: int, code: int) -> None:
        """The server has refused a message."""

    def on_lost(self, reason: str) -> None:
        """The connection is lost; nothing will arrive any more."""


class Reply:
    """The answer to a request."""

    def __init__(self, connection: Connection, then: Callable[[], None] | None = None) -> None:
        self._connection, self._then = connection, then
        self._event = threading.Event()
        self._frame: Any = None

    def set(self, frame: Any) -> None:
        """Set the answer; None: there will be none."""
        self._frame = frame
        self._event.set()
        if self._then is not None:
            self._then()

    @property
    def has_come(self) -> bool:
        """Whether the answer is there."""
        return self._event.is_set()

    def wait(self, deadline: Deadline) -> Any:
        """Return the answer. If it does not arrive in time, lose the connection and raise ServerUnreachable."""
        if not self._event.wait(deadline.left()):
            self._connection.lose("it did not answer in time")
        if self._frame is None:
            raise self._connection.unreachable()
        return self._frame


class Connection:
    """A connection that is logged in. Any thread may write; one thread reads."""

    def __init__(
        self,
        sock: socket.socket,
        endpoint: tuple[str, int],
        advertised: tuple[str, int],
        heartbeat_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.sock, self.endpoint, self.advertised = sock, endpoint, advertised
        self.server = f"{endpoint[0]}:{endpoint[1]}"
        self.why_lost: str | None = None
        self._heartbeat_s, self._clock = heartbeat_s, clock
        self._heard = self._said = clock()
        self._lock, self._using = threading.Lock(), threading.Lock()
        self._buffer = bytearray()
        self._ids = count(1)
        self._replies: dict[int, Reply] = {}
        self._subscriptions: dict[int, Receiver] = {}
        self._publishers: dict[int, Receiver] = {}
        sock.setblocking(False)

    @property
    def is_alive(self) -> bool:
        """Whether it can be used."""
        return self.why_lost is None

    @property
    def load(self) -> int:
        """How many subscriptions or publishers share it."""
        return max(len(self._subscriptions), len(self._publishers))

    def ask(self, build: frames.Build, deadline: Deadline) -> Any:
        """Send a request and wait for its answer."""
        return self.begin(deadline, build)[0].wait(deadline)

    def begin(self, deadline: Deadline, *builds: frames.Build, then: Callable[[], None] | None = None) -> list[Reply]:
        """Send requests at once. The answers arrive in order, and `then` is called for each."""
        replies, parts = [], []
        for build in builds:
            number = next(self._ids)
            replies.append(Reply(self, then))
            self._replies[number] = replies[-1]
            parts.append(frames.encode(build(number)))
        self.write(b"".join(parts), deadline)
        return replies

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write everything. Raises ServerUnreachable if that fails; the last frame was not sent completely then."""
        left = memoryview(data)
        with self._using:
            while left and self.is_alive:
                try:
                    with self._lock:
                        sent = self.sock.send(left)
                    left = left[sent:]
                except WOULD_BLOCK:
                    self._wait_to_write(deadline)
                except OSError as error:
                    self.lose(_reason_of(error))
            self._said = self._clock()
        if left:
            raise self.unreachable()

    def add_subscription(self, receiver: Receiver) -> int:
        """Register a subscription and return its number."""
        return self._add(self._subscriptions, receiver)

    def add_publisher(self, receiver: Receiver) -> int:
        """Register a publisher and return its number."""
        return self._add(self._publishers, receiver)

    def drop_subscription(self, number: int, receiver: Receiver) -> None:
        """Free a number, unless another receiver has it already."""
        self._drop(self._subscriptions, number, receiver)

    def drop_publisher(self, number: int, receiver: Receiver) -> None:
        """Free a number, unless another receiver has it already."""
        self._drop(self._publishers, number, receiver)

    def unreachable(self) -> ServerUnreachable:
        """The error for callers that needed this connection."""
        return ServerUnreachable(server=self.server, reason=self.why_lost or "the connection is closed")

    def lose(self, reason: str) -> None:
        """Give the connection up and tell its receivers; the reading thread closes it."""
        with self._lock:
            if self.why_lost is not None:
                return
            self.why_lost = reason
            with contextlib.suppress(OSError):  # the other side may have closed it
                self.sock.shutdown(socket.SHUT_RDWR)
        for reply in list(self._replies.values()):
            reply.set(None)
        for receiver in [*self._subscriptions.values(), *self._publishers.values()]:
            receiver.on_lost(reason)

    def on_readable(self) -> None:
        """Read what has arrived and dispatch it. Called from the reading thread."""
        while self.is_alive:
            try:
                with self._lock:
                    piece = self.sock.recv(_READ_BYTES)
            except WOULD_BLOCK:
                return
            except OSError as error:
                self.lose(_reason_of(error))
                return
            if not piece:
                self.lose("it has closed the connection")
                return
            self._take(piece)

    def on_tick(self) -> None:
        """Send a heartbeat, and give up a server that sends none. Called from the reading thread."""
        now = self._clock()
        if now - self._heard > 2.5 * self._heartbeat_s:
            self.lose("it has been silent")
        elif now - self._said > self._heartbeat_s / 2 and self._using.acquire(blocking=False):
            try:
                self._say()
            finally:
                self._using.release()

    def _say(self) -> None:
        self._said = self._clock()
        with contextlib.suppress(OSError), self._lock:  # it has enough to read already, or the reading thread finds out
            self.sock.send(frames.encode(schema.Heartbeat()))

    def _wait_to_write(self, deadline: Deadline) -> None:
        left = deadline.left()
        if not left:
            self.lose("it takes nothing more")
            return
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT)
        poll.poll(left * 1000)

    def _take(self, piece: bytes) -> None:
        self._heard = self._clock()
        self._buffer += piece
        try:
            for payload in frames.split(self._buffer):
                self._dispatch(payload)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread has other connections to read
            self.lose(f"it sent something that can't be read: {error or type(error).__name__}")

    def _dispatch(self, payload: bytes) -> None:
        key = frames.key_of(payload)
        if key == frames.DELIVER:
            chunk = frames.read_chunk(payload)
            if chunk.subscription in self._subscriptions:
                self._subscriptions[chunk.subscription].on_chunk(chunk)
        elif key == frames.REFUSED:
            publisher, refused = frames.read_refusals(payload)
            for publishing_id, code in refused:
                if publisher in self._publishers:
                    self._publishers[publisher].on_refusal(publishing_id, code)
        elif key not in (frames.CONFIRM, frames.CREDIT, frames.HEARTBEAT):
            self._answer(frames.decode(payload))

    def _answer(self, frame: schema.Frame) -> None:
        if isinstance(frame, schema.MetadataUpdate):
            self._forget(frame.metadata_info.stream)
        elif isinstance(frame, schema.Close):
            self.lose(f"it has closed the connection: {frame.reason}")
        elif frame.corr_id is not None:
            reply = self._replies.pop(frame.corr_id, None)
            if reply is not None:
                reply.set(frame)

    def _forget(self, stream: str) -> None:
        """The server has dropped everything about a stream: it is deleted, or has another leader."""
        for receivers in (self._subscriptions, self._publishers):
            for number, receiver in list(receivers.items()):
                if receiver.stream == stream:
                    receivers.pop(number)
                    receiver.on_lost("the stream has moved or is gone")

    def _add(self, receivers: dict[int, Receiver], receiver: Receiver) -> int:
        with self._lock:
            number = next(number for number in range(256) if number not in receivers)
            receivers[number] = receiver
            return number

    def _drop(self, receivers: dict[int, Receiver], number: int, receiver: Receiver) -> None:
        with self._lock:
            if receivers.get(number) is receiver:
                del receivers[number]


def _reason_of(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


_TICK_S = 0.5
_STOP_S = 10.0
_CLOSED = "the bus is closed"


class IoLoop:
    """One thread that reads all connections, sends heartbeats, and calls `tick` now and then.

    A connection that can't be handled is lost, and the others go on. If the thread itself fails, all connections are
    lost, their users are told, and it goes on with those that are made from then on.
    """

    def __init__(self, name: str, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._wake_writer, self._wake_reader = socket.socketpair()
        self._wake_writer.setblocking(False)
        self._wake_reader.setblocking(False)
        self._new: list[Connection] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"rabbitmq-{name}", daemon=True)
        self._thread.start()

    def add(self, connection: Connection) -> None:
        """Read this connection too, from now on, and close it when it is lost."""
        self._new.append(connection)
        self._wake()

    def close(self) -> None:
        """Close all connections and wait until the thread has ended."""
        self._stopping = True
        self._wake()
        self._thread.join(_STOP_S)
        if self._thread.is_alive():
            raise TimedOut(what=f"Stopping {self._thread.name}", seconds=_STOP_S)
        self._wake_writer.close()
        self._wake_reader.close()

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"\0")
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
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while not self._stopping:
                self._look(selector, reading)

    def _look(self, selector: selectors.BaseSelector, reading: list[Connection]) -> None:
        for key, _ in selector.select(_TICK_S):
            if key.data is None:
                self._wake_reader.recv(1 << 16)
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
        except Exception as error:  # noqa: BLE001 - a user that is told may fail; the others must be told too
            _report("A connection to RabbitMQ was lost, and who used it failed", error)
        connection.sock.close()


def _report(message: str, error: Exception) -> None:
    logger.error(message, exc_info=error, extra={"action": "pump_failed"})
