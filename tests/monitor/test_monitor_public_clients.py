"""Public clients of Sensu's API, request by request as they send them, and what they read of the answers.

`sensu_plugin` 0.8.0 and `pysensu` 0.5 as recorded from their runs against this API; Uchiwa from its source.
"""

from __future__ import annotations

import json

import pytest
from fleet_world import FleetWorld, served

SETTINGS = {
    "checks": {"disk": {"command": "check-disk", "subscribers": ["all"], "interval": 60, "handlers": ["log"]}},
    "handlers": {"log": {"type": "pipe"}},
}
PYTHON = {
    "User-Agent": "python-requests/2.34.2", "Accept-Encoding": "gzip, deflate", "Accept": "*/*",
    "Connection": "keep-alive",
}  # fmt: skip
GO = {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}


@pytest.fixture
def world(tmp_path):
    made = FleetWorld(tmp_path, **SETTINGS)
    made.keepalive("web-1")
    made.keepalive("web-2")
    made.check("web-1", "disk", 2, aggregate="site")
    made.check("web-2", "disk", 1)
    return made


@pytest.fixture
def ask(world):
    with served(world) as made:
        yield made


PYSENSU = [
    ("POST", "/stashes/web-1", "{}", 201),
    ("POST", "/stashes/web-1/disk", "{}", 201),
    ("GET", "/stashes", None, 200),
    ("DELETE", "/stashes/web-1", None, 204),
    ("DELETE", "/stashes/web-1/disk", None, 204),
    ("GET", "/clients/web-1/history", None, 200),
    ("GET", "/clients/web-1", None, 200),
    ("GET", "/clients", None, 200),
    ("GET", "/checks/disk", None, 200),
    ("GET", "/checks", None, 200),
    ("POST", "/check/request", '{"check": "disk", "subscribers": ["client:web-1"]}', 202),
    ("GET", "/events", None, 200),
    ("GET", "/events/web-1", None, 200),
    ("GET", "/events/web-1/disk", None, 200),
    ("DELETE", "/events/web-1/disk", None, 202),
    ("POST", "/event/resolve", '{"client": "web-2", "check": "disk"}', 202),
    ("DELETE", "/clients/web-2", None, 202),
]
"""Method, path, body, and the one code that pysensu takes for success."""


def test_pysensu_gets_the_codes_that_it_takes_for_success(ask):
    for method, path, body, wanted in PYSENSU:
        status, _, answer = ask(method, path, None if body is None else body.encode(), PYTHON)
        assert status == wanted, (method, path)
        assert method != "GET" or isinstance(answer, list | dict), path


def test_handlers_of_sensu_plugin_see_stashes_and_events(ask):
    """They look at the code alone, and ask for stashes by paths that begin with two slashes."""
    assert ask("GET", "//stash/silence/web-1", headers=PYTHON)[0] == 404
    assert ask("POST", "/stashes/silence/web-1", b"{}", PYTHON)[0] == 201
    assert ask("GET", "//stash/silence/web-1", headers=PYTHON)[0] == 200
    assert ask("GET", "//stash/silence/web-1/disk", headers=PYTHON)[0] == 404
    assert ask("GET", "//stash/silence/all/disk", headers=PYTHON)[0] == 404
    assert ask("GET", "/events/web-1/disk", headers=PYTHON)[0] == 200
    assert ask("GET", "/events/web-1/none", headers=PYTHON)[0] == 404


def uchiwa(ask, method, path, payload=None):
    """As Uchiwa asks: bodies end with two line feeds; of an answer it takes as many bytes as Content-Length says."""
    headers, body = dict(GO), None
    if method == "POST":
        headers["Content-Type"] = "application/json"
        body = (json.dumps(payload) + "\n\n").encode()
    status, headers, answer = ask(method, path, body, headers)
    assert status < 400, (method, path, status)
    assert status == 204 or int(headers["content-length"]) >= 0
    return headers, answer


class TestUchiwa:
    @pytest.fixture
    def call(self, ask):
        return lambda method, path, payload=None: uchiwa(ask, method, path, payload)

    def test_info(self, call):
        info = call("GET", "/info")[1]
        assert info["redis"]["connected"] is True
        assert info["transport"]["connected"] is True
        assert all(type(info["transport"][name][each]) is int
                   for name in ("keepalives", "results") for each in ("messages", "consumers"))  # fmt: skip
        assert all(isinstance(value, str) for value in info["sensu"]["settings"].values())
        assert isinstance(info["sensu"]["version"], str)
        [server] = info["servers"]
        kinds = {"id": str, "hostname": str, "address": str, "is_leader": bool, "tasks": list, "timestamp": int}
        assert {name: type(server[name]) for name in kinds} == kinds
        assert "metrics" not in server  # a map of maps of numbers, if it is there
        assert "sensu" not in server

    def test_clients_and_events_come_in_pages(self, call):
        for path, total in (("/clients", 2), ("/events", 2)):
            headers, rows = call("GET", f"{path}?limit=1&offset=0")
            page = json.loads(headers["x-pagination"])
            assert page == {"limit": 1, "offset": 0, "total": total}
            assert len(rows + call("GET", f"{path}?limit=1&offset=1")[1]) == total
            assert call("GET", f"{path}?limit=1000&offset=1000")[1] == []

    def test_lists_that_are_never_null(self, call):
        for path in ("/checks", "/aggregates", "/silenced", "/stashes"):
            assert isinstance(call("GET", path)[1], list), path

    def test_what_it_reads_of_clients_and_events(self, call):
        for client in call("GET", "/clients?limit=1000&offset=0")[1]:
            assert isinstance(client["name"], str)
            assert all(isinstance(each, str) for each in client["subscriptions"])
        event = call("GET", "/events?limit=1000&offset=0")[1][0]
        assert (event["client"]["name"], event["check"]["name"]) == ("web-1", "disk")
        assert (event["check"]["status"], event["check"]["output"], event["occurrences"]) == (2, "o", 1)
        assert event["check"]["subscribers"] == ["all"]
        assert (event["action"], event["silenced"], event["silenced_by"]) == ("create", False, [])

    def test_the_page_of_a_client(self, call):
        assert call("GET", "/clients/web-1")[1]["name"] == "web-1"
        [item] = call("GET", "/clients/web-1/history")[1]
        assert (item["check"], item["history"], item["last_status"]) == ("disk", [2], 2)
        assert item["last_result"]["name"] == "disk"
        assert item["last_execution"] == item["last_result"]["executed"]

    def test_the_page_of_a_check(self, call, world):
        assert call("GET", "/checks/disk")[1]["subscribers"] == ["all"]
        answer = call("POST", "/request", {"check": "disk", "dc": "site", "subscribers": ["client:web-1"]})[1]
        assert answer == {"issued": world.now}
        assert world.notices[-1].key == "client:web-1"
        call("POST", "/request", {"check": "disk", "dc": "site", "subscribers": None})
        assert world.notices[-1].key == "all"

    def test_the_page_of_an_aggregate(self, call):
        assert call("GET", "/aggregates")[1] == [{"name": "site"}]
        assert call("GET", "/aggregates/site")[1]["results"]["critical"] == 1
        assert call("GET", "/aggregates/site/checks")[1] == [{"name": "disk", "clients": ["web-1"]}]
        assert call("GET", "/aggregates/site/clients")[1] == [{"name": "web-1", "checks": ["disk"]}]
        assert call("GET", "/aggregates/site/results/critical")[1][0]["summary"][0]["total"] == 1
        assert call("DELETE", "/aggregates/site")[1] is None

    def test_silences(self, call, world):
        wanted = {"id": "", "dc": "site", "subscription": "client:web-1", "reason": "new disk", "creator": "ann"}
        call("POST", "/silenced", {**wanted, "begin": world.now + 5, "expire": 60, "expire_on_resolve": True})
        [entry] = call("GET", "/silenced")[1]
        assert (entry["id"], entry["begin"], entry["expire"]) == ("client:web-1:*", world.now + 5, 65)
        assert (entry["reason"], entry["creator"], entry["expire_on_resolve"]) == ("new disk", "ann", True)
        call("POST", "/silenced/clear", {"id": entry["id"], "dc": "site"})
        assert call("GET", "/silenced")[1] == []

    def test_stashes(self, call):
        call("POST", "/stashes", {"dc": "site", "path": "silence/web-1", "content": {"reason": "x"}, "expire": 60})
        [stash] = call("GET", "/stashes")[1]
        assert stash == {**stash, "path": "silence/web-1", "content": {"reason": "x"}, "expire": 60}
        assert call("GET", "/stashes/silence/web-1")[1] == {"reason": "x"}
        call("DELETE", "/stashes/silence/web-1")

    def test_clients_are_changed_and_deleted(self, call):
        client = call("GET", "/clients/web-1")[1]
        call("POST", "/clients", {**client, "dc": "site", "_id": "site/web-1", "address": "10.0.0.9"})
        assert call("GET", "/clients/web-1")[1]["address"] == "10.0.0.9"
        call("DELETE", "/events/web-1/disk")
        call("DELETE", "/results/web-1/disk")
        call("DELETE", "/clients/web-1?invalidate=true&invalidate_expire=60")
        assert [each["name"] for each in call("GET", "/clients")[1]] == ["web-2"]
