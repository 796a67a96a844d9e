"""Our own routes under /v2, health, metrics and the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from schedule_server_worlds import FAR, World, eventually, serving

from lockstep.core.ladder import Ladder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with serving("memory:", ladder=Ladder(initial_delay_ms=20)) as made:
        eventually(lambda: made.get("/readyz").status == 200)
        yield made


def path_of(tenant: str, name: str, kind: str = "events") -> str:
    return f"/v2/{kind}/{quote(tenant, safe='')}/{quote(name, safe='')}"


# events


def test_put_get_and_delete(world):
    tenant, name = world.stream_tenant(), world.name()
    path = path_of(tenant, name)
    put = world.send("PUT", path, {"eventTime": FAR, "payload": {"mail": 7}})
    assert (put.status, put.json["verdict"], put.json["eventTime"]) == (201, "ACCEPTED", FAR)
    found = world.get(path).json
    assert (found["payload"], found["payloadForm"], found["status"]) == ({"mail": 7}, "json", "WAITING")
    assert (found["eventId"], found["nextTryAt"]) == (put.json["eventId"], FAR)
    again = world.send("PUT", path, {"eventTime": FAR, "payload": "text"})
    assert (again.status, again.json["verdict"], again.json["eventId"]) == (200, "UPDATED", put.json["eventId"])
    assert world.get(path).json["payload"] == "text"
    gone = world.ask("DELETE", path)
    assert (gone.status, gone.json) == (200, {"won": "cancel", "eventId": put.json["eventId"]})
    for method in ("GET", "DELETE"):
        missing = world.ask(method, path)
        assert (missing.status, missing.code) == (404, "EVENT_NOT_FOUND")


def test_put_after_a_span(world):
    tenant = world.stream_tenant()
    put = world.send("PUT", path_of(tenant, "a"), {"after": "200ms", "payload": [1, 2]})
    assert put.status == 201
    [record] = eventually(lambda: world.records(tenant))
    assert json.loads(json.loads(record.value)["payload"]) == [1, 2]
    lapsed = world.send("PUT", path_of(tenant, "b"), {"eventTime": "2010-01-01T00:00Z"})
    assert (lapsed.status, lapsed.json["verdict"]) == (200, "TRIGGERED")
    assert lapsed.json["eventId"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "event time not present"),
        ({"eventTime": "x"}, "can not be parsed"),
        ({"eventTime": FAR, "after": "1s"}, "not both"),
        ({"after": "soon"}, "write it as"),
        ({"after": "999999999999w"}, "year"),
        ({"after": -1e15}, "span of time"),
        ({"eventTime": FAR, "id": "other"}, "another one than in the path"),
        ({"eventTime": FAR, "mode": "REMOVE"}, "unknown property"),
        ({"eventTime": FAR, "deliveryOption": "PAYLOAD_ONLY"}, "payload must not be null"),
    ],
)
def test_puts_that_are_refused(world, fields, reason):
    answer = world.send("PUT", path_of(world.stream_tenant(), "a"), fields)
    assert answer.status == 400
    assert reason in answer.json["error"]["message"]


def test_the_fire_wins_against_a_late_cancel(world):
    tenant, name = world.http_tenant("/gate"), world.name()
    path = path_of(tenant, name)
    world.receiver.gate.clear()
    world.send("PUT", path, {"eventTime": "2010-01-01T00:00Z"})
    eventually(lambda: world.got(name))
    late = world.ask("DELETE", path)
    assert late.status == 409
    assert (late.json["won"], late.json["removed"]) == ("fire", False)
    triggered = late.json["triggeredAt"]
    removed = world.item(id=name, tenant=tenant, mode="REMOVE")
    assert (removed["eventStatus"], removed["triggeredAt"]) == ("TRIGGERED", triggered)
    assert removed["error"] == {"code": 409, "message": f"already triggered at {triggered}"}
    moved = world.item(id=name, tenant=tenant, eventTime=FAR)
    assert moved["error"] == {"code": 409, "message": f"already triggered at {triggered}"}
    assert moved["eventStatus"] == "UPDATED"
    world.receiver.open_gate()
    assert world.ask("DELETE", path).json["won"] == "cancel"


def test_a_cancel_of_what_was_delivered_says_that_the_fire_won(world):
    tenant = world.stream_tenant()
    path = path_of(tenant, "a")
    world.send("PUT", path, {"eventTime": "2010-01-01T00:00Z"})
    done = eventually(lambda: (event := world.get(path).json)["status"] == "DONE" and event)
    late = world.ask("DELETE", path)
    assert (late.status, late.json["won"], late.json["triggeredAt"]) == (409, "fire", done["triggeredAt"])
    assert late.json["removed"] is True
    assert world.get(path).status == 404


def test_replay(world):
    tenant, name = world.http_tenant("/status/404"), world.name()
    path = path_of(tenant, name)
    world.send("PUT", path, {"eventTime": FAR})
    early = world.post(f"{path}/replay")
    assert (early.status, early.code) == (409, "EVENT_NOT_FAILED")
    world.send("PUT", path, {"eventTime": "2010-01-01T00:00Z"})
    eventually(lambda: world.get(path).json["status"] == "FAILED")
    assert world.post(f"{path}/replay").json["verdict"] == "UPDATED"
    eventually(lambda: len(world.got(name)) == 2)


def test_lists_have_filters_and_pages(world):
    tenant = world.stream_tenant()
    for number in range(7):
        world.item(id=f"p{number}", tenant=tenant, eventTime=f"2091-01-0{number + 1}T00:00Z")
    seen, cursor = [], ""
    for _ in range(9):
        page = world.get(f"/v2/events?tenant={tenant}&limit=3{cursor}").json
        seen += [event["id"] for event in page["events"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == [f"p{number}" for number in range(7)]
    some = world.get(f"/v2/events?tenant={tenant}&from=2091-01-03T00:00Z&to=2091-01-05T00:00Z&status=WAITING,FIRING")
    assert [event["id"] for event in some.json["events"]] == ["p2", "p3"]
    assert world.get(f"/v2/events?tenant={tenant}&status=DONE").json == {"events": [], "next": None}


def test_batches_as_lines(world):
    tenant = world.stream_tenant()
    lines = [{"id": f"l{number}", "tenant": tenant, "eventTime": FAR} for number in range(3)]
    body = "\n\n".join([json.dumps(lines[0]), "{broken", json.dumps(lines[1]), json.dumps(lines[2])]) + "\r\n"
    answer = world.ask("POST", "/v2/events", body)
    assert (answer.status, answer.headers["content-type"]) == (206, "application/x-ndjson")
    items = [json.loads(line) for line in answer.text.splitlines()]
    assert [item["eventStatus"] for item in items] == ["ACCEPTED", "REJECTED", "ACCEPTED", "ACCEPTED"]
    assert items[1]["error"]["message"].startswith("the line is not JSON")
    assert world.ask("POST", "/v2/events", "\n").status == 400


# crons


def test_crons(world):
    tenant = world.stream_tenant()
    path = path_of(tenant, "c/1", "crons")
    put = world.send("PUT", path, {"expression": "0 9 * * MON-FRI", "tz": "Europe/Berlin", "misfire": "all"})
    assert put.status == 200
    assert (put.json["type"], put.json["tz"], put.json["misfire"]) == ("UNIX", "Europe/Berlin", "all")
    assert put.json["description"] == "at 09:00 every day between Monday and Friday"
    world.send("PUT", f"{path}/QUARTZ", {"expression": "0 0 12 * * ?"})
    assert [cron["type"] for cron in world.get(path).json["crons"]] == ["QUARTZ", "UNIX"]
    assert world.get(f"{path}/UNIX").json == put.json
    ahead = world.get(f"{path}/UNIX/next?count=3&from=2026-01-01T00:00Z").json
    assert ahead == {
        "crons": [{"type": "UNIX", "next": ["2026-01-01T08:00Z", "2026-01-02T08:00Z", "2026-01-05T08:00Z"]}]
    }
    assert len(world.get(f"{path}/next").json["crons"]) == 2
    assert world.post(f"{path}/pause").json == {"status": "OK"}
    assert {cron["paused"] for cron in world.get(path).json["crons"]} == {True}
    assert world.post(f"{path}/UNIX/resume").json == {"status": "OK"}
    assert {cron["type"]: cron["paused"] for cron in world.get(path).json["crons"]} == {"QUARTZ": True, "UNIX": False}
    assert world.post(f"{path}/UNIX/trigger").json == {"status": "OK"}
    eventually(lambda: world.records(tenant))
    span = {"from": "2026-01-01T00:00Z", "to": "2026-01-06T00:00Z"}
    assert world.post(f"{path}/UNIX/backfill", span).json == {"status": "OK", "ticks": 3}
    for to, reason in (("2096-01-01T00:00Z", "in the future"), ("2026-01-06T00:00Z", "more than 10,000 ticks")):
        many = world.post(f"{path}/backfill", {"from": "1926-01-01T00:00Z", "to": to})
        assert (many.status, reason in many.json["error"]["message"]) == (400, True)
    records = eventually(lambda: len(found := world.records(tenant)) == 4 and found)
    assert [json.loads(one.value)["eventTime"] for one in records[1:]] == ahead["crons"][0]["next"]
    put = world.send("PUT", path, {"expression": "0 9 * * MON-FRI", "payload": {"mail": 7}})
    assert (put.json["payload"], put.json["payloadForm"]) == ({"mail": 7}, "json")
    world.post(f"{path}/UNIX/trigger")
    records = eventually(lambda: len(found := world.records(tenant)) == 5 and found)
    assert json.loads(json.loads(records[-1].value)["payload"]) == {"mail": 7}
    assert world.ask("DELETE", f"{path}/UNIX").json == {"status": "OK"}
    assert world.ask("DELETE", path).json == {"status": "OK"}
    assert world.ask("DELETE", path).status == 404


def test_crons_in_pages(world):
    tenant = world.stream_tenant()
    for number in range(4):
        world.send("PUT", path_of(tenant, f"c{number}", "crons"), {"expression": "0 9 * * *"})
    first = world.get(f"/v2/crons?tenant={tenant}&limit=3").json
    rest = world.get(f"/v2/crons?tenant={tenant}&limit=3&cursor={quote(first['next'], safe='')}").json
    assert [cron["id"] for cron in first["crons"] + rest["crons"]] == ["c0", "c1", "c2", "c3"]
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"expression": "* * *"}, 400), ({"expression": "0 9 * * *", "id": "other"}, 400), ({}, 400),
        ({"expression": "0 9 * * *", "grace": -1}, 400), ({"expression": "0 9 * * *", "overlap": "no"}, 400),
        ({"expression": "0 9 * * *", "lastUpdated": "x"}, 400),
    ],
)  # fmt: skip
def test_crons_that_are_refused(world, fields, status):
    answer = world.send("PUT", path_of(world.stream_tenant(), "c", "crons"), fields)
    assert (answer.status, set(answer.json["error"])) == (status, {"code", "message", "advice"})


def test_expressions_are_checked(world):
    good = world.post("/v2/crons/check", {"expression": "0 0/5 14,18 * * ?", "type": "QUARTZ", "count": 1,
                                          "from": "2027-01-01T00:00Z"})  # fmt: skip
    assert good.json == {
        "valid": True, "description": "every 5 minutes at 14 and 18 hours", "next": ["2027-01-01T14:00Z"],
    }  # fmt: skip
    bad = world.post("/v2/crons/check", {"expression": "61 * * * *"})
    assert (bad.status, bad.json) == (200, {"valid": False, "message": "Value 61 not in range [0, 59]"})
    for fields in ({}, {"expression": "* * * * *", "tz": "Mars"}, {"expression": "* * * * *", "count": 5000}):
        assert world.post("/v2/crons/check", fields).status == 400


# tenants


def test_tenants(world):
    path = f"/v2/tenants/{quote('T/1', safe='')}"
    props = {"url": world.receiver.url(), "secret": "whsec_c2VjcmV0LXRleHQ="}
    put = world.send("PUT", path, {"type": "HTTP", "props": props, "rate": 5})
    assert (put.status, put.json["props"]["secret"], put.json["rate"]) == (200, "***", 5.0)
    assert world.get(path).json == put.json
    assert put.json in world.get("/v2/tenants").json["tenants"]
    assert world.post(f"{path}/pause").json["paused"] is True
    assert world.send("PUT", path, {"type": "HTTP", "props": props}).json["paused"] is True
    assert world.post(f"{path}/resume").json["paused"] is False
    back = world.send("PUT", path, {"type": "HTTP", "props": put.json["props"]})
    assert back.status == 400
    assert "in place of a secret" in back.json["error"]["message"]
    register = {"tenant": "T/1", "type": "HTTP", "props": put.json["props"]}
    assert "in place of a secret" in world.post("/events/tenant/register", register).json["message"]
    assert world.send("PUT", path, {"tenant": "other", "type": "HTTP", "props": props}).status == 400
    assert world.ask("DELETE", path).json == {"status": "OK"}
    assert (world.get(path).status, world.ask("DELETE", path).status) == (404, 404)


HIDDEN = "hidden-9f2c"


@pytest.mark.parametrize("props", [
    {"url": f"http://127.0.0.1:9/hook?token={HIDDEN}"}, {"url": f"http://127.0.0.1:9/hook?code={HIDDEN}#part"},
    {"headers": {"X-Pass": HIDDEN, "X-Hub-Signature": HIDDEN, "X-Session": HIDDEN, "authorization": HIDDEN}},
    {"credentials": {"user": HIDDEN, "more": [HIDDEN]}}, {"tokens": [HIDDEN]}, {"deep": [{"api-key": {"a": HIDDEN}}]},
    {"proxy": f"http://user:{HIDDEN}@127.0.0.1/"}, {"url": f"http://user:{HIDDEN}@127.0.0.1:9/"}, {"secret": [HIDDEN]},
    {"url": f"ftp://user:{HIDDEN}@127.0.0.1/?a={HIDDEN}"}, {"url": f"user:{HIDDEN}@127.0.0.1"},
], ids=str)  # fmt: skip
def test_secrets_of_tenants_are_in_no_answer(world, props):
    fields = {"type": "HTTP", "props": {"url": "http://127.0.0.1:9/", **props}}
    answers = [world.send("PUT", "/v2/tenants/hiding", fields), world.get("/v2/tenants"), world.get("/events/tenants")]
    answers.append(world.post("/events/tenant/register", {"tenant": "hiding", **fields}))
    answers.append(world.post("/events/tenant/register", {"tenant": "hiding", **fields, "password": HIDDEN}))
    answers.append(world.send("PUT", "/v2/tenants/hiding", {**fields, "password": HIDDEN}))
    assert not [answer.text for answer in answers if HIDDEN in answer.text]
    assert HIDDEN not in repr(world.scheduler.tenants())
    world.ask("DELETE", "/v2/tenants/hiding")


def test_a_url_that_was_read_back_without_its_secret_is_refused(world):
    fields = {"type": "HTTP", "props": {"url": "http://127.0.0.1:9/hook?token=hidden"}}
    shown = world.send("PUT", "/v2/tenants/again", fields).json
    assert shown["props"] == {"url": "http://127.0.0.1:9/hook?***"}
    back = world.send("PUT", "/v2/tenants/again", {"type": "HTTP", "props": shown["props"]})
    assert (back.status, "in place of a secret" in back.text) == (400, True)


def test_events_of_a_paused_tenant_wait(world):
    tenant = world.stream_tenant()
    world.post(f"/v2/tenants/{tenant}/pause")
    world.item(id="a", tenant=tenant, eventTime="2010-01-01T00:00Z")
    eventually(lambda: re.search(r"\nlockstep_schedule_backlog_events [1-9]", world.get("/metrics").text))
    assert world.records(tenant) == []
    world.post(f"/v2/tenants/{tenant}/resume")
    eventually(lambda: world.records(tenant))


# operation


def test_nodes_shards_and_health(world):
    [node] = world.get("/v2/nodes").json["nodes"]
    assert (node["master"], len(node["shards"])) == (True, 32)
    shards = world.get("/v2/shards").json["shards"]
    assert {shard["node"] for shard in shards} == {node["node"]}
    assert world.get("/healthz").json == {"status": "ok"}
    assert world.get("/readyz").json == {"status": "ok"}


def test_metrics_count_what_happened(world):
    tenant = world.http_tenant("/status/500")
    name = world.name()

    def figures() -> dict[str, float]:
        answer = world.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    before = figures()
    world.item(id=name, tenant=tenant, eventTime="2010-01-01T00:00Z")
    world.item(id=world.name(), tenant=world.stream_tenant(), eventTime="2010-01-01T00:00Z")
    wanted = {"fired_total": 1, "requests_total": 2, "retries_total": 4, "late_seconds_count": 1}
    eventually(
        lambda: all(
            figures()[f"lockstep_schedule_{key}"] - before[f"lockstep_schedule_{key}"] >= value
            for key, value in wanted.items()
        )
    )
    after = figures()
    assert after['lockstep_schedule_http_answers_total{status="200"}'] > 0
    assert 'lockstep_schedule_late_quantile_seconds{quantile="0.99"}' in after
    assert {"lockstep_schedule_under_way", "lockstep_schedule_failed_total"} <= after.keys()


def test_the_openapi_document_has_every_route_and_its_examples_work(world):
    document = world.get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    assert {(route.method.lower(), route.path) for route in world.server.app.router.routes} == {
        (method, path) for path, methods in document["paths"].items() for method in methods
    }
    world.http_tenant()
    first = ("/events/tenant/register", "/v2/tenants/{tenant}", "/events/schedule", "/v2/crons/{tenant}/{id}")
    for path in sorted(document["paths"], key=lambda path: path not in first):
        for method, operation in document["paths"][path].items():
            if "requestBody" not in operation:
                continue
            [(kind, content)] = operation["requestBody"]["content"].items()
            body = content["example"] if kind.endswith("ndjson") else json.dumps(content["example"])
            named = path.replace("{tenant}", "mail").replace("{id}", "report").replace("{type}", "UNIX")
            answer = world.ask(method.upper(), named, body)
            assert answer.status in (200, 201), (method, path, answer.text)
            assert str(answer.status) in operation["responses"], (method, path)
            shown = operation["responses"]["200"]["content"]
            [(media, example)] = shown.items()
            if media == "application/json" and isinstance(example["example"], dict) and path.startswith("/v2"):
                assert set(example["example"]) == set(answer.json), (method, path)
