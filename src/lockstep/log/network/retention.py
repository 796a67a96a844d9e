"""Retention where a server has none that is exact: which offset is the first that still counts.

Every reader and writer of a bounded stream works it out for itself from the messages. Count and bytes give the same
answer to all. So does age where the server stamps messages (Kafka, RabbitMQ): the time is that of the newest message.

Where it does not (Hazelcast), the only stamps are those of the writers' clocks, of which one may be wrong. Time is then
the observer's own clock, but not later than the newest stamp: a single clock that is ahead hides nothing from others.
If clocks differ, records are kept longer than asked, never shorter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from lockstep.log.batch import peek
from lockstep.log.config import StreamConfig
from lockstep.log.port import Entry


@dataclass(frozen=True, slots=True)
class _Stored:
    base: int
    count: int
    size: int
    time_ns: int


class RetentionWindow:
    """The batches of a bounded stream that are within its limits, and the first offset that counts."""

    def __init__(self, config: StreamConfig, start: int, now_ns: Callable[[], int]) -> None:
        self.next = start
        """The number of the message to look at next."""
        self.head = 0
        """Everything below this offset is beyond the limits."""
        self._config, self._now_ns = config, now_ns
        self._batches: deque[_Stored] = deque()
        self._records = self._bytes = 0

    def add(self, number: int, entries: list[Entry], time_ns: int | None = None) -> None:
        """Add the next message; `time_ns` is when the server stored it, if the server tells."""
        self.next = number + 1
        for entry in entries:
            count, append_ns = peek(entry.data)
            stamp = append_ns if time_ns is None else time_ns
            self._batches.append(_Stored(entry.base, count, len(entry.data), stamp))
            self._records += count
            self._bytes += len(entry.data)
        newest_ns = self._batches[-1].time_ns
        self._enforce(newest_ns if time_ns is not None else min(self._now_ns(), newest_ns))

    @property
    def is_full(self) -> bool:
        """Whether as many records were counted as the stream may hold."""
        return self._config.capacity is not None and self._records >= self._config.capacity

    def _enforce(self, now_ns: int) -> None:
        limits = self._config
        while len(self._batches) > 1 and self._is_beyond(self._batches[0], now_ns):
            gone = self._batches.popleft()
            self._records -= gone.count
            self._bytes -= gone.size
        oldest = self._batches[0]
        over = max(self._records - limits.capacity, 0) if limits.capacity is not None else 0
        self.head = max(self.head, oldest.base + over)

    def _is_beyond(self, oldest: _Stored, now_ns: int) -> bool:
        limits = self._config
        if limits.capacity is not None and self._records - oldest.count >= limits.capacity:
            return True
        if limits.retain_bytes is not None and self._bytes > limits.retain_bytes:
            return True
        return limits.retain_age_s is not None and now_ns - oldest.time_ns > limits.retain_age_s * 1e9


def only_by_age(config: StreamConfig) -> bool:
    """Whether age is the only limit: then nothing has to be counted."""
    return config.retain_age_s is not None and config.capacity is None and config.retain_bytes is None


def is_bounded(config: StreamConfig) -> bool:
    """Whether a stream drops records by itself."""
    return any(limit is not None for limit in (config.capacity, config.retain_bytes, config.retain_age_s))
