"""Where records go that a stream's capacity no longer holds.

A history gets every batch before the stream shows it; if it fails, the publish fails and the stream is unchanged.
"""

from __future__ import annotations

import bisect
from typing import Protocol

from lockstep.log.port import Entry


class History(Protocol):
    """Long-term memory of one stream.

    Contract (checked by tests/contract for every history): what was stored is read back byte for byte; storing an
    offset again replaces it and everything above it (an append that did not happen after all); offsets grow.
    """

    def store(self, base: int, count: int, data: bytes) -> None:
        """Keep one batch. Called before the stream takes it; an exception fails the publish."""

    def read(self, offset: int) -> Entry | None:
        """The batch that holds `offset`, or the next one above it, or None."""

    def next_offset(self) -> int:
        """The offset after the last stored record; 0 if nothing is stored."""

    def close(self) -> None:
        """Give back what it uses."""


class HeapHistory(History):
    """A history in memory, for tests and for buses in memory."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._counts: list[int] = []
        self._data: list[bytes] = []

    def store(self, base: int, count: int, data: bytes) -> None:
        cut = bisect.bisect_left(self._bases, base)
        for column in (self._bases, self._counts, self._data):
            del column[cut:]
        self._bases.append(base)
        self._counts.append(count)
        self._data.append(data)

    def read(self, offset: int) -> Entry | None:
        at = max(bisect.bisect_right(self._bases, offset) - 1, 0)
        while at < len(self._bases):
            if self._bases[at] + self._counts[at] > offset:
                return Entry(self._bases[at], self._data[at])
            at += 1
        return None

    def next_offset(self) -> int:
        return self._bases[-1] + self._counts[-1] if self._bases else 0

    def close(self) -> None:
        """Does nothing: the memory goes with the object."""


class NullHistory(History):
    """A history that keeps nothing."""

    def store(self, base: int, count: int, data: bytes) -> None:
        """Does nothing."""

    def read(self, offset: int) -> Entry | None:  # noqa: ARG002 - there is nothing to look for
        return None

    def next_offset(self) -> int:
        return 0

    def close(self) -> None:
        """Does nothing."""
