"""A ring of Hazelcast in memory: numbered items, as much as reading ahead asks for."""

from __future__ import annotations

from lockstep.errors import ServerUnreachable
from lockstep.log.hazelcast.reader import Future


class FakeRing:
    """A ring in memory; `asked` is every question it was asked."""

    capacity = 100_000

    def __init__(self, items):
        self.items, self.asked, self.is_away = items, [], False

    def read(self, start, count):
        self.asked.append((start, count))
        return self._found(start, count), len(self.items) - 1

    def begin_read(self, start, count):
        self.asked.append((start, count))
        future = Future()
        future.set_result(self._found(start, count))
        return future

    def end_read(self, reading):
        if self.is_away:
            raise ServerUnreachable(server="s", reason="away")
        return reading.result()

    def _found(self, start, count):
        return [(at, self.items[at]) for at in range(start, min(start + count, len(self.items)))]
