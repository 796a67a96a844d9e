"""Retention where a server has none that is exact: which offset is the first that still counts.

Every reader and writer of a bounded stream works it out for itself from the messages, and all come to the same answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from lockstep.log.batch import peek
from lockstep.log.config import StreamConfig
from lockstep.log.port import Entry


@dataclass(frozen=True, slots=True)
class _Stored:
    base: int
    count: int
    size: int
    append_ns: int


class Tally:
    """The last batches of a stream with a limit, as far as they were looked at, and the first offset that counts."""

    def __init__(self, config: StreamConfig, start: int) -> None:
        self.next = start
        """The number of the message to look at next."""
        self.head = 0
        """Everything below is beyond the limits."""
        self._config = config
        self._batches: deque[_Stored] = deque()
        self._records = self._bytes = 0

    def add(self, number: int, entries: list[Entry]) -> None:
        """Take in the message that comes next."""
        self.next = number + 1
        for entry in entries:
            count, append_ns = peek(entry.data)
            self._batches.append(_Stored(entry.base, count, len(entry.data), append_ns))
            self._records += count
            self._bytes += len(entry.data)
        self._enforce()

    @property
    def is_full(self) -> bool:
        """Whether as many records were counted as the stream may hold."""
        return self._config.capacity is not None and self._records >= self._config.capacity

    def _enforce(self) -> None:
        limits, now_ns = self._config, self._batches[-1].append_ns
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
        return limits.retain_age_s is not None and now_ns - oldest.append_ns > limits.retain_age_s * 1e9


def is_bounded(config: StreamConfig) -> bool:
    """Whether a stream lets go of anything by itself."""
    return any(limit is not None for limit in (config.capacity, config.retain_bytes, config.retain_age_s))
