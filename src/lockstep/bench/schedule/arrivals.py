"""What arrives on the stream of fired events: counted, timed and compared with what was scheduled.

The id of an event is its number and its time, `17-1800000000000`, so that a reader knows both without a table.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lockstep.drill import measure
from lockstep.log.port import Log
from lockstep.streams.client import Lockstep
from lockstep.streams.cursor import Cursor

_READ_RECORDS, _READ_BYTES = 20_000, 8 << 20
_NS_PER_MS = 1_000_000
_POLL_S = 0.1


def event_name(number: int, at: int) -> str:
    """The id of an event."""
    return f"{number}-{at}"


class Arrivals:
    """Counts arrivals of events 0 to `most` - 1, and how late each was."""

    def __init__(self, most: int) -> None:
        self._counts = array("B", bytes(most))
        self.late_ms = array("d")
        self.first_ns = self.last_ns = 0
        self.distinct = self.duplicated = self.early = self.unknown = 0

    def add(self, keys: Iterable[bytes], now_ns: int) -> None:
        """Note that records with these keys could be read at a time."""
        counts, most, late_ms, now_ms = self._counts, len(self._counts), self.late_ms, now_ns / _NS_PER_MS
        for key in keys:
            number, _, at = key.partition(b"-")
            index = int(number)
            if index >= most:
                self.unknown += 1
                continue
            if counts[index]:
                self.duplicated += 1
                continue
            counts[index] = 1
            late = now_ms - int(at)
            self.early += late < 0
            self.distinct += 1
            late_ms.append(late)
        self.first_ns = self.first_ns or now_ns
        self.last_ns = now_ns

    def missing(self, expected: int) -> int:
        """How many of the first `expected` events have not arrived."""
        return expected - sum(self._counts[:expected])

    def faults(self, expected: int) -> dict[str, int]:
        """What must be 0."""
        return {
            "lost": self.missing(expected), "duplicated": self.duplicated, "early": self.early,
            "unknown": self.unknown,
        }  # fmt: skip

    def lateness(self) -> dict[str, float]:
        """Milliseconds."""
        return lateness(self.late_ms)


def lateness(late_ms: Sequence[float]) -> dict[str, float]:
    """The middle, the 99th percentile and the largest of milliseconds."""
    found = {name: measure.percentile(late_ms, at) for name, at in (("p50", 50), ("p99", 99), ("max", 100))}
    return {name: round(value, 1) for name, value in found.items()}


def wrong(faults: dict[str, int]) -> int:
    """All faults together."""
    return sum(faults.values())


class Reader:
    """Reads the stream of fired events from now on."""

    def __init__(self, bus: Lockstep, stream: str, arrivals: Arrivals) -> None:
        self._log: Log = bus.logs(stream)[0]
        self._cursor = Cursor(self._log, self._log.bounds().next, on_gap="fail", dedupe=not bus.promises.dedupe)
        self._waiter = bus.bus.waiter()
        self._waiter.watch(self._log)
        self.arrivals = arrivals
        self.on_read: Callable[[list[bytes], int], None] | None = None

    def poll(self, timeout: float = _POLL_S) -> int:
        """Read what is there, waiting for it if nothing is; return how much it was."""
        found = self._read()
        if not found and timeout > 0:
            self._waiter.wait(timeout)
            found = self._read()
        return found

    def _read(self) -> int:
        segments, _ = self._cursor.peek(_READ_RECORDS, _READ_BYTES)
        if not segments:
            return 0
        now_ns, keys = time.time_ns(), list[bytes]()
        for segment in segments:
            keys += [key or b"" for key in segment.view.keys()[segment.start : segment.stop]]
        self.arrivals.add(keys, now_ns)
        if self.on_read is not None:
            self.on_read(keys, now_ns)
        self._cursor.hand_out(segments[-1].last_offset)
        return len(keys)

    def read_until(self, expected: int, timeout: float) -> bool:
        """Read until `expected` events have arrived; returns False if they do not arrive in time."""
        end = time.monotonic() + timeout
        while self.arrivals.distinct < expected:
            if time.monotonic() >= end:
                return False
            self.poll()
        return True

    def read_for(self, seconds: float) -> None:
        """Read for a while: for copies that come late."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.poll(left)

    def close(self) -> None:
        """Give back what it uses."""
        self._waiter.close()


def shares(counts: dict[str, int]) -> dict[str, Any]:
    """The share of each node, and by how much the farthest is off an equal one, as part of that."""
    total, equal = sum(counts.values()), 1 / max(len(counts), 1)
    found = {name: round(count / total, 4) for name, count in sorted(counts.items())} if total else {}
    off = max((abs(share - equal) / equal for share in found.values()), default=0.0)
    return {"shares": found, "off": round(off, 4)}
