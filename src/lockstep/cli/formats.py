r"""Records as they are printed: by a format such as '%o %k %v\n', or as JSON.

%s stream  %o offset  %k key  %v value  %x value in hex  %b value in base64
%h headers  %t create time  %T append time  %% a percent sign;  \n \t \r \0 \\ \xHH as usual
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lockstep.cli.values import iso
from lockstep.streams.shards import split_log

if TYPE_CHECKING:
    from lockstep.streams.record import Record

Formatter = Callable[["Record"], bytes]

_TOKEN = re.compile(r"%.?|\\x[0-9a-fA-F]{2}|\\.?", re.DOTALL)
_HEX_TOKEN = 4
_ESCAPES = {"\\n": b"\n", "\\t": b"\t", "\\r": b"\r", "\\0": b"\0", "\\\\": b"\\", "%%": b"%"}


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + value for name, value in record.headers)


_FIELDS: dict[str, Formatter] = {
    "%s": lambda record: split_log(record.stream)[0].encode(),
    "%o": lambda record: b"%d" % record.offset,
    "%k": lambda record: record.key or b"",
    "%v": lambda record: bytes(record.value),
    "%x": lambda record: record.value.hex().encode(),
    "%b": lambda record: base64.b64encode(record.value),
    "%h": _headers,
    "%t": lambda record: iso(record.created_ns).encode(),
    "%T": lambda record: iso(record.appended_ns).encode(),
}


def compile_format(text: str) -> Formatter:
    """What turns a record into bytes by a format. ValueError names what is unknown in it."""
    parts: list[bytes | Formatter] = []
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[at : token.start()].encode())
        parts.append(_meaning(token[0]))
        at = token.end()
    parts.append(text[at:].encode())
    kept = [part for part in parts if part != b""]
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in kept)


def _meaning(token: str) -> bytes | Formatter:
    if token in _FIELDS:
        return _FIELDS[token]
    if token in _ESCAPES:
        return _ESCAPES[token]
    if token.startswith("\\x") and len(token) == _HEX_TOKEN:
        return bytes.fromhex(token[2:])
    message = f"{token!r} means nothing in a format; there are {' '.join(_FIELDS)} %% and \\n \\t \\r \\0 \\\\ \\xHH"
    raise ValueError(message)


def as_json(record: Record) -> dict[str, Any]:
    """A record as plain data. Bytes that are no text come under a name with _base64 added."""
    stream, shard = split_log(record.stream)
    return {
        "stream": stream,
        "shard": shard,
        "offset": record.offset,
        **bytes_json("key", record.key),
        **bytes_json("value", record.value),
        "headers": [{"name": name, **bytes_json("value", value)} for name, value in record.headers],
        "created": iso(record.created_ns),
        "appended": iso(record.appended_ns),
    }


def bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes under a name, as text if they are text."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
