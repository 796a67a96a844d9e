"""Rows in the cells of an embedded bus: the default store. Rows and records of a step are one transaction of the bus.

All keys of a scheduler begin with its name and the shard; then a letter for the kind.

| kind        | key after the shard              | value                              |
| ----------- | -------------------------------- | ---------------------------------- |
| `e` event   | row key                          | the event                          |
| `d` due     | tenant, due time, row key        | nothing; unfired events only       |
| `f` firing  | row key                          | nothing; deliveries under way      |
| `x` ended   | time, row key                    | nothing; by when the keep time began |
| `t` tenant  | digest of the tenant             | the tenant's name                  |
| `c` cron    | row key                          | the cron                           |
| `r` run     | digest of the cron, time, bucket | the run                            |
| `y` expiry  | time, digest of the cron, time, bucket | nothing; of runs             |
| `s` shard   |                                  | position, mark, digest of the seat |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import merge
from itertools import islice, takewhile

from lockstep.core.agenda import ENDED, UNFIRED, Event, Status
from lockstep.core.group import GroupState
from lockstep.errors import BadArgument, OutboxBlocked, StoreFull, StreamNotFound, UnsupportedByBackend
from lockstep.log.batch import NO_PRODUCER, Batch, codec_by_name, pack
from lockstep.log.port import Bus, Log, Transaction
from lockstep.runtime import Runtime
from lockstep.schedule.rows import KEY_BYTES, Change, CronRow, Fence, Outgoing, Run, ShardState
from lockstep.schedule.store.codec import pack_cron, pack_event, pack_run, unpack_cron, unpack_event, unpack_run
from lockstep.schedule.store.port import EARLY_MS, Due, Filter, Page, Store, StoreIdentity
from lockstep.streams.shards import logs_of, shard_of, stream_name

_SPACE = b"schedule\0"
_SHARD = struct.Struct(">H")
_TIME = struct.Struct(">Q")
_BEFORE_1970 = 1 << 63
_STATE = struct.Struct("<qq8s")
_NO_MARK = -1
_TENANT_BYTES = 8
EVENT, DUE, FIRING, ENDING, TENANT, CRON, RUN, EXPIRY, STATE = b"e", b"d", b"f", b"x", b"t", b"c", b"r", b"y", b"s"
SCANNED_MAX = 20_000
"""A page of a list looks at so many rows at most; the rest is on the next page."""

_ByLog = dict[str, tuple[Log, list[Outgoing]]]
"""Records by the name of their log, in order."""

OwnersIn = Callable[[Transaction], GroupState]
"""Tells who owns what, as the nodes' group says within a transaction."""


class CellStore(Store):
    """The store of one scheduler on an embedded bus."""

    exactly_once = True

    def __init__(self, bus: Bus, name: str, runtime: Runtime, owners: OwnersIn) -> None:
        if not (bus.promises.atomic and bus.promises.ordered_cells):
            raise UnsupportedByBackend(bus=bus.url, feature="keep the rows of a scheduler")
        self._bus, self._name, self._runtime, self._owners = bus, name, runtime, owners
        self._space = _SPACE + name.encode() + b"\0"
        self._prefixes: dict[tuple[int, bytes], bytes] = {}
        self._streams: dict[str, list[Log]] = {}

    def identity(self) -> StoreIdentity:
        return StoreIdentity("bus", "the bus itself")

    def claim(self, shard: int, fence: Fence) -> ShardState | None:
        return self._bus.atomic(lambda changes: self._claim(changes, shard, fence))

    def _claim(self, changes: Transaction, shard: int, fence: Fence) -> ShardState | None:
        if not _holds(self._owners(changes), fence):
            return None
        stored = changes.get(self._key(shard, STATE))
        if stored is None:
            return ShardState()
        position, mark, seat = _STATE.unpack(stored)
        # A stream that was made anew is another seat: positions in the old one mean nothing there.
        return ShardState(position if seat == _digest(fence.seat) else 0, None if mark == _NO_MARK else mark)

    def commit(self, changes: Sequence[Change]) -> set[int]:
        try:
            return self._commit(changes)
        except StreamNotFound as error:  # perhaps it was made anew, with as many shards or others
            self.forget_stream(stream_name(str(error.params["name"])))
            return self._commit(changes)

    def _commit(self, changes: Sequence[Change]) -> set[int]:
        placed = [self._by_log(change.outgoing) for change in changes]  # before the transaction: opening reads

        def work(written: Transaction) -> set[int]:
            owners = self._owners(written)
            refused = {change.shard for change in changes if not _holds(owners, change.fence)}
            kept = [(change, mine) for change, mine in zip(changes, placed, strict=True) if change.shard not in refused]
            for change, _ in kept:
                self._write(written, change)
            self._publish(written, [mine for _, mine in kept])
            return refused

        return self._bus.atomic(work)

    def _write(self, written: Transaction, change: Change) -> None:
        for key, (before, after) in change.events.items():
            self._write_event(written, change.shard, key, before, after)
        for key, cron in change.crons.items():
            written.put(self._key(change.shard, CRON) + key, None if cron is None else pack_cron(cron))
        for run in change.runs:
            self._write_run(written, change.shard, run)
        if change.position is not None or change.mark is not None:
            self._write_state(written, change)

    def _write_event(
        self, written: Transaction, shard: int, key: bytes, before: Event | None, after: Event | None
    ) -> None:
        old, new = self._index(shard, key, before), self._index(shard, key, after)
        if old is not None and old != new:
            written.put(old, None)
        if new is not None and old != new:
            written.put(new, b"")
        if after is not None and (before is None or before.status not in UNFIRED) and after.status in UNFIRED:
            tenant = self._key(shard, TENANT) + _digest(after.tenant)
            if written.get(tenant) is None:
                written.put(tenant, after.tenant.encode())
        written.put(self._key(shard, EVENT) + key, None if after is None else pack_event(after))

    def _index(self, shard: int, key: bytes, event: Event | None) -> bytes | None:
        if event is None:
            return None
        if event.status in UNFIRED:
            return self._key(shard, DUE) + _digest(event.tenant) + _time(event.due) + key
        if event.status is Status.FIRING:
            return self._key(shard, FIRING) + key
        return self._key(shard, ENDING) + _time(event.expires_from) + key

    def _write_run(self, written: Transaction, shard: int, run: Run) -> None:
        place = _digest(run.cron) + _time(run.at) + _time(run.bucket)
        stored = written.get(self._key(shard, RUN) + place)
        if stored is not None and (expires := unpack_run(stored, run.bucket, run.at).expires) is not None:
            written.put(self._key(shard, EXPIRY) + _time(expires) + place, None)
        written.put(self._key(shard, RUN) + place, pack_run(run))
        if run.expires is not None:
            written.put(self._key(shard, EXPIRY) + _time(run.expires) + place, b"")

    def _write_state(self, written: Transaction, change: Change) -> None:
        key = self._key(change.shard, STATE)
        stored = written.get(key)
        own = _digest(change.fence.seat)
        position, mark, seat = (0, _NO_MARK, own) if stored is None else _STATE.unpack(stored)
        if change.position is not None or seat != own:
            position = change.position or 0
        mark = mark if change.mark is None else change.mark
        written.put(key, _STATE.pack(position, mark, own))

    def _publish(self, written: Transaction, placed: Sequence[_ByLog]) -> None:
        together: _ByLog = {}
        for by_log in placed:
            for log, records in by_log.values():
                together.setdefault(log.name, (log, []))[1].extend(records)
        full: dict[str, StoreFull] = {}
        for log, records in together.values():
            if written.identity(log.name) != log.identity:
                raise StreamNotFound(name=log.name, bus=self._bus.url)
            try:
                written.append(log.name, [self._pack(log, records)])
            except StoreFull as error:
                if error.params["stream"] != log.name:  # the store has no room, and not only this stream
                    raise
                full[stream_name(log.name)] = error
        if full:  # all of them are named at once; the transaction is given up
            stream, reason = next(iter(full.items()))
            raise OutboxBlocked(name=self._name, stream=stream, reason=str(reason), streams=sorted(full)) from reason

    def _by_log(self, records: Sequence[Outgoing]) -> _ByLog:
        found: _ByLog = {}
        for record in records:
            log = self._log_for(record)
            found.setdefault(log.name, (log, []))[1].append(record)
        return found

    def _pack(self, log: Log, records: list[Outgoing]) -> Batch:
        return pack(
            [record.value for record in records],
            producer=NO_PRODUCER,
            sequence=0,
            codec=codec_by_name(log.config.compression),
            created_ns=self._runtime.wall_ns(),
            keys=[record.key for record in records] if any(record.key is not None for record in records) else None,
            headers=[record.headers for record in records] if any(record.headers for record in records) else None,
        )

    def _log_for(self, record: Outgoing) -> Log:
        logs = self._streams.get(record.stream)
        if logs is None:
            logs = self._streams[record.stream] = logs_of(self._bus, record.stream)
        if record.key is None or len(logs) == 1:
            return logs[0]
        return logs[shard_of(record.key, len(logs), logs[0].config.partitioner)]

    def forget_stream(self, name: str) -> None:
        self._streams.pop(name, None)

    def tenants(self, shard: int) -> dict[str, int]:
        found = {}
        with self._bus.snapshot() as view:
            for _, name in view.scan(self._key(shard, TENANT)):
                first = self._first_due(view, shard, name.decode(), -_BEFORE_1970)
                if first is not None:
                    found[name.decode()] = first
        return found

    def due(self, shard: int, tenant: str, start: int, stop: int, limit: int) -> list[Due]:
        with self._bus.snapshot() as view:
            return self._due(view, shard, tenant, start, stop, limit)

    def _due(self, view: Transaction, shard: int, tenant: str, start: int, stop: int, limit: int) -> list[Due]:
        prefix = self._key(shard, DUE) + _digest(tenant)
        found: list[Due] = []
        for key, _ in view.scan(prefix, prefix + _time(start)):
            due = _time_in(key, len(prefix))
            if due > stop or len(found) >= limit:
                break
            found.append(Due(key[-KEY_BYTES:], due))
        return found

    def due_events(self, shard: int, tenant: str, start: int, stop: int, limit: int) -> dict[bytes, Event]:
        with self._bus.snapshot() as view:
            return self._get(view, shard, [one.key for one in self._due(view, shard, tenant, start, stop, limit)])

    def next_due(self, shard: int, tenant: str, start: int = 0) -> int | None:
        with self._bus.snapshot() as view:
            return self._first_due(view, shard, tenant, start)

    def _first_due(self, view: Transaction, shard: int, tenant: str, start: int) -> int | None:
        prefix = self._key(shard, DUE) + _digest(tenant)
        for key, _ in view.scan(prefix, prefix + _time(start)):
            return _time_in(key, len(prefix))
        return None

    def firing(self, shard: int) -> list[Event]:
        with self._bus.snapshot() as view:
            keys = [key[-KEY_BYTES:] for key, _ in view.scan(self._key(shard, FIRING))]
        return list(self.get(shard, keys).values())

    def expired(self, shard: int, before: int, limit: int) -> list[Event]:
        prefix, keys = self._key(shard, ENDING), list[bytes]()
        with self._bus.snapshot() as view:
            for key, _ in view.scan(prefix):
                if _time_in(key, len(prefix)) >= before or len(keys) >= limit:
                    break
                keys.append(key[-KEY_BYTES:])
        return list(self.get(shard, keys).values())

    def get(self, shard: int, keys: Sequence[bytes]) -> dict[bytes, Event]:
        with self._bus.snapshot() as view:
            return self._get(view, shard, keys)

    def _get(self, view: Transaction, shard: int, keys: Sequence[bytes]) -> dict[bytes, Event]:
        prefix = self._key(shard, EVENT)
        found = {}
        for key in keys:
            stored = view.get(prefix + key)
            if stored is not None:
                found[key] = unpack_event(stored)
        return found

    def crons(self, shard: int) -> Iterator[CronRow]:
        with self._bus.snapshot() as view:
            rows = [data for _, data in view.scan(self._key(shard, CRON))]
        return map(unpack_cron, rows)

    def cron(self, shard: int, key: bytes) -> CronRow | None:
        with self._bus.snapshot() as view:
            stored = view.get(self._key(shard, CRON) + key)
        return None if stored is None else unpack_cron(stored)

    def runs(self, shard: int, cron: str, limit: int) -> list[Run]:
        prefix = self._key(shard, RUN) + _digest(cron)
        found = []
        with self._bus.snapshot() as view:
            for key, data in view.scan(prefix, down=True):
                at, bucket = (_time_in(key, len(prefix) + _TIME.size * part) for part in (0, 1))
                found.append(unpack_run(data, bucket, at))
                if len(found) >= limit:
                    break
        return found

    def forget_runs(self, shard: int, fence: Fence, before: int) -> int:
        prefix = self._key(shard, EXPIRY)
        with self._bus.snapshot() as view:
            due = takewhile(lambda pair: _time_in(pair[0], len(prefix)) < before, view.scan(prefix))
            keys = [key for key, _ in islice(due, SCANNED_MAX)]
        if not keys:
            return 0

        def work(written: Transaction) -> int:
            if not _holds(self._owners(written), fence):
                return 0
            for key in keys:
                written.put(key, None)
                written.put(self._key(shard, RUN) + key[len(prefix) + _TIME.size :], None)
            return len(keys)

        return self._bus.atomic(work)

    def forget_tenants(self, shard: int, fence: Fence) -> int:
        """At most 20,000 are removed by a call."""
        prefix = self._key(shard, TENANT)
        with self._bus.snapshot() as view:
            rows = (key for key, name in view.scan(prefix) if not self._is_waiting(view, shard, name.decode()))
            keys = list(islice(rows, SCANNED_MAX))
        if not keys:
            return 0

        def work(written: Transaction) -> int:
            if not _holds(self._owners(written), fence):
                return 0
            for key in keys:
                written.put(key, None)
            return len(keys)

        return self._bus.atomic(work)

    def _is_waiting(self, view: Transaction, shard: int, tenant: str) -> bool:
        return self._first_due(view, shard, tenant, -_BEFORE_1970) is not None

    def events(self, shards: Sequence[int], chosen: Filter, limit: int, cursor: str | None = None) -> Page:
        start = _cursor(cursor)
        found: list[Event] = []
        with self._bus.snapshot() as view:
            scans = [self._places(view, shard, chosen, start) for shard in shards]
            for looked_at, (place, shard) in enumerate(merge(*scans)):
                if len(found) >= limit or looked_at >= SCANNED_MAX:
                    return Page(found, place.hex())
                stored = view.get(self._key(shard, EVENT) + place[-KEY_BYTES:])
                event = None if stored is None else unpack_event(stored)
                if event is not None and is_chosen(event, chosen):
                    found.append(event)
        return Page(found)

    def _places(self, view: Transaction, shard: int, chosen: Filter, start: bytes) -> Iterator[tuple[bytes, int]]:
        """Time and row key of a shard's events, in that order: those that have ended, are unfired, and under way."""
        asked = frozenset(Status) if chosen.status is None else chosen.status
        first = b"" if chosen.start is None else _time(chosen.start)
        first_unfired = b"" if chosen.start is None else _time(chosen.start - EARLY_MS)
        kinds = []
        if asked & ENDED:
            kinds.append(self._ended_places(view, shard, max(start, first)))
        if asked & UNFIRED:
            kinds.append(self._unfired_places(view, shard, chosen, max(start, first_unfired)))
        if Status.FIRING in asked:
            kinds.append(self._firing_places(view, shard, start))
        return merge(*kinds)

    def _ended_places(self, view: Transaction, shard: int, start: bytes) -> Iterator[tuple[bytes, int]]:
        prefix = self._key(shard, ENDING)
        return ((key[len(prefix) :], shard) for key, _ in view.scan(prefix, prefix + start))

    def _unfired_places(
        self, view: Transaction, shard: int, chosen: Filter, start: bytes
    ) -> Iterator[tuple[bytes, int]]:
        names = [name.decode() for _, name in view.scan(self._key(shard, TENANT))]
        wanted = [name for name in names if chosen.tenant in (None, name)]
        return merge(*(self._tenant_places(view, shard, name, start) for name in wanted))

    def _tenant_places(self, view: Transaction, shard: int, tenant: str, start: bytes) -> Iterator[tuple[bytes, int]]:
        prefix = self._key(shard, DUE) + _digest(tenant)
        return ((key[len(prefix) :], shard) for key, _ in view.scan(prefix, prefix + start))

    def _firing_places(self, view: Transaction, shard: int, start: bytes) -> Iterator[tuple[bytes, int]]:
        keys = [key[-KEY_BYTES:] for key, _ in view.scan(self._key(shard, FIRING))]
        rows = ((key, view.get(self._key(shard, EVENT) + key)) for key in keys)
        places = sorted(_time(unpack_event(data).due) + key for key, data in rows if data is not None)
        return ((place, shard) for place in places if place >= start)

    def _key(self, shard: int, kind: bytes) -> bytes:
        found = self._prefixes.get((shard, kind))
        if found is None:
            found = self._prefixes[shard, kind] = self._space + _SHARD.pack(shard) + kind
        return found

    def close(self) -> None:
        """The bus is not this store's to close."""


def is_chosen(event: Event, chosen: Filter) -> bool:
    """Return whether a list with this filter has the event."""
    return (
        chosen.tenant in (None, event.tenant)
        and (chosen.status is None or event.status in chosen.status)
        and (chosen.start is None or event.at >= chosen.start)
        and (chosen.stop is None or event.at < chosen.stop)
    )


def _holds(owners: GroupState, fence: Fence) -> bool:
    seat = owners.seat(fence.seat)
    return (seat.owner, seat.epoch) == (fence.member, fence.epoch)


@lru_cache(maxsize=4096)
def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=_TENANT_BYTES).digest()


def _time(time: int) -> bytes:
    """A time as part of a key: keys have the order of times, also before 1970."""
    return _TIME.pack(time + _BEFORE_1970)


def _time_in(key: bytes, at: int) -> int:
    return int(_TIME.unpack_from(key, at)[0]) - _BEFORE_1970


def _cursor(cursor: str | None) -> bytes:
    if cursor is None:
        return b""
    try:
        place = bytes.fromhex(cursor)
    except ValueError:
        place = b""
    if len(place) != _TIME.size + KEY_BYTES:
        raise BadArgument(name="cursor", value=cursor, reason="it is not one that a page gave")
    return place
