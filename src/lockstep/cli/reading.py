"""Reading until an end: of the stream, of a time, of a number of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.errors import TimedOut

if TYPE_CHECKING:
    from lockstep.runtime import Runtime
    from lockstep.streams.record import Record, RecordBatch
    from lockstep.streams.subscriber import Subscriber

JOIN_S = 15.0
_POLL_S = 1.0
_JOINING_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """When to stop; without any limit, never."""

    ends: Mapping[str, int] | None = None
    """For each log, the offset before which to stop."""
    until_ns: int | None = None
    """Stop before the first record appended at or after this time."""
    records_max: int | None = None


class Reading:
    """Lists of records, never empty, up to the limits."""

    def __init__(self, subscriber: Subscriber, limits: Limits, runtime: Runtime) -> None:
        self._subscriber, self._limits, self._runtime = subscriber, limits, runtime
        self._finished: set[str] = set()
        self._left = limits.records_max
        self._join_by = runtime.monotonic() + JOIN_S

    def __iter__(self) -> Iterator[list[Record]]:
        while self._left != 0:
            self._leave_finished()
            if self._is_over():
                return
            batch = self._subscriber.poll(self._wait_s(), max_records=self._left)
            if not batch:
                if self._limits.until_ns is not None and self._runtime.wall_ns() >= self._limits.until_ns:
                    return
                continue
            records = self._within(batch)
            if len(records) < len(batch):
                self._finish(batch.stream)
            if records:
                if self._left is not None:
                    self._left -= len(records)
                yield records

    def _within(self, batch: RecordBatch) -> list[Record]:
        end = None if self._limits.ends is None else self._limits.ends[batch.stream]
        until = self._limits.until_ns
        return [
            record
            for record in batch
            if (end is None or record.offset < end) and (until is None or record.appended_ns < until)
        ]

    def _leave_finished(self) -> None:
        for log, end in (self._limits.ends or {}).items():
            position = self._subscriber.offset(log)
            if position is not None and position >= end:
                self._finish(log)

    def _finish(self, log: str) -> None:
        self._finished.add(log)
        self._subscriber.pause(log)

    def _is_over(self) -> bool:
        """Whether all that may be read is read. In a group, others may have some of the shards."""
        assigned, has_time = self._subscriber.assigned, self._runtime.monotonic() < self._join_by
        if not assigned and self._limits.ends is not None and not has_time:
            raise TimedOut(what=f"Waiting for another member of group {self._subscriber.group!r}", seconds=JOIN_S)
        if self._subscriber.unowned and has_time:  # who comes first gets its shards one after the other
            return False
        return bool(assigned) and self._finished.issuperset(assigned)

    def _wait_s(self) -> float:
        if not self._subscriber.is_assigned:
            return _JOINING_POLL_S
        if self._limits.ends is not None:
            return 0.0
        if self._limits.until_ns is None:
            return _POLL_S
        return min(max((self._limits.until_ns - self._runtime.wall_ns()) / 1e9, 0.0), _POLL_S)
