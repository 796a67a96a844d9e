"""Events as others see them: BigBen's answers and deliveries, headers, and records of the history."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring as _quoted
from typing import Any

from lockstep.core.agenda import SERVER_ERROR, Answer, Event, Form, Option, Status, Verdict
from lockstep.log.batch import Headers
from lockstep.schedule.rows import CronRow
from lockstep.schedule.times import java_text

PAYLOAD_PREFIX = "a-"
"""An event whose payload alone is delivered has an id that begins so."""
FOUND_STATUS = {
    Status.WAITING: "UN_PROCESSED",
    Status.FIRING: "TRIGGERED",
    Status.RETRY: "ERROR",
    Status.DONE: "PROCESSED",
    Status.FAILED: "ERROR",
}
EVENT_ID_HEADER, TENANT_HEADER, TIME_HEADER = "Idempotency-Key", "Lockstep-Tenant", "Lockstep-Event-Time"
ATTEMPT_HEADER, DRY_RUN_HEADER, FORM_HEADER = "Lockstep-Attempt", "Lockstep-Dry-Run", "Lockstep-Payload"
BODY_HEADER = "Lockstep-Body"


def payload_text(event: Event | CronRow) -> str | None:
    """A payload as text; bytes as base64."""
    if event.payload is None:
        return None
    if event.form is Form.BYTES:
        return base64.b64encode(event.payload).decode()
    return event.payload.decode()


def shown_id(event: Event) -> str | None:
    """The event id that answers and bodies have: none for an event whose time had passed when it was requested."""
    return None if event.lapsed and not event.tick else event.event_id


def _fields(event: Event, status: str | None, triggered: int | None, error: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "id": event.id,
        "eventTime": java_text(event.at),
        "tenant": event.tenant,
        "payload": payload_text(event),
        "mode": "UPSERT",
        "deliveryOption": event.option.name,
        "eventId": shown_id(event),
        "triggeredAt": None if triggered is None else java_text(triggered),
        "eventStatus": status,
        "error": error,
    }


def found(event: Event) -> dict[str, Any]:
    """What `find` answers."""
    error = None if event.error is None else {"code": SERVER_ERROR, "message": event.error}
    triggered = None if event.status is Status.WAITING else event.triggered
    return _fields(event, FOUND_STATUS[event.status], triggered, error)


def is_payload_only(event: Event) -> bool:
    """Whether the payload is delivered as it is, and not the event."""
    return event.option is Option.PAYLOAD_ONLY and event.payload is not None


def body(event: Event) -> bytes:
    """What is delivered."""
    if is_payload_only(event):
        return event.payload or b""
    payload, event_id = payload_text(event), shown_id(event)
    return (  # written out, as every event that fires needs one: a third of the time that json.dumps takes
        f'{{"id":{_quoted(event.id)},"eventTime":"{java_text(event.at)}","tenant":{_quoted(event.tenant)},'
        f'"payload":{_quoted_or_null(payload)},"mode":"UPSERT","deliveryOption":"{event.option.name}",'
        f'"eventId":{_quoted_or_null(event_id)},"triggeredAt":{_time_or_null(event.triggered)},'
        f'"eventStatus":"TRIGGERED","error":null}}'
    ).encode()


def _quoted_or_null(text: str | None) -> str:
    return "null" if text is None else _quoted(text)


def _time_or_null(ms: int | None) -> str:
    return "null" if ms is None else f'"{java_text(ms)}"'


def headers(event: Event, *, dry_run: bool = False) -> dict[str, str]:
    """What is delivered beside the body; the first identifies the event, so that a receiver can drop copies."""
    named = {
        EVENT_ID_HEADER: event.event_id,
        TENANT_HEADER: event.tenant,
        TIME_HEADER: java_text(event.at),
        ATTEMPT_HEADER: str(event.attempt),
    }
    if event.form is not Form.TEXT:
        named[FORM_HEADER] = event.form.name.lower()
    if is_payload_only(event):
        named[BODY_HEADER] = "payload"
    if dry_run:
        named[DRY_RUN_HEADER] = "true"
    return named


def record_headers(event: Event, *, dry_run: bool = False) -> Headers:
    """The same for a record of a stream."""
    if event.form is Form.TEXT and event.option is Option.FULL_EVENT and not dry_run:
        return (  # written out, as nearly every event that fires comes here
            (EVENT_ID_HEADER, event.event_id.encode()), (TENANT_HEADER, event.tenant.encode()),
            (TIME_HEADER, java_text(event.at).encode()), (ATTEMPT_HEADER, b"%d" % event.attempt),
        )  # fmt: skip
    return tuple([(name, text.encode()) for name, text in headers(event, dry_run=dry_run).items()])


def answer_fields(answer: Answer) -> dict[str, Any]:
    """An answer for the answers stream."""
    event = answer.event
    return {
        "verdict": answer.verdict.value,
        "event": None if event is None else {**_fields(event, None, event.triggered, None), "key": event.event_id},
        "status": None if event is None else event.status.name,
        "code": answer.code,
        "message": answer.message,
    }


def is_unknown(verdict: str) -> bool:
    """Whether an answer says that there is no such event."""
    return verdict == Verdict.UNKNOWN.value


def run(event: Event) -> bytes:
    """What is logged of a cron's execution: the event as delivered, with the last failure, if it failed."""
    error = None if event.error is None else {"code": SERVER_ERROR, "message": event.error}
    fields = _fields(event, FOUND_STATUS[event.status], event.triggered, error)
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def history(what: str, event: Event, now: int, node: str, **more: int | str) -> bytes:
    """A record of the history: what happened to an event, when and where."""
    error = "" if event.error is None else f',"error":{_quoted(event.error)}'
    rest = "".join([f',"{name}":{_scalar(value)}' for name, value in more.items()])
    return (
        f'{{"at":{now},"what":{_quoted(what)},"tenant":{_quoted(event.tenant)},"id":{_quoted(event.id)},'
        f'"eventId":{_quoted(event.event_id)},"eventTime":{event.at},"attempt":{event.attempt},'
        f'"node":{_quoted(node)}{error}{rest}}}'
    ).encode()


def _scalar(value: int | str) -> str:
    return _quoted(value) if isinstance(value, str) else str(value)
