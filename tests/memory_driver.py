"""A server in memory: topics of numbered messages and nothing more, as much as a bus over a network may count on."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from lockstep.log.network.bus import NetworkBus
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.driver import STRIDE, Ends, Message, TopicGone
from lockstep.log.port import DROPPED_BY_READERS, Limits, Promises


@dataclass
class Stored:
    """One topic."""

    messages: list[bytes | None] = field(default_factory=list)
    """None: a number that the server took for itself."""
    times: dict[int, int] = field(default_factory=dict)
    """When the server stored a message, by its own clock, if it has one."""
    first: int = 0
    wakes: list = field(default_factory=list)


class MemoryServer:
    """What all connections share."""

    def __init__(self, clock=None):
        """`clock` gives the server's time in nanoseconds; None: it stamps nothing, as Hazelcast."""
        self.topics: dict[str, Stored] = {"_catalogue": Stored()}
        self.lock = threading.Lock()
        self.clock = clock

    def bus(self, runtime, url="wire:"):
        return NetworkBus(MemoryDriver(self, url, runtime), runtime)


class MemoryDriver:
    promises = Promises(
        durability="memory", may_lose="everything", opened_by="process", retention=("capacity", "bytes", "age"),
        notifies=True, copies=DROPPED_BY_READERS,
    )  # fmt: skip

    def __init__(self, server, url, runtime):
        self._server, self.url = server, url
        self.catalogue = TopicCatalogue(MemoryTopic(server, "_catalogue"), runtime.monotonic)

    def make(self, known):
        with self._server.lock:
            self._server.topics.setdefault(known.name, Stored())

    def alter(self, known, config):
        """Its topics keep everything."""

    def remove(self, known):
        with self._server.lock:
            self._server.topics.pop(known.name, None)

    def topic(self, known):
        return MemoryTopic(self._server, known.name)

    def foreign(self, name):
        return None

    def check(self, known):
        return []

    def close(self):
        """Nothing to give back."""


class MemoryTopic:
    limits = Limits(stride=STRIDE, append_records=STRIDE, append_bytes=64 << 20, append_setting="nothing")

    def __init__(self, server, name):
        self._server, self._name = server, name
        self._stored = server.topics.get(name)

    def send(self, messages):
        with self._server.lock:
            stored = self._checked()
            stored.messages += messages
            numbers = [len(stored.messages) - len(messages) + at for at in range(len(messages))]
            if self._server.clock is not None:
                stored.times.update(dict.fromkeys(numbers, self._server.clock()))
            wakes = list(stored.wakes)
        for wake in wakes:
            wake()
        return numbers

    def ends(self):
        with self._server.lock:
            stored = self._checked()
            return Ends(stored.first, len(stored.messages))

    def fetch(self, number, max_bytes):
        with self._server.lock:
            stored = self._checked()
            found, size = [], 0
            for at in range(max(number, stored.first), len(stored.messages)):
                if size >= max_bytes:
                    break
                if stored.messages[at] is None:
                    continue
                found.append(Message(at, stored.messages[at], stored.times.get(at)))
                size += len(stored.messages[at])
            return found

    def reread(self, number):
        return next(iter(self.fetch(number, 1)), None)

    def drop(self, before):
        with self._server.lock:
            stored = self._checked()
            stored.first = max(stored.first, before)

    def watch(self, wake):
        with self._server.lock:
            self._stored.wakes.append(wake)
        return lambda: self._stored.wakes.remove(wake)

    def close(self):
        """Nothing to give back."""

    def _checked(self):
        if self._stored is None or self._server.topics.get(self._name) is not self._stored:
            raise TopicGone
        return self._stored
