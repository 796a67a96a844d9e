"""Waiting for appends: one connection and one thread for a bus, and only while something is watched.

The script that appends publishes on the channel of its log. A new listener is woken once, so that nothing is missed
that was appended before the server knew of it; so is every listener after a connection was lost.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

import redis

from lockstep.errors import LockstepError
from lockstep.log.port import Log, LogWaiter
from lockstep.log.redis.client import Connection, Connector
from lockstep.log.redis.errors import NotNow
from lockstep.log.redis.layout import Keys
from lockstep.log.redis.scripts import Command
from lockstep.runtime import Runtime, Waiter, logger

_LOOK_AGAIN_S = 1.0
"""The longest wait: a lost subscription makes reading slow, but never stops it."""
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0
_JOIN_S = 10.0

Wake = Callable[[], None]


class _ConnectionUseless(Exception):
    """The connection can't be used: the server is silent, or another server has the channels."""


class Listener:
    """Subscribes to the channels of watched logs and wakes their readers."""

    def __init__(self, connector: Connector, runtime: Runtime) -> None:
        self._connector, self._runtime = connector, runtime
        self._quiet_s = min(connector.address.timeout_s / 2, 5.0)
        self._lock = threading.Lock()
        self._wakes: dict[str, dict[object, Wake]] = {}
        self._thread: threading.Thread | None = None
        self._wake_writer: socket.socket | None = None
        self._closed = False

    def watch(self, channel: str, wake: Wake) -> Callable[[], None]:
        """Call `wake` for each message of a channel, until the returned function is called."""
        token = object()
        with self._lock:
            if not self._closed:
                self._wakes.setdefault(channel, {})[token] = wake
                self._get_going()
        return lambda: self._unwatch(channel, token)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._wakes.clear()
            thread = self._thread
            self._interrupt()
        if thread is not None:
            thread.join(_JOIN_S)

    def _unwatch(self, channel: str, token: object) -> None:
        with self._lock:
            wakes = self._wakes.get(channel, {})
            if wakes.pop(token, None) is not None and not wakes:
                del self._wakes[channel]
                self._interrupt()

    def _get_going(self) -> None:
        """Called with the lock held."""
        if self._thread is not None:
            self._interrupt()
            return
        self._wake_writer, wake_reader = socket.socketpair()
        for end in (self._wake_writer, wake_reader):
            end.setblocking(False)
        name = f"lockstep-listen-{self._connector.address.servers}"
        self._thread = threading.Thread(
            target=self._run, args=(_ListenerConnection(self, wake_reader),), name=name, daemon=True
        )
        self._thread.start()

    def _interrupt(self) -> None:
        if self._wake_writer is not None:
            try:
                self._wake_writer.send(b"x")
            except BlockingIOError:
                return  # it was nudged often enough, and has yet to look

    def _run(self, listening: _ListenerConnection) -> None:
        pause_s = _FIRST_PAUSE_S
        try:
            while self._is_wanted():
                try:
                    listening.step()
                    pause_s = _FIRST_PAUSE_S
                except Exception as error:  # noqa: BLE001 - readers rely on this thread, so it goes on
                    listening.hang_up()
                    _report(error)
                    listening.rest(pause_s)
                    pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        finally:
            listening.close()

    def _is_wanted(self) -> bool:
        with self._lock:
            if self._wakes:
                return True
            self._thread = None
            if self._wake_writer is not None:
                self._wake_writer.close()
                self._wake_writer = None
            return False

    def connect(self) -> Connection:
        """A connection to listen on."""
        return self._connector.connect("waiting")

    def wanted(self) -> set[str]:
        """The channels to listen to."""
        with self._lock:
            return set(self._wakes)

    def rung(self, channel: str) -> None:
        """Wake everything that waits for a channel."""
        with self._lock:
            wakes = list(self._wakes.get(channel, {}).values())
        for wake in wakes:
            wake()

    @property
    def quiet_s(self) -> float:
        """How long the server may be silent before it is pinged."""
        return self._quiet_s

    def monotonic(self) -> float:
        """The clock."""
        return self._runtime.monotonic()


class _ListenerConnection:
    """The connection of a listener; only its thread uses it."""

    def __init__(self, listener: Listener, wake_reader: socket.socket) -> None:
        self._listener, self._wake_reader = listener, wake_reader
        self._connection: Connection | None = None
        self._asked: set[str] = set()
        self._heard_at = 0.0
        self._is_pinged = False

    def step(self) -> None:
        """Subscribe to the wanted channels and wait until something happens."""
        if self._connection is None:
            self._connection = self._listener.connect()
            self._asked, self._is_pinged, self._heard_at = set(), False, self._listener.monotonic()
        self._ask_for(self._connection, self._listener.wanted())
        self.rest(self._listener.quiet_s, self._connection)
        while self._connection.can_read(0):
            self._heard_at, self._is_pinged = self._listener.monotonic(), False
            self._hear(self._connection.read_response())
        self._check_alive(self._connection)

    def rest(self, seconds: float, connection: Connection | None = None) -> None:
        """Wait until this process interrupts, or the server sends something."""
        sources: list[Any] = [self._wake_reader]
        if connection is not None:
            sources.append(connection._sock)  # type: ignore[attr-defined]
        poll = select.poll()
        for wake_reader in sources:
            poll.register(wake_reader, select.POLLIN)
        poll.poll(seconds * 1000)
        try:
            while self._wake_reader.recv(4096):
                pass
        except BlockingIOError:
            return

    def hang_up(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def close(self) -> None:
        """Close the connection and the socket pair."""
        self.hang_up()
        self._wake_reader.close()

    def _ask_for(self, connection: Connection, wanted: set[str]) -> None:
        commands: list[Command] = [("SSUBSCRIBE", channel) for channel in sorted(wanted - self._asked)]
        commands += [("SUNSUBSCRIBE", channel) for channel in sorted(self._asked - wanted)]
        if commands:
            connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            self._asked = wanted

    def _hear(self, said: Any) -> None:
        kind = said[0] if isinstance(said, list) else said
        if kind in (b"smessage", b"ssubscribe"):
            self._listener.rung(os.fsdecode(said[1]))
        elif kind == b"sunsubscribe" and os.fsdecode(said[1]) in self._asked:
            raise _ConnectionUseless

    def _check_alive(self, connection: Connection) -> None:
        quiet_s = self._listener.monotonic() - self._heard_at
        if quiet_s >= 2 * self._listener.quiet_s and self._is_pinged:
            raise _ConnectionUseless
        if quiet_s >= self._listener.quiet_s and not self._is_pinged:
            connection.send_packed_command(connection.pack_commands([("PING",)]), check_health=False)
            self._is_pinged = True


def _report(error: Exception) -> None:
    """A server that is away is nothing unusual; anything else is a fault of ours, or of the reader that was woken."""
    is_usual = isinstance(error, _ConnectionUseless | NotNow | LockstepError | redis.RedisError | OSError)
    if is_usual:
        logger.debug("Appends can't be heard", extra={"action": "bells_lost", "reason": str(error)})
    else:
        logger.error("Waiting for appends failed and is started again", exc_info=error, extra={"action": "bells_lost"})


class RedisWaiter(LogWaiter):
    """Wakes when the server publishes that a watched log has grown, and looks again once a second in any case."""

    def __init__(self, listener: Listener, keys: Keys, waiter: Waiter) -> None:
        self._listener, self._keys, self._waiter = listener, keys, waiter
        self._lock = threading.Lock()
        self._stops: dict[str, Callable[[], None]] = {}
        self._closed = False

    def wait(self, timeout: float) -> None:
        self._waiter.wait(min(timeout, _LOOK_AGAIN_S))

    def wake(self) -> None:
        self._waiter.wake()

    def watch(self, log: Log) -> None:
        channel = self._keys.log(log.name).channel
        with self._lock:
            if channel not in self._stops and not self._closed:
                self._stops[channel] = self._listener.watch(channel, self.wake)

    def unwatch(self, log: Log) -> None:
        with self._lock:
            stop = self._stops.pop(self._keys.log(log.name).channel, None)
        if stop is not None:
            stop()

    def fileno(self) -> int | None:
        """None: there is no descriptor."""
        return None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            stops, self._stops = self._stops, {}
        for stop in stops.values():
            stop()
