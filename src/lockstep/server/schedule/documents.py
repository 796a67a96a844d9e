"""JSON documents, spans of time and errors of the scheduler's API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lockstep.core.agenda import Form
from lockstep.errors import BadArgument, Closed, Conflict, LockstepError, NotFound, TimedOut, UsageError
from lockstep.schedule.tenants import mask
from lockstep.server.answers import path_of, status_of
from lockstep.server.bodies import Reply, check_tree, parse_json, reply
from lockstep.server.errors import BadBody, BodyTooLarge, MethodNotAllowed

BAD_REQUEST, NOT_ALLOWED, SERVER_ERROR, UNAVAILABLE = 400, 405, 500, 503
MESSAGE_CHARS = 2000
OWN = "/v2/"
CONTACT = "please contact engineering team with the below error signature"
_OF_STATUS: Mapping[int, Mapping[str, str]] = {401: {"WWW-Authenticate": "Bearer"}, UNAVAILABLE: {"Retry-After": "1"}}


def parse_object(data: bytes, known: frozenset[str] | None = None) -> dict[str, Any]:
    """Return the object of a body; BadArgument if it is none, is nested deeply, or has a property that is not known."""
    tree = parse_json(data)
    if not isinstance(tree, dict):
        raise BadBody(reason="it must be a JSON object")
    check_tree(tree)
    unknown = sorted(tree.keys() - known) if known is not None else []
    if unknown:
        shown = mask(tree[unknown[0]], unknown[0])
        raise BadArgument(name=unknown[0], value=shown, reason=f"unknown property: {unknown[0]}")
    return tree


def payload_form(fields: dict[str, Any]) -> Form:
    """What the payload of a request is; one that is not text becomes its JSON."""
    payload = fields.get("payload")
    if payload is None or isinstance(payload, str):
        return Form.TEXT
    fields["payload"] = json.dumps(payload, ensure_ascii=False)
    return Form.JSON


def is_own(path: str) -> bool:
    """Whether errors of a path are answered in our own format."""
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
    """Return an error in the format of the path's routes."""
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
    """Return an error of the guard as an answer."""
    return error_reply(path_of(request), error).response()


def failure_reply(path: str, signature: Mapping[str, Any]) -> Reply:
    """Return the answer to an unexpected exception: a signature, under whose id the log has the details."""
    if is_own(path):
        advice = f"Look for {signature['id']} in the log of node {signature['node']}."
        return reply({"error": {"code": "INTERNAL", "message": "Something went wrong.", "advice": advice}}, 500)
    return reply({"message": f"Unexpected error, {CONTACT}", "error": json.dumps(signature)}, SERVER_ERROR)


_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]+)D)?(T(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_LENGTH_MAX = 40
_YEARS_MS = 1000 * 366 * 86_400_000


def parse_duration(text: object, name: str) -> int:
    """Return milliseconds; BadArgument unless it is a span in ISO 8601."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) and len(text) <= _LENGTH_MAX else None
    if found is None or found[3] in ("T", "t") or not any(found.group(2, 4, 5, 6)):
        raise BadArgument(name=name, value=text, reason="it must be a span in ISO 8601, as PT1M30S")
    days, hours, minutes, seconds = (int(part or 0) for part in found.group(2, 4, 5, 6))
    fraction = int((found[7] or "").ljust(3, "0")[:3])
    if (found[6] or "").startswith("-"):
        fraction = -fraction
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction
    if abs(total) > _YEARS_MS:
        raise BadArgument(name=name, value=text, reason="it is longer than 1000 years")
    return -total if found[1] == "-" else total


class EventNotFound(NotFound):
    """No event of this tenant and id."""

    code = "EVENT_NOT_FOUND"
    template = "Tenant {tenant!r} has no event {id!r}."
    advice = "It was never scheduled, was removed, or ended longer ago than events are kept."


class CronNotFound(NotFound):
    """No cron of this tenant, id and type."""

    code = "CRON_NOT_FOUND"
    template = "Tenant {tenant!r} has no cron {id!r} of type {type}."
    advice = "GET /v2/crons lists all crons."


class TenantNotFound(NotFound):
    """No tenant of this name."""

    code = "TENANT_NOT_FOUND"
    template = "Tenant {tenant!r} is not registered."
    advice = "GET /v2/tenants lists all tenants."


class EventNotFailed(Conflict):
    """A replay of an event that has not failed."""

    code = "EVENT_NOT_FAILED"
    template = "The event {id!r} of tenant {tenant!r} can't be replayed: {reason}."
    advice = "Only events with status FAILED can."
