"""Sensu's HTTP API: paths, shapes and codes; and our own routes."""

from __future__ import annotations

import base64
import http.client
import json

import pytest
from fleet_world import FleetWorld, served

from lockstep.errors import NotFound
from lockstep.monitor.client import MonitorClient, MonitorUnreachable
from lockstep.server.errors import LoginNeeded
from lockstep.server.monitor.site import TransportFigures

SETTINGS = {
    "checks": {
        "disk": {"command": "check-disk", "subscribers": ["all"], "interval": 60, "handlers": ["log"]},
        "own": {"command": "check-own", "standalone": True, "interval": 60},
    },
    "handlers": {"log": {"type": "pipe"}},
}


@pytest.fixture
def world(tmp_path):
    made = FleetWorld(tmp_path, **SETTINGS)
    made.keepalive("web-1")
    made.keepalive("web-2")
    made.check("web-1", "disk", 2)
    made.check("web-2", "disk", 0)
    return made


@pytest.fixture
def ask(world):
    with served(world) as made:
        yield made


class TestClients:
    def test_are_listed_and_shown(self, ask):
        status, _, clients = ask("GET", "/clients")
        assert (status, [client["name"] for client in clients]) == (200, ["web-1", "web-2"])
        status, _, client = ask("GET", "/clients/web-1")
        assert (status, client["subscriptions"]) == (200, ["all", "client:web-1"])
        assert ask("GET", "/clients/none")[0] == 404

    def test_a_page_says_how_many_there_are(self, ask):
        status, headers, clients = ask("GET", "/clients?limit=1&offset=1")
        assert (status, [client["name"] for client in clients]) == (200, ["web-2"])
        assert headers["x-pagination"] == '{"limit":1,"offset":1,"total":2}'
        assert ask("GET", "/clients?limit=x")[0] == 400

    def test_are_registered_by_the_api(self, ask):
        body = {"name": "router", "address": "10.0.0.1", "subscriptions": ["network"]}
        assert ask("POST", "/clients", body)[::2] == (201, {"name": "router"})
        assert ask("GET", "/clients/router")[2]["keepalives"] is False
        assert ask("POST", "/clients", {"name": "router"})[0] == 400
        assert ask("POST", "/clients", {"name": "bad name", "subscriptions": []})[0] == 400
        assert ask("POST", "/clients", {**body, "address": 5})[0] == 400
        assert ask("POST", "/clients", {**body, "keepalive": {"thresholds": 5}})[0] == 400

    def test_what_is_secret_stays_out_of_the_fleet(self, ask):
        ask("POST", "/clients", {"name": "router", "subscriptions": [], "password": "hush", "pin": "hush"})
        assert "hush" in str(ask("GET", "/clients/router")[2])
        assert ask("GET", "/clients/router")[2]["password"] == "REDACTED"
        ask("POST", "/clients", {"name": "router", "subscriptions": [], "pin": "hush", "redact": ["pin"]})
        assert "hush" not in str(ask("GET", "/clients/router")[2])

    @pytest.mark.parametrize("given", ["true", "1"])
    def test_one_that_is_made_invalid_is_not_heard_any_more(self, ask, world, given):
        assert ask("DELETE", f"/clients/web-1?invalidate={given}&invalidate_expire=60")[0] == 202
        world.keepalive("web-1")
        assert ask("GET", "/clients/web-1")[0] == 404
        world.tick(61)
        world.keepalive("web-1")
        assert ask("GET", "/clients/web-1")[0] == 200

    def test_one_that_is_only_deleted_comes_back(self, ask, world):
        assert ask("DELETE", "/clients/web-1?invalidate=false")[0] == 202
        world.keepalive("web-1")
        assert ask("GET", "/clients/web-1")[0] == 200

    def test_are_deleted_with_their_events_and_results(self, ask, world):
        status, _, body = ask("DELETE", "/clients/web-1")
        assert (status, body) == (202, {"issued": world.now})
        assert ask("GET", "/clients/web-1")[0] == 404
        assert ask("GET", "/events/web-1/disk")[0] == 404
        assert ask("GET", "/results/web-1")[0] == 404
        assert ask("DELETE", "/clients/web-1")[0] == 404

    def test_have_a_history(self, ask):
        status, _, history = ask("GET", "/clients/web-1/history")
        assert status == 200
        assert (history[0]["check"], history[0]["history"], history[0]["last_status"]) == ("disk", [2], 2)
        assert history[0]["last_result"]["output"] == "o"

    def test_one_without_results_has_an_empty_list_of_them(self, ask, world):
        world.keepalive("new")
        assert ask("GET", "/results/new")[::2] == (200, [])
        assert ask("GET", "/clients/new/history")[::2] == (200, [])


class TestEvents:
    def test_are_listed_by_client_and_check(self, ask):
        assert [event["client"]["name"] for event in ask("GET", "/events")[2]] == ["web-1"]
        assert len(ask("GET", "/events/web-1")[2]) == 1
        status, _, event = ask("GET", "/events/web-1/disk")
        assert (status, event["check"]["status"], event["action"], event["occurrences"]) == (200, 2, "create", 1)
        assert ask("GET", "/events/web-2/disk")[0] == 404
        assert ask("GET", "/incidents")[2] == ask("GET", "/events")[2]

    def test_are_filtered_by_attributes(self, ask):
        assert len(ask("GET", "/events?filter.check.status=2")[2]) == 1
        assert ask("GET", "/events?filter.check.status=1")[2] == []
        assert len(ask("GET", "/clients?filter.name=web-2")[2]) == 1

    def test_are_resolved(self, ask, world):
        assert ask("POST", "/resolve", {"client": "web-1", "check": "disk"})[::2] == (202, {"issued": world.now})
        assert ask("GET", "/events")[2] == []
        assert ask("POST", "/resolve", {"client": "web-1", "check": "disk"})[0] == 404
        assert ask("POST", "/resolve", {"client": "web-1"})[0] == 400

    def test_are_deleted(self, ask):
        assert ask("DELETE", "/events/web-1/disk")[0] == 202
        assert ask("DELETE", "/events/web-1/disk")[0] == 404

    def test_are_acknowledged_until_they_are_resolved(self, ask, world):
        assert ask("POST", "/ack", {"client": "web-1", "check": "disk", "by": "ann"})[0] == 201
        world.check("web-1", "disk", 2)
        assert ask("GET", "/events/web-1/disk")[2]["silenced_by"] == ["client:web-1:disk"]
        world.check("web-1", "disk", 0)
        assert ask("GET", "/silenced")[2] == []


class TestChecksAndResults:
    def test_published_checks_are_listed_and_standalone_ones_are_not(self, ask):
        assert [check["name"] for check in ask("GET", "/checks")[2]] == ["disk"]
        assert ask("GET", "/checks/disk")[2]["interval"] == 60
        assert ask("GET", "/checks/own")[0] == 404

    def test_a_check_is_requested(self, ask, world):
        assert ask("POST", "/request", {"check": "disk", "subscribers": ["client:web-1"]})[0] == 202
        assert [notice.key for notice in world.notices if notice.kind == "request"][-1] == "client:web-1"
        assert ask("POST", "/request", {"check": "none"})[0] == 404
        assert ask("POST", "/request", {})[0] == 400

    def test_a_result_of_the_api_is_one_of_its_source(self, ask, world):
        body = {"name": "backup", "output": "failed", "status": 1, "source": "nas"}
        assert ask("POST", "/results", body)[::2] == (202, {"issued": world.now})
        assert ask("GET", "/results/nas/backup")[2]["check"]["output"] == "failed"
        assert ask("POST", "/results", {**body, "output": "again"})[0] == 202
        assert ask("GET", "/results/nas/backup")[2]["check"]["output"] == "again"
        assert ask("GET", "/events/nas/backup")[2]["occurrences"] == 2
        assert ask("GET", "/events/nas/backup")[2]["check"]["origin"] == "sensu-api"
        assert ask("GET", "/clients/nas")[2]["type"] == "proxy"

    def test_a_result_without_a_status_is_ok(self, ask):
        assert ask("POST", "/results", {"name": "x", "output": "o", "status": None, "source": None})[0] == 202
        assert ask("GET", "/results/sensu-api/x")[2]["check"]["status"] == 0

    @pytest.mark.parametrize(
        "body",
        [
            b"", b"{", b"[]", {"name": "x"}, {"output": "o"}, {"name": 1, "output": "o"}, {"name": "x", "output": None},
            {"name": "a b", "output": "o"}, {"name": "x", "output": "o", "status": "2"},
            {"name": "x", "output": "o", "status": True}, {"name": "x", "output": "o", "source": "a b"},
            {"name": "x", "output": "o" * 100_000},
        ],
    )  # fmt: skip
    def test_a_result_that_is_none_is_400(self, ask, world, body):
        before = world.block
        assert ask("POST", "/results", body)[0] == 400
        assert world.block == before

    def test_a_request_can_be_no_other_order(self, ask, world):
        asked = {"check": "disk", "id": "mine", "order": "settings", "kind": "x", "settings": {"checks": {}}}
        assert ask("POST", "/request", asked)[0] == 202
        assert [check["name"] for check in ask("GET", "/checks")[2]] == ["disk"]

    def test_results_are_listed_shown_and_deleted(self, ask):
        assert [row["client"] for row in ask("GET", "/results")[2]] == ["web-1", "web-2"]
        assert len(ask("GET", "/results/web-2")[2]) == 1
        assert ask("GET", "/results/web-2/disk")[2]["check"]["status"] == 0
        assert ask("GET", "/results/none")[0] == 404
        assert ask("DELETE", "/results/web-2/disk")[0] == 204
        assert ask("DELETE", "/results/web-2/disk")[0] == 404


class TestAggregates:
    @pytest.fixture
    def members(self, ask, world):
        world.check("web-1", "http", 2, aggregate="site")
        world.check("web-2", "http", 0, aggregate="site")
        return ask

    def test_count_results_by_severity(self, members):
        assert members("GET", "/aggregates")[2] == [{"name": "site"}]
        found = members("GET", "/aggregates/site")[2]
        assert found == {
            "clients": 2, "checks": 1,
            "results": {"ok": 1, "warning": 0, "critical": 1, "unknown": 0, "total": 2, "stale": 0},
        }  # fmt: skip

    def test_results_that_are_too_old_are_stale(self, members, world):
        world.now += 100
        found = members("GET", "/aggregates/site?max_age=10")[2]["results"]
        assert (found["total"], found["stale"]) == (0, 2)

    def test_members_are_listed_both_ways(self, members):
        assert members("GET", "/aggregates/site/clients")[2] == [
            {"name": "web-1", "checks": ["http"]}, {"name": "web-2", "checks": ["http"]},
        ]  # fmt: skip
        assert members("GET", "/aggregates/site/checks")[2] == [{"name": "http", "clients": ["web-1", "web-2"]}]

    def test_members_of_a_severity_are_grouped_by_what_they_say(self, members):
        found = members("GET", "/aggregates/site/results/critical")[2]
        assert found == [{"check": "http", "summary": [{"output": "o", "total": 1, "clients": ["web-1"]}]}]
        assert members("GET", "/aggregates/site/results/bad")[0] == 400

    def test_are_deleted(self, members, world):
        assert members("DELETE", "/aggregates/site")[0] == 204
        world.tick()
        assert members("GET", "/aggregates/site")[0] == 404
        assert members("DELETE", "/aggregates/site")[0] == 404


class TestSilences:
    def test_are_made_listed_and_cleared(self, ask, world):
        entry = {"subscription": "client:web-1", "check": "disk", "expire": 60, "reason": "new disk", "creator": "ann"}
        assert ask("POST", "/silenced", entry)[0] == 201
        assert ask("GET", "/silenced")[2][0]["expire"] == 60
        assert ask("GET", "/silenced/ids/client:web-1:disk")[2]["reason"] == "new disk"
        assert len(ask("GET", "/silenced/subscriptions/client:web-1")[2]) == 1
        assert len(ask("GET", "/silenced/checks/disk")[2]) == 1
        status, headers, page = ask("GET", "/silenced/checks/disk?limit=1&offset=1")
        assert (status, page, headers["x-pagination"]) == (200, [], '{"limit":1,"offset":1,"total":1}')
        assert ask("GET", "/silenced/ids/none")[0] == 404
        world.check("web-1", "disk", 2)
        assert ask("GET", "/events/web-1/disk")[2]["silenced"] is True
        assert ask("POST", "/silenced/clear", {"id": "client:web-1:disk"})[0] == 204
        assert ask("POST", "/silenced/clear", {"id": "client:web-1:disk"})[0] == 404

    def test_of_nothing_is_400(self, ask):
        assert ask("POST", "/silenced", {"reason": "x"})[0] == 400
        assert ask("POST", "/silenced/clear", {})[0] == 400

    def test_one_that_does_not_expire_says_so(self, ask):
        ask("POST", "/silenced", {"check": "disk"})
        assert ask("GET", "/silenced")[2][0]["expire"] == -1


class TestStashes:
    def test_are_stored_under_paths_with_slashes(self, ask):
        assert ask("POST", "/stashes", {"path": "a/b", "content": {"k": 1}})[::2] == (201, {"path": "a/b"})
        assert ask("GET", "/stash/a/b")[2] == {"k": 1}
        assert ask("POST", "/stash/c/d", {"k": 2})[0] == 201
        assert [stash["path"] for stash in ask("GET", "/stashes")[2]] == ["a/b", "c/d"]
        assert ask("DELETE", "/stashes/a/b")[0] == 204
        assert ask("GET", "/stashes/a/b")[0] == 404
        assert ask("DELETE", "/stash/a/b")[0] == 404

    def test_tell_how_long_they_stay(self, ask, world):
        ask("POST", "/stashes", {"path": "a", "content": {}, "expire": 60})
        ask("POST", "/stashes", {"path": "b", "content": {}})
        world.tick(10)
        assert [stash["expire"] for stash in ask("GET", "/stashes")[2]] == [50, -1]
        world.tick(50)
        assert [stash["path"] for stash in ask("GET", "/stashes")[2]] == ["b"]

    def test_of_a_wrong_shape_are_400(self, ask):
        assert ask("POST", "/stashes", {"path": "a", "content": 1})[0] == 400


class TestOperation:
    def test_info_says_what_clients_look_for(self, ask):
        found = ask("GET", "/info")[2]
        assert found["sensu"]["version"] == "0.26.5"
        assert found["redis"]["connected"] is True
        assert found["transport"]["results"] == {"messages": 3, "consumers": 1}

    def test_health_goes_by_consumers_and_messages(self, ask):
        assert ask("GET", "/health?consumers=1&messages=3")[0] == 204
        assert ask("GET", "/health?consumers=2")[0] == 412
        status, _, reasons = ask("GET", "/health?messages=2")
        assert (status, reasons) == (412, ["results has 3 messages"])

    def test_settings_in_force(self, ask):
        assert ask("GET", "/settings")[2]["checks"]["disk"]["interval"] == 60

    def test_settings_never_show_what_is_secret(self, ask):
        settings = {"checks": {"disk": {"command": "c", "interval": 60, "password": "hush"}}}
        ask("POST", "/settings", {"settings": settings, "digest": "d2"})
        for query in ("", "?redacted=true", "?redacted=false"):
            assert ask("GET", f"/settings{query}")[2]["checks"]["disk"]["password"] == "REDACTED"

    def test_settings_are_put_in_force(self, ask):
        assert ask("POST", "/settings", {"settings": {"checks": {}}, "digest": "d2"})[0] == 200
        assert ask("GET", "/checks")[2] == []
        assert ask("GET", "/info")[2]["sensu"]["settings"]["hexdigest"] == "d2"

    def test_unknown_paths_methods_and_head(self, ask):
        assert ask("GET", "/none")[0] == 404
        status, headers, _ = ask("PUT", "/clients")
        assert (status, headers["allow"]) == (405, "GET, POST")
        status, headers, body = ask("HEAD", "/clients")
        assert (status, body) == (200, None)
        assert int(headers["content-length"]) > 0
        assert ask("OPTIONS", "/clients")[0] == 200

    def test_each_answer_closes_the_connection_and_carries_the_requests_id(self, ask):
        headers = ask("GET", "/info", headers={"X-Request-ID": "r-1"})[1]
        assert (headers["connection"], headers["x-request-id"]) == ("close", "r-1")

    def test_while_the_fleet_does_not_answer_changes_are_500_and_info_answers(self, ask, world):
        world.is_away = True
        status, _, body = ask("POST", "/silenced", {"check": "disk"})
        assert status == 500
        assert "error" in body
        for path in ("/clients", "/events/web-1/disk", "/none", "/silenced", "/settings"):
            status, _, body = ask("GET", path)
            assert (status, "error" in body) == (404 if path == "/none" else 500, True)
        assert ask("GET", "/counters")[0] == 200
        assert ask("GET", "/info")[2]["redis"]["connected"] is False
        assert ask("GET", "/health")[0] == 412
        assert ask("GET", "/readyz")[0] == 503

    def test_while_only_the_broker_is_away_the_fleet_answers(self, ask, world):
        world.figures = TransportFigures("rabbitmq", connected=False)
        assert ask("GET", "/info")[2]["transport"]["connected"] is False
        assert ask("GET", "/health")[::2] == (412, ["not connected to the transport"])
        assert ask("GET", "/clients")[0] == 200
        assert ask("POST", "/silenced", {"check": "disk"})[0] == 201


class TestOwnRoutes:
    def test_history_is_newest_first(self, ask, world):
        world.check("web-1", "disk", 0)
        found = ask("GET", "/history/web-1/disk")[2]
        assert [each["action"] for each in found] == ["resolve", "create"]
        assert len(ask("GET", "/history?limit=1")[2]) == 1
        assert ask("GET", "/history?limit=0")[0] == 400

    def test_why_has_each_handler_with_its_gates(self, ask):
        found = ask("GET", "/why/web-1/disk")[2]
        assert [handler["handler"] for handler in found["handlers"]] == ["log"]
        assert ask("GET", "/why/web-1/none")[0] == 404

    def test_refused_messages_are_shown_with_their_reason(self, ask, world):
        world.take(b"r:web-1", {"client": "web-1", "check": {"name": "bad name", "status": 0, "output": ""}})
        assert "bad name" in ask("GET", "/refused")[2][0]["reason"]

    def test_deliveries_are_those_of_the_handlers(self, ask, world):
        assert ask("GET", "/deliveries")[2] == {"items": [{"id": "e.1.log", "state": "done"}], "doubts": []}
        assert ask("GET", "/deliveries?unfinished=true")[2]["items"] == []
        assert ask("GET", "/deliveries?limit=0")[0] == 400

    def test_the_document_of_the_routes_is_where_errors_point(self, ask):
        assert "/openapi.json" in ask("POST", "/results", b"{")[2]["error"]
        document = ask("GET", "/openapi.json")[2]
        assert document["paths"]["/stash/{path}"].keys() == {"get", "post", "delete"}
        assert document["paths"]["/results"]["post"]["requestBody"]["content"]["application/json"]["example"]["name"]

    def test_counters(self, ask):
        assert ask("GET", "/counters")[2]["clients"] == 2


class TestCredentials:
    def test_a_user_and_a_password_are_asked_for(self, world):
        with served(world, credentials=("ann", "secret")) as ask:
            status, headers, _ = ask("GET", "/clients")
            assert (status, headers["www-authenticate"]) == (401, 'Basic realm="Restricted Area"')
            login = base64.b64encode(b"ann:secret").decode()
            assert ask("GET", "/clients", headers={"Authorization": f"Basic {login}"})[0] == 200
            assert ask("GET", "/clients", headers={"Authorization": "Basic !"})[0] == 401
            assert ask("OPTIONS", "/clients")[0] == 200

    def test_a_host_that_others_reach_needs_them(self, world):
        with pytest.raises(LoginNeeded), served(world, host="0.0.0.0"):
            pass

    def test_cors_headers_are_sent_only_where_the_settings_have_them(self, world, ask):
        assert "access-control-allow-origin" not in ask("GET", "/info")[1]
        with served(world, cors={"Origin": "https://example.com"}) as asked:
            headers = {"Origin": "https://example.com"}
            for method, path in (("GET", "/info"), ("OPTIONS", "/silenced")):
                status, answered, _ = asked(method, path, headers=headers)
                assert (status, answered["access-control-allow-origin"]) == (200, "https://example.com")
            assert asked("POST", "/silenced", {"check": "disk"}, headers)[0] == 201
            assert asked("POST", "/silenced", {"check": "disk"}, {"Origin": "https://example.net"})[0] == 403
        with served(world, cors={"Origin": "*"}) as asked:
            assert asked("GET", "/info", headers={"Origin": "https://example.net"})[0] == 200
        assert ask("POST", "/silenced", {"check": "disk"}, {"Origin": "https://example.com"})[0] == 403


class TestClient:
    def test_does_what_the_routes_do(self, ask, world):
        fleet = MonitorClient(ask.url)
        assert [event["check"]["name"] for event in fleet.events()] == ["disk"]
        fleet.acknowledge("web-1", "disk", by="ann")
        assert fleet.silences()[0]["acknowledged"] is True
        fleet.end_silence("client:web-1:disk")
        fleet.resolve("web-1", "disk")
        with pytest.raises(NotFound):
            fleet.event("web-1", "disk")

    def test_a_server_that_is_away_is_an_error_that_says_what_to_do(self):
        with pytest.raises(MonitorUnreachable, match="lockstep monitor server"):
            MonitorClient("http://127.0.0.1:1").events()


class TestChanges:
    def events(self, url, count, last=None):
        """The first events of the stream: their ids and data."""
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
        found, lines = [], []
        try:
            connection.request("GET", "/changes", headers={} if last is None else {"Last-Event-ID": last})
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream")
            yield None
            while len(found) < count:
                line = answer.readline().decode().rstrip("\n")
                if line:
                    lines.append(line)
                elif lines:
                    found.append((lines[0].removeprefix("id: "), json.loads(lines[1].removeprefix("data: "))))
                    lines = []
            yield found
        finally:
            connection.close()

    def test_come_as_they_happen_and_go_on_after_the_last_one_that_was_seen(self, ask, world):
        stream = self.events(ask.url, 2)
        next(stream)
        world.check("web-1", "disk", 0)
        world.check("web-2", "disk", 1)
        found = next(stream)
        assert [(each["client"], each["action"]) for _, each in found] == [("web-1", "resolve"), ("web-2", "create")]
        again = self.events(ask.url, 1, last=found[0][0])
        next(again)
        assert next(again) == found[1:]

    def test_from_the_beginning(self, ask):
        stream = self.events(ask.url, 1, last="0.0")
        next(stream)
        assert next(stream)[0][1]["client"] == "web-1"

    def test_an_id_that_was_never_sent_is_400(self, ask):
        assert ask("GET", "/changes", headers={"Last-Event-ID": "x"})[0] == 400

    def test_a_reader_that_goes_makes_room(self, ask, monkeypatch):
        monkeypatch.setattr("lockstep.server.monitor.own.STREAMS_MAX", 1)
        first = self.events(ask.url, 1, last="0.0")
        next(first)
        assert ask("GET", "/changes")[0] == 500
        first.close()
        for _ in range(200):  # until the server has noticed
            second = self.events(ask.url, 1, last="0.0")
            try:
                next(second)
                break
            except AssertionError:
                continue
        assert next(second)[0][1]["client"] == "web-1"
