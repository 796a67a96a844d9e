"""Waiting for appends: one connection and one thread for a bus, and only while something is watched.

The script that appends rings the bell of its log. Whoever begins to listen is woken once, so that nothing is missed
that was appended before the server heard of it; the same after a connection was lost.
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
from lockstep.log.port import Log
from lockstep.log.redis.client import Connector, Line
from lockstep.log.redis.errors import NotNow
from lockstep.log.redis.layout import Keys
from lockstep.log.redis.scripts import Command
from lockstep.runtime import Runtime, Waiter, logger

_LOOK_AGAIN_S = 1.0
"""Nobody waits longer: a bell that can't be heard makes reading slow, never stuck."""
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0
_JOIN_S = 10.0

Wake = Callable[[], None]


class _Deaf(Exception):
    """The connection is of no use: the server is silent, or the bells are elsewhere."""


class Follower:
    """Hears the bells of watched logs."""

    def __init__(self, connector: Connector, runtime: Runtime) -> None:
        self._connector, self._runtime = connector, runtime
        self._quiet_s = min(connector.address.timeout_s / 2, 5.0)
        self._lock = threading.Lock()
        self._wakes: dict[str, dict[object, Wake]] = {}
        self._thread: threading.Thread | None = None
        self._poke: socket.socket | None = None
        self._closed = False

    def watch(self, bell: str, wake: Wake) -> Callable[[], None]:
        """Have `wake` called when a bell rings, until the returned function is called."""
        token = object()
        with self._lock:
            if not self._closed:
                self._wakes.setdefault(bell, {})[token] = wake
                self._get_going()
        return lambda: self._unwatch(bell, token)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            self._wakes.clear()
            thread = self._thread
            self._nudge()
        if thread is not None:
            thread.join(_JOIN_S)

    def _unwatch(self, bell: str, token: object) -> None:
        with self._lock:
            wakes = self._wakes.get(bell, {})
            if wakes.pop(token, None) is not None and not wakes:
                del self._wakes[bell]
                self._nudge()

    def _get_going(self) -> None:
        """Called with the lock held."""
        if self._thread is not None:
            self._nudge()
            return
        self._poke, ear = socket.socketpair()
        for end in (self._poke, ear):
            end.setblocking(False)
        name = f"lockstep-listen-{self._connector.address.servers}"
        self._thread = threading.Thread(target=self._run, args=(_Listening(self, ear),), name=name, daemon=True)
        self._thread.start()

    def _nudge(self) -> None:
        if self._poke is not None:
            try:
                self._poke.send(b"x")
            except BlockingIOError:
                return  # it was nudged often enough, and has yet to look

    def _run(self, listening: _Listening) -> None:
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
            if self._poke is not None:
                self._poke.close()
                self._poke = None
            return False

    def connect(self) -> Line:
        """A connection to listen on."""
        return self._connector.connect("waiting")

    def wanted(self) -> set[str]:
        """The bells to listen to."""
        with self._lock:
            return set(self._wakes)

    def rung(self, bell: str) -> None:
        """Wake whoever waits for a bell."""
        with self._lock:
            wakes = list(self._wakes.get(bell, {}).values())
        for wake in wakes:
            wake()

    @property
    def quiet_s(self) -> float:
        """After so long without a word the server is asked whether it is there."""
        return self._quiet_s

    def monotonic(self) -> float:
        """The clock."""
        return self._runtime.monotonic()


class _Listening:
    """The connection of a follower; only its thread uses it."""

    def __init__(self, follower: Follower, ear: socket.socket) -> None:
        self._follower, self._ear = follower, ear
        self._line: Line | None = None
        self._asked: set[str] = set()
        self._heard_at = 0.0
        self._is_pinged = False

    def step(self) -> None:
        """Listen to what is wanted until something happens."""
        if self._line is None:
            self._line = self._follower.connect()
            self._asked, self._is_pinged, self._heard_at = set(), False, self._follower.monotonic()
        self._ask_for(self._line, self._follower.wanted())
        self.rest(self._follower.quiet_s, self._line)
        while self._line.can_read(0):
            self._heard_at, self._is_pinged = self._follower.monotonic(), False
            self._hear(self._line.read_response())
        self._check_alive(self._line)

    def rest(self, seconds: float, line: Line | None = None) -> None:
        """Until somebody nudges, or the server says something."""
        ears: list[Any] = [self._ear]
        if line is not None:
            ears.append(line._sock)  # type: ignore[attr-defined]
        poll = select.poll()
        for ear in ears:
            poll.register(ear, select.POLLIN)
        poll.poll(seconds * 1000)
        try:
            while self._ear.recv(4096):
                pass
        except BlockingIOError:
            return

    def hang_up(self) -> None:
        """Drop the connection."""
        if self._line is not None:
            self._line.disconnect()
            self._line = None

    def close(self) -> None:
        """Give back everything."""
        self.hang_up()
        self._ear.close()

    def _ask_for(self, line: Line, wanted: set[str]) -> None:
        commands: list[Command] = [("SSUBSCRIBE", bell) for bell in sorted(wanted - self._asked)]
        commands += [("SUNSUBSCRIBE", bell) for bell in sorted(self._asked - wanted)]
        if commands:
            line.send_packed_command(line.pack_commands(commands), check_health=False)
            self._asked = wanted

    def _hear(self, said: Any) -> None:
        kind = said[0] if isinstance(said, list) else said
        if kind in (b"smessage", b"ssubscribe"):
            self._follower.rung(os.fsdecode(said[1]))
        elif kind == b"sunsubscribe" and os.fsdecode(said[1]) in self._asked:
            raise _Deaf

    def _check_alive(self, line: Line) -> None:
        quiet_s = self._follower.monotonic() - self._heard_at
        if quiet_s >= 2 * self._follower.quiet_s and self._is_pinged:
            raise _Deaf
        if quiet_s >= self._follower.quiet_s and not self._is_pinged:
            line.send_packed_command(line.pack_commands([("PING",)]), check_health=False)
            self._is_pinged = True


def _report(error: Exception) -> None:
    """A server that is away is nothing unusual; anything else is a fault of ours, or of whoever was woken."""
    is_usual = isinstance(error, _Deaf | NotNow | LockstepError | redis.RedisError | OSError)
    if is_usual:
        logger.debug("Appends can't be heard", extra={"action": "bells_lost", "reason": str(error)})
    else:
        logger.error("Waiting for appends failed and is started again", exc_info=error, extra={"action": "bells_lost"})


class RedisWaiter:
    """See LogWaiter."""

    def __init__(self, follower: Follower, keys: Keys, waiter: Waiter) -> None:
        self._follower, self._keys, self._waiter = follower, keys, waiter
        self.wake = waiter.wake
        self._lock = threading.Lock()
        self._stops: dict[str, Callable[[], None]] = {}
        self._closed = False

    def wait(self, timeout: float) -> None:
        """See Waiter."""
        self._waiter.wait(min(timeout, _LOOK_AGAIN_S))

    def watch(self, log: Log) -> None:
        """See LogWaiter."""
        bell = self._keys.log(log.name).bell
        with self._lock:
            if bell not in self._stops and not self._closed:
                self._stops[bell] = self._follower.watch(bell, self.wake)

    def unwatch(self, log: Log) -> None:
        """See LogWaiter."""
        with self._lock:
            stop = self._stops.pop(self._keys.log(log.name).bell, None)
        if stop is not None:
            stop()

    def fileno(self) -> int | None:
        """See LogWaiter: there is none."""
        return None

    def close(self) -> None:
        """See LogWaiter."""
        with self._lock:
            self._closed = True
            stops, self._stops = self._stops, {}
        for stop in stops.values():
            stop()
