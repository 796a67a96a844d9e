"""Requests as users write them, checked: BigBen's fields, its order of checks and its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lockstep.core.agenda import Form, Option, Remove, Upsert
from lockstep.core.ticks import Misfire, Overlap, Policy
from lockstep.cron import Dialect, Zone, parse
from lockstep.errors import BadArgument, CronInvalid, ZoneUnknown
from lockstep.schedule.bodies import PAYLOAD_PREFIX
from lockstep.schedule.cron_ticks import GRANULARITIES, UNITS_MS
from lockstep.schedule.requests import NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, check_text
from lockstep.schedule.rows import CronRow
from lockstep.schedule.times import parse_time

BAD_REQUEST = 400
ID_BYTES_MAX = NAME_BYTES_MAX
EVENT_FIELDS = frozenset({"id", "eventTime", "tenant", "payload", "mode", "deliveryOption"})
CRON_FIELDS = frozenset({
    "id", "expression", "type", "tenant", "logGranularity", "retention", "retentionUnits", "tz", "dst", "misfire",
    "grace", "catchUp", "jitter", "overlap", "paused", "payload",
})  # fmt: skip
RETENTION_UNITS = tuple(UNITS_MS)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a request is not taken."""

    message: str
    code: int = BAD_REQUEST


NewId = Callable[[], bytes]


def event_id(new_id: NewId, option: Option) -> str:
    """Return an id for an event; that of one whose payload alone is delivered is recognised by its prefix."""
    made = str(UUID(bytes=new_id(), version=4))
    return PAYLOAD_PREFIX + made if option is Option.PAYLOAD_ONLY else made


def checked_event(fields: Any, is_known: Callable[[str], bool], new_id: NewId) -> Upsert | Remove | Rejection:
    """Return the request that fields of JSON make, or why they make none."""
    if not isinstance(fields, Mapping):
        return Rejection("an event must be a JSON object")
    fault = _shape(fields)
    if fault is not None:
        return fault
    tenant, name = fields.get("tenant"), fields.get("id")
    if (fields.get("mode") or "UPSERT") == "REMOVE":
        return Remove(tenant, name) if tenant is not None and name is not None else _missing(tenant)
    if tenant is None:
        return _missing(tenant)
    if fields.get("eventTime") is None:
        return Rejection("event time not present")
    if not is_known(tenant):
        return Rejection(f"tenant not registered / unknown tenant: {tenant}")
    option = Option[fields.get("deliveryOption") or Option.FULL_EVENT.name]
    payload = fields.get("payload")
    if option is Option.PAYLOAD_ONLY and payload is None:
        return Rejection("payload must not be null for deliveryOption PAYLOAD_ONLY")
    try:
        at = parse_time(fields["eventTime"])
    except BadArgument:
        return Rejection("event time can not be parsed. Must be in ISO 8601 format.")
    if name is None:
        return _missing(tenant)
    return Upsert(tenant, name, at, event_id(new_id, option), None if payload is None else payload.encode(), Form.TEXT,
                  option)  # fmt: skip


def _missing(tenant: str | None) -> Rejection:
    return Rejection("tenant not present" if tenant is None else "id not present")


def _shape(fields: Mapping[str, Any]) -> Rejection | None:
    """Check names, types and sizes of an event's fields."""
    unknown = sorted(fields.keys() - EVENT_FIELDS - {"eventId", "triggeredAt", "eventStatus", "error"})
    if unknown:
        return Rejection(f"unknown property: {unknown[0]}")
    for name in ("id", "tenant", "eventTime", "payload", "mode", "deliveryOption"):
        if fields.get(name) is not None and not isinstance(fields[name], str):
            return Rejection(f"{name} must be text")
    for name in ("id", "tenant"):
        text = fields.get(name)
        if text is not None and (not text or len(text.encode(errors="replace")) > ID_BYTES_MAX or "\0" in text):
            return Rejection(f"{name} must be text of 1 to {ID_BYTES_MAX} bytes")
    for name in ("id", "tenant", "payload"):
        if not _is_unicode(fields.get(name)):
            return Rejection(f"{name} must be valid Unicode")
    if len((fields.get("payload") or "").encode()) > PAYLOAD_BYTES_MAX:
        return Rejection(f"payload must have at most {PAYLOAD_BYTES_MAX} bytes")
    if (fields.get("mode") or "UPSERT") not in ("UPSERT", "REMOVE"):
        return Rejection("mode must be UPSERT or REMOVE")
    if (fields.get("deliveryOption") or "FULL_EVENT") not in Option.__members__:
        return Rejection("deliveryOption must be FULL_EVENT or PAYLOAD_ONLY")
    return None


def _is_unicode(text: str | None) -> bool:
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_cron(fields: Any, is_known: Callable[[str], bool]) -> CronRow:
    """Return the cron that fields of JSON make; BadArgument or CronInvalid says why they make none."""
    if not isinstance(fields, Mapping):
        raise BadArgument(name="cron", value=fields, reason="it must be a JSON object")
    unknown = sorted(fields.keys() - CRON_FIELDS - {"lastUpdated", "lastExecutionTime"})
    if unknown:
        raise BadArgument(name=unknown[0], value=fields[unknown[0]], reason="unknown property")
    for name in ("id", "expression", "type", "tenant"):
        check_text(name, fields.get(name), ID_BYTES_MAX)
    if not is_known(fields["tenant"]):
        raise BadArgument(name="tenant", value=fields["tenant"], reason=f"unknown tenant: {fields['tenant']}")
    kind = cron_type(fields["type"])
    parse(fields["expression"], kind)
    payload = _text(fields, "payload")
    return CronRow(
        tenant=fields["tenant"],
        id=fields["id"],
        type=kind.value,
        expression=fields["expression"],
        tz=_zone(fields.get("tz")),
        dst=_choice(fields, "dst", ("once", "literal"), "once"),
        policy=_policy(fields),
        jitter_s=_seconds(fields, "jitter", 0),
        paused=_truth(fields, "paused"),
        payload=None if payload is None else payload.encode(),
        log_granularity=_choice(fields, "logGranularity", GRANULARITIES, None),
        retention=_seconds(fields, "retention", 0),
        retention_units=_choice(fields, "retentionUnits", RETENTION_UNITS, "DAYS") or "DAYS",
    )


def cron_type(name: str) -> Dialect:
    """Return the dialect of a name; BadArgument as BigBen says it."""
    if name not in set(Dialect):
        reason = f"No enum constant com.cronutils.model.CronType.{name}; it must be one of {', '.join(Dialect)}"
        raise BadArgument(name="type", value=name, reason=reason)
    return Dialect(name)


def _policy(fields: Mapping[str, Any]) -> Policy:
    defaults = Policy()
    return Policy(
        misfire=Misfire(_choice(fields, "misfire", tuple(Misfire), defaults.misfire)),
        grace_s=_seconds(fields, "grace", defaults.grace_s),
        catch_up_s=_seconds(fields, "catchUp", defaults.catch_up_s),
        overlap=Overlap(_choice(fields, "overlap", tuple(Overlap), defaults.overlap)),
    )


def _choice(fields: Mapping[str, Any], name: str, known: tuple[str, ...], default: Any) -> Any:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, str) or value not in known:
        raise BadArgument(name=name, value=value, reason=f"it must be one of {', '.join(known)}")
    return value


def _truth(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadArgument(name=name, value=value, reason="it must be true or false")
    return bool(value)


def _seconds(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**9:
        raise BadArgument(name=name, value=value, reason="it must be a whole number from 0 to 1,000,000,000")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise BadArgument(name=name, value=value, reason="it must be text")
    if not _is_unicode(value):
        raise BadArgument(name=name, value=value, reason="it must be valid Unicode")
    if value is not None and len(value.encode()) > PAYLOAD_BYTES_MAX:
        raise BadArgument(name=name, value=value[:80], reason=f"it must have at most {PAYLOAD_BYTES_MAX} bytes")
    return value


def _zone(name: Any) -> str:
    if name is None:
        return "UTC"
    if not isinstance(name, str):
        raise BadArgument(name="tz", value=name, reason="it must be the name of a time zone, as Europe/Berlin")
    Zone(name)
    return name


__all__ = [
    "BadArgument", "CronInvalid", "Rejection", "ZoneUnknown", "checked_cron", "checked_event", "cron_type", "event_id",
]  # fmt: skip
