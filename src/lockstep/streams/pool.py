"""Several connections to one bus, handed out in turn."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from lockstep.errors import Closed
from lockstep.runtime import Runtime
from lockstep.streams import arguments
from lockstep.streams.client import Lockstep, connect


class Pool:
    """Connections that are opened when first needed, or all at once with `prestart`. Safe to share between threads.

    with lockstep.Pool("lmdb:./events", size=4) as pool:
        pool.next().publisher("orders")
    """

    def __init__(self, url: str, size: int, *, runtime: Runtime | None = None) -> None:
        size = arguments.integer("size", size, least=1)
        self.url, self.size = url, size
        self._runtime = runtime
        self._places: list[Lockstep | None] = [None] * size
        self._locks = [threading.Lock() for _ in range(size)]
        self._turn = itertools.count()
        self._closed = False

    def next(self) -> Lockstep:
        """The connection whose turn it is."""
        return self._open(next(self._turn) % self.size)

    def prestart(self) -> None:
        """Open all connections, side by side."""
        with ThreadPoolExecutor(self.size, "lockstep-pool") as threads:
            list(threads.map(self._open, range(self.size)))

    def close(self) -> None:
        """Close every connection that was opened."""
        self._closed = True
        for place, lock in enumerate(self._locks):
            with lock:
                connection, self._places[place] = self._places[place], None
            if connection is not None:
                connection.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _open(self, place: int) -> Lockstep:
        with self._locks[place]:
            if self._closed:
                raise Closed(what=f"The pool of connections to {self.url}")
            connection = self._places[place]
            if connection is None:
                connection = self._places[place] = connect(self.url, runtime=self._runtime)
            return connection
