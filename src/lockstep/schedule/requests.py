"""Requests as records of the requests stream: JSON, with the client and number to answer to, if any."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from typing import Any

from lockstep.core.agenda import Form, Option, Remove, Replay, Upsert
from lockstep.core.ticks import Misfire, Overlap, Policy
from lockstep.cron import Dialect, Zone, parse
from lockstep.errors import BadArgument, DataError
from lockstep.schedule.cron_ticks import GRANULARITIES, UNITS_MS
from lockstep.schedule.rows import CronRow, routing_key
from lockstep.schedule.times import LAST_MS, checked_ms

ALL_TYPES = "*"
CRON_TYPES = tuple(dialect.value for dialect in Dialect)
NAME_BYTES_MAX = 1024
PAYLOAD_BYTES_MAX = 4 << 20
MANY = 10**10
"""Seconds and counts above this are mistakes."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Deliver an event now and change nothing."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class PutCron:
    """Set up a cron, or replace the one of the same tenant, id and type."""

    row: CronRow

    @property
    def tenant(self) -> str:
        """The cron's tenant."""
        return self.row.tenant

    @property
    def id(self) -> str:
        """The cron's id."""
        return self.row.id


@dataclass(frozen=True, slots=True)
class RemoveCron:
    """Remove a cron; of all types, if `type` is *."""

    tenant: str
    id: str
    type: str = ALL_TYPES


@dataclass(frozen=True, slots=True)
class PauseCron:
    """Have a cron's ticks skipped until it is resumed, or resume it."""

    tenant: str
    id: str
    type: str
    paused: bool


@dataclass(frozen=True, slots=True)
class TriggerCron:
    """Fire a cron now, or for every nominal tick after `start` up to `stop`, in seconds since 1970."""

    tenant: str
    id: str
    type: str
    start: int | None = None
    stop: int | None = None


Request = Upsert | Remove | Replay | DryRun | PutCron | RemoveCron | PauseCron | TriggerCron
CronRequest = PutCron | RemoveCron | PauseCron | TriggerCron
_KINDS: dict[str, type[Any]] = {
    "upsert": Upsert, "remove": Remove, "replay": Replay, "dryrun": DryRun, "put_cron": PutCron,
    "remove_cron": RemoveCron, "pause_cron": PauseCron, "trigger_cron": TriggerCron,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Ask:
    """Whom to answer, under which number."""

    client: str
    number: int


def checked(request: Request) -> Request:
    """Return a request that a node can carry out; BadArgument, CronInvalid or ZoneUnknown says why it can't."""
    check_text("tenant", request.tenant, NAME_BYTES_MAX)
    check_text("id", request.id, NAME_BYTES_MAX)
    if isinstance(request, Upsert):
        _check_upsert(request)
    elif isinstance(request, PutCron):
        _check_row(request.row)
    elif isinstance(request, RemoveCron | PauseCron | TriggerCron):
        _check_change(request)
    return request


def check_text(name: str, text: object, bytes_max: int) -> None:
    """Raise BadArgument unless it is text that can be stored under a key."""
    if not isinstance(text, str) or not text or "\0" in text or not _has_bytes(text, bytes_max):
        shown = text[:40] if isinstance(text, str) else text
        raise BadArgument(name=name, value=shown, reason=f"it must be text of 1 to {bytes_max} bytes")


def _has_bytes(text: str, bytes_max: int) -> bool:
    if text.isascii():
        return len(text) <= bytes_max
    try:
        return len(text.encode()) <= bytes_max
    except UnicodeEncodeError:
        return False


def _check_upsert(request: Upsert) -> None:
    check_text("event id", request.event_id, NAME_BYTES_MAX)
    if type(request.at) is not int:
        raise BadArgument(name="time", value=request.at, reason="it must be milliseconds since 1970, a whole number")
    checked_ms(request.at)
    _check_payload(request.payload)


def _check_payload(payload: bytes | None) -> None:
    if payload is not None and len(payload) > PAYLOAD_BYTES_MAX:
        reason = f"it must have at most {PAYLOAD_BYTES_MAX} bytes"
        raise BadArgument(name="payload", value=f"{len(payload)} bytes", reason=reason)


def _check_row(row: CronRow) -> None:
    check_text("expression", row.expression, NAME_BYTES_MAX)
    _check_payload(row.payload)
    _check_choice("type", row.type, CRON_TYPES)
    _check_choice("dst", row.dst, ("once", "literal"))
    _check_choice("retention units", row.retention_units, tuple(UNITS_MS))
    _check_choice("log granularity", row.log_granularity, (None, *GRANULARITIES))
    for name in ("jitter_s", "retention"):
        _check_number(name, getattr(row, name), MANY)
    for name in ("grace_s", "catch_up_s"):
        _check_number(name, getattr(row.policy, name), MANY)
    _check_choice("paused", row.paused, (True, False))
    parse(row.expression, row.type)
    Zone(row.tz)


def _check_change(request: RemoveCron | PauseCron | TriggerCron) -> None:
    _check_choice("type", request.type, (*CRON_TYPES, ALL_TYPES))
    if isinstance(request, PauseCron):
        _check_choice("paused", request.paused, (True, False))
    if isinstance(request, TriggerCron) and (request.start, request.stop) != (None, None):
        _check_number("start", request.start, LAST_MS // 1000)
        _check_number("stop", request.stop, LAST_MS // 1000)


def _check_choice(name: str, value: object, known: Sequence[str | bool | None]) -> None:
    if value not in known:
        raise BadArgument(name=name, value=value, reason=f"it must be one of {', '.join(map(str, known))}")


def _check_number(name: str, value: object, most: int) -> None:
    if type(value) is not int or not 0 <= value <= most:
        raise BadArgument(name=name, value=value, reason=f"it must be a whole number from 0 to {most:,}")


def encode(request: Request, ask: Ask | None = None) -> tuple[bytes, bytes]:
    """Return the key and the value of a request's record; BadArgument if no node could carry it out."""
    checked(request)
    fields: dict[str, Any] = {"kind": _NAMES[type(request)]}
    if isinstance(request, Upsert):
        fields |= _upsert_fields(request)
    elif isinstance(request, PutCron):
        fields["row"] = cron_fields(request.row)
    else:
        fields |= asdict(request)
    if ask is not None:
        fields["ask"] = [ask.client, ask.number]
    return routing_key(request.tenant, request.id), json.dumps(fields, separators=(",", ":")).encode()


def _upsert_fields(request: Upsert) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "tenant": request.tenant, "id": request.id, "at": request.at, "event_id": request.event_id,
        "option": request.option,
    }  # fmt: skip
    if request.payload is not None:
        fields["payload"] = _text_of(request.payload, request.form)
        fields["form"] = request.form
    return fields


def _text_of(payload: bytes, form: Form) -> str:
    return base64.b64encode(payload).decode() if form is Form.BYTES else payload.decode()


def _bytes_of(text: str, form: Form) -> bytes:
    return base64.b64decode(text) if form is Form.BYTES else text.encode()


def decode(data: bytes) -> tuple[Request, Ask | None]:
    """Return a request from its record's value; DataError if it is none."""
    try:
        fields = json.loads(data)
        ask = fields.pop("ask", None)
        kind = _KINDS[fields.pop("kind")]
        return checked(_made(kind, fields)), None if ask is None else Ask(str(ask[0]), int(ask[1]))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(reason=f"A record of the requests stream is not a request: {error!r}.") from error


def ask_in(data: bytes) -> Ask | None:
    """Return whom to tell that a record is no request, if it says so."""
    try:
        client, number = json.loads(data)["ask"]
        return Ask(str(client), int(number))
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
        return None


def _made(kind: type[Any], fields: dict[str, Any]) -> Request:
    if kind is Upsert:
        form = Form(fields.pop("form", Form.TEXT))
        text = fields.pop("payload", None)
        payload = None if text is None else _bytes_of(text, form)
        return Upsert(payload=payload, form=form, option=Option(fields.pop("option")), **fields)
    if kind is PutCron:
        return PutCron(cron_row(fields["row"]))
    made: Request = kind(**fields)
    return made


_CRON_DEFAULTS = {
    field.name: field.default for field in dataclass_fields(CronRow) if field.name not in ("policy", "payload")
}
_USUAL = Policy()


def cron_fields(row: CronRow) -> dict[str, Any]:
    """Return a cron as plain data, without what is as usual: it takes room and time to read."""
    fields = {name: value for name, usual in _CRON_DEFAULTS.items() if (value := getattr(row, name)) != usual}
    policy = row.policy
    if policy != _USUAL:
        fields["policy"] = {
            "misfire": policy.misfire, "grace_s": policy.grace_s, "catch_up_s": policy.catch_up_s,
            "overlap": policy.overlap,
        }  # fmt: skip
    if row.payload is not None:
        fields["payload"] = _text_of(row.payload, row.form)
    return fields


def cron_row(fields: dict[str, Any]) -> CronRow:
    """Return a cron from plain data."""
    policy, payload = fields.get("policy"), fields.get("payload")
    made = _USUAL
    if policy is not None:
        made = _policy(policy["misfire"], policy["grace_s"], policy["catch_up_s"], policy["overlap"])
    more: dict[str, Any] = {**fields, "policy": made}
    if payload is not None:
        more["form"] = form = Form(fields.get("form", Form.TEXT))
        more["payload"] = _bytes_of(payload, form)
    if "fired" in fields:
        more["fired"] = tuple(fields["fired"])
    return CronRow(**more)


@lru_cache(maxsize=1024)
def _policy(misfire: str, grace_s: int, catch_up_s: int, overlap: str) -> Policy:
    """A policy, the same for all crons that have it."""
    return Policy(misfire=Misfire(misfire), grace_s=int(grace_s), catch_up_s=int(catch_up_s), overlap=Overlap(overlap))
