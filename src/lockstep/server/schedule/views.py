"""Events, crons, runs and tenants as the API shows them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from lockstep.core.agenda import UNFIRED, Event, Form
from lockstep.cron import parse
from lockstep.schedule.bodies import payload_text
from lockstep.schedule.rows import CronRow, Run
from lockstep.schedule.tenants import Tenant
from lockstep.schedule.times import from_datetime, java_text, to_datetime, zone_of


def time_text(ms: int | None) -> str | None:
    """A time as text, or None."""
    return None if ms is None else java_text(ms)


def event_view(event: Event) -> dict[str, Any]:
    """An event as stored."""
    return {
        "tenant": event.tenant,
        "id": event.id,
        "eventId": event.event_id,
        "eventTime": java_text(event.at),
        "status": event.status.name,
        "payload": _payload(event),
        "payloadForm": event.form.name.lower(),
        "deliveryOption": event.option.name,
        "lapsed": event.lapsed,
        "attempt": event.attempt,
        "nextTryAt": java_text(event.due) if event.status in UNFIRED else None,
        "triggeredAt": time_text(event.triggered),
        "endedAt": time_text(event.ended),
        "error": event.error,
    }


def _payload(event: Event | CronRow) -> Any:
    text = payload_text(event)
    return json.loads(text) if text is not None and event.form is Form.JSON else text


def describe(row: CronRow) -> str:
    """The sentence of a cron."""
    return parse(row.expression, row.type).describe()


def cron_view(row: CronRow) -> dict[str, Any]:
    """A cron as stored."""
    return {
        "id": row.id,
        "expression": row.expression,
        "type": row.type,
        "tenant": row.tenant,
        "description": describe(row),
        "logGranularity": row.log_granularity,
        "retention": row.retention,
        "retentionUnits": row.retention_units,
        "tz": row.tz,
        "dst": row.dst,
        "misfire": row.policy.misfire.value,
        "grace": row.policy.grace_s,
        "catchUp": row.policy.catch_up_s,
        "overlap": row.policy.overlap.value,
        "jitter": row.jitter_s,
        "paused": row.paused,
        "payload": _payload(row),
        "payloadForm": row.form.name.lower(),
        "lastUpdated": time_text(row.updated),
        "lastExecutionTime": time_text(row.executed),
    }


_DEFAULTS = cron_view(CronRow(tenant="", id="", type="UNIX", expression="* * * * *"))
_ALWAYS = frozenset({"id", "expression", "type", "tenant", "retentionUnits"})
_WHEN_STORED = ("lastUpdated", "lastExecutionTime")


def bigben_cron(row: CronRow, *, stored: bool = False) -> dict[str, Any]:
    """A cron as BigBen shows it: nothing empty; of our own fields those that differ from their defaults."""
    shown = cron_view(row)
    del shown["description"]
    times = {name: shown.pop(name) for name in _WHEN_STORED}
    kept = {name: value for name, value in shown.items() if name in _ALWAYS or value != _DEFAULTS[name]}
    return {**kept, **{name: value for name, value in times.items() if stored and value is not None}}


def next_ticks(row: CronRow, start: int, count: int) -> list[str]:
    """The next times of a cron after a time in milliseconds since 1970."""
    return next_times(row.expression, row.type, row.tz, row.dst, to_datetime(start), count)


def next_times(expression: str, kind: str, tz: str, dst: str, after: datetime, count: int) -> list[str]:
    """The next times of an expression; fewer if there are not so many within 100 years."""
    cron, zone = parse(expression, kind), zone_of(_bare(expression, kind, tz, dst))
    found: list[str] = []
    at = cron.next(after, zone)
    while at is not None and len(found) < count:
        found.append(java_text(from_datetime(at)))
        at = cron.next(at, zone)
    return found


def _bare(expression: str, kind: str, tz: str, dst: str) -> CronRow:
    return CronRow(tenant="", id="", type=kind, expression=expression, tz=tz, dst=dst)


def run_view(run: Run) -> dict[str, Any]:
    """A logged run of a cron."""
    return {
        "cron": run.cron.replace("\0", "/"),
        "bucket": java_text(run.bucket),
        "executionTime": java_text(run.at),
        "event": json.loads(run.event),
    }


def tenant_view(tenant: Tenant) -> dict[str, Any]:
    """A tenant without its secrets."""
    return {**tenant.masked(), "rate": tenant.rate, "paused": tenant.paused}


def minute_of(ms: int) -> int:
    """The beginning of a time's minute."""
    return ms - ms % (timedelta(minutes=1) // timedelta(milliseconds=1))
