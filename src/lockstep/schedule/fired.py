"""An event as a Python program gets it when it fires, what a program may answer, and payloads as they are stored."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from lockstep.core.agenda import Event, Form
from lockstep.errors import BadArgument
from lockstep.schedule.times import parse_time, to_datetime
from lockstep.streams.record import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class Fired:
    """An event that fired."""

    tenant: str
    id: str
    event_id: str
    """The same for every try of one firing, so that a program can drop copies."""
    at: datetime
    """When it was to fire."""
    triggered_at: datetime | None
    """When it was first tried."""
    payload: bytes | None
    form: Form = Form.TEXT
    attempt: int = 1
    dry_run: bool = False

    @classmethod
    def of(cls, event: Event, *, dry_run: bool = False) -> Fired:
        """An event as its shard's owner stores it, for programs."""
        triggered_at = None if event.triggered is None else to_datetime(event.triggered)
        return cls(
            tenant=event.tenant, id=event.id, event_id=event.event_id, at=to_datetime(event.at),
            triggered_at=triggered_at, payload=event.payload, form=event.form, attempt=event.attempt, dry_run=dry_run,
        )  # fmt: skip

    def value(self) -> Any:
        """Return the payload as what it is: an object if JSON, text or bytes; None if there is none."""
        if self.payload is None or self.form is Form.BYTES:
            return self.payload
        return json.loads(self.payload) if self.form is Form.JSON else self.payload.decode()


class Refuse(Exception):  # an answer rather than a failure
    """Raised by a program that will never take an event: it is FAILED, and not tried again."""


class Processor(Protocol):
    """A class that takes the events of a tenant of type CUSTOM_CLASS.

    It is made once for each tenant, without arguments or with the tenant's name and props. The event is done when
    `process` returns, is tried again when it raises, and is given up when it raises `Refuse`.
    """

    def process(self, fired: Fired) -> Awaitable[None] | None:
        """Take an event. A plain function runs in a thread; a coroutine on the event loop that all tenants share."""


def fired_from(record: Record[Any, Any]) -> Fired:
    """Return the event of a record that a scheduler published."""
    headers = {name: value.decode() for name, value in record.headers}
    form = Form[headers.get("Lockstep-Payload", "text").upper()]
    fields: dict[str, Any] = {}
    payload: bytes | None = record.value
    if headers.get("Lockstep-Body") != "payload":
        fields = json.loads(record.value)
        text = fields["payload"]
        payload = None if text is None else _payload(text, form)
    triggered = fields.get("triggeredAt")
    return Fired(
        tenant=headers["Lockstep-Tenant"], id=record.key.decode() if record.key is not None else "",
        event_id=headers["Idempotency-Key"], at=to_datetime(parse_time(headers["Lockstep-Event-Time"])),
        triggered_at=None if triggered is None else to_datetime(parse_time(triggered)), payload=payload, form=form,
        attempt=int(headers.get("Lockstep-Attempt", "1")), dry_run="Lockstep-Dry-Run" in headers,
    )  # fmt: skip


def _payload(text: str, form: Form) -> bytes:
    return base64.b64decode(text) if form is Form.BYTES else text.encode()


def encoded_payload(payload: Any) -> tuple[bytes | None, Form]:
    """Return a payload as it is stored, and what it was; BadArgument for what can't be stored."""
    if payload is None:
        return None, Form.TEXT
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload), Form.BYTES
    try:
        if isinstance(payload, str):
            return payload.encode(), Form.TEXT
        return json.dumps(payload, ensure_ascii=False, allow_nan=False).encode(), Form.JSON
    except (TypeError, ValueError, RecursionError) as error:
        wanted = "valid Unicode" if isinstance(payload, str) else "bytes, text or what JSON can hold"
        raise BadArgument(name="payload", value=_start(payload), reason=f"it must be {wanted}: {error}") from None


def _start(payload: Any) -> str:
    try:
        return repr(payload)[:80]
    except RecursionError:
        return type(payload).__name__
