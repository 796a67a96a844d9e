"""Answers as XML or JSON, as the client wants; errors are such documents too."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lockstep.engine.model.xml_elements import Element, render
from lockstep.errors import (
    BadArgument,
    Conflict,
    Forbidden,
    LockstepError,
    NotFound,
    TimedOut,
    Unavailable,
    UsageError,
)
from lockstep.server.errors import BodyTooLarge, ChangeNeedsToken, TokenWrong

JSON, XML = "application/json", "application/xml"
_STATUS: tuple[tuple[type[LockstepError], int], ...] = (
    (TokenWrong, 401),
    (ChangeNeedsToken, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (BodyTooLarge, 413),
    (UsageError, 422),
    (TimedOut, 504),
    (Unavailable, 503),
)
_OF_STATUS: Mapping[int, Mapping[str, str]] = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}
_SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def path_of(request: Request) -> str:
    """The path that routes are chosen by. That of `request.url` is made with the Host header, which a client writes."""
    path: str = request.scope["path"]
    return path


def wants_json(request: Request) -> bool:
    """JSON if ?format or Accept says so, and for our own routes; else XML. BadArgument for an unknown ?format."""
    asked = request.query_params.get("format")
    if asked is not None:
        if asked not in ("json", "xml"):
            raise BadArgument(name="format", value=asked, reason="it must be xml or json")
        return asked == "json"
    if not path_of(request).startswith("/eventStreamProcessing/"):
        return True
    kinds = [kind.partition(";")[0].strip().lower() for kind in request.headers.get("accept", "").split(",")]
    known = [kind for kind in kinds if kind in (JSON, XML, "text/xml")]
    return known[:1] == [JSON]


def answer(request: Request, element: Element, tree: Any) -> Response:
    """Return an answer with one item, in the format that the client asked for."""
    return as_json(tree) if wants_json(request) else as_xml(element)


def as_json(tree: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document."""
    text = tree if isinstance(tree, str) else json.dumps(tree, ensure_ascii=False)
    return Response(text, status, {**_SAFE, **(headers or {})}, media_type=JSON)


def as_xml(element: Element, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An XML document."""
    return Response(render(element), status, {**_SAFE, **(headers or {})}, media_type=XML)


def status_of(error: LockstepError) -> int:
    """The HTTP status that says what kind of error it is; 500 for stored data that is not as it should be."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def refusal(request: Request, error: LockstepError) -> Response:
    """An error as a document: code, message and advice."""
    message = type(error).template.format(**error.params)
    notes = [type(error).advice.format(**error.params), *getattr(error, "__notes__", [])]
    status = status_of(error)
    return problem(request, status, error.code, message, " ".join(filter(None, notes)), _OF_STATUS.get(status))


def problem(
    request: Request, status: int, code: str, message: str, advice: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A document that says what went wrong."""
    try:
        is_json = wants_json(request)
    except BadArgument:  # what is said about that must be said in some form
        is_json = False
    if is_json:
        return as_json({"error": {"code": code, "message": message, "advice": advice}}, status, headers)
    parts = [Element("message", text=legal(message)), Element("advice", text=legal(advice))]
    return as_xml(Element("error", {"code": code, "status": str(status)}, parts), status, headers)


def is_legal(text: str) -> bool:
    """Whether XML has a place for every character of a text."""
    return _ILLEGAL.search(text) is None


def legal(text: str) -> str:
    """A text for people, with a mark in place of characters that XML has no place for."""
    return _ILLEGAL.sub("\ufffd", text)
