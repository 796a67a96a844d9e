"""The OpenAPI document, generated from the routes, their parameters and their examples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query

import lockstep
from lockstep.server.bodies import JSON, NDJSON
from lockstep.server.routes import ByName, Route, Text

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
    412: "not as it should be; the list says why",
    500: "the fleet does not answer; the sentence says why",
    503: "not now; the message says what to do",
}


def document(
    routes: Iterable[Route], *, title: str, summary: str, description: str = "", scheme: str = "bearer"
) -> dict[str, Any]:
    """Return the document of some routes, whose requests may need credentials of an HTTP scheme."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path.replace("*}", "}"), {})[route.method.lower()] = operation(route)
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


def operation(route: Route) -> dict[str, Any]:
    """What a document says of one route."""
    parameters = [_parameter(name, "path", required=True) for name in _PART.findall(route.path)]
    parameters += [_parameter(name, "query", text) for name, text in route.query.items()]
    made: dict[str, Any] = {"summary": route.summary, "tags": [route.tag], "parameters": parameters}
    if route.body is not None:
        made["requestBody"] = {
            "required": True,
            "content": {route.body_type: {"schema": shape(route.body), "example": route.body}},
        }
    answers = route.answers or {200: None}
    made["responses"] = {str(status): _answer(status, example) for status, example in answers.items()}
    return made


def operation_id(method: str, path: str) -> str:
    """A name for an operation that is its own: the method and the parts of the path."""
    parts = [part.strip("{}*").replace(".", "_").replace("-", "_") for part in path.split("/") if part]
    return "_".join([method.lower(), *parts])


def _parameter(name: str, place: str, text: str = "", *, required: bool = False) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1} if place == "path" else {"type": "string"}
    made = {"name": name, "in": place, "required": required, "schema": schema}
    return {**made, "description": text} if text else made


def _answer(status: int, example: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"description": _MEANINGS.get(status, "")}
    if isinstance(example, Text):
        schema = {"type": "string"}
        made["content"] = {example.media_type.partition(";")[0]: {"schema": schema, "example": example.text}}
    elif example is not None:
        media = NDJSON if isinstance(example, str) else JSON
        made["content"] = {media: {"schema": shape(example, is_answer=True), "example": example}}
    return made


def shape(example: Any, *, is_answer: bool = False) -> dict[str, Any]:
    """The schema of what looks like an example. Of answers, single values may be null where nothing is known."""
    if isinstance(example, ByName):
        return {"type": "object", "additionalProperties": shape(next(iter(example.values())), is_answer=is_answer)}
    if isinstance(example, Mapping):
        made = {"type": "object"}
        if not is_answer:
            return made  # what may be left out of a request, and what else may be sent, its summary says
        return {**made, "properties": {name: shape(value, is_answer=True) for name, value in example.items()}}
    if isinstance(example, list):
        return {"type": "array", "items": shape(example[0], is_answer=is_answer) if example else {}}
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    kind = kinds.get(type(example))
    if kind is None:
        return {}
    return {"type": [kind, "null"]} if is_answer else {"type": kind}


ProjectName = Annotated[str | None, Query(description="the project; the one of this engine by default")]
QueryName = Annotated[str | None, Query(description="the continuous query")]
WindowName = Annotated[str, Query(description="the window, or QUERY/WINDOW")]
WindowKind = Annotated[str | None, Query(alias="type", description="only windows of this kind, as window-copy")]
InPath = Annotated[str, Path(max_length=128)]
PersistPath = Annotated[
    str | None, Query(description="a folder below the engine's own; where --persist-to says by default")
]
ModelUrl = Annotated[
    str | None,
    Query(alias="projectUrl", description="with modified: file://MODEL below the engine's folder, instead of a body"),
]


def _form(
    _form: Annotated[
        Literal["xml", "json"] | None, Query(alias="format", description="xml, or json; Accept too")
    ] = None,
) -> None:
    """Checked here for every route; the answer looks it up."""


FORM = Depends(_form)
