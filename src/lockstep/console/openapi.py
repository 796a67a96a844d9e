"""One OpenAPI document of all views and acts, and where the documents of the other APIs are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import lockstep
from lockstep.console.mounts import Mount
from lockstep.console.port import Act, Kind, Parameter, View

_PART = re.compile(r"\{(\w+)\}")
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "object", "properties": {name: {"type": "string"} for name in
                                                              ("code", "message", "advice")}}},
}  # fmt: skip
_REFUSALS = {
    400: "not readable", 401: "no valid token", 403: "the role or scope does not allow it", 404: "not found",
    409: "the state says no", 413: "too large", 422: "wrong parameters", 429: "too many requests",
    503: "not now; the advice says what to do", 504: "no answer in time",
}  # fmt: skip


def document(views: Iterable[View], acts: Iterable[Act], mounts: Iterable[Mount]) -> dict[str, Any]:
    """The document."""
    paths: dict[str, dict[str, Any]] = {}
    for view in views:
        paths.setdefault(f"/api/v1{view.path}", {})["get"] = _looking(view)
    for act in acts:
        paths.setdefault(f"/api/v1{act.path}", {})["post"] = _changing(act)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lockstep",
            "version": lockstep.__version__,
            "summary": "Streams, projects, schedules, fleets",
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
        "security": [{"token": []}, {}],
        "paths": paths,
        "x-mounted": [{"prefix": mount.prefix, "title": mount.title} for mount in mounts],
    }


def _looking(view: View) -> dict[str, Any]:
    answer: dict[str, Any] = {"schema": {"type": "object"}}
    if view.example is not None:
        answer["example"] = view.example
    return {
        "summary": view.summary, "tags": [view.area], "x-role": view.role.label, "x-command": view.cli,
        "parameters": [*_names(view.path), *({"in": "query", **_parameter(one)} for one in view.parameters)],
        "responses": {"200": {"description": view.title, "content": {"application/json": answer}}, **_refusals()},
    }  # fmt: skip


def _changing(act: Act) -> dict[str, Any]:
    properties: dict[str, Any] = {one.name: _schema(one) for one in act.fields}
    properties["dry_run"] = {"type": "boolean", "description": "say what it would do, and change nothing"}
    if act.confirm:
        properties["confirm"] = {"type": "string", "description": f"the {act.confirm}, to confirm"}
    schema = {"type": "object", "properties": properties, "additionalProperties": False,
              "required": [one.name for one in act.fields if one.required]}  # fmt: skip
    return {
        "summary": act.summary, "tags": [act.area], "x-role": act.role.label, "x-command": act.cli,
        "parameters": _names(act.path),
        "requestBody": {"required": False, "content": {"application/json": {"schema": schema}}},
        "responses": {"200": {"description": "done", "content": _done(act)}, **_refusals()},
    }  # fmt: skip


def _done(act: Act) -> dict[str, Any]:
    """What an act answers with; its preview is always plain data."""
    found: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    return found if act.answers in found else {**found, act.answers: {"schema": {"type": "string", "format": "binary"}}}


def _names(path: str) -> list[dict[str, Any]]:
    return [
        {"in": "path", "name": name, "required": True, "schema": {"type": "string"}} for name in _PART.findall(path)
    ]


def _parameter(one: Parameter) -> dict[str, Any]:
    return {"name": one.name, "required": one.required, "description": one.help, "schema": _schema(one)}


def _schema(one: Parameter) -> dict[str, Any]:
    if one.kind is Kind.WHOLE:
        return {"type": "integer", "minimum": one.least, "maximum": one.most}
    if one.kind is Kind.FLAG:
        return {"type": "boolean"}
    made: dict[str, Any] = {"type": "string", "maxLength": one.characters_max}
    return {**made, "enum": list(one.choices)} if one.kind is Kind.CHOICE else made


def _refusals() -> Mapping[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {str(status): {"description": text, "content": content} for status, text in _REFUSALS.items()}
