"""The least a bus can be: one message a batch, offsets with gaps, nothing promised but append, read, trim and names."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field

from lockstep.errors import Closed, StreamNotFound, Trimmed, UnsupportedByBackend
from lockstep.log.port import Bounds, Entry, Limits, Promises
from lockstep.runtime import EventWaiter

STRIDE = 1000


@dataclass
class Messages:
    """One topic."""

    config: object
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    stored: list[tuple[bytes, int]] = field(default_factory=list)
    first: int = 0


class StridedBus:
    """Batch n has base n * STRIDE."""

    url = "strided:"
    promises = Promises(durability="memory", may_lose="everything", opened_by="process", retention=())

    def __init__(self):
        self.topics: dict[str, Messages] = {}
        self.lock = threading.Lock()
        self.closed = False

    def create(self, name, config):
        self.check()
        if config.protect or config.retain_bytes or config.retain_age_s or (config.capacity or 10**6) < 100:
            raise UnsupportedByBackend(bus=self.url, feature="bound a stream")
        topic = self.topics.setdefault(name, Messages(config))
        topic.config.check_same(name, config)
        return StridedLog(self, name, topic)

    def open(self, name):
        self.check()
        if name not in self.topics:
            raise StreamNotFound(name=name, bus=self.url)
        return StridedLog(self, name, self.topics[name])

    def alter(self, name, config):
        topic = self.open(name).topic
        topic.config.check_alterable(name, config)
        topic.config = config
        return self.open(name)

    def delete(self, name):
        self.open(name)
        del self.topics[name]

    def names(self):
        self.check()
        return sorted(self.topics)

    def waiter(self):
        self.check()
        return PollingWaiter()

    def atomic(self, work):
        raise UnsupportedByBackend(bus=self.url, feature="change several logs at once")

    def snapshot(self):
        raise UnsupportedByBackend(bus=self.url, feature="show several logs at once")

    def close(self):
        self.closed = True

    def check(self):
        if self.closed:
            raise Closed(what="Bus strided:")


class StridedLog:
    def __init__(self, bus, name, topic):
        self.name, self.identity, self.config = name, topic.identity, topic.config
        self.limits = Limits(stride=STRIDE)
        self._bus, self._topic = bus, topic

    def append(self, batches, *, expected_next=None, wake=True):
        self._check()
        if expected_next is not None:
            raise UnsupportedByBackend(bus=self._bus.url, feature="append on a condition")
        sealed = [(batch.seal(len(self._topic.stored)), batch.count) for batch in batches]
        with self._bus.lock:
            start = len(self._topic.stored)
            self._topic.stored += sealed
        return [(start + number) * STRIDE for number in range(len(sealed))]

    def read(self, offset, *, max_bytes=1 << 20):
        self._check()
        if offset < self._topic.first:
            raise Trimmed(offset=offset, stream=self.name, first=self._topic.first)
        found, size = [], 0
        for number in range(offset // STRIDE, len(self._topic.stored)):
            data, count = self._topic.stored[number]
            if number * STRIDE + count > offset and size < max_bytes:
                found.append(Entry(number * STRIDE, data))
                size += len(data)
        return found

    def reread(self, offset):
        return next(iter(self.read(offset, max_bytes=1)), None)

    def bounds(self):
        self._check()
        if not self._topic.stored:
            return Bounds(0, 0)
        end = (len(self._topic.stored) - 1) * STRIDE + self._topic.stored[-1][1]
        return Bounds(self._topic.first, end)

    def trim(self, before):
        self._check()
        self._topic.first = max(self._topic.first, min(before, self.bounds().next))

    def hold(self, holder, offset):
        raise UnsupportedByBackend(bus=self._bus.url, feature="protect a stream")

    def close(self):
        """Nothing to give back."""

    def _check(self):
        self._bus.check()
        if self._bus.topics.get(self.name) is not self._topic:
            raise StreamNotFound(name=self.name, bus=self._bus.url)


class PollingWaiter(EventWaiter):
    """Nobody wakes it, so it looks again after short pauses."""

    def wait(self, timeout):
        super().wait(min(timeout, 0.01))

    def watch(self, log):
        """Polling needs no watch."""

    def unwatch(self, log):
        """Polling needs no watch."""

    def fileno(self):
        return None

    def close(self):
        """Nothing to give back."""
