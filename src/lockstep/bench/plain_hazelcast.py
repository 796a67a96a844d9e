"""The Hazelcast client alone: a ring, an item for each record, a thousand at a time."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lockstep.bench.compare_means import address_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the client still uses asyncore
    from hazelcast.client import HazelcastClient

_CLUSTER = "dev"
_ADD_ITEMS, _READ_ITEMS = 1_000, 999  # as many as the client takes
SETTINGS = f"add_all of {_ADD_ITEMS}; read_many of {_READ_ITEMS}, the next one under way"


@contextmanager
def _client(url: str) -> Iterator[Any]:
    address = address_of(url)
    client = HazelcastClient(
        cluster_name=address.path or _CLUSTER, cluster_members=[f"{host}:{port}" for host, port in address.hosts]
    )
    try:
        yield client
    finally:
        client.shutdown()


def make(url: str, stream: str) -> None:
    """Create the ring buffer."""
    with _client(url) as client:
        client.get_ringbuffer(stream).capacity().result()


def remove(url: str, stream: str) -> None:
    """Destroy the ring buffer."""
    with _client(url) as client:
        client.get_ringbuffer(stream).destroy()


class _Sender:
    def __init__(self, ring: Any) -> None:
        self._ring = ring

    def start(self, values: list[bytes]) -> None:
        # One call at a time: several under way may overtake each other. The client would pickle bytes, not arrays.
        items = list(map(bytearray, values))
        for at in range(0, len(items), _ADD_ITEMS):
            self._ring.add_all(items[at : at + _ADD_ITEMS]).result()

    def wait(self) -> None:
        """Every call was answered."""


class _Reader:
    def __init__(self, ring: Any) -> None:
        self._ring = ring
        self._next = 0
        self._came = threading.Event()
        self._ask()

    def read(self, timeout: float) -> list[bytes]:
        if not self._came.wait(timeout):
            return []
        found = self._asked.result()
        if found.get_sequence(0) != self._next:
            message = f"item {self._next} was overwritten before it was read"
            raise RuntimeError(message)
        self._next = found.next_sequence_to_read_from
        self._ask()
        return list(found)

    def _ask(self) -> None:
        self._came.clear()
        self._asked = self._ring.read_many(self._next, 1, _READ_ITEMS)
        self._asked.add_done_callback(lambda _: self._came.set())


@contextmanager
def sender(url: str, stream: str) -> Iterator[_Sender]:
    """Yield a connected publisher, and close its client afterwards."""
    with _client(url) as client:
        yield _Sender(client.get_ringbuffer(stream))


@contextmanager
def reader(url: str, stream: str) -> Iterator[_Reader]:
    """Yield a connected subscriber at the start of the ring buffer, and close its client afterwards."""
    with _client(url) as client:
        yield _Reader(client.get_ringbuffer(stream))
