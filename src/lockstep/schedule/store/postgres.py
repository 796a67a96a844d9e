"""Rows in PostgreSQL: a commit is one SQL transaction that holds the fences of its shards.

    postgresql://USER@HOST:PORT/DATABASE?schema=lockstep

Records for streams go into an outbox table in the same transaction and are relayed to the bus after it; see
lockstep.schedule.store.outbox. The tables are in postgres.sql and are created when the store is first opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from lockstep.core.agenda import ENDED, Event, Form, Option, Status
from lockstep.errors import FormatTooNew
from lockstep.log.port import Bus
from lockstep.runtime import Runtime
from lockstep.schedule.rows import KEY_BYTES, Change, CronRow, Fence, Run, ShardState
from lockstep.schedule.store import postgres_statements as statements
from lockstep.schedule.store.codec import pack_cron, pack_cursor, unpack_cron, unpack_cursor
from lockstep.schedule.store.outbox import Letter, Outbox, Refusals, Relay, unsealed
from lockstep.schedule.store.port import EARLY_MS, Due, Filter, Page, Store, StoreIdentity
from lockstep.schedule.store.postgres_connections import COMMIT, Connections, Row

VERSION = 1
SCANNED_MAX = 20_000
"""A page of a filtered list looks at so many rows at most; the rest is on the next page."""
FORGOTTEN_MAX = 20_000
_RELAYED_AT_ONCE = 100
_NUL, _ESCAPE = "\0", "\x1b"


class PostgresStore(Store):
    """The store of one scheduler in a PostgreSQL database; several threads may use it.

    If `commit` raises Unavailable, the changes are stored as a whole or not at all, and which of both is not known:
    claim the shard again and go on from what is stored.
    """

    exactly_once = False
    is_remote = True

    def __init__(self, url: str, name: str, bus: Bus, runtime: Runtime) -> None:
        self._name = name
        self._outbox = Outbox(name, bus, runtime)
        self._connections = Connections(url, runtime)
        self._relay = Relay(self._relay_stored, runtime)
        self._sent: dict[int, tuple[Fence, int]] = {}
        """By shard: how many records its owner has sent. A number that is used twice makes the bus drop a record."""
        try:
            self._create()
        except BaseException:
            self._connections.close()
            raise

    def __repr__(self) -> str:
        return f"PostgresStore({self._connections.address.safe_url!r}, {self._name!r})"

    def _create(self) -> None:
        schema = self._connections.schema
        with self._connections.use() as connection:
            if not _one(connection.execute(statements.HAS_TABLES, [f"{schema}.schedule_identity"])):
                script = files(__package__).joinpath("postgres.sql").read_text()
                with connection.transaction():
                    connection.execute(statements.CREATE_LOCK)
                    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
                    connection.execute(script.encode())
            version = _one(connection.execute(statements.VERSION))
        if version > VERSION:
            what = f"The tables of schedulers in {self._connections.address.safe_url}"
            raise FormatTooNew(what=what, found=f"version {version}", known=VERSION)

    def identity(self) -> StoreIdentity:
        with self._connections.use() as connection:
            return StoreIdentity(_one(connection.execute(statements.IDENTITY)), self._connections.shown_url)

    def claim(self, shard: int, fence: Fence) -> ShardState | None:
        """What an earlier owner left in the outbox is on the bus before this returns, but for what a stream refuses."""
        asked = {"shard": shard, "seat": _text(fence.seat), "member": _text(fence.member), "epoch": fence.epoch}
        with self._connections.use() as connection:
            found = connection.execute(statements.CLAIM, {"scheduler": self._name, **asked}).fetchone()
        if found is None:
            return None
        self._relay.run(shard)
        return ShardState(*found)

    def commit(self, changes: Sequence[Change]) -> set[int]:
        return self.begin(changes)()

    def begin(self, changes: Sequence[Change]) -> Callable[[], set[int]]:
        if len({change.shard for change in changes}) < len(changes):  # one after the other, in their order
            refused = set[int]().union(*(self.commit([change]) for change in changes))
            return lambda: refused
        self._relay.catch_up({change.shard for change in changes})  # so that it is known what refuses
        refusals = self._relay.refusals()
        letters = [self._outbox.pack(change.outgoing, refusals) for change in changes]
        with ExitStack() as stack:
            connection = stack.enter_context(self._connections.begun())
            # Answered before COMMIT is sent: a node that claims one of these shards waits until this is over
            sent = self._fences(connection, changes)
            kept = [(change, mine) for change, mine in zip(changes, letters, strict=True) if change.shard in sent]
            self._write(connection, [change for change, _ in kept])
            numbered = _numbered(self._name, kept, sent)
            self._advance(connection, [change for change, _ in kept], sent)
            stored = self._put_outbox(connection, numbered)
            connection.execute(COMMIT, prepare=False)
            connection.send_all()  # else fences would stay locked until the outcome is asked for
            waiting = stack.pop_all()

        def end() -> set[int]:
            waiting.close()
            self._sent |= {change.shard: (change.fence, sent[change.shard]) for change, _ in kept}
            if stored is not None:
                rows = [(row[0], letter) for row, (_, letter) in zip(stored.fetchall(), numbered, strict=True)]
                self._relay.send({shard for shard, _ in numbered}, lambda: self._publish(rows))
            return {change.shard for change in changes} - set(sent)

        return end

    def _fences(self, connection: psycopg.Connection[Row], changes: Sequence[Change]) -> dict[int, int]:
        """Lock the fences of shards; return how much was sent in its epoch for each whose fence holds."""
        shards = sorted({change.shard for change in changes})
        found = connection.execute(statements.FENCES, [self._name, shards]).fetchall()
        stored = {
            shard: (Fence(_plain(seat), _plain(member), epoch), sent) for shard, seat, member, epoch, sent in found
        }
        refused = {
            change.shard for change in changes if change.shard not in stored or stored[change.shard][0] != change.fence
        }
        return {shard: self._count(shard, *held) for shard, held in stored.items() if shard not in refused}

    def _count(self, shard: int, fence: Fence, stored: int) -> int:
        """How many records an owner has sent. A standby that took over may lack the last count."""
        known = self._sent.get(shard)
        return stored if known is None or known[0] != fence else max(stored, known[1])

    def _write(self, connection: psycopg.Connection[Row], changes: Sequence[Change]) -> None:
        gone = [(change.shard, key) for change in changes for key, (_, after) in change.events.items() if after is None]
        crons = {(change.shard, key): cron for change in changes for key, cron in change.crons.items()}
        runs = {(change.shard, run.cron, run.at, run.bucket): run for change in changes for run in change.runs}
        self._remove(connection, statements.REMOVE_EVENTS, gone)
        self._remove(connection, statements.REMOVE_CRONS, [place for place, cron in crons.items() if cron is None])
        self._put_events(connection, changes)
        kept = [(*place, pack_cron(cron).decode()) for place, cron in crons.items() if cron is not None]
        if kept:
            connection.execute(statements.PUT_CRONS, [self._name, *map(list, zip(*kept, strict=True))])
        logged = [
            (shard, _digest(run.cron), run.at, run.bucket, _text(run.cron), run.event, run.expires)
            for (shard, *_), run in runs.items()
        ]
        if logged:
            connection.execute(statements.PUT_RUNS, [self._name, *map(list, zip(*logged, strict=True))])

    def _put_events(self, connection: psycopg.Connection[Row], changes: Sequence[Change]) -> None:
        put, changed = list[Row](), list[Row]()
        for change in changes:
            for key, (before, after) in change.events.items():
                if after is None:
                    continue
                if before is not None and _is_step(before, after):
                    changed.append((change.shard, key, *_changed_row(after)))
                else:
                    put.append((change.shard, key, *_event_row(after)))
        if put:
            connection.execute(statements.PUT_EVENTS, [self._name, *map(list, zip(*put, strict=True))])
        if changed:
            shards, keys, *fields = map(list, zip(*changed, strict=True))
            alike = tuple(field.count(field[0]) == len(field) for field in fields)
            values = [field[0] for field, same in zip(fields, alike, strict=True) if same]
            arrays = [field for field, same in zip(fields, alike, strict=True) if not same]
            connection.execute(statements.change_events(alike), [*values, shards, keys, *arrays, self._name])

    def _remove(self, connection: psycopg.Connection[Row], query: str, places: Sequence[tuple[int, bytes]]) -> None:
        if places:
            connection.execute(query, [[shard for shard, _ in places], [key for _, key in places], self._name])

    def _advance(self, connection: psycopg.Connection[Row], changes: Sequence[Change], sent: dict[int, int]) -> None:
        rows = {change.shard: (change.position, change.mark) for change in changes}
        if rows:
            positions, marks = zip(*rows.values(), strict=True)
            counts = [sent[shard] for shard in rows]
            connection.execute(statements.ADVANCE, [list(rows), list(positions), list(marks), counts, self._name])

    def _put_outbox(
        self, connection: psycopg.Connection[Row], letters: Sequence[tuple[int, Letter]]
    ) -> psycopg.Cursor[Row] | None:
        """Store letters; return what their row ids are fetched from."""
        if not letters:
            return None
        shards, logs = [shard for shard, _ in letters], [letter.log for _, letter in letters]
        batches = [letter.sealed() for _, letter in letters]
        return connection.execute(statements.PUT_OUTBOX, [self._name, shards, logs, batches])

    def _publish(self, letters: Sequence[tuple[int, Letter]], *, stored: bool = False) -> Refusals:
        """Relay letters, then forget them; if forgetting fails, they are relayed again and dropped as copies."""
        published = self._outbox.publish([letter for _, letter in letters], stored=stored)
        relayed = [letters[place][0] for place in sorted(published.taken)]
        if relayed:
            with self._connections.transaction() as connection:
                connection.execute(statements.NO_WAIT_FOR_DISK)
                connection.execute(statements.DELETE_OUTBOX, [relayed])
        if published.failure is not None:
            raise published.failure
        return published.refused

    def _relay_stored(self, shard: int) -> Refusals:
        refused: Refusals = {}
        while found := self._read(statements.READ_OUTBOX, [self._name, shard, list(refused), _RELAYED_AT_ONCE]):
            refused |= self._publish([(number, unsealed(log, batch)) for number, log, batch in found], stored=True)
        return refused

    def forget_stream(self, name: str) -> None:
        self._outbox.forget_stream(name)

    def tenants(self, shard: int) -> dict[str, int]:
        found = self._read(statements.TENANTS, {"scheduler": self._name, "shard": shard})
        return {_plain(tenant): due for tenant, due in found}

    def due(self, shard: int, tenant: str, start: int, stop: int, limit: int) -> list[Due]:
        asked = {"shard": shard, "tenant": _text(tenant), "start": start, "stop": stop, "limit": limit}
        return [Due(key, due) for key, due in self._read(statements.DUE, {"scheduler": self._name, **asked})]

    def due_events(self, shard: int, tenant: str, start: int, stop: int, limit: int) -> dict[bytes, Event]:
        asked = {"shard": shard, "tenant": _text(tenant), "start": start, "stop": stop, "limit": limit}
        return {key: _event(row) for key, *row in self._read(statements.DUE_EVENTS, {"scheduler": self._name, **asked})}

    def next_due(self, shard: int, tenant: str, start: int = 0) -> int | None:
        asked = {"scheduler": self._name, "shard": shard, "tenant": _text(tenant), "start": start}
        found = self._read(statements.NEXT_DUE, asked)
        return found[0][0] if found else None

    def firing(self, shard: int) -> list[Event]:
        return [_event(row) for row in self._read(statements.FIRING, [self._name, shard])]

    def expired(self, shard: int, before: int, limit: int) -> list[Event]:
        return [_event(row) for row in self._read(statements.EXPIRED, [self._name, shard, before, limit])]

    def get(self, shard: int, keys: Sequence[bytes]) -> dict[bytes, Event]:
        if not keys:
            return {}
        found = {key: _event(row) for key, *row in self._read(statements.GET, [list(keys), self._name, shard])}
        return {key: found[key] for key in keys if key in found}

    def crons(self, shard: int) -> Iterator[CronRow]:
        return (unpack_cron(row[0].encode()) for row in self._read(statements.CRONS, [self._name, shard]))

    def cron(self, shard: int, key: bytes) -> CronRow | None:
        found = self._read(statements.CRON, [self._name, shard, key])
        return unpack_cron(found[0][0].encode()) if found else None

    def runs(self, shard: int, cron: str, limit: int) -> list[Run]:
        found = self._read(statements.RUNS, [self._name, shard, _digest(cron), limit])
        return [Run(_plain(name), *rest) for name, *rest in found]

    def forget_runs(self, shard: int, fence: Fence, before: int) -> int:
        """At most 20,000 are removed by a call."""
        with self._connections.transaction() as connection:
            if shard not in self._fences(connection, [Change(shard, fence)]):
                return 0
            removed = connection.execute(statements.FORGET_RUNS, [self._name, shard, before, FORGOTTEN_MAX])
        return removed.rowcount

    def forget_tenants(self, shard: int, fence: Fence) -> int:  # noqa: ARG002 - as the port has it
        """Tenants have no rows of their own here."""
        return 0

    def events(self, shards: Sequence[int], chosen: Filter, limit: int, cursor: str | None = None) -> Page:
        place, key = unpack_cursor(cursor)
        if chosen.start is not None:
            place, key = max((place, key), (chosen.start - EARLY_MS, b""))
        asked = {"scheduler": self._name, "shards": list(shards), "place": place, "key": key}
        horizon = None if chosen == Filter() else self._horizon(asked, len(shards))
        stop_place, stop_key = horizon or (None, None)
        wanted = {
            "stop_place": stop_place, "stop_key": stop_key, "limit": limit + 1, "start": chosen.start,
            "stop": chosen.stop, "tenant": None if chosen.tenant is None else _text(chosen.tenant),
            "status": None if chosen.status is None else sorted(map(int, chosen.status)),
        }  # fmt: skip
        found = self._read(statements.LIST, {**asked, **wanted})
        following = found[limit][:2] if len(found) > limit else horizon
        after = None if following is None else pack_cursor(*following)
        return Page([_event(row[2:]) for row in found[:limit]], after)

    def _horizon(self, asked: dict[str, Any], shards: int) -> tuple[int, bytes] | None:
        """Where a page must end, since looking further would take too long; None if the end is near enough."""
        found = self._read(statements.HORIZON, {**asked, "scanned": max(SCANNED_MAX // max(shards, 1), 1)})
        return (found[0][0], found[0][1]) if found else None

    def _read(self, query: str, asked: Sequence[Any] | dict[str, Any]) -> list[Row]:
        with self._connections.use() as connection:
            return connection.execute(query, asked, binary=True).fetchall()

    def close(self) -> None:
        self._relay.close()
        self._connections.close()


def _numbered(
    scheduler: str, kept: Sequence[tuple[Change, Sequence[Letter]]], sent: dict[int, int]
) -> list[tuple[int, Letter]]:
    """The letters of all changes with their shards, numbered; `sent` counts on."""
    found = []
    for change, letters in kept:
        for letter in letters:
            found.append((change.shard, letter.numbered(scheduler, change.shard, change.fence, sent[change.shard])))
            sent[change.shard] += letter.batch.count
    return found


def _event_row(event: Event) -> tuple[Any, ...]:
    return (
        _text(event.tenant), _text(event.id), _text(event.event_id), event.at, event.due, int(event.status),
        event.payload, int(event.form), int(event.option), event.lapsed, event.accepted, event.attempt,
        event.triggered, event.ended, None if event.error is None else _text(event.error), event.epoch, event.tick,
        event.expires_from if event.status in ENDED else event.due,
    )  # fmt: skip


def _is_step(before: Event, after: Event) -> bool:
    """Whether an event differs only by what a step changes."""
    return (
        before.event_id == after.event_id and before.payload is after.payload and before.at == after.at
        and before.accepted == after.accepted and before.option is after.option and before.form is after.form
        and before.lapsed == after.lapsed
    )  # fmt: skip


def _changed_row(event: Event) -> tuple[Any, ...]:
    error = None if event.error is None else _text(event.error)
    place = event.expires_from if event.status in ENDED else event.due
    return (
        event.due, int(event.status), event.attempt, event.triggered, event.ended, error, event.epoch, place
    )  # fmt: skip


def _event(row: Sequence[Any]) -> Event:
    (tenant, name, event_id, at, due, status, payload, form, option, lapsed, accepted, attempt, triggered, ended,
     error, epoch, tick) = row  # fmt: skip
    return Event(
        _plain(tenant), _plain(name), _plain(event_id), at, due, _STATUSES[status], payload, _FORMS[form],
        _OPTIONS[option], lapsed, accepted, attempt, triggered, ended, None if error is None else _plain(error), epoch,
        tick,
    )  # fmt: skip


_STATUSES, _FORMS, _OPTIONS = tuple(Status), tuple(Form), tuple(Option)


def _text(text: str) -> str:
    """Text as PostgreSQL can store it."""
    if _NUL in text or _ESCAPE in text:
        return text.replace(_ESCAPE, _ESCAPE + "1").replace(_NUL, _ESCAPE + "0")
    return text


def _plain(stored: str) -> str:
    if _ESCAPE in stored:
        return stored.replace(_ESCAPE + "0", _NUL).replace(_ESCAPE + "1", _ESCAPE)
    return stored


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=KEY_BYTES).digest()


def _one(cursor: psycopg.Cursor[Row]) -> Any:
    row = cursor.fetchone()
    assert row is not None, "an aggregate or a function has one row"
    return row[0]
