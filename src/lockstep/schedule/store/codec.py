"""Events, crons and runs as bytes: a fixed head, then texts with their lengths. The first byte is the version."""

from __future__ import annotations

import json
import struct

from lockstep.core.agenda import Event, Form, Option, Status
from lockstep.errors import BadArgument, FormatTooNew
from lockstep.schedule.requests import cron_fields, cron_row
from lockstep.schedule.rows import CronRow, Run

VERSION = 1
_NONE = -1
_NO_TIME = -(1 << 63)
_HEAD = struct.Struct("<BBBBBIqqqqqqHHHii")
_LAPSED, _TICK = 1, 2
_DECODER = json.JSONDecoder()


def pack_event(event: Event) -> bytes:
    """An event as stored."""
    tenant, name, event_id = event.tenant.encode(), event.id.encode(), event.event_id.encode()
    payload = b"" if event.payload is None else event.payload
    error = b"" if event.error is None else event.error.encode()
    head = _HEAD.pack(
        VERSION, event.status, event.form, event.option,
        (_LAPSED if event.lapsed else 0) | (_TICK if event.tick else 0),
        event.attempt, event.at, event.due, event.accepted, _known(event.triggered), _known(event.ended), event.epoch,
        len(tenant), len(name), len(event_id),
        _NONE if event.payload is None else len(payload), _NONE if event.error is None else len(error),
    )  # fmt: skip
    return b"".join((head, tenant, name, event_id, payload, error))


def unpack_event(data: bytes) -> Event:
    """An event from storage."""
    if data[0] != VERSION:
        raise FormatTooNew(what="An event of the scheduler", found=f"version {data[0]}", known=VERSION)
    (_, status, form, option, flags, attempt, at, due, accepted, triggered, ended, epoch, tenant_size, id_size,
     event_id_size, payload_size, error_size) = _HEAD.unpack_from(data)  # fmt: skip
    start = _HEAD.size
    id_at = start + tenant_size
    event_id_at = id_at + id_size
    payload_at = event_id_at + event_id_size
    error_at = payload_at + max(payload_size, 0)
    return Event(
        data[start:id_at].decode(),
        data[id_at:event_id_at].decode(),
        data[event_id_at:payload_at].decode(),
        at,
        due,
        _STATUSES[status],
        None if payload_size == _NONE else data[payload_at:error_at],
        _FORMS[form],
        _OPTIONS[option],
        bool(flags & _LAPSED),
        accepted,
        attempt,
        None if triggered == _NO_TIME else triggered,
        None if ended == _NO_TIME else ended,
        None if error_size == _NONE else data[error_at : error_at + error_size].decode(),
        epoch,
        bool(flags & _TICK),
    )


_STATUSES, _FORMS, _OPTIONS = tuple(Status), tuple(Form), tuple(Option)


def _known(time: int | None) -> int:
    return _NO_TIME if time is None else time


def pack_cron(cron: CronRow) -> bytes:
    """A cron as JSON."""
    return json.dumps({"version": VERSION, **cron_fields(cron)}, separators=(",", ":"), ensure_ascii=False).encode()


def unpack_cron(data: bytes) -> CronRow:
    """A cron from storage."""
    fields = _DECODER.decode(data.decode())  # json.loads would look for the encoding first
    version = fields.pop("version")
    if version != VERSION:
        raise FormatTooNew(what="A cron of the scheduler", found=f"version {version}", known=VERSION)
    return cron_row(fields)


def pack_run(run: Run) -> bytes:
    """A run as stored, without what its key says."""
    return json.dumps({"cron": run.cron, "event": run.event.decode(), "expires": run.expires}).encode()


def unpack_run(data: bytes, bucket: int, at: int) -> Run:
    """A run from storage."""
    fields = json.loads(data)
    return Run(fields["cron"], bucket, at, fields["event"].encode(), fields["expires"])


def pack_cursor(time: int, key: bytes) -> str:
    """Where a page of a list begins, as text."""
    return f"{time}.{key.hex()}"


def unpack_cursor(cursor: str | None) -> tuple[int, bytes]:
    """Back from text; None is the beginning."""
    if cursor is None:
        return _NO_TIME, b""
    time, dot, key = cursor.partition(".")
    try:
        if not dot:
            raise ValueError(cursor)
        return int(time), bytes.fromhex(key)
    except ValueError:
        raise BadArgument(name="cursor", value=cursor, reason="it is not one that a page gave") from None
