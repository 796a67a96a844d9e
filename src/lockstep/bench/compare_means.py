"""What every means of publishing has to offer to be measured: one module each; ours is here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, cast

import lockstep
from lockstep.bench.streams import BenchOptions
from lockstep.log.network.address import Address, parse_address
from lockstep.log.urls import split_url


class Sender(Protocol):
    """Publishes runs of records, in order."""

    def start(self, values: list[bytes]) -> None:
        """Send all of them."""

    def wait(self) -> None:
        """Return when everything sent is acknowledged; raises if something was not."""


class Reader(Protocol):
    """Reads everything from the beginning, in order."""

    def read(self, timeout: float) -> list[bytes]:
        """What has come, as soon as there is something; empty after the time."""


class Means(Protocol):
    """One way to publish and to subscribe."""

    SETTINGS: str

    def make(self, url: str, stream: str) -> None:
        """Create the stream."""

    def remove(self, url: str, stream: str) -> None:
        """Delete the stream."""

    def sender(self, url: str, stream: str) -> AbstractContextManager[Sender]:
        """A connected publisher."""

    def reader(self, url: str, stream: str) -> AbstractContextManager[Reader]:
        """A connected subscriber."""


PORTS = {"kafka": 9092, "rabbitmq": 5552, "redis": 6379, "hazelcast": 5701}
OURS, PLAIN_KAFKA_FSYNC = "compare_lockstep", "plain_kafka_fsync"


def plain(bus: str) -> str:
    """The name of the module with the vendor's own client."""
    return f"plain_{bus}"


def load(name: str) -> Means:
    """The module of that name; its client is imported with it."""
    return cast(Means, importlib.import_module(f"lockstep.bench.{name}"))


def address_of(url: str) -> Address:
    """Where the server of a URL is, for a client that knows nothing of our URLs."""
    scheme, target, options = split_url(url)
    known = tuple(options)
    return parse_address(scheme, target, options, environ=os.environ, default_port=PORTS[scheme], known=known)


SETTINGS = "publish_many, batches of 100 kB; poll of 100 kB"
_OPTIONS = BenchOptions()
_EMBEDDED = "lmdb:"
_EMBEDDED_CAPACITY = 100_000
"""As large as the ring of a Hazelcast by default; on a server a stream keeps everything, as a plain topic does."""


def make(url: str, stream: str) -> None:
    """Create the stream."""
    capacity = _EMBEDDED_CAPACITY if url.startswith(_EMBEDDED) else None
    with lockstep.connect(url) as bus:
        bus.create(stream, lockstep.StreamConfig(capacity=capacity, compression="none"))


def remove(url: str, stream: str) -> None:
    """Delete the stream."""
    with lockstep.connect(url) as bus:
        bus.delete(stream)


class _Sender:
    def __init__(self, publisher: lockstep.Publisher) -> None:
        self._publisher = publisher
        self._receipts: list[lockstep.ManyReceipt] = []

    def start(self, values: list[bytes]) -> None:
        self._receipts.append(self._publisher.publish_many(values))

    def wait(self) -> None:
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            receipt.wait()


class _Reader:
    def __init__(self, subscriber: lockstep.Subscriber) -> None:
        self._subscriber = subscriber

    def read(self, timeout: float) -> list[bytes]:
        return self._subscriber.poll(timeout).values()


@contextmanager
def sender(url: str, stream: str) -> Iterator[_Sender]:
    """Yield a connected publisher, and close it afterwards."""
    with lockstep.connect(url) as bus, bus.publisher(stream, batch_bytes=_OPTIONS.batch_bytes) as publisher:
        yield _Sender(publisher)


@contextmanager
def reader(url: str, stream: str) -> Iterator[_Reader]:
    """Yield a connected subscriber at the start of the stream, and close it afterwards."""
    with (
        lockstep.connect(url) as bus,
        bus.subscriber(
            stream, initial="earliest", on_gap="fail", max_bytes=_OPTIONS.poll_bytes, max_records=1 << 30
        ) as subscriber,
    ):
        yield _Reader(subscriber)
