"""The OpenAPI document, made from the routes and their examples."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import lockstep
from lockstep.server.bodies import JSON, NDJSON
from lockstep.server.routes import Route

_PART = re.compile(r"\{(\w+)\*?\}")
_MEANINGS = {
    200: "done",
    201: "created",
    202: "accepted",
    204: "done, without a body",
    206: "some events were rejected",
    400: "refused; the message says why",
    404: "not found",
    409: "the state of the event or cron says no",
    503: "not now; the message says what to do",
}


def document(
    routes: Iterable[Route], *, title: str, summary: str, description: str = "", scheme: str = "bearer"
) -> dict[str, Any]:
    """Return the document of some routes, whose requests may need credentials of an HTTP scheme."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path.replace("*}", "}"), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": lockstep.__version__,
            "summary": summary,
            "description": description,
        },
        "components": {"securitySchemes": {scheme: {"type": "http", "scheme": scheme}}},
        "security": [{scheme: []}, {}],
        "paths": paths,
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [_parameter(name, "path", required=True) for name in _PART.findall(route.path)]
    parameters += [_parameter(name, "query", text) for name, text in route.query.items()]
    operation: dict[str, Any] = {"summary": route.summary, "tags": [route.tag], "parameters": parameters}
    if route.body is not None:
        kind = _schema(route.body)
        operation["requestBody"] = {
            "required": True,
            "content": {route.body_type: {"schema": kind, "example": route.body}},
        }
    answers = route.answers or {200: None}
    operation["responses"] = {str(status): _answer(status, example) for status, example in answers.items()}
    return operation


def _parameter(name: str, place: str, text: str = "", *, required: bool = False) -> dict[str, Any]:
    made = {"name": name, "in": place, "required": required, "schema": {"type": "string"}}
    return {**made, "description": text} if text else made


def _answer(status: int, example: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"description": _MEANINGS.get(status, "")}
    if example is not None:
        media = NDJSON if isinstance(example, str) else JSON
        made["content"] = {media: {"schema": _schema(example), "example": example}}
    return made


def _schema(example: Any) -> dict[str, str]:
    return {"type": "object" if isinstance(example, dict) else "array" if isinstance(example, list) else "string"}
