"""Pages and REST of streams, groups and dead letters: what they show, refuse and change."""

from __future__ import annotations

import asyncio
import json
import sys
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.console.records import hex_text, value_text
from lockstep.server.access import Role
from lockstep.streams.handlers import OnFailure


@pytest.fixture
def client():
    with lockstep.connect("memory:") as client:
        yield client


@pytest.fixture
def world(client):
    world = ConsoleWorld(client)
    yield world
    world.close()


@pytest.fixture
def operator(world):
    return world.token(Role.OPERATOR)


def publish(client, stream: str, *values: bytes) -> None:
    with client.publisher(stream) as publisher:
        publisher.publish_many(list(values))


def test_a_list_is_searched_and_paged_on_the_server(world, client):
    client.create_many([f"s{number:03}" for number in range(120)])
    first = world.get("/api/v1/streams?size=50").tree
    assert [row["name"] for row in first["streams"]] == [f"s{number:03}" for number in range(50)]
    assert first["page"] == {"page": 1, "pages": 3, "size": 50, "total": 120, "all": 120}
    last = world.get("/api/v1/streams?size=50&page=99").tree
    assert [row["name"] for row in last["streams"]][-1] == "s119"
    found = world.get("/api/v1/streams?q=S01").tree
    assert found["page"]["total"] == 10
    page = world.get("/streams?size=50&page=2&q=s", accept="text/html").text
    assert 'href="/streams?size=50&amp;page=3&amp;q=s"' in page


def test_lists_are_sorted_on_the_server_before_they_are_paged(world, client):
    client.create_many(["a", "b", "c"])
    world.sampler.sample()
    publish(client, "b", *[b"x"] * 50)
    publish(client, "c", b"x")
    world.sampler.sample()
    client.create("d")

    def names(sort: str) -> list[str]:
        return [row["name"] for row in world.get(f"/api/v1/streams?size=4&sort={sort}").tree["streams"]]

    assert names("-name") == ["d", "c", "b", "a"]
    assert names("rate") == ["b", "c", "a", "d"], "what is not measured is last, after what stands still"
    assert world.get("/api/v1/streams?sort=colour").status == 422
    assert "selected>rate, most first" in world.get("/streams?sort=rate", accept="text/html").text
    assert "sort=rate&amp;page=2" in world.get("/streams?sort=rate&size=2", accept="text/html").text.replace(
        "size=2&amp;", ""
    )


def test_a_record_is_published_with_its_key_and_headers(world, client, operator):
    client.create("orders")
    fields = {"value": "hello", "key": "k", "headers": "trace=a=b\nkind= x\n"}
    preview = world.post("/api/v1/streams/orders/publish", {**fields, "dry_run": True}, operator).tree
    assert preview["effect"] == "1 record of 5 bytes is appended to orders."
    assert client.bounds("orders").next == 0
    world.post("/api/v1/streams/orders/publish", fields, operator)
    [row] = world.get("/api/v1/streams/orders/records").tree["records"]
    assert (row["key"], row["headers"]) == ("k", [["trace", "a=b"], ["kind", " x"]])
    assert world.post("/api/v1/streams/orders/publish", {**fields, "headers": "none"}, operator).status == 422
    assert client.bounds("orders").next == 1


def test_settings_of_a_stream_stand_beside_their_defaults(world, client):
    client.create("orders", lockstep.StreamConfig(capacity=10))
    settings = {row["setting"]: row for row in world.get("/api/v1/streams/orders").tree["settings"]}
    assert (settings["capacity"]["value"], settings["capacity"]["is_own"]) == (10, True)
    assert (settings["retain_age_s"]["default"], settings["retain_age_s"]["is_own"]) == (604800.0, True)
    assert settings["compression"]["is_own"] is False


def test_records_are_paged_both_ways_to_both_ends(world, client):
    publish(client, "orders", *[b"%d" % number for number in range(60)])
    seen, query = [], "start=oldest&count=25"
    while query:
        tree = world.get(f"/api/v1/streams/orders/records?{query}").tree
        seen += [row["offset"] for row in tree["records"]]
        query = tree["newer"] is not None and f"start=offset&count=25&at={tree['newer']}"
    assert seen == list(range(60))
    seen, query = [], "start=newest&count=25"
    while query:
        tree = world.get(f"/api/v1/streams/orders/records?{query}").tree
        seen = [row["offset"] for row in tree["records"] if row["offset"] not in seen] + seen
        query = tree["older"] is not None and f"start=offset&count=25&at={tree['older']}"
    assert seen == list(range(60))
    assert world.get("/api/v1/streams/orders/records?start=time&at=1h&count=3").tree["records"][0]["offset"] == 0


def test_what_is_not_known_is_neither_zero_nor_empty(world, client):
    client.create("orders")
    page = world.get("/streams", accept="text/html").text
    assert "not measured yet" in page
    assert "There are no streams yet" not in page
    assert "There are no groups yet" in world.get("/groups", accept="text/html").text


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/api/v1/streams/none", 404, "STREAM_NOT_FOUND"),
        ("/api/v1/groups/none", 404, "GROUP_NOT_FOUND"),
        ("/api/v1/streams?page=0", 422, "BAD_ARGUMENT"),
        ("/api/v1/streams?size=10000", 422, "BAD_ARGUMENT"),
        ("/api/v1/streams?colour=red", 422, "BAD_ARGUMENT"),
        ("/api/v1/streams/orders/records?start=offset&at=x", 422, "BAD_ARGUMENT"),
        ("/api/v1/streams/orders/records?start=time&at=yesterdayish", 422, "BAD_ARGUMENT"),
        ("/api/v1/streams/orders/records?shard=3", 422, "BAD_ARGUMENT"),
        ("/api/v1/streams/%ff", 422, "BAD_ARGUMENT"),
        ("/api/v1/streams/..%2f..%2fetc", 422, "BAD_NAME"),
        ("/api/v1/nothing", 404, "ROUTE_NOT_FOUND"),
        ("/static/../app.py", 404, "ROUTE_NOT_FOUND"),
    ],
)
def test_what_can_not_be_is_refused_with_a_reason(world, client, target, status, code):
    client.create("orders")
    answer = world.get(target)
    assert (answer.status, answer.tree["error"]["code"]) == (status, code)
    assert answer.tree["error"]["message"]


def test_records_begin_where_the_query_says(world, client):
    publish(client, "orders", *[b"%d" % number for number in range(100)])

    def offsets(query: str) -> list[int]:
        return [row["offset"] for row in world.get(f"/api/v1/streams/orders/records?count=3{query}").tree["records"]]

    assert offsets("") == [97, 98, 99]
    assert offsets("&start=oldest") == [0, 1, 2]
    assert offsets("&start=offset&at=40") == [40, 41, 42]
    assert offsets("&start=time&at=2000-01-01T00:00Z") == [0, 1, 2]
    assert offsets("&start=time&at=2999-01-01T00:00Z") == []
    tree = world.get("/api/v1/streams/orders/records?count=3&start=offset&at=40").tree
    assert (tree["older"], tree["newer"]) == (37, 43)


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (b'{"a": [1, 2]}', "json", '{\n  "a": [\n    1,\n    2\n  ]\n}'),
        (b"plain words", "text", "plain words"),
        (b"\x81\xa1a\x01", "msgpack", '{\n  "a": 1\n}'),
        (b"\x00\x01\xff", "hex", "000000  00 01 ff                                         ..."),
        (b"[" * 5000, "text", "[" * 5000),
    ],
)
def test_the_form_of_a_value_is_found_by_trying(data, form, text):
    assert value_text(data, "auto") == (text, form)


def test_a_form_that_does_not_fit_is_shown_as_bytes():
    assert value_text(b"words", "json") == (hex_text(b"words"), "hex")


def test_what_records_hold_is_text_on_a_page(world, client):
    publish(client, "orders", b"<script>alert(1)</script>", b'"><img src=x onerror=alert(1)>')
    page = world.get("/streams/orders/records", accept="text/html")
    assert "<script>alert" not in page.text
    assert "<img" not in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]


def test_a_reset_shows_positions_before_and_after_and_moves_the_group(world, client, operator):
    publish(client, "orders", *[b"x"] * 10)
    with client.subscriber("orders", group="billing") as subscriber:
        assert subscriber.wait_assigned(10.0)
        subscriber.confirm(subscriber.poll(5.0))
        subscriber.flush_confirms()
    fields = {"stream": "orders", "to": "earliest"}
    preview = world.post("/api/v1/groups/billing/reset", {**fields, "dry_run": True}, operator).tree
    assert preview["rows"] == [
        {"stream": "orders", "next before": 10, "next after": 0, "lag before": 0, "lag after": 10}
    ]  # fmt: skip
    assert client.groups.describe("billing").streams[0].lag == 0
    refused = world.post("/api/v1/groups/billing/reset", fields, operator)
    assert (refused.status, refused.tree["error"]["code"]) == (422, "NOT_CONFIRMED")
    world.post("/api/v1/groups/billing/reset", {**fields, "confirm": "billing"}, operator)
    assert client.groups.describe("billing").streams[0].lag == 10
    home = world.get("/api/v1/").tree
    assert [problem["title"] for problem in home["problems"]] == ["Group billing has no member"]
    assert home["problems"][0]["command"] == "lockstep group show billing"


def test_faults_of_a_form_are_told_all_at_once_and_nothing_is_changed(world, client, operator):
    client.create("orders")
    answer = world.post("/api/v1/streams/orders/publish", {"count": "many", "colour": "red"}, operator)
    assert answer.status == 422
    for part in ("count", "colour", "value"):
        assert part in answer.tree["error"]["message"]
    assert client.bounds("orders").next == 0
    assert world.ask("POST", "/api/v1/streams/orders/publish", token=operator, body=b"[1]").status == 422
    assert world.ask("POST", "/api/v1/streams/orders/publish", token=operator, body=b"{").status == 422


def test_dead_letters_are_shown_with_their_reason_and_sent_back(world, client, operator):
    publish(client, "orders", b"one")

    def fail(_record):
        message = "no stock"
        raise ValueError(message)

    with client.subscriber("orders", group="g") as subscriber:
        receiver = client.receive(subscriber, fail, on_failure=OnFailure(retries=0, then="dead-letter"))
        assert client.wait_for("orders.dlq", 20.0)
        receiver.close()
    row = world.get("/api/v1/letters/orders.dlq").tree["records"][0]
    assert (row["from"], row["from_offset"], row["group"]) == ("orders", "0", "g")
    assert "no stock" in row["reason"]
    assert "1 dead letter in orders.dlq" in json.dumps(world.get("/api/v1/").tree)
    sent = world.post("/api/v1/letters/orders.dlq/redrive", {"confirm": "orders.dlq"}, operator).tree
    assert sent == {"sent": 1}
    assert client.bounds("orders").next == 2


def test_rates_and_lags_are_measured_in_rounds(world, client):
    client.create("orders")
    world.sampler.sample()
    assert world.sampler.rates("orders") == [None], "the first look knows no rate"
    publish(client, "orders", b"x", b"y")
    world.sampler.sample()
    [_, rate] = world.sampler.rates("orders")
    assert rate is not None
    assert rate > 0
    client.delete("orders")
    world.sampler.sample()
    assert world.sampler.rates("orders") == []


def test_totals_are_those_of_all_streams_and_what_a_round_does_not_look_at_is_unknown(world, client, monkeypatch):
    monkeypatch.setattr("lockstep.console.sampler.LOOKS_MAX", 1)
    client.create_many(["a", "b"])
    for _ in range(4):
        publish(client, "a", b"x")
        world.sampler.sample()
    assert [value is None for value in world.sampler.rates("b")] == [True, True, False], (
        "a look, a round without, a look"
    )
    assert [value is None for value in world.sampler.rates("a")] == [True, True, False, True], (
        "the last round did not look: what was measured is not as of now"
    )
    totals = world.sampler.total_rates()
    assert totals[:2] == [None, None]
    assert totals[-1] == pytest.approx(sum(max(filter(None, world.sampler.rates(name)), default=0) for name in "ab"))
    shown = {row["label"]: row for row in world.get("/api/v1/").tree["trends"]}
    assert shown["Appended to all streams"]["values"] == totals


def test_a_group_that_only_elects_has_no_lag_and_is_not_said_to_lack_members(world, client):
    for stream in ("a", "b"):
        publish(client, stream, b"1", b"2")
    for group in ("p.engines", "billing"):
        with client.subscriber("a", group=group) as subscriber:
            assert subscriber.wait_assigned(10.0)
    world.sampler.sample()
    rows = {row["name"]: row for row in world.get("/api/v1/groups").tree["groups"]}
    assert (rows["billing"]["lag"], rows["billing"]["elects"]) == (2, False)
    assert (rows["p.engines"]["lag"], rows["p.engines"]["elects"]) == (0, True)
    assert world.sampler.total_lags() == [2.0]
    titles = [row["title"] for row in world.get("/api/v1/").tree["problems"]]
    assert titles == ["Group billing has no member"]


def test_every_page_names_a_command_and_a_request(world, client):
    client.create("orders")
    page = world.get("/streams/orders", accept="text/html").text
    assert "lockstep stream show orders" in page
    assert "/api/v1/streams/orders'</code>" in unescape(page)


def test_openapi_describes_every_route(world):
    paths = world.get("/openapi.json").tree["paths"]
    assert {"/api/v1/streams", "/api/v1/groups/{group}/reset", "/api/v1/audit"} <= paths.keys()
    reset = paths["/api/v1/groups/{group}/reset"]["post"]
    assert (reset["x-role"], reset["x-command"]) == ("operator", "lockstep group reset {group} {stream} --to {to}")


async def live_event(world: ConsoleWorld, path: str) -> str:
    """The first event that a page which follows changes gets."""
    world.app.live._every_s = 0.01
    found: list[str] = []
    done = asyncio.Event()

    async def receive():
        if waiting:
            return waiting.pop()
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message.get("body"):
            found.append(message["body"].decode())
            done.set()

    waiting = [{"type": "http.request", "body": b"", "more_body": False}]
    scope = {"type": "http", "method": "GET", "path": "/live", "raw_path": b"/live", "client": ("127.0.0.1", 1),
             "query_string": urlencode({"path": path}).encode(), "headers": [(b"host", b"127.0.0.1")]}  # fmt: skip
    async with asyncio.timeout(20):
        await world.app(scope, receive, send)
    return found[0]


@pytest.mark.parametrize(
    "path", ["/", "/streams?q=or", "/streams/orders", "/streams/orders/records", "/groups", "/letters"]
)
def test_every_page_follows_changes(world, client, path):
    publish(client, "orders", b"one")
    event = asyncio.run(live_event(world, path))
    assert "event: content" in event
    assert json.loads(event.partition("data: ")[2]) in world.get(path, accept="text/html").text


def test_a_page_that_can_not_be_drawn_says_that_it_is_stale(world, client, monkeypatch):
    client.create("orders")
    monkeypatch.setattr(world.app._pages, "content", lambda *_: 1 / 0)
    assert "event: stale" in asyncio.run(live_event(world, "/streams"))
