"""Waiting for logs on servers: a wait within this process, which the followers of topics end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lockstep.log.port import Log
from lockstep.runtime import Waiter

Watch = Callable[[Log, Callable[[], None]], Callable[[], None]]
"""Has something called when a log grew, until what it returns is called."""


class NetworkWaiter:
    """See LogWaiter."""

    def __init__(self, waiter: Waiter, watch: Watch) -> None:
        self._watch = watch
        self.wait, self.wake = waiter.wait, waiter.wake
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[Log, Callable[[], None]]] = {}
        self._closed = False

    def watch(self, log: Log) -> None:
        """See LogWaiter."""
        with self._lock:
            if id(log) not in self._watched and not self._closed:
                self._watched[id(log)] = log, self._watch(log, self.wake)

    def unwatch(self, log: Log) -> None:
        """See LogWaiter."""
        with self._lock:
            _, stop = self._watched.pop(id(log), (None, None))
        if stop is not None:
            stop()

    def fileno(self) -> int | None:
        """See LogWaiter: there is none."""
        return None

    def close(self) -> None:
        """See LogWaiter."""
        with self._lock:
            self._closed = True
            watched, self._watched = self._watched, {}
        for _, stop in watched.values():
            stop()
