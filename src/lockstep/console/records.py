"""Records as text, JSON, MsgPack or hex: the format is detected unless it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from lockstep.console.errors import StreamReserved
from lockstep.console.ledger import is_own
from lockstep.console.port import Asked, Kind, Parameter
from lockstep.errors import BadArgument
from lockstep.log.offsets import step_back
from lockstep.log.port import Log
from lockstep.server.access import Role
from lockstep.streams.client import Lockstep
from lockstep.streams.cursor import first_at
from lockstep.streams.record import Record

FORMS = ("auto", "json", "msgpack", "text", "hex")
STARTS = ("newest", "oldest", "offset", "time")
SHOWN_BYTES = 16_384
ROWS, ROWS_MAX = 25, 200
_HEX_LINE = 16
_SPAN = re.compile(r"[0-9.]+[a-z][0-9.a-z]*")
_READ_S = 0.2

START = Parameter(
    name="start", label="Start at", kind=Kind.CHOICE, choices=STARTS, default="newest", help="where to begin"
)
AT = Parameter(name="at", label="Offset or time", help="an offset, or a time as 2027-01-01T00:00Z or 1h (ago)")
FORM = Parameter(
    name="form", label="Show as", kind=Kind.CHOICE, choices=FORMS, default="auto", help="how values are shown"
)
SHARD = Parameter(name="shard", label="Shard", kind=Kind.WHOLE, default=0, most=65_535, help="of a stream with several")
COUNT = Parameter(name="count", label="Records", kind=Kind.WHOLE, default=ROWS, least=1, most=ROWS_MAX, help="how many")
PARAMETERS = (START, AT, FORM, SHARD, COUNT)


def read(client: Lockstep, stream: str, asked: Asked) -> dict[str, Any]:
    """Records of one shard from where the query says, oldest first, at most as many as it says."""
    if is_own(stream) and asked.principal.role < Role.ADMIN:
        raise StreamReserved(stream=stream)
    logs = client.logs(stream)
    shard, count = asked.values["shard"], asked.values["count"]
    if shard >= len(logs):
        raise BadArgument(name="shard", value=shard, reason=f"the stream has {len(logs)}, numbered from 0")
    log = logs[shard]
    bounds = log.bounds()
    first = _first(log, bounds.first, bounds.next, asked, client.runtime.wall_ns() // 10**6)
    rows = [row(record, asked.values["form"]) for record in _records(client, log.name, first, bounds.next, count)]
    return {
        "records": rows, "shard": shard, "shards": len(logs), "first": bounds.first, "next": bounds.next,
        "older": None if first <= bounds.first else step_back(log, first, count, bounds.first),
        "newer": rows[-1]["offset"] + 1 if rows and rows[-1]["offset"] + 1 < bounds.next else None,
    }  # fmt: skip


def row(record: Record, form: str = "auto") -> dict[str, Any]:
    """One record as plain data."""
    shown, found = value_text(record.value, form)
    key = None if record.key is None else value_text(record.key, "auto")[0]
    return {
        "offset": record.offset, "appended_ms": record.appended_ns // 10**6, "created_ms": record.created_ns // 10**6,
        "key": key, "value": shown, "form": found, "bytes": len(record.value),
        "is_cut": len(record.value) > SHOWN_BYTES,
        "headers": [[name, value_text(value, "auto")[0]] for name, value in record.headers],
    }  # fmt: skip


def value_text(data: bytes, form: str) -> tuple[str, str]:
    """A value as text, and the form that it has."""
    for candidate in ("json", "msgpack", "text", "hex") if form == "auto" else (form, "hex"):
        text = _as(data, candidate)
        if text is not None:
            return text, candidate
    raise AssertionError(form)


def _as(data: bytes, form: str) -> str | None:
    if form == "hex":
        return hex_text(data[:SHOWN_BYTES])
    if form == "text":
        return _text(data)
    if len(data) > SHOWN_BYTES:
        return None
    try:
        tree = json.loads(data) if form == "json" else _unpacked(data)
        return json.dumps(tree, indent=2, ensure_ascii=False, default=_plain)
    except (ValueError, RecursionError):
        return None


def _text(data: bytes) -> str | None:
    try:
        text = data[:SHOWN_BYTES].decode("utf-8", "strict" if len(data) <= SHOWN_BYTES else "ignore")
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\r\n" for character in text) else None


def _unpacked(data: bytes) -> Any:
    """MsgPack, only of maps and arrays: almost any single byte is a MsgPack number, too."""
    try:
        import msgpack
    except ImportError:  # an extra; values are shown as text or hex without it
        message = "MsgPack can't be read here"
        raise ValueError(message) from None
    try:
        tree = msgpack.unpackb(data, raw=False, strict_map_key=False, object_pairs_hook=_with_text_keys)
    except (msgpack.UnpackException, TypeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(tree, dict | list):
        message = "it is a single value"
        raise ValueError(message)
    return tree


def _with_text_keys(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """A map of MsgPack, whose keys may be anything, as JSON can have it."""
    return {key if isinstance(key, str | int | float | None) else _plain(key): value for key, value in pairs}


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def hex_text(data: bytes) -> str:
    """Lines of sixteen bytes: offset, hex and what is printable."""
    lines = []
    for start in range(0, len(data), _HEX_LINE):
        part = data[start : start + _HEX_LINE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:06x}  {part.hex(' '):<47}  {shown}")
    return "\n".join(lines)


def _first(log: Log, first: int, end: int, asked: Asked, now_ms: int) -> int:
    start, at = asked.values["start"], asked.values["at"]
    if start == "oldest":
        return first
    if start == "newest":
        return step_back(log, end, asked.values["count"], first)
    if start == "time":
        return max(first, first_at(log, time_ns(at, now_ms, "at")))
    if not (at.isascii() and at.isdecimal() and len(at) < 19):
        raise BadArgument(name="at", value=at, reason="with start=offset it must be an offset")
    return min(max(first, int(at)), end)


def time_ns(text: str, now_ms: int, name: str) -> int:
    """Nanoseconds since 1970 of a time, or of a span before now; BadArgument for what is neither."""
    from lockstep.schedule.times import parse_time, span_ms

    text = text.strip()
    if _SPAN.fullmatch(text):
        return max(0, now_ms - span_ms(text, name)) * 10**6
    try:
        return max(0, int(parse_time(text))) * 10**6
    except BadArgument as error:
        raise BadArgument(name=name, value=text[:80], reason=error.params["reason"]) from None


def _records(client: Lockstep, log: str, first: int, end: int, count: int) -> Sequence[Record]:
    """Up to `count` records; nothing is waited for that was not there when `end` was read."""
    found: list[Record] = []
    with client.subscriber(log, initial="earliest", create=False) as subscriber:
        subscriber.seek(first, stream=log)
        at = first
        while len(found) < count and at < end:
            batch = subscriber.poll(_READ_S, max_records=count - len(found))
            if not batch:
                break
            found += batch
            at = found[-1].offset + 1
    return found
