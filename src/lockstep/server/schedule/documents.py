"""JSON documents of the scheduler's API: bodies read strictly, answers printed for people, errors in two forms.

BigBen's routes tell an error as {"message": ...}; ours, under /v2, as {"error": {"code", "message", "advice"}}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from math import isfinite
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lockstep.errors import BadArgument, Closed, LockstepError, TimedOut, UsageError
from lockstep.schedule.tenants import mask
from lockstep.server.answers import path_of, status_of
from lockstep.server.errors import BodyTooLarge
from lockstep.server.schedule.errors import BadBody, MethodNotAllowed

JSON, NDJSON, TEXT = "application/json", "application/x-ndjson", "text/plain; version=0.0.4; charset=utf-8"
BAD_REQUEST, NOT_ALLOWED, SERVER_ERROR, UNAVAILABLE = 400, 405, 500, 503
DEPTH_MAX = 32
MESSAGE_CHARS = 2000
OWN = "/v2/"
CONTACT = "please contact engineering team with the below error signature"
_SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_OF_STATUS: Mapping[int, Mapping[str, str]] = {401: {"WWW-Authenticate": "Bearer"}, UNAVAILABLE: {"Retry-After": "1"}}
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered."""

    body: bytes
    status: int = 200
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """As Starlette sends it."""
        return Response(self.body, self.status, {**_SAFE, **self.headers}, media_type=self.media_type)


def reply(tree: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """An answer of plain data, printed for people."""
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


def parse_object(data: bytes, known: frozenset[str] | None = None) -> dict[str, Any]:
    """Return the object of a body; BadArgument if it is none, is nested deeply, or has a property that is not known."""
    tree = parse_json(data)
    if not isinstance(tree, dict):
        raise BadBody(reason="it must be a JSON object")
    _check(tree)
    unknown = sorted(tree.keys() - known) if known is not None else []
    if unknown:
        shown = mask(tree[unknown[0]], unknown[0])
        raise BadArgument(name=unknown[0], value=shown, reason=f"unknown property: {unknown[0]}")
    return tree


def _check(tree: Any) -> None:
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


def is_own(path: str) -> bool:
    """Whether errors of a path are told in our form."""
    return path.startswith(OWN)


def error_status(error: LockstepError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, TimedOut | Closed):
        return UNAVAILABLE
    if isinstance(error, MethodNotAllowed):
        return NOT_ALLOWED
    if isinstance(error, UsageError) and not isinstance(error, BodyTooLarge):
        return BAD_REQUEST
    return status_of(error)


def error_reply(path: str, error: LockstepError) -> Reply:
    """An error as the routes of a path tell it."""
    status = error_status(error)
    headers = {"Allow": str(error.params["allowed"])} if status == NOT_ALLOWED else _OF_STATUS.get(status, {})
    message = _cut(type(error).template.format(**error.params))
    advice = " ".join(filter(None, [type(error).advice.format(**error.params), *getattr(error, "__notes__", [])]))
    if is_own(path):
        return reply({"error": {"code": error.code, "message": message, "advice": advice}}, status, headers)
    if status == BAD_REQUEST:
        return reply({"message": _cut(reason_of(error))}, status, headers)
    return reply({"message": f"{message} {advice}".strip()}, status, headers)


def _cut(message: str) -> str:
    """A message of a bounded length: what is wrong may be as long as the whole request."""
    return message if len(message) <= MESSAGE_CHARS else f"{message[:MESSAGE_CHARS]}..."


def reason_of(error: LockstepError) -> str:
    """Why a request was refused, as BigBen says it: the reason alone."""
    reason = error.params.get("reason")
    if reason is None:
        return type(error).template.format(**error.params)
    text = str(reason)
    return f"{error.params.get('name', 'it')}{text.removeprefix('it')}" if text.startswith("it ") else text


def refusal(request: Request, error: LockstepError) -> Response:
    """An error that the guard tells."""
    return error_reply(path_of(request), error).response()


def failure_reply(path: str, signature: Mapping[str, Any]) -> Reply:
    """What a client is told of a defect: a signature, under whose id the log has the rest."""
    if is_own(path):
        advice = f"Look for {signature['id']} in the log of node {signature['node']}."
        return reply({"error": {"code": "INTERNAL", "message": "Something went wrong.", "advice": advice}}, 500)
    return reply({"message": f"Unexpected error, {CONTACT}", "error": json.dumps(signature)}, SERVER_ERROR)
