"""The OpenAPI document is held against a running server with data: what it says comes, and nothing else comes.

Schemathesis makes requests from the schemas, valid and invalid ones. Names of a path are mostly those of something that
exists, so that answers come from behind the first look-up.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import requests
import schemathesis
from contract_worlds import Contract, contract
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

from lockstep.console import projects
from lockstep.console.limits import RateLimits
from lockstep.console.schemas import ACTS, VIEWS
from lockstep.server.access import Role

CHECKS = [
    checks.status_code_conformance, checks.content_type_conformance, checks.response_headers_conformance,
    checks.response_schema_conformance,
]  # fmt: skip
EXAMPLES, EXAMPLES_SOAK = 4, 150
SEED = 20_261_120
CALLERS = (Role.ADMIN, Role.ADMIN, *Role, None)
ADDRESS_MAX = 60_000
ENDLESS = ("/live", "/changes")
NAMES = {
    "stream": "orders", "group": "readers", "tenant": "default", "id": "e1", "host": "web-1", "check": "disk",
    "client": "web-1", "project": "p", "query": "q", "window": "sums", "monitor": "fleet", "schedule": "jobs",
    "name": "disks", "severity": "critical", "subscription": "client:web-2", "path": "note", "file": "console.js",
    "type": "UNIX",
}  # fmt: skip
METHODS = ("get", "put", "post", "delete")


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(RateLimits, "take", lambda *_: None)
    monkeypatch.setattr(projects, "ASK_S", 0.05)  # no engine answers
    monkeypatch.setattr(projects, "ALONE_S", 0.05)
    logging.disable(logging.CRITICAL)
    with contract(tmp_path) as world:
        yield world
    logging.disable(logging.NOTSET)


@schemathesis.serializer("application/x-ndjson")
def lines(_context, value):
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()


def document_of(world: Contract) -> dict:
    return json.loads(world.ask("GET", "/openapi.json")[2])


def is_last(operation) -> bool:
    """Whether it removes what others look at."""
    return operation.method == "delete" or operation.path.endswith(("/delete", "/revoke", "/rotate", "/trim"))


class Run:
    """Sends requests to every operation; `lies` has what the document did not say."""

    def __init__(self, world: Contract, examples: int) -> None:
        self.world, self.examples = world, examples
        self.document = document_of(world)
        self.statuses: Counter[int] = Counter()
        self.lies: dict[tuple[str, str, int], str] = {}
        self._token = world.console.credentials.issue("spare", Role.VIEWER)[0].id
        self._silence = json.loads(world.ask("GET", "/api/v1/fleet/silences")[2])["silences"][0]["id"]

    def all(self) -> None:
        schema = schemathesis.openapi.from_dict(self.document)
        operations = [found.ok() for found in schema.get_all_operations()]
        operations = [one for one in operations if not one.path.endswith(ENDLESS)]
        for operation in sorted(operations, key=lambda one: (one.method != "get", is_last(one))):
            self._one(operation)

    def _one(self, operation) -> None:
        cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))
        chances = {"is_known": st.sampled_from([True, True, True, False]), "is_example": st.booleans()}

        def ask(case, role, is_known, is_example):
            self._ask(operation, case, role, is_known=is_known, is_example=is_example)

        chosen = settings(max_examples=self.examples, database=None, deadline=None, phases=[Phase.generate],
                          suppress_health_check=list(HealthCheck))  # fmt: skip
        seed(SEED)(chosen(given(case=cases, role=st.sampled_from(CALLERS), **chances)(ask)))()

    def _ask(self, operation, case, role, *, is_known: bool, is_example: bool) -> None:
        if is_known:
            case.path_parameters = {**(case.path_parameters or {}), **self._names(operation)}
        body = self.document["paths"][operation.path][operation.method].get("requestBody", {})
        example = body.get("content", {}).get("application/json", {}).get("example")
        if is_example and example is not None:
            case.body, case.media_type = example, "application/json"
        headers = {} if role is None else {"Authorization": f"Bearer {self.world.tokens[role]}"}
        try:
            answer = case.call(base_url=self.world.url, headers=headers, timeout=30, allow_redirects=False)
        except requests.RequestException:  # an address that is far too long is not read to its end
            assert len(case.as_curl_command()) > ADDRESS_MAX
            return
        self.statuses[answer.status_code] += 1
        where = (operation.method, operation.path, answer.status_code)
        if answer.status_code == 500:
            self.lies[where] = f"{answer.text[:300]} {case.as_curl_command()[:500]}"
        try:
            case.validate_response(answer, checks=CHECKS)
        except FailureGroup as failures:
            self.lies.setdefault(where, f"{failures} {answer.text[:300]}"[:1500])

    def _names(self, operation) -> dict[str, str]:
        names = dict(NAMES)
        if "/letters/" in operation.path:
            names["stream"] = "orders.dlq"
        if "/cron" in operation.path:
            names["id"] = "c1"
        if "/silence" in operation.path:
            names["id"] = self._silence
        if "/access/" in operation.path:
            names["id"] = self._token
        return {one.name: names[one.name] for one in operation.path_parameters}


def test_the_document_is_valid_and_every_operation_says_what_it_is(world):
    document = document_of(world)
    validate(document)
    ids = []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            where = f"{method} {path}"
            ids.append(operation["operationId"])
            assert operation["summary"], where
            assert operation["tags"], where
            assert operation["x-role"] in ("viewer", "operator", "admin", "everybody"), where
            assert "200" in operation["responses"] or set(operation["responses"]) & {"201", "202", "204", "303"}, where
            if method != "get" and not path.startswith("/sign-"):
                assert operation["security"] == [{"token": []}], where
                for kind in operation.get("requestBody", {}).get("content", {}).values():
                    assert kind["example"], where
    assert len(ids) == len(set(ids)) > 150


def test_the_document_has_every_route_of_the_server(world):
    paths, app = document_of(world)["paths"], world.console.app
    wanted = {("get", f"/api/v1{path}") for path in app._views} | {("post", f"/api/v1{path}") for path in app._acts}
    for mount in app._mounts:
        wanted |= {(route.method.lower(), f"{mount.prefix}/{{{mount.name}}}{route.path.replace('*}', '}')}")
                   for route in mount.routes}  # fmt: skip
    wanted |= {("get", path) for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/grafana.json", "/live",
                                          "/sign-in", "/static/{file}")}  # fmt: skip
    wanted |= {("post", "/sign-in"), ("post", "/sign-out")}
    assert {(method, path) for path, item in paths.items() for method in item} == wanted


def test_the_mounted_apps_have_the_routes_that_the_document_says(world):
    for mount, name in ((mount, NAMES[mount.name]) for mount in world.console.app._mounts):
        own = json.loads(world.ask("GET", f"{mount.prefix}/{name}/openapi.json")[2])["paths"]
        told = {route.path.replace("*}", "}") for route in mount.routes}
        assert told == set(own)


def test_every_view_has_a_schema_of_its_answer(world):
    app = world.console.app
    assert set(VIEWS) == set(app._views)
    assert set(ACTS) <= set(app._acts)


@pytest.mark.slow
def test_nothing_comes_that_the_document_does_not_say(world):
    run = Run(world, EXAMPLES)
    run.all()
    assert run.lies == {}
    assert {200, 201, 202, 204, 303, 400, 401, 403, 404, 422} <= set(run.statuses)
    assert run.statuses[200] > 200, "most requests get behind the first look-up"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nothing_comes_that_the_document_does_not_say_however_long_one_asks(world):
    run = Run(world, EXAMPLES_SOAK)
    run.all()
    assert run.lies == {}


def test_a_lie_is_found(world):
    run = Run(world, 10)
    responses = run.document["paths"]["/api/v1/streams"]["get"]["responses"]
    responses["200"]["content"]["application/json"]["schema"]["required"].append("something-else")
    run.document["paths"] = dict(itertools.islice(
        ((path, item) for path, item in run.document["paths"].items() if path == "/api/v1/streams"), 1))  # fmt: skip
    run.all()
    assert list(run.lies) == [("get", "/api/v1/streams", 200)]
