"""Our own side: the same calls on every bus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import lockstep
from lockstep.bench.streams import BenchOptions

SETTINGS = "publish_many, batches of 100 kB; poll of 100 kB"
_OPTIONS = BenchOptions()
_EMBEDDED = "lmdb:"
_EMBEDDED_CAPACITY = 100_000
"""As large as the ring of a Hazelcast by default; on a server a stream keeps everything, as a plain topic does."""


def make(url: str, stream: str) -> None:
    """See Means."""
    capacity = _EMBEDDED_CAPACITY if url.startswith(_EMBEDDED) else None
    with lockstep.connect(url) as bus:
        bus.create(stream, lockstep.StreamConfig(capacity=capacity, compression="none"))


def remove(url: str, stream: str) -> None:
    """See Means."""
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
    """See Means."""
    with lockstep.connect(url) as bus, bus.publisher(stream, batch_bytes=_OPTIONS.batch_bytes) as publisher:
        yield _Sender(publisher)


@contextmanager
def reader(url: str, stream: str) -> Iterator[_Reader]:
    """See Means."""
    with (
        lockstep.connect(url) as bus,
        bus.subscriber(
            stream, initial="earliest", on_gap="fail", max_bytes=_OPTIONS.poll_bytes, max_records=1 << 30
        ) as subscriber,
    ):
        yield _Reader(subscriber)
