"""Rows of a scheduler in Cassandra: their kinds, what a transaction writes, and how an index is read.

A row that is removed leaves a tombstone until it is compacted, hours later, and Cassandra refuses to read across more
than 100,000 of them. Rows of an index come and go about in the order of time. So each index has a floor, which is a row
too: no row of the index is before it, and reads begin there. Where tombstones are dense all the same, say after many
events were cancelled, an index is read in spans of time that are short enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from cassandra import ReadFailure
from cassandra.query import BoundStatement

from lockstep.core.agenda import ENDED, UNFIRED, Event, Status
from lockstep.errors import LockstepError, ServerUnreachable
from lockstep.schedule.store.cassandra_session import Session
from lockstep.schedule.store.codec import pack_event
from lockstep.schedule.store.outbox import Outbox, Refusals, unsealed
from lockstep.schedule.store.port import EARLY_MS, Filter

EVENT, DUE, FIRING, ENDING, FLOOR = "event", "due", "firing", "ended", "floor"
CRON, RUN, EXPIRY, OUTBOX = "cron", "run", "expiry", "outbox"
PAYLOAD, APART = "payload", b"\xff"
"""A large payload, and what the row of its event begins with."""
IDENTITY = "identity"
"""A row of no scheduler, which tells this store from others."""
HEAD = ""
"""A row that is before all others from the first claim on: what a transaction checks is read with the first row of the
shard, so across the tombstones before it."""
INDEXES = frozenset({DUE, FIRING, ENDING, EXPIRY, OUTBOX})
PAYLOAD_APART = 4096
"""A payload that is larger is a row of its own. It is written when it changes, and not with every step of its event: a
transaction takes no more than 16 MiB."""
ROWS_MAX = (1 << 31) - 1
EARLIEST, LATEST = -(1 << 63), (1 << 63) - 1
FIRST_SPAN_MS = 60_000
_SCANNED_AT_ONCE = 500

Index = tuple[str, str]
"""The kind of an index, and its name: the tenant, or the seat of an outbox."""
Place = tuple[str, str, int, bytes]
"""Where a row is in its shard: kind, name, time and key."""


class Writes:
    """Rows that a transaction puts and removes."""

    def __init__(self, session: Session, scheduler: str, shard: int) -> None:
        self._session, self._partition = session, (scheduler, shard)
        self.statements: list[BoundStatement] = []
        self.lowest: dict[Index, int] = {}
        """Of each index: the earliest row that is put."""
        self.removed: Counter[Index] = Counter()

    def put(self, place: Place, row: bytes = b"") -> None:
        """Put a row."""
        self.statements.append(self._session.bound("put", (*self._partition, *place, row)))
        kind, name, time, _ = place
        if kind in INDEXES:
            self.lowest[kind, name] = min(time, self.lowest.get((kind, name), time))

    def remove(self, place: Place) -> None:
        """Remove a row."""
        self.statements.append(self._session.bound("remove", (*self._partition, *place)))
        if place[0] in INDEXES:
            self.removed[place[:2]] += 1

    def replace(self, place: Place, row: bytes | None) -> None:
        """Put a row, or remove it if there is none."""
        if row is None:
            self.remove(place)
        else:
            self.put(place, row)


class Indexes:
    """Reads the indexes of a scheduler's shards."""

    def __init__(self, session: Session, scheduler: str) -> None:
        self._session, self._scheduler = session, scheduler

    def floors(self, shard: int) -> dict[Index, int]:
        """The floors of all indexes of a shard."""
        found = self._session.run("kind", (self._scheduler, shard, FLOOR))
        return {(kind.decode(), name): number_of(row) for name, _, kind, row in found}

    def floor(self, shard: int, index: Index) -> int:
        """The floor of an index."""
        found = self._session.run("row", (self._scheduler, shard, FLOOR, index[1], 0, index[0].encode()))
        return number_of(found[0][0]) if found else EARLIEST

    def first(self, shard: int, index: Index, start: int) -> int | None:
        """The time of the first row at or after `start`."""
        found = self.rows(shard, index, start, LATEST, 1)
        return found[0][0] if found else None

    def rows(
        self, shard: int, index: Index, start: int, stop: int, limit: int, *, key: bytes = b""
    ) -> list[tuple[Any, ...]]:
        """Time, key and value of rows from `start` up to and including `stop`; those at `start` from `key` on."""
        if limit < 1 or start > stop:
            return []
        try:
            return self._between(shard, index, (start, key), stop, limit)
        except ServerUnreachable as error:
            if not isinstance(error.__cause__, ReadFailure):
                raise
        return self._rows_by_span(shard, index, (start, key), stop, limit)

    def _rows_by_span(
        self, shard: int, index: Index, start: tuple[int, bytes], stop: int, limit: int
    ) -> list[tuple[Any, ...]]:
        """The same where tombstones are dense: spans are halved until they can be read, and doubled after that."""
        found = list[tuple[Any, ...]]()
        span = FIRST_SPAN_MS
        while start[0] <= stop and len(found) < limit:
            end = min(start[0] + span - 1, stop)
            try:
                found += self._between(shard, index, start, end, limit - len(found))
            except ServerUnreachable as error:
                if not isinstance(error.__cause__, ReadFailure) or span == 1:
                    raise
                span //= 2
                continue
            start, span = (end + 1, b""), span * 2
        return found

    def _between(
        self, shard: int, index: Index, start: tuple[int, bytes], stop: int, limit: int
    ) -> list[tuple[Any, ...]]:
        return self._session.run("between", (self._scheduler, shard, *index, *start, stop, limit))

    def scan(self, shard: int, index: Index, start: tuple[int, bytes]) -> Iterator[tuple[int, bytes, int]]:
        """Time, key and shard of all rows from a place on."""
        is_more = True
        while is_more:
            rows = self.rows(shard, index, start[0], LATEST, _SCANNED_AT_ONCE, key=start[1])
            yield from ((time, key, shard) for time, key, _ in rows)
            is_more = len(rows) == _SCANNED_AT_ONCE
            if is_more:
                start = (rows[-1][0], rows[-1][1] + b"\0")


def ordered(number: int) -> bytes:
    """A number as bytes that have its order."""
    return (number + (1 << 63)).to_bytes(8, "big")


def number_of(ordered: bytes) -> int:
    """The number that such bytes stand for."""
    return int.from_bytes(ordered, "big") - (1 << 63)


def write_event(writes: Writes, key: bytes, before: Event | None, after: Event | None) -> None:
    """Change the rows of an event: itself, where it is found, and a large payload."""
    found_at, found_now = index_of(key, before), index_of(key, after)
    if found_at is not None and found_at != found_now:
        writes.remove(found_at)
    if found_now is not None and found_at != found_now:
        writes.put(found_now)
    old, new = _payload_apart(before), _payload_apart(after)
    if old != new:
        writes.replace((PAYLOAD, "", 0, key), new)
    row = None
    if after is not None:
        row = pack_event(after) if new is None else APART + pack_event(replace(after, payload=None))
    writes.replace((EVENT, "", 0, key), row)


def _payload_apart(event: Event | None) -> bytes | None:
    """The payload of an event, if it is a row of its own."""
    if event is None or event.payload is None or len(event.payload) <= PAYLOAD_APART:
        return None
    return event.payload


def index_of(key: bytes, event: Event | None) -> Place | None:
    """Where an event is found by what it waits for."""
    if event is None:
        return None
    if event.status in UNFIRED:
        return (DUE, event.tenant, event.due, key)
    if event.status is Status.FIRING:
        return (FIRING, "", event.due, key)
    return (ENDING, "", event.expires_from, key)


STATUSES: Mapping[str, frozenset[Status]] = {DUE: UNFIRED, ENDING: ENDED}
"""The events that are in an index."""


def first_time(kind: str, chosen: Filter) -> int:
    """Where a list of events begins in an index."""
    if chosen.start is None:
        return EARLIEST
    return chosen.start if kind == ENDING else chosen.start - EARLY_MS


RELAYED_AT_ONCE = 100


class StoredOutbox:
    """The letters that one seat of a shard has sent: rows in the order of their sequence."""

    def __init__(self, session: Session, outbox: Outbox, scheduler: str, shard: int, index: Index) -> None:
        self._session, self._outbox = session, outbox
        self._place = (scheduler, shard, *index)

    def relay(self, start: int, known: Mapping[str, LockstepError]) -> Refusals:
        """Relay letters from a place on, but for logs that are known to refuse; return the logs of what is left."""
        refused, left = dict(known), Refusals()
        kept: int | None = None
        """The place of the last letter that is kept."""
        is_more = True
        while is_more:
            found = self._session.run("outbox", (*self._place, start, RELAYED_AT_ONCE))
            if not found:
                break
            logs = [row[1].decode() for row in found]
            sent = [(row, log) for row, log in zip(found, logs, strict=True) if log not in refused]
            published = self._outbox.publish([unsealed(log, row[2]) for row, log in sent], stored=True)
            refused |= published.refused
            left |= {log: refused[log] for log in logs if log in refused}
            kept = self._forget(found, {sent[place][0][0] for place in published.taken}, kept)
            if published.failure is not None:
                raise published.failure
            start, is_more = found[-1][0] + 1, len(found) == RELAYED_AT_ONCE
        return left

    def _forget(self, rows: Sequence[tuple[Any, ...]], gone: set[int], kept: int | None) -> int | None:
        """Remove letters that were relayed: all between two that are kept by one tombstone. Return the last one kept.

        The next tombstone after the same letter covers this one, so that a letter may be kept for days.
        """
        for is_gone, part in groupby(rows, lambda row: row[0] in gone):
            run = list(part)
            if is_gone:
                written = max(row[3] for row in run)
                after = EARLIEST if kept is None else kept
                self._session.run("relayed", (written, *self._place, after, run[-1][0]))
            else:
                kept = run[-1][0]
        return kept
