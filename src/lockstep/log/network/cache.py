"""The last batches that a handle fetched, so that reading on or again needs no round trip."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from lockstep.log.batch import peek
from lockstep.log.port import Entry

CACHE_BYTES = 8 << 20


class FetchCache:
    """Consecutive batches of the last fetches, covering offsets `start` to `end`."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.number = 0
        """The number of the message to fetch next."""
        self._entries: list[Entry] = []
        self._bases: list[int] = []
        self._size = 0

    def begin(self, offset: int, number: int) -> None:
        """Drop everything and start at an offset."""
        self.start = self.end = offset
        self.number = number
        self._entries, self._bases, self._size = [], [], 0

    def add(self, entries: Sequence[Entry], number: int) -> None:
        """Add the batches of the next message; `number` is the number after it."""
        self._entries += entries
        self._bases += [entry.base for entry in entries]
        self._size += sum(len(entry.data) for entry in entries)
        if entries:
            self.end = max(self.end, entries[-1].base + peek(entries[-1].data)[0])
        self.number = number

    def has(self, offset: int) -> bool:
        """Whether reading from an offset can be answered from here, or goes on at the end."""
        return self.start <= offset <= self.end

    def take(self, offset: int, max_bytes: int) -> list[Entry]:
        """Batches from the one that holds an offset on; at least one if there is any."""
        at = max(bisect_right(self._bases, offset) - 1, 0)
        found, size = list[Entry](), 0
        for entry in self._entries[at:]:
            if size >= max_bytes:
                break
            if entry.base + peek(entry.data)[0] > offset:
                found.append(entry)
                size += len(entry.data)
        return found

    def forget_before(self, offset: int) -> None:
        """Drop the oldest batches above the size limit, but none that a reader at an offset needs."""
        gone = 0
        while self._size > CACHE_BYTES and gone + 1 < len(self._bases) and self._bases[gone + 1] <= offset:
            self._size -= len(self._entries[gone].data)
            gone += 1
        if gone:
            self.start = self._bases[gone]
            del self._entries[:gone], self._bases[:gone]
