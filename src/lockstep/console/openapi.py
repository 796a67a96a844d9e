"""One OpenAPI document of everything the server answers: its own routes, and the APIs below /apis/."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import lockstep
from lockstep.console.mounts import Mount
from lockstep.console.port import Act, Kind, Parameter, View
from lockstep.console.request import ONCE_MAX
from lockstep.console.schemas import OWN, SCHEMAS, answer_of
from lockstep.server.access import Role
from lockstep.server.bodies import JSON, TEXT
from lockstep.server.openapi import operation, operation_id
from lockstep.server.routes import Route

Tree = dict[str, Any]
API = "/api/v1"
_PART = re.compile(r"\{(\w+)\}")
_MEANINGS = {
    400: "not readable", 401: "no valid token", 403: "the role or scope does not allow it, or another site asks",
    404: "not found", 405: "the path has other methods", 409: "the state says no", 413: "the body is too large",
    422: "wrong parameters or fields", 429: "too many requests", 500: "a defect; the log has it under the number told",
    503: "not now; the advice says what to do", 504: "no answer in time",
}  # fmt: skip
_ANY = (401, 403, 413, 429, 503, 504)
"""What each request may be answered with."""
_LOOKS, _CHANGES = (404, 409, 422, *_ANY), (404, 409, 422, *_ANY)
_EVERYBODY: list[Any] = [{}]
_BEARER: list[Any] = [{"token": []}]
_ANYBODY: list[Any] = [{"token": []}, {"session": []}, {}]
ONCE: Tree = {
    "in": "header", "name": "Idempotency-Key", "required": False,
    "description": "carry this out once: a second request of the caller with the same key is answered with 409",
    "schema": {"type": "string", "minLength": 1, "maxLength": ONCE_MAX},
}  # fmt: skip
_DESCRIPTION = """Callers without a credential may look where the server listens on loopback, unless it was started with
--sign-in; everybody else sends a token. A change needs a token: a session of a page carries no change here. Each
operation names the role that it needs (x-role) and the area that the scope of a token must have (its tag). Every page
of the server is at the path of its route below /api/v1. Defects are answered with 500 and a number."""


def document(views: Iterable[View], acts: Iterable[Act], mounts: Iterable[Mount]) -> Tree:
    """The document."""
    paths: dict[str, Tree] = {path: dict(item) for path, item in _server_paths().items()}
    for view in views:
        paths.setdefault(f"{API}{view.path}", {})["get"] = _looking(view)
    for act in acts:
        paths.setdefault(f"{API}{act.path}", {})["post"] = _changing(act)
    for mount in mounts:
        for route in mount.routes:
            path = f"{mount.prefix}/{{{mount.name}}}{route.path.replace('*}', '}')}"
            paths.setdefault(path, {})[route.method.lower()] = _mounted(mount, route)
    for path, item in paths.items():
        for method, made in item.items():
            made["operationId"] = operation_id(method, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lockstep", "version": lockstep.__version__, "description": _DESCRIPTION,
            "summary": "Streams, projects, schedules and fleets of a bus: one server over all of them",
        },
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "of 'lockstep access add'"},
                "session": {"type": "apiKey", "in": "cookie", "name": "lockstep_session"},
            },
            "schemas": SCHEMAS,
        },
        "security": _ANYBODY,
        "tags": [{"name": name} for name in sorted({tag for item in paths.values() for one in item.values()
                                                   for tag in one["tags"]})],
        "paths": paths,
    }  # fmt: skip


def _looking(view: View) -> Tree:
    answer: Tree = {"schema": answer_of("GET", view.path)}
    if view.example is not None:
        answer["example"] = view.example
    return {
        "summary": view.summary, "tags": [view.area], "x-role": view.role.label, "x-command": view.cli,
        "security": _security(view.role),
        "parameters": [*_names(view.path), *({"in": "query", **_parameter(one)} for one in view.parameters)],
        "responses": {"200": {"description": view.title, "content": {JSON: answer}}, **_refusals(_LOOKS)},
    }  # fmt: skip


def _changing(act: Act) -> Tree:
    properties: Tree = {one.name: _schema(one) for one in act.fields}
    properties["dry_run"] = {"type": "boolean", "description": "say what it would do, and change nothing"}
    if act.confirm:
        properties["confirm"] = {"type": "string", "description": f"the {act.confirm}, to confirm"}
    required = [one.name for one in act.fields if one.required]
    schema = {"type": "object", "properties": properties, "additionalProperties": False, "required": required}
    example = {**{one.name: _example(one) for one in act.fields if one.required}, "dry_run": True}
    return {
        "summary": act.summary, "tags": [act.area], "x-role": act.role.label, "x-command": act.cli,
        "security": _BEARER, "parameters": [*_names(act.path), *([ONCE] if act.answers == JSON else [])],
        "requestBody": {"required": bool(required), "content": {JSON: {"schema": schema, "example": example}}},
        "responses": {
            "200": {"description": "done, or with dry_run what it would do", "content": _done(act)},
            **_refusals(_CHANGES),
        },
    }  # fmt: skip


def _done(act: Act) -> Tree:
    """What an act answers with; its preview is always plain data."""
    plain = {"anyOf": [{"$ref": "#/components/schemas/Preview"}, answer_of("POST", act.path)]}
    found: Tree = {JSON: {"schema": plain}}
    return found if act.answers == JSON else {**found, act.answers: {"schema": {"type": "string", "format": "binary"}}}


def _mounted(mount: Mount, route: Route) -> Tree:
    """A route of another API: its own answers, and those of the server in front of it."""
    made = operation(route)
    own: Mapping[str, Tree] = made["responses"]
    is_monitor = mount.area == "fleet"
    told = SCHEMAS_OF_MONITOR if is_monitor else SCHEMAS_OF_SCHEDULE
    statuses = (400, 404, 409, *_ANY) if not is_monitor else (400, 404, 409, 500, *_ANY)
    responses: Tree = dict(own)
    for status in statuses:
        if route.answers.get(status, "") is None:  # some come without a body, which a document has no word for
            responses[str(status)] = {"description": f"{_MEANINGS[status]}; the body may be empty"}
            continue
        content = own.get(str(status), {}).get("content", {})
        known = content.get(JSON, {})
        kinds = [*([known["schema"]] if known else []), *({"$ref": f"#/components/schemas/{name}"} for name in told)]
        answer = {**known, "schema": {"anyOf": kinds}}
        text = own.get(str(status), {}).get("description") or _MEANINGS[status]
        responses[str(status)] = {"description": text, "content": {**content, JSON: answer}}
    name = {"in": "path", "name": mount.name, "required": True, "description": "which one",
            "schema": {"type": "string", "minLength": 1}}  # fmt: skip
    return {
        **made, "tags": [mount.area], "x-role": route.needs.label, "parameters": [name, *made["parameters"]],
        "security": _security(route.needs) if route.method == "GET" else _BEARER, "responses": responses,
    }  # fmt: skip


SCHEMAS_OF_MONITOR, SCHEMAS_OF_SCHEDULE = ("Error", "SensuError"), ("Error", "Message")


def _server_paths() -> Mapping[str, Tree]:
    """What the server answers for itself."""
    form = "application/x-www-form-urlencoded"
    page = {"text/html": {"schema": {"type": "string"}}}
    token = {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]}
    return {
        "/healthz": {"get": _own("Whether the server answers; also when all its slots are busy", OWN["health"])},
        "/readyz": {"get": _own("Whether it reaches the bus, and the role and epoch of what it looks at", OWN["ready"],
                                {503: _answer("the bus is away; `reason` says why", OWN["not_ready"])})},
        "/metrics": {"get": {**_own("Figures of all parts for Prometheus", {}), "security": _ANYBODY, "responses": {
            "200": {"description": "text format 0.0.4", "content": {
                TEXT.partition(";")[0]: {"schema": {"type": "string"}}}},
            **_refusals(_ANY)}}},
        "/openapi.json": {"get": _own("This document", {"type": "object", "required": ["openapi", "paths"]})},
        "/grafana.json": {"get": _own("A dashboard over /metrics, to import into Grafana",
                                      {"type": "object", "required": ["title", "panels"]})},
        "/live": {"get": {
            **_own("The content of a page whenever it changes, as server-sent events", {}), "security": _ANYBODY,
            "parameters": [{"in": "query", "name": "path", "required": False, "schema": {"type": "string"},
                            "description": "the path and query of a page", "example": "/streams?q=orders"}],
            "responses": {"200": {"description": "events content, same, stale, ended",
                                  "content": {"text/event-stream": {"schema": {"type": "string"}}}},
                          **_refusals((404, 405, 422, *_ANY))}}},
        "/sign-in": {
            "get": {**_own("The form to sign in", {}), "responses": {
                "200": {"description": "a page", "content": page}, **_refusals((403, 503))}},
            "post": {**_own("Begin a session with a token", {}),
                     "requestBody": {"required": True, "content": {form: {"schema": token,
                                                                          "example": {"token": "lockstep_..."}}}},
                     "responses": {"303": _redirect("signed in; the cookie is the session"),
                                   "403": {"description": "the token is not valid, or another site asks",
                                           "content": {**page, **_error()}},
                                   **_refusals((413, 422, 429, 503, 504))}}},
        "/sign-out": {"post": {
            **_own("End a session", {}), "security": [{"session": []}, {}],
            "requestBody": {"required": False, "content": {form: {"schema": {"type": "object", "properties": {
                "_form": {"type": "string", "description": "the value that forms of the session's pages carry"}}}}}},
            "responses": {"303": _redirect("signed out"), **_refusals((401, 403, 413, 422, 429, 503, 504))}}},
        "/static/{file}": {"get": {
            **_own("The style sheet, the script and the icon of the pages", {}),
            "parameters": [{"in": "path", "name": "file", "required": True, "example": "console.css",
                            "schema": {"type": "string", "enum": ["console.css", "console.js", "icon.svg"]}}],
            "responses": {"200": {"description": "the file", "content": {
                kind: {"schema": {"type": "string"}} for kind in ("text/css", "text/javascript", "image/svg+xml")}},
                "304": {"description": "not changed"}, **_refusals((403, 404, 503))}}},
    }  # fmt: skip


def _own(summary: str, schema: Tree, more: Mapping[int, Tree] | None = None) -> Tree:
    responses = {"200": _answer("done", schema), **_refusals((403,))}
    responses |= {str(status): answer for status, answer in (more or {}).items()}
    return {"summary": summary, "tags": ["server"], "security": _EVERYBODY, "responses": responses,
            "x-role": "everybody"}  # fmt: skip


def _answer(text: str, schema: Tree) -> Tree:
    return {"description": text, "content": {JSON: {"schema": schema}}}


def _redirect(text: str) -> Tree:
    return {"description": text, "headers": {"Location": {"schema": {"type": "string"}}}}


def _security(role: Role) -> list[Any]:
    return _ANYBODY if role is Role.VIEWER else [{"token": []}, {"session": []}]


def _names(path: str) -> list[Tree]:
    return [{"in": "path", "name": name, "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in _PART.findall(path)]  # fmt: skip


def _parameter(one: Parameter) -> Tree:
    return {"name": one.name, "required": one.required, "description": one.help, "schema": _schema(one)}


def _schema(one: Parameter) -> Tree:
    if one.kind is Kind.WHOLE:
        made: Tree = {"type": "integer", "minimum": one.least, "maximum": one.most}
    elif one.kind is Kind.FLAG:
        made = {"type": "boolean"}
    else:
        made = {"type": "string", "maxLength": one.characters_max}
        if one.kind is Kind.CHOICE:
            made = {"type": "string", "enum": list(one.choices)}
        elif one.required:
            made["minLength"] = 1
    has_default = not one.required and one.default != "" and one.default is not None
    return {**made, "default": one.default} if has_default else made


def _example(one: Parameter) -> Any:
    if one.kind is Kind.WHOLE:
        return one.least
    return one.choices[0] if one.choices else one.label.lower() or one.name


def _error() -> Tree:
    return {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}


def _refusals(statuses: Iterable[int]) -> Tree:
    return {str(status): {"description": _MEANINGS[status], "content": _error()} for status in statuses}
