"""JSON bodies: requests are parsed strictly, answers are indented or one line per object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from math import isfinite
from typing import Any

from starlette.responses import Response

from lockstep.server.errors import BadBody

JSON, NDJSON, TEXT = "application/json", "application/x-ndjson", "text/plain; version=0.0.4; charset=utf-8"
DEPTH_MAX = 32
_SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer."""

    body: bytes
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """As Starlette sends it. Nothing is of no type: it is no JSON."""
        kind = self.media_type if self.body else None
        return Response(self.body, self.status, {**_SAFE, **self.headers}, media_type=kind)


def reply(tree: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return plain data as an indented JSON answer."""
    return Reply(_bytes(json.dumps(tree, indent=2, ensure_ascii=False)), status, headers=headers or {})


def rows_reply(rows: Sequence[Mapping[str, Any]], status: int = 200) -> Reply:
    """An answer of many flat objects: printed as `reply` does, but by a shorter way."""
    if not rows:
        return reply([], status)
    inner = ",\n".join(map(_row, rows))
    return Reply(_bytes(f"[\n{inner}\n]"), status)


def lines_reply(rows: Sequence[Mapping[str, Any]], status: int = 200) -> Reply:
    """An answer of one line for each object."""
    lines = [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows]
    return Reply(_bytes("".join(f"{line}\n" for line in lines)), status, NDJSON)


def _row(row: Mapping[str, Any]) -> str:
    inner = ",\n".join([f'    "{name}": {_value(value)}' for name, value in row.items()])
    return f"  {{\n{inner}\n  }}"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return encode_basestring(value)
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n    ")


def _bytes(text: str) -> bytes:
    """UTF-8; halves of surrogate pairs, which UTF-8 has no place for, stay escaped as they were sent."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def parse_json(data: bytes) -> Any:
    """Return the plain data of a body; BadArgument if it is not one JSON document in UTF-8."""
    try:
        return json.loads(data.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise BadBody(reason=f"it is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise BadBody(reason="it is nested too deeply") from None
    except ValueError as error:
        raise BadBody(reason=f"it is not JSON: {error}") from None


def check_tree(tree: Any) -> None:
    """Refuse what could not be stored: deep nesting, halves of surrogate pairs, numbers without a value."""
    level = [tree]
    for _ in range(DEPTH_MAX):
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise BadBody(reason=f"it is nested more than {DEPTH_MAX} levels deep")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list):
        return value
    if isinstance(value, str) and _SURROGATE.search(value):
        raise BadBody(reason="it has text that is not valid Unicode")
    if isinstance(value, float) and not isfinite(value):
        raise BadBody(reason="it has a number that is too large")
    return []


def _no_constant(name: str) -> Any:
    reason = f"{name} is not a JSON value"
    raise ValueError(reason)
