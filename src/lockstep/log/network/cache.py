"""The last batches that a handle fetched: who reads on, or reads a part again, needs no way to the server."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from lockstep.log.batch import peek
from lockstep.log.port import Entry

CACHE_BYTES = 8 << 20


class FetchCache:
    """Batches without a gap in between that was not the server's: everything from `start` up to `end`."""

    def __init__(self) -> None:
        self.start = self.end = 0
        self.number = 0
        """The message to ask for next."""
        self._entries: list[Entry] = []
        self._bases: list[int] = []
        self._size = 0

    def begin(self, offset: int, number: int) -> None:
        """Forget everything, and go on from an offset."""
        self.start = self.end = offset
        self.number = number
        self._entries, self._bases, self._size = [], [], 0

    def add(self, entries: Sequence[Entry], number: int) -> None:
        """What the next message holds; `number` is the one behind it."""
        self._entries += entries
        self._bases += [entry.base for entry in entries]
        self._size += sum(len(entry.data) for entry in entries)
        if entries:
            self.end = max(self.end, entries[-1].base + peek(entries[-1].data)[0])
        self.number = number

    def has(self, offset: int) -> bool:
        """Whether whoever reads from an offset finds it here, or has to go on from the end."""
        return self.start <= offset <= self.end

    def take(self, offset: int, max_bytes: int) -> list[Entry]:
        """Batches from the one that holds an offset on, at least one if there is any."""
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
        """Let the oldest go if it is too much, but nothing that somebody who reads from an offset needs."""
        gone = 0
        while self._size > CACHE_BYTES and gone + 1 < len(self._bases) and self._bases[gone + 1] <= offset:
            self._size -= len(self._entries[gone].data)
            gone += 1
        if gone:
            self.start = self._bases[gone]
            del self._entries[:gone], self._bases[:gone]
