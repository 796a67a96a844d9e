"""BigBen's and Sensu's APIs below paths of the console: they answer as their own servers, to callers that may ask."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.console.assembly import opened_parts
from lockstep.server.access import Role

BIGBEN = "/apis/schedule/jobs"


@pytest.fixture
def client():
    with lockstep.connect("memory:") as client:
        yield client


@pytest.fixture
def world(client, tmp_path):
    with client.scheduler("jobs"), opened_parts(client, "local", tmp_path) as parts:
        world = ConsoleWorld(client, mounts=parts.mounts)
        yield world
        world.close()


def scheduled(world: ConsoleWorld, token: str | None):
    event = {"id": "a", "eventTime": "2099-01-01T00:00Z", "tenant": "default", "payload": "p"}
    return world.post(f"{BIGBEN}/events/schedule", [event], token)


@pytest.mark.slow
def test_events_are_scheduled_through_bigbens_api(world):
    token = world.token(Role.ADMIN)
    tenant = {"tenant": "default", "type": "MESSAGING", "props": {"topic": "out"}}
    assert world.post(f"{BIGBEN}/events/tenant/register", tenant, token).status == 200
    answer = scheduled(world, token)
    assert (answer.status, answer.tree[0]["eventStatus"]) == (200, "ACCEPTED")
    assert "duration" in answer.headers
    found = world.get(f"{BIGBEN}/v2/events/default/a").tree
    assert found["id"] == "a"
    assert "/v2/events/{tenant}/{id}" in world.get(f"{BIGBEN}/openapi.json").tree["paths"]


@pytest.mark.slow
def test_the_console_checks_who_asks_and_notes_changes(world):
    assert scheduled(world, None).status == 401
    assert scheduled(world, world.token(Role.VIEWER)).status == 403
    assert scheduled(world, world.token(Role.OPERATOR, "fleet")).status == 403
    scheduled(world, world.token(Role.OPERATOR, "schedules"))
    what, path = "POST BigBen's API, and ours under /v2", f"{BIGBEN}/events/schedule"
    rows = [row for row in world.audit.rows() if row["what"] == what][::-1]
    assert [(row["path"], row["outcome"]) for row in rows] == [(path, "begun"), (path, "refused")]
    assert rows[0]["more"]["body"][0]["id"] == "a"
    assert rows[1]["more"]["status"] == 400, "there is no such tenant"
    assert rows[0]["id"] == rows[1]["id"]


@pytest.mark.slow
def test_names_that_are_not_there_are_not_found(world):
    for path in ("/apis/schedule/nobody/ping", "/apis/schedule//ping", "/apis/monitor/nobody/clients", "/apis/other/x"):
        assert world.get(path).status == 404, path
        assert json.loads(world.get(path).body)["error"]["message"]
