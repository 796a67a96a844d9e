"""Hostile input: whatever is sent, the answer is a document with the right status, and the scheduler goes on."""

from __future__ import annotations

import json
import logging
import socket
import string
import threading
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_server_worlds import FAR, World, eventually, scheduling, serving

from lockstep.errors import Unavailable
from lockstep.server.errors import TokenNeeded
from lockstep.server.guard import Limits
from lockstep.server.schedule import ScheduleServer
from lockstep.server.schedule.documents import parse_duration

pytestmark = pytest.mark.slow

TOKEN = "a-token-nobody-guesses-0123456789"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with serving("memory:") as made:
        eventually(lambda: made.get("/readyz").status == 200)
        made.tenant = made.stream_tenant()
        yield made
        assert made.scheduler.node.error is None


BODIES = [
    b"", b"{", b"[", b"nonsense", b"[1,]", b"{}", b"null", b'"text"', b"7", b"[NaN]", b"[Infinity]", b"\xff\xfe[]",
    b"[\x00]", b'["\xed\xa0\x80"]', b"\xef\xbb\xbf[]", b"[" * 100_000, b'{"a":' * 50_000, b"[" + b"9" * 5000 + b"]",
    b"[] []", b"'[]'", b"[{]}",
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:16]))
@pytest.mark.parametrize("path", ["/events/schedule", "/events/tenant/register", "/cron", "/generation/random"])
def test_bad_bodies_are_400(world, path, body):
    answer = world.ask("POST", path, body)
    assert answer.status == 400
    assert set(answer.json) == {"message"}


ITEMS = [
    1, None, True, "text", [], [[]], {"id": 5}, {"id": {}}, {"id": "a\0b"}, {"id": ""}, {"id": "x" * 1025},
    {"tenant": 7}, {"eventTime": 1}, {"eventTime": ["2090"]}, {"payload": {"a": 1}}, {"payload": 1.5}, {"mode": "DROP"},
    {"mode": 1}, {"deliveryOption": "ALL"}, {"surprise": 1}, {"id": "\ud800"}, {"payload": "\udfff"},
    {"tenant": "\udc00"}, {"eventTime": "\ud800"}, {"eventTime": "9999-12-31T23:59:59-18:00"},
    {"eventTime": "0001-01-01T00:00:00+18:00"}, {"eventTime": "0000-01-01T00:00Z"},
    {"eventTime": "\u0662\u0660\u0669\u0660-01-01T00:00Z"}, {"eventTime": "2090-01-01T00:00Z[../../etc/passwd]"},
    {"eventTime": "2090-13-01T00:00Z"}, {"eventTime": "2090-01-01T00:00+19:00"}, {"mode": "REMOVE", "id": None},
    {"eventTime": "2090-01-01T00:00Z" * 1000}, {"\ud800": 1},
]  # fmt: skip


def test_bad_items_are_rejected_and_hold_up_nobody(world):
    good = {"id": "good", "tenant": world.tenant, "eventTime": FAR}
    sent = [good, *({**good, **item} if isinstance(item, dict) else item for item in ITEMS), good]
    answer = world.schedule(*sent)
    assert answer.status == 206
    items = answer.json
    assert len(items) == len(sent)
    for wrong, item in zip(sent[1:-1], items[1:-1], strict=True):
        assert item["eventStatus"] == "REJECTED", wrong
        assert item["error"]["code"] == 400
        assert isinstance(item["error"]["message"], str)
    assert items[0]["eventStatus"] == "ACCEPTED"
    assert items[-1]["eventStatus"] == "UPDATED"
    batch = world.ask("POST", "/v2/events", "\n".join(json.dumps(one) for one in sent))
    assert batch.status == 206
    assert len(batch.text.splitlines()) == len(sent)


def test_deep_values_in_items_are_rejected(world):
    deep = "[" * 800 + "]" * 800
    answer = world.ask("POST", "/events/schedule", f'[{{"id": {deep}}}]')
    assert (answer.status, answer.json[0]["error"]["message"]) == (400, "id must be text")


def test_of_duplicate_keys_the_last_counts(world):
    body = f'[{{"id":"dup","tenant":"nobody","tenant":"{world.tenant}","eventTime":"{FAR}"}}]'
    assert world.ask("POST", "/events/schedule", body).json[0]["eventStatus"] == "ACCEPTED"


def test_too_many_events_and_too_large_bodies(world):
    answer = world.ask("POST", "/events/schedule", json.dumps([{}] * 10_001))
    assert answer.status == 400
    assert "10000 at most" in answer.json["message"]
    for path, field in (("/events/schedule", "message"), ("/v2/events", "error")):
        large = world.ask("POST", path, headers={"Content-Length": str(1 << 40)})
        assert large.status == 413
        assert field in large.json
    item = world.item(id="large", tenant=world.tenant, eventTime=FAR, payload="x" * ((4 << 20) + 1))
    assert item["error"]["message"] == "payload must have at most 4194304 bytes"


NAMES = [
    "a/b", "a%2Fb", "%", "%252F", "Tenant A/ü/\u4e2d\u6587", "..", ".", "?a=b", "#x", "a b", "a+b", "\U0001f600",
    "a\tb", "'", '"', "\\", "*", "x" * 1024, "{id}", "next", "check",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: quote(name[:20]))
def test_any_name_stays_one_part_of_a_path(world, name):
    tenant = f"names {name if name.isprintable() else ''}"[:1024]
    made = world.post("/events/tenant/register", {"tenant": tenant, "type": "MESSAGING", "props": {"topic": "names"}})
    assert made.status == 200
    path = f"{quote(tenant, safe='')}/{quote(name, safe='')}"
    put = world.send("PUT", f"/v2/events/{path}", {"eventTime": FAR})
    assert put.status == 201, put.text
    assert world.find(tenant, name).json["id"] == name
    found = world.get(f"/v2/events/{path}").json
    assert (found["tenant"], found["id"]) == (tenant, name)
    assert world.ask("DELETE", f"/v2/events/{path}").json["won"] == "cancel"
    cron = {"tenant": tenant, "id": name, "expression": "0 12 * * *", "type": "UNIX"}
    assert world.post("/cron", cron).status == 200
    assert world.get(f"/cron/{path}").json[0]["cron"]["id"] == name
    assert world.ask("DELETE", f"/cron/{path}/UNIX").json == {"status": "OK"}
    assert world.get(f"/cron/{path}").json == []


@pytest.mark.parametrize(
    "path",
    [
        "/cron/a%00b/c", "/cron/a/%00", "/v2/events/a%00/b", "/cron/%ff/x", "/cron/%ED%A0%80/x", "/v2/events/a/b%00",
        f"/v2/events/a/{'x' * 1025}",
    ],
)  # fmt: skip
def test_names_that_can_not_be_are_400(world, path):
    assert world.get(path).status == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404), ("GET", "/nothing", 404), ("GET", "/cron//x", 404), ("GET", "/cron/a/b/", 404),
        ("GET", "/events/schedule", 405), ("DELETE", "/ping", 405), ("PATCH", "/v2/events/a/b", 405),
        ("GET", "/%70ing", 200), ("GET", "/ping/", 404), ("HEAD", "/ping", 200), ("GET", "/v2/events?limit=0", 400),
        ("GET", "/v2/events?limit=1e3", 400), ("GET", "/v2/events?status=LOST", 400), ("GET", "/v2/events?from=x", 400),
        ("GET", "/v2/events?cursor=xyz", 400), ("GET", "/v2/events?stauts=DONE", 400), ("GET", "/v2/events/a/b", 404),
        ("GET", "/v2/events?" + "&".join(f"a{n}=1" for n in range(100)), 400), ("GET", "/v2/events?tenant=%ff", 400),
        ("GET", "/v2/crons/a/b", 404), ("GET", "/v2/crons/a/b/BSD", 400), ("POST", "/v2/crons/a/b/pause", 404),
        ("GET", "/v2/tenants/none", 404), ("DELETE", "/v2/tenants/none", 404), ("POST", "/v2/events/a/b/replay", 404),
        ("DELETE", "/v2/events/a/b", 404), ("DELETE", "/v2/crons/a/b/UNIX", 404),
    ],
)  # fmt: skip
def test_statuses(world, method, path, status):
    answer = world.ask(method, path)
    assert answer.status == status, answer.text
    if status == 405:
        assert answer.headers["allow"]
    if status >= 400:
        assert ("error" if path.startswith("/v2/") else "message") in answer.json
    assert "node" in answer.headers


@pytest.mark.parametrize("fields", [
    {"tz": []}, {"retention": 1e400}, {"payload": {}}, {"id": "\ud800"}, {"x": 1}, {"paused": "false"}, {"paused": 0},
    {"misfire": ["once"]}, {"payload": "x" * ((4 << 20) + 1)}, {"type": ["UNIX"]},
], ids=lambda fields: next(iter(fields)))  # fmt: skip
def test_crons_with_odd_values_are_400(world, fields):
    cron = {"tenant": world.tenant, "id": "c", "expression": "0 12 * * *", "type": "UNIX", **fields}
    body = json.dumps(cron).replace("Infinity", "1e400")
    assert world.ask("POST", "/cron", body).status == 400


@pytest.mark.parametrize("after", ["9" * 400 + "w", "9" * 30 + "w", True, [], {}, 1e300, ""])
def test_spans_that_can_not_be_are_400(world, after):
    assert world.send("PUT", f"/v2/events/{world.tenant}/span", {"after": after}).status == 400


@pytest.mark.parametrize("kind", [["HTTP"], {}, 5, True, "", None])
def test_a_type_of_a_tenant_that_is_none_is_400(world, kind):
    fields = {"type": kind, "props": {"url": "http://127.0.0.1/"}}
    assert world.post("/events/tenant/register", {"tenant": "odd", **fields}).status == 400
    assert world.send("PUT", "/v2/tenants/odd", fields).status == 400


def test_a_message_is_short_however_long_what_is_wrong_is(world):
    long = "x" * 100_000
    zone = {"tenant": world.tenant, "id": "c", "expression": "0 12 * * *", "type": "UNIX", "tz": long}
    assert len(world.post("/cron", zone).text) < 3000
    assert len(world.send("PUT", f"/v2/events/{world.tenant}/e", {"nobody": long}).text) < 3000


@pytest.mark.parametrize("path", ["/v2/events?tenant=a%00b", "/v2/crons?cursor=%00", "/v2/buckets?tenant=%00"])
def test_a_parameter_with_a_zero_byte_is_400(world, path):
    assert world.get(path).status == 400


def test_tenants_with_odd_values_are_400(world):
    deep: object = "x"
    for _ in range(40):
        deep = [deep]
    for props in ({"topic": 5}, {"topic": "bad name/"}, {"topic": "t", "deep": deep}, {"topic": "jobs.history"}, [1]):
        fields = {"tenant": "odd", "type": "MESSAGING", "props": props}
        assert world.post("/events/tenant/register", fields).status == 400, props
    assert "odd" not in world.get("/events/tenants").json


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=plain, path=st.sampled_from(["/events/schedule", "/cron", "/events/tenant/register", "/v2/crons/check"]))
def test_any_json_is_answered(world, tree, path):
    answer = world.post(path, tree)
    assert answer.status in (200, 206, 400)
    assert answer.json is not None


def test_what_is_not_http_is_refused(world):
    place = urlsplit(world.server.url)
    for data in (b"\x00\x01\x02\r\n\r\n", b"GET /ping HTTP/9.9\r\n\r\n", b"GET  \r\n\r\n"):
        with socket.create_connection((place.hostname, place.port), timeout=10) as raw:
            raw.sendall(data)
            assert raw.recv(100).split()[1:2] in ([b"400"], [b"403"], [])
    assert world.get("/ping").status == 200


# who may ask


def test_without_the_token_nothing_is_said_but_that_it_lives():
    with serving("memory:", token=TOKEN) as world:
        for path in ("/ping", "/healthz", "/readyz"):
            assert world.get(path).status in (200, 503)
        for method, path in (("GET", "/events/tenants"), ("POST", "/events/schedule"), ("GET", "/v2/events"),
                             ("GET", "/metrics"), ("GET", "/ping/x"), ("GET", "/v2%2Fevents")):  # fmt: skip
            answer = world.ask(method, path)
            assert answer.status == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert ("error" if path.startswith("/v2/") else "message") in answer.json or "%" in path
        assert world.ask("GET", "/v2/events", headers={"Authorization": f"Bearer {TOKEN}"}).status == 200


def test_changes_need_the_token_where_one_is_set():
    with serving("memory:", change_token=TOKEN) as world:
        assert world.get("/events/tenants").status == 200
        assert world.schedule().status == 401
        assert world.ask("DELETE", "/v2/tenants/x").status == 401
        assert world.ask("POST", "/events/schedule", "[]", {"Authorization": f"Bearer {TOKEN}"}).status == 400


def test_other_hosts_and_origins_are_refused(world):
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert world.ask("GET", "/events/tenants", headers=headers).status == 403


def test_others_can_not_be_served_without_a_token(world):
    with pytest.raises(TokenNeeded):
        ScheduleServer(world.scheduler, "0.0.0.0")


# what is away


def test_without_a_node_requests_are_503_and_say_what_to_do():
    with serving("memory:", answer_s=0.2) as world:
        tenant = world.stream_tenant()
        world.scheduler.node.close()
        answer = world.schedule({"id": "a", "tenant": tenant, "eventTime": FAR})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "The requests are stored and will be carried out" in answer.json["message"]
        assert "lockstep schedule serve" in answer.json["message"]
        own = world.send("PUT", f"/v2/events/{tenant}/a", {"eventTime": FAR})
        assert (own.status, own.json["error"]["code"]) == (503, "TIMED_OUT")


def test_a_store_that_is_away_is_503(world, monkeypatch):
    def away(*_: object) -> None:
        raise Unavailable(reason="The store is away.")

    monkeypatch.setattr(world.scheduler.client, "find", away)
    for path in ("/events/find?id=a&tenant=b", "/v2/events/a/b"):
        answer = world.get(path)
        assert answer.status == 503
        assert "The store is away" in answer.text


def test_a_defect_is_told_by_a_number(world, monkeypatch, caplog):
    def broken(*_: object) -> None:
        secret = "inner secret"
        raise RuntimeError(secret)

    monkeypatch.setattr(world.scheduler.client, "find", broken)
    with caplog.at_level(logging.ERROR, "lockstep"):
        answer = world.get("/events/find?id=a&tenant=b&debug=true")
        own = world.get("/v2/events/a/b")
    assert (answer.status, own.status) == (500, 500)
    assert answer.json["message"].startswith("Unexpected error, please contact engineering team")
    signature = json.loads(answer.json["error"])
    assert signature["id"] in [getattr(record, "id", None) for record in caplog.records]
    assert "inner secret" not in answer.text + own.text
    assert own.json["error"]["code"] == "INTERNAL"


def test_a_bus_that_hangs_holds_up_no_ping_and_its_address_is_told_to_nobody(monkeypatch):
    with serving() as world:
        # Given a bus that hangs while somebody asks whether the node is ready
        gate, asked = threading.Event(), threading.Event()

        def hanging():
            asked.set()
            gate.wait(30)
            raise Unavailable(reason="10.0.0.5 does not answer")

        monkeypatch.setattr(world.scheduler.client, "nodes", hanging)
        answers = []
        first = threading.Thread(target=lambda: answers.append(world.get("/readyz")))
        first.start()
        try:
            assert asked.wait(10)
            # Then others are answered meanwhile
            assert world.get("/ping").status == 200
            assert world.get("/readyz").status == 503
        finally:
            gate.set()
            first.join(10)
        # And the answer does not tell where the bus is
        assert [answer.status for answer in answers] == [503]
        assert "10.0.0.5" not in answers[0].text


def test_more_requests_than_the_limit_are_503():
    with scheduling("memory:") as scheduler:
        limits = Limits(requests=0)
        with ScheduleServer(scheduler, limits=limits) as server:
            world = World(server, scheduler, None)
            assert world.get("/events/tenants").status == 503
            assert world.get("/ping").status == 200


def test_a_server_can_be_closed_twice_and_its_port_used_again():
    with scheduling("memory:") as scheduler:
        server = ScheduleServer(scheduler)
        port = urlsplit(server.url).port
        server.close()
        server.close()
        with ScheduleServer(scheduler, port=port) as again:
            assert World(again, scheduler, None).get("/ping").status == 200


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1M30S", 90_000), ("PT0S", 0), ("P1DT2H", 93_600_000), ("PT-0.5S", -500), ("-PT1M", -60_000), ("pt1s", 1000),
        ("P1D", 86_400_000), ("PT1.2345S", 1234), ("-PT-6H+3M", 21_420_000),
    ],
)  # fmt: skip
def test_durations(text, ms):
    assert parse_duration(text, "offset") == ms


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1M", "P1Y", "P1M", "PT1", "PT.5S", "PT1S ", None, 5, "PT" + "9" * 30 + "S"]
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="offset"):
        parse_duration(text, "offset")


def test_printable_names_only_in_headers(world):
    assert set(world.get("/ping").headers["node"]) <= set(string.printable)
