"""The statements of the store in PostgreSQL; its tables are in postgres.sql."""

from __future__ import annotations

from functools import lru_cache

CREATE_LOCK = "SELECT pg_advisory_xact_lock(hashtext('lockstep.schedule'))"
HAS_TABLES = "SELECT to_regclass(%s) IS NOT NULL"
IDENTITY = "SELECT identity::text FROM schedule_identity"
VERSION = "SELECT max(version) FROM schedule_version"

CLAIM = """
INSERT INTO schedule_shards AS stored (scheduler, shard, seat, member, epoch)
VALUES (%(scheduler)s, %(shard)s, %(seat)s, %(member)s, %(epoch)s)
ON CONFLICT (scheduler, shard) DO UPDATE SET
    seat = excluded.seat, member = excluded.member, epoch = excluded.epoch,
    position = CASE WHEN stored.seat = excluded.seat THEN stored.position ELSE 0 END,
    sent = CASE WHEN (stored.seat, stored.epoch) = (excluded.seat, excluded.epoch) THEN stored.sent ELSE 0 END
WHERE stored.seat <> excluded.seat OR stored.epoch < excluded.epoch
   OR (stored.epoch = excluded.epoch AND stored.member = excluded.member)
RETURNING position, mark
"""
FENCES = """
SELECT shard, seat, member, epoch, sent FROM schedule_shards
WHERE scheduler = %s AND shard = ANY(%s) ORDER BY shard FOR UPDATE
"""
ADVANCE = """
UPDATE schedule_shards AS stored
SET position = coalesce(new.position, stored.position), mark = coalesce(new.mark, stored.mark), sent = new.sent
FROM unnest(%s::int[], %s::bigint[], %s::bigint[], %s::bigint[]) AS new (shard, position, mark, sent)
WHERE stored.scheduler = %s AND stored.shard = new.shard
"""

_EVENT_FIELDS = (
    ("tenant", "text"), ("id", "text"), ("event_id", "text"), ("at", "bigint"), ("due", "bigint"),
    ("status", "smallint"), ("payload", "bytea"), ("form", "smallint"), ("option", "smallint"), ("lapsed", "boolean"),
    ("accepted", "bigint"), ("attempt", "int"), ("triggered", "bigint"), ("ended", "bigint"), ("error", "text"),
    ("epoch", "bigint"), ("tick", "boolean"),
)  # fmt: skip
"""The fields of an event, in their order, and the type of the column that holds each."""
_STORED_FIELDS = (("shard", "int"), ("key", "bytea"), *_EVENT_FIELDS, ("place", "bigint"))
_EVENT = ", ".join(name for name, _ in _EVENT_FIELDS)
_STORED = ", ".join(name for name, _ in _STORED_FIELDS)
_ARRAYS = ", ".join(f"%b::{kind}[]" for _, kind in _STORED_FIELDS)
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name, _ in _STORED_FIELDS[2:])
PUT_EVENTS = f"""
INSERT INTO schedule_events (scheduler, {_STORED}) SELECT %s, * FROM unnest({_ARRAYS})
ON CONFLICT (scheduler, shard, key) DO UPDATE SET {_UPDATES}
"""  # noqa: S608 - constants
_CHANGING_FIELDS = tuple(
    (name, kind)
    for name, kind in _STORED_FIELDS[2:]
    if name in ("due", "status", "attempt", "triggered", "ended", "error", "epoch", "place")
)
"""What a step of an event changes; the rest is changed by requests only."""


@lru_cache(maxsize=256)
def change_events(alike: tuple[bool, ...]) -> str:
    """The statement for steps of events; of each changing field whether all of them have the same value.

    It takes these values, then arrays: of shards, keys and the other fields; then the scheduler. Most steps of a round
    differ in little, and an array costs the server and us more than a value.
    """
    fields = list(zip(_CHANGING_FIELDS, alike, strict=True))
    changes = ", ".join(f"{name} = {f'%b::{kind}' if same else f'new.{name}'}" for (name, kind), same in fields)
    others = [field for field, same in fields if not same]
    arrays = "".join(f", %b::{kind}[]" for _, kind in others)
    names = "".join(f", {name}" for name, _ in others)
    return f"""
UPDATE schedule_events AS stored SET {changes}
FROM unnest(%b::int[], %b::bytea[]{arrays}) AS new (shard, key{names}) CROSS JOIN LATERAL (
    SELECT ctid FROM schedule_events AS event
    WHERE event.scheduler = %s AND event.shard = new.shard AND event.key = new.key LIMIT 1
) AS found
WHERE stored.ctid = found.ctid
"""  # noqa: S608 - constants


REMOVE_EVENTS = """
DELETE FROM schedule_events WHERE ctid = ANY(ARRAY(
    SELECT stored.ctid FROM unnest(%s::int[], %b::bytea[]) AS gone (shard, key) CROSS JOIN LATERAL (
        SELECT ctid FROM schedule_events AS event
        WHERE event.scheduler = %s AND event.shard = gone.shard AND event.key = gone.key LIMIT 1
    ) AS stored
))
"""
PUT_CRONS = """
INSERT INTO schedule_crons (scheduler, shard, key, cron) SELECT %s, * FROM unnest(%s::int[], %b::bytea[], %s::json[])
ON CONFLICT (scheduler, shard, key) DO UPDATE SET cron = excluded.cron
"""
REMOVE_CRONS = """
DELETE FROM schedule_crons AS stored USING unnest(%s::int[], %b::bytea[]) AS gone (shard, key)
WHERE stored.scheduler = %s AND stored.shard = gone.shard AND stored.key = gone.key
"""
PUT_RUNS = """
INSERT INTO schedule_runs (scheduler, shard, key, at, bucket, cron, event, expires)
SELECT %s, * FROM unnest(%s::int[], %b::bytea[], %s::bigint[], %s::bigint[], %s::text[], %b::bytea[], %s::bigint[])
ON CONFLICT (scheduler, shard, key, at, bucket)
DO UPDATE SET event = excluded.event, expires = excluded.expires
"""
PUT_OUTBOX = """
INSERT INTO schedule_outbox (scheduler, shard, log, batch)
SELECT %s, shard, log, batch FROM unnest(%s::int[], %s::text[], %b::bytea[]) WITH ORDINALITY
    AS new (shard, log, batch, place)
ORDER BY place RETURNING id
"""
READ_OUTBOX = """
SELECT id, log, batch FROM schedule_outbox
WHERE scheduler = %s AND shard = %s AND log <> ALL(%s::text[]) ORDER BY id LIMIT %s
"""
DELETE_OUTBOX = "DELETE FROM schedule_outbox WHERE id = ANY(%s)"
NO_WAIT_FOR_DISK = "SET LOCAL synchronous_commit = off"

_UNFIRED = "scheduler = %(scheduler)s AND shard = %(shard)s AND status IN (0, 2)"
TENANTS = f"""
WITH RECURSIVE found AS (
    (SELECT tenant, due FROM schedule_events WHERE {_UNFIRED} ORDER BY tenant, due LIMIT 1)
    UNION ALL
    SELECT after.tenant, after.due FROM found CROSS JOIN LATERAL (
        SELECT tenant, due FROM schedule_events WHERE {_UNFIRED} AND tenant > found.tenant ORDER BY tenant, due LIMIT 1
    ) AS after
)
SELECT tenant, due FROM found
"""  # noqa: S608 - constants
DUE = f"""
SELECT key, due FROM schedule_events
WHERE {_UNFIRED} AND tenant = %(tenant)s AND due BETWEEN %(start)s AND %(stop)s ORDER BY due, key LIMIT %(limit)s
"""  # noqa: S608
DUE_EVENTS = f"""
SELECT key, {_EVENT} FROM schedule_events
WHERE {_UNFIRED} AND tenant = %(tenant)s AND due BETWEEN %(start)s AND %(stop)s ORDER BY due, key LIMIT %(limit)s
"""  # noqa: S608
NEXT_DUE = f"""
SELECT due FROM schedule_events
WHERE {_UNFIRED} AND tenant = %(tenant)s AND due >= %(start)s ORDER BY due LIMIT 1
"""  # noqa: S608
FIRING = f"SELECT {_EVENT} FROM schedule_events WHERE scheduler = %s AND shard = %s AND status = 1 ORDER BY key"  # noqa: S608
EXPIRED = f"""
SELECT {_EVENT} FROM schedule_events
WHERE scheduler = %s AND shard = %s AND place < %s AND status IN (3, 4) ORDER BY place, key LIMIT %s
"""  # noqa: S608
GET = f"""
SELECT asked.key, {_EVENT} FROM unnest(%b::bytea[]) AS asked (key) CROSS JOIN LATERAL (
    SELECT {_EVENT} FROM schedule_events AS event
    WHERE event.scheduler = %s AND event.shard = %s AND event.key = asked.key LIMIT 1
) AS stored
"""  # noqa: S608 - with the join written so, each key is looked up, whatever the planner knows of the table
CRONS = "SELECT cron::text FROM schedule_crons WHERE scheduler = %s AND shard = %s ORDER BY key"
CRON = "SELECT cron::text FROM schedule_crons WHERE scheduler = %s AND shard = %s AND key = %s"
RUNS = """
SELECT cron, bucket, at, event, expires FROM schedule_runs
WHERE scheduler = %s AND shard = %s AND key = %s ORDER BY at DESC, bucket DESC LIMIT %s
"""
FORGET_RUNS = """
DELETE FROM schedule_runs WHERE (scheduler, shard, key, at, bucket) IN (
    SELECT scheduler, shard, key, at, bucket FROM schedule_runs
    WHERE scheduler = %s AND shard = %s AND expires < %s ORDER BY expires LIMIT %s
)
"""
_FROM_CURSOR = "scheduler = %(scheduler)s AND shard = asked.shard AND (place, key) >= (%(place)s, %(key)s)"
HORIZON = f"""
SELECT horizon.place, horizon.key FROM unnest(%(shards)s::int[]) AS asked (shard) CROSS JOIN LATERAL (
    SELECT place, key FROM schedule_events WHERE {_FROM_CURSOR} ORDER BY place, key OFFSET %(scanned)s LIMIT 1
) AS horizon ORDER BY place, key LIMIT 1
"""  # noqa: S608
LIST = f"""
SELECT listed.* FROM unnest(%(shards)s::int[]) AS asked (shard) CROSS JOIN LATERAL (
    SELECT place, key, {_EVENT} FROM schedule_events
    WHERE {_FROM_CURSOR}
      AND (%(stop_place)s::bigint IS NULL OR (place, key) < (%(stop_place)s::bigint, %(stop_key)s::bytea))
      AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
      AND (%(status)s::smallint[] IS NULL OR status = ANY(%(status)s::smallint[]))
      AND (%(start)s::bigint IS NULL OR at >= %(start)s)
      AND (%(stop)s::bigint IS NULL OR at < %(stop)s)
    ORDER BY place, key LIMIT %(limit)s
) AS listed ORDER BY place, key LIMIT %(limit)s
"""  # noqa: S608
