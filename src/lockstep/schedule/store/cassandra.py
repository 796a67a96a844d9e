"""Rows in Cassandra: the commit of a shard is one lightweight transaction that checks its fence.

    cassandra://USER@HOST:PORT/KEYSPACE?replication_factor=3

Records for streams are stored in the same transaction and relayed to the bus after it; see
lockstep.schedule.store.outbox. The table is in cassandra.cql and is created when the store is first opened.

How rows are found among those that were removed is in lockstep.schedule.store.cassandra_rows.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from heapq import merge
from typing import Any

from cassandra.cluster import ResponseFuture
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType

from lockstep.core.agenda import Event, Status
from lockstep.errors import BadArgument
from lockstep.log.port import Bus
from lockstep.runtime import Runtime
from lockstep.schedule.rows import KEY_BYTES, Change, CronRow, Fence, Run, ShardState
from lockstep.schedule.store.cassandra_rows import (
    APART,
    CRON,
    DUE,
    EARLIEST,
    ENDING,
    EVENT,
    EXPIRY,
    FIRING,
    FLOOR,
    HEAD,
    IDENTITY,
    LATEST,
    OUTBOX,
    PAYLOAD,
    ROWS_MAX,
    RUN,
    STATUSES,
    Index,
    Indexes,
    StoredOutbox,
    Writes,
    first_time,
    number_of,
    ordered,
    write_event,
)
from lockstep.schedule.store.cassandra_session import DRIVER_ERRORS, Session
from lockstep.schedule.store.cells import is_chosen
from lockstep.schedule.store.codec import (
    pack_cron,
    pack_cursor,
    pack_run,
    unpack_cron,
    unpack_cursor,
    unpack_event,
    unpack_run,
)
from lockstep.schedule.store.outbox import Letter, Outbox, Refusals, Relay
from lockstep.schedule.store.port import Due, Filter, Page, Store, StoreIdentity

SCANNED_MAX = 20_000
"""A page of a list looks at so many rows at most; the rest is on the next page."""
STATEMENTS_MAX = 65_535
"""A batch of the native protocol has no more."""
FLOOR_EVERY = 1000
"""After so many rows of an index were removed, its floor is looked up and stored."""
_FORGOTTEN_MAX = 10_000
_KEYS_AT_ONCE = 200
_PAYLOADS_AT_ONCE = 16
_CLAIM_TRIES = 10


@dataclass(slots=True)
class _Claim:
    """What the owner of a shard knows since its claim."""

    id: bytes
    floors: dict[Index, int]
    """As stored."""
    removed: Counter[Index] = field(default_factory=Counter)
    """Rows that were removed since a floor was stored."""


class CassandraStore(Store):
    """The store of one scheduler in a Cassandra keyspace; several threads may use it.

    If `commit` raises Unavailable, the change of each shard is stored as a whole or not at all, and which of both is
    not known: claim the shard again and go on from what is stored.
    """

    exactly_once = False
    change_bytes = 12 << 20

    def __init__(self, url: str, name: str, bus: Bus, runtime: Runtime) -> None:
        self._name, self._runtime = name, runtime
        self._outbox = Outbox(name, bus, runtime)
        self._relay = Relay(self._relay_stored, runtime)
        self._session = Session(url)
        self._indexes = Indexes(self._session, name)
        self._committing = threading.Lock()
        self._sent: dict[int, tuple[Fence, int]] = {}
        """By shard that this handle owns: how many records were put into its outbox in this epoch."""
        self._claims: dict[int, _Claim] = {}
        """By shard that this handle owns."""

    def __repr__(self) -> str:
        return f"CassandraStore({self._session.address.safe_url!r}, {self._name!r})"

    def identity(self) -> StoreIdentity:
        partition, place = ("", 0), (IDENTITY, "", 0, b"")
        self._session.run("put once", (*partition, *place, self._runtime.new_id()))
        [[found]] = self._session.run("row", (*partition, *place), serial=True)
        return StoreIdentity(found.hex(), self._session.address.safe_url)

    def claim(self, shard: int, fence: Fence) -> ShardState | None:
        """What an earlier owner left in the outbox is on the bus before this returns, but for what a stream refuses."""
        with self._committing:
            try:
                state = self._claim(shard, fence)
                if state is not None:
                    state = self._begin(shard, fence)
            except BaseException:
                self._forget(shard)
                raise
        if state is not None:
            self._relay.run(shard)
        return state

    def _begin(self, shard: int, fence: Fence) -> ShardState | None:
        """Give a claim its id. A commit of this owner that is still on its way has another, and can't happen later."""
        claim = _Claim(self._runtime.new_id(), self._indexes.floors(shard))
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        batch.add(self._session.bound("begin", (claim.id, self._name, shard, fence.seat, fence.member, fence.epoch)))
        batch.add(self._session.bound("put", (self._name, shard, HEAD, "", 0, b"", b"")))
        with self._session.errors():
            if not _is_applied(self._session.begin(batch)):
                return None
        self._claims[shard] = claim
        return self._claimed(shard, fence)

    def _forget(self, shard: int) -> None:
        """Nothing more is known about a shard: it has to be claimed before the next commit."""
        self._sent.pop(shard, None)
        self._claims.pop(shard, None)

    def _claim(self, shard: int, fence: Fence) -> ShardState | None:
        for _ in range(_CLAIM_TRIES):
            seat, member, epoch, *_ = self._state(shard)
            is_new_seat = seat != fence.seat
            if not is_new_seat and (epoch > fence.epoch or (epoch == fence.epoch and member != fence.member)):
                return None
            position = 0 if is_new_seat else UNSET_VALUE
            sent = 0 if is_new_seat or epoch != fence.epoch else UNSET_VALUE
            asked = (fence.seat, fence.member, fence.epoch, position, sent, self._name, shard, seat, member, epoch)
            if self._session.run("claim", asked)[0][0]:
                return self._claimed(shard, fence)
        reason = f"others claimed shard {shard} at the same time, {_CLAIM_TRIES} times in a row"
        raise self._session.unreachable(reason)

    def _claimed(self, shard: int, fence: Fence) -> ShardState | None:
        """What a new owner goes on from, read after its claim: the earlier owner may have committed until then."""
        seat, member, epoch, position, mark, sent = self._state(shard)
        if (seat, member, epoch) != (fence.seat, fence.member, fence.epoch):
            return None
        self._sent[shard] = (fence, sent or 0)
        return ShardState(position or 0, mark)

    def _state(self, shard: int) -> tuple[Any, ...]:
        """Fence and state of a shard, after what others began has been completed or given up."""
        found = self._session.run("state", (self._name, shard), serial=True)
        return tuple(found[0]) if found else (None,) * 6

    def commit(self, changes: Sequence[Change]) -> set[int]:
        """The change of each shard is a transaction of its own."""
        if len({change.shard for change in changes}) < len(changes):  # one after the other, in their order
            return set[int]().union(*(self.commit([change]) for change in changes))
        self._relay.catch_up({change.shard for change in changes})  # so that it is known what refuses
        refusals = self._relay.refusals()
        letters = [self._outbox.pack(change.outgoing, refusals) for change in changes]
        refused, failed, sending = set[int](), list[Exception](), set[int]()
        with self._committing:
            begun = self._send(changes, letters)
            for change, mine, future in zip(changes, letters, begun, strict=True):
                try:
                    is_stored = future is not None and _is_applied(future)
                except DRIVER_ERRORS as error:
                    self._forget(change.shard)
                    failed.append(error)
                    continue
                if not is_stored:
                    refused.add(change.shard)
                elif mine:
                    sending.add(change.shard)
        if sending:
            self._relay.send(sending, lambda: self._relay_all(sending, refusals))
        if failed:
            raise self._session.meaning(failed[0]) from failed[0]
        return refused

    def _send(self, changes: Sequence[Change], letters: Sequence[Sequence[Letter]]) -> list[ResponseFuture | None]:
        """Begin the transactions of changes. If one can't be sent, all shards have to be claimed again."""
        try:
            batches = [self._batch(change, mine) for change, mine in zip(changes, letters, strict=True)]
            return [None if batch is None else self._session.begin(batch) for batch in batches]
        except BaseException:
            for change in changes:
                self._forget(change.shard)
            raise

    def _batch(self, change: Change, letters: Sequence[Letter]) -> BatchStatement | None:
        """The transaction of a change; None if this handle has no claim on its shard with this fence."""
        shard, fence = change.shard, change.fence
        held = self._sent.get(shard)
        if held is None or held[0] != fence:
            return None
        sent = held[1]
        writes = self._writes(change)
        for letter in letters:
            numbered = letter.numbered(self._name, shard, fence, sent)
            place = (OUTBOX, fence.seat, numbered.batch.sequence, letter.log.encode())
            writes.put(place, numbered.sealed())
            writes.removed[place[:2]] += 1  # by the relay
            sent += letter.batch.count
        batch = self._transaction(fence, writes, shard, position=change.position, mark=change.mark, sent=sent)
        self._sent[shard] = (fence, sent)
        return batch

    def _transaction(
        self, fence: Fence, writes: Writes, shard: int, *,
        position: int | None = None, mark: int | None = None, sent: int | None = None,
    ) -> BatchStatement:  # fmt: skip
        """Rows that are changed if this handle's claim holds. What it knows of floors holds if the batch is stored."""
        claim = self._claims[shard]
        self._write_floors(shard, claim, writes)
        rows = writes.statements
        if len(rows) >= STATEMENTS_MAX:
            reason = f"it has {len(rows)} rows, and one transaction takes fewer than {STATEMENTS_MAX}"
            raise BadArgument(name="change", value=f"shard {shard}", reason=reason)
        state = (UNSET_VALUE if value is None else value for value in (position, mark, sent))
        batch = BatchStatement(batch_type=BatchType.UNLOGGED)
        asked = (*state, self._name, shard, fence.seat, fence.member, fence.epoch, claim.id)
        batch.add(self._session.bound("advance", asked))
        batch.add_all(rows, [None] * len(rows))
        return batch

    def _write_floors(self, shard: int, claim: _Claim, writes: Writes) -> None:
        """Lower the floors of indexes that get earlier rows, and raise those below which many rows were removed."""
        claim.removed += writes.removed
        raised = {index for index in claim.removed if claim.removed[index] >= FLOOR_EVERY}
        for index in writes.lowest.keys() | raised:
            stored = claim.floors.get(index, LATEST)
            floor = min(stored, writes.lowest.get(index, LATEST))
            if index in raised:
                first = self._indexes.first(shard, index, stored)
                floor = min(LATEST if first is None else first, writes.lowest.get(index, LATEST))
                del claim.removed[index]
            if floor not in (stored, LATEST):
                writes.put((FLOOR, index[1], 0, index[0].encode()), ordered(floor))
                claim.floors[index] = floor

    def _writes(self, change: Change) -> Writes:
        """What a change does to rows."""
        writes = Writes(self._session, self._name, change.shard)
        for key, (before, after) in change.events.items():
            write_event(writes, key, before, after)
        for key, cron in change.crons.items():
            writes.replace((CRON, "", 0, key), None if cron is None else pack_cron(cron))
        for run in change.runs:
            writes.put((RUN, run.cron, run.at, ordered(run.bucket)), pack_run(run))
            if run.expires is not None:
                key = _digest(run.cron) + ordered(run.at) + ordered(run.bucket)
                writes.put((EXPIRY, "", run.expires, key), run.cron.encode())
        return writes

    def _relay_all(self, shards: Iterable[int], known: Refusals) -> Refusals:
        refused: Refusals = {}
        for shard in shards:
            refused |= self._relay_stored(shard, known)
        return refused

    def _relay_stored(self, shard: int, known: Refusals | None = None) -> Refusals:
        """Relay the outbox of a shard, but for logs that are known to refuse; return the logs of what is left in it."""
        claim = self._claims.get(shard)
        floors = self._indexes.floors(shard) if claim is None else dict(claim.floors)
        left: Refusals = {}
        for index, floor in floors.items():
            if index[0] == OUTBOX:
                left |= StoredOutbox(self._session, self._outbox, self._name, shard, index).relay(floor, known or {})
        return left

    def forget_stream(self, name: str) -> None:
        self._outbox.forget_stream(name)

    def tenants(self, shard: int) -> dict[str, int]:
        floors = {name: floor for (kind, name), floor in self._indexes.floors(shard).items() if kind == DUE}
        firsts = {name: self._indexes.first(shard, (DUE, name), floor) for name, floor in floors.items()}
        return {name: due for name, due in firsts.items() if due is not None}

    def due(self, shard: int, tenant: str, start: int, stop: int, limit: int) -> list[Due]:
        return [Due(key, due) for due, key, _ in self._indexes.rows(shard, (DUE, tenant), start, stop, limit)]

    def due_events(self, shard: int, tenant: str, start: int, stop: int, limit: int) -> dict[bytes, Event]:
        return self.get(shard, [one.key for one in self.due(shard, tenant, start, stop, limit)])

    def next_due(self, shard: int, tenant: str, start: int = 0) -> int | None:
        return self._indexes.first(shard, (DUE, tenant), start)

    def firing(self, shard: int) -> list[Event]:
        return list(self._firing(shard).values())

    def _firing(self, shard: int) -> dict[bytes, Event]:
        floor = self._indexes.floor(shard, (FIRING, ""))
        return self.get(shard, [row[1] for row in self._indexes.rows(shard, (FIRING, ""), floor, LATEST, ROWS_MAX)])

    def expired(self, shard: int, before: int, limit: int) -> list[Event]:
        floor = self._indexes.floor(shard, (ENDING, ""))
        keys = [row[1] for row in self._indexes.rows(shard, (ENDING, ""), floor, before - 1, limit)]
        return list(self.get(shard, keys).values())

    def get(self, shard: int, keys: Sequence[bytes]) -> dict[bytes, Event]:
        found = self._get(shard, EVENT, keys, _KEYS_AT_ONCE)
        apart = [key for key in keys if key in found and found[key].startswith(APART)]
        payloads = self._get(shard, PAYLOAD, apart, _PAYLOADS_AT_ONCE)
        events = {}
        for key in keys:
            if key in found and key not in apart:
                events[key] = unpack_event(found[key])
            elif key in payloads:
                events[key] = replace(unpack_event(found[key].removeprefix(APART)), payload=payloads[key])
        return events

    def _get(self, shard: int, kind: str, keys: Sequence[bytes], at_once: int) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for first in range(0, len(keys), at_once):
            found.update(self._session.run("get", (self._name, shard, kind, list(keys[first : first + at_once]))))
        return found

    def crons(self, shard: int) -> Iterator[CronRow]:
        return (unpack_cron(row) for *_, row in self._session.run("kind", (self._name, shard, CRON)))

    def cron(self, shard: int, key: bytes) -> CronRow | None:
        found = self._session.run("get", (self._name, shard, CRON, [key]))
        return unpack_cron(found[0][1]) if found else None

    def runs(self, shard: int, cron: str, limit: int) -> list[Run]:
        found = self._session.run("newest", (self._name, shard, RUN, cron, limit))
        return [unpack_run(row, number_of(key), at) for at, key, row in found]

    def forget_runs(self, shard: int, fence: Fence, before: int) -> int:
        """At most 10,000 are removed by a call."""
        held = self._sent.get(shard)
        if held is None or held[0] != fence:
            return 0
        floor = self._claims[shard].floors.get((EXPIRY, ""), EARLIEST)
        found = self._indexes.rows(shard, (EXPIRY, ""), floor, before - 1, _FORGOTTEN_MAX)
        if not found:
            return 0
        writes, count = Writes(self._session, self._name, shard), 0
        places = [
            (RUN, cron.decode(), number_of(key[KEY_BYTES : KEY_BYTES + 8]), key[KEY_BYTES + 8 :])
            for _, key, cron in found
        ]
        runs = self._session.run_all("row", [(self._name, shard, *place) for place in places])
        for (expires, key, _), place, stored in zip(found, places, runs, strict=True):
            writes.remove((EXPIRY, "", expires, key))
            if stored and unpack_run(stored[0][0], 0, 0).expires == expires:  # else it was logged again
                writes.remove(place)
                count += 1
        return count if self._is_written(shard, fence, writes) else 0

    def _is_written(self, shard: int, fence: Fence, writes: Writes) -> bool:
        """Store rows that are no change of a node, and return whether this handle's claim held."""
        with self._committing, self._session.errors():
            try:
                return _is_applied(self._session.begin(self._transaction(fence, writes, shard)))
            except BaseException:
                self._forget(shard)
                raise

    def forget_tenants(self, shard: int, fence: Fence) -> int:
        """At most 10,000 are removed by a call."""
        held = self._sent.get(shard)
        if held is None or held[0] != fence:
            return 0
        claim = self._claims[shard]
        waiting = ((index, floor) for index, floor in list(claim.floors.items()) if index[0] == DUE)
        gone = [index for index, floor in waiting if self._indexes.first(shard, index, floor) is None][:_FORGOTTEN_MAX]
        if not gone:
            return 0
        writes = Writes(self._session, self._name, shard)
        for kind, tenant in gone:
            writes.remove((FLOOR, tenant, 0, kind.encode()))
        if not self._is_written(shard, fence, writes):
            return 0
        for index in gone:
            del claim.floors[index]
            claim.removed.pop(index, None)
        return len(gone)

    def events(self, shards: Sequence[int], chosen: Filter, limit: int, cursor: str | None = None) -> Page:
        start = unpack_cursor(cursor)
        found: list[Event] = []
        places = merge(*(self._places(shard, chosen, start) for shard in shards))
        for looked_at, part in enumerate(_parts(places, _KEYS_AT_ONCE)):
            rows = self._rows_at(part)
            for place in part:
                if len(found) >= limit or (place is part[0] and looked_at * _KEYS_AT_ONCE >= SCANNED_MAX):
                    return Page(found, pack_cursor(place[0], place[1]))
                event = rows.get(place[1:])
                if event is not None and is_chosen(event, chosen):
                    found.append(event)
        return Page(found)

    def _rows_at(self, places: Sequence[tuple[int, bytes, int]]) -> dict[tuple[bytes, int], Event]:
        """Events by key and shard."""
        by_shard: dict[int, list[bytes]] = {}
        for _, key, shard in places:
            by_shard.setdefault(shard, []).append(key)
        return {(key, shard): event for shard, keys in by_shard.items() for key, event in self.get(shard, keys).items()}

    def _places(self, shard: int, chosen: Filter, start: tuple[int, bytes]) -> Iterator[tuple[int, bytes, int]]:
        """Time, row key and shard of events, in that order: those that have ended, are unfired, and under way."""
        asked = frozenset(Status) if chosen.status is None else chosen.status
        kinds = {kind for kind, statuses in STATUSES.items() if asked & statuses}
        scans = [
            self._indexes.scan(shard, index, max(start, (floor, b""), (first_time(index[0], chosen), b"")))
            for index, floor in self._indexes.floors(shard).items()
            if index[0] in kinds and (index[0] == ENDING or chosen.tenant in (None, index[1]))
        ]
        if Status.FIRING in asked:
            under_way = sorted((event.due, key, shard) for key, event in self._firing(shard).items())
            scans.append(place for place in under_way if place[:2] >= start)
        return merge(*scans)

    def close(self) -> None:
        self._relay.close()
        self._session.close()


def _is_applied(future: ResponseFuture) -> bool:
    """Whether the fence of a transaction held."""
    return bool(future.result().one()[0])


def _parts(places: Iterator[tuple[int, bytes, int]], size: int) -> Iterator[list[tuple[int, bytes, int]]]:
    part: list[tuple[int, bytes, int]] = []
    for place in places:
        part.append(place)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=KEY_BYTES).digest()
