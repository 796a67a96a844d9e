"""What others may write to a scheduler's streams, or what an earlier version stored: it stops no node."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from schedule_worlds import World

from lockstep.core.agenda import Status
from lockstep.errors import BadArgument, ServerUnreachable, Trimmed
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.schedule import requests
from lockstep.schedule.requests import PutCron
from lockstep.schedule.rows import Change, CronRow, cron_key
from lockstep.schedule.tenants import Registered, Tenant, TenantType

UPSERT = {"kind": "upsert", "tenant": "s", "id": "a", "at": 1_700_000_100_000, "event_id": "id-1", "option": 0}
CRON = CronRow(tenant="s", id="c", type="QUARTZ", expression="* * * * * ?")
ROW = json.loads(requests.encode(PutCron(CRON))[1])["row"]
TRIGGER = {"kind": "trigger_cron", "tenant": "s", "id": "c", "type": "QUARTZ"}
POISON = {
    "a time beyond year 9999": {**UPSERT, "at": 10**18},
    "a time before year 1": {**UPSERT, "at": -(10**18)},
    "a time as text": {**UPSERT, "at": "now"},
    "a time as a fraction": {**UPSERT, "at": 1.7e12},
    "a time as a truth": {**UPSERT, "at": True},
    "a tenant that is none": {**UPSERT, "tenant": None},
    "a tenant as a number": {**UPSERT, "tenant": 7},
    "an id as a list": {**UPSERT, "id": ["a"]},
    "an id that is empty": {**UPSERT, "id": ""},
    "an id that is too long": {**UPSERT, "id": "x" * 70_000},
    "an id with half a character": {**UPSERT, "id": "\ud800"},
    "an id with a zero byte": {**UPSERT, "id": "a\0b"},
    "no event id": {**UPSERT, "event_id": None},
    "an event id that is too long": {**UPSERT, "event_id": "x" * 70_000},
    "a form nobody knows": {**UPSERT, "payload": "x", "form": 9},
    "a payload that is no base64": {**UPSERT, "payload": "\u00fc", "form": 2},
    "a payload as a number": {**UPSERT, "payload": 7},
    "a field nobody knows": {**UPSERT, "colour": "red"},
    "a cron that can't be read": {"kind": "put_cron", "row": {**ROW, "expression": "every day"}},
    "a cron of an unknown type": {"kind": "put_cron", "row": {**ROW, "type": "SYSTEMD"}},
    "a cron of an unknown zone": {"kind": "put_cron", "row": {**ROW, "tz": "Mars/Olympus"}},
    "a cron with an unknown granularity": {"kind": "put_cron", "row": {**ROW, "log_granularity": "AGES"}},
    "a cron with unknown units": {"kind": "put_cron", "row": {**ROW, "retention_units": "AGES"}},
    "a cron with a jitter as text": {"kind": "put_cron", "row": {**ROW, "jitter_s": "1"}},
    "a cron with an endless retention": {"kind": "put_cron", "row": {**ROW, "retention": 10**30}},
    "a cron with an id as a number": {"kind": "put_cron", "row": {**ROW, "id": 7}},
    "a trigger with a start as text": {**TRIGGER, "start": "a", "stop": "b"},
    "a trigger of a type that is none": {**TRIGGER, "type": None},
    "a pause as text": {"kind": "pause_cron", "tenant": "s", "id": "c", "type": "QUARTZ", "paused": "yes"},
    "a list": [1, 2],
    "a number": 7,
    "null": None,
    "a kind nobody knows": {"kind": "explode"},
    "a kind that is a list": {"kind": ["upsert"]},
}


def append(world, stream, value, key=None):
    for log in world.bus.logs(stream):
        keys = None if key is None else [key]
        log.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0, keys=keys)])


def is_well(world):
    """Whether the scheduler takes events and fires them, and a second node can take over."""
    assert world.nodes["n1"].error is None
    assert world.schedule("good", 1000)["verdict"] == "ACCEPTED"
    world.clock.advance(2)
    assert world.fired() == ["good"]
    world.kill("n1")
    world.start("n2")
    world.clock.advance(5)
    assert world.nodes["n2"].error is None
    assert world.schedule("better", 0)["verdict"] == "ACCEPTED"
    world.clock.advance(1)
    assert world.fired() == ["good", "better"]
    return True


@pytest.fixture
def world():
    made = World(shards=1)
    made.start()
    made.clock.advance(2)
    return made


@pytest.mark.parametrize("fields", POISON.values(), ids=POISON)
def test_a_request_that_is_none_is_told_and_passed_by(world, fields):
    # Given a record that is no request, whose sender waits for an answer
    asking = {**fields, "ask": ["me", 4]} if isinstance(fields, dict) else fields
    append(world, "jobs.requests", json.dumps(asking).encode(), b"s\0a")
    world.clock.advance(1)
    # Then the history tells of it
    assert [one["what"] for one in world.history()] == ["bad request"]
    # And so does an answer
    answers = [json.loads(record.value) for record in world.records("jobs.answers") if record.key == b"me"]
    assert [(one["number"], one["verdict"], one["code"]) for one in answers] == (
        [(4, "ERROR", 400)] if isinstance(fields, dict) else []
    )
    # And the scheduler goes on
    assert is_well(world)


@pytest.mark.parametrize("value", [b"\xff\xfe", b"[" * 100_000, b'{"ask":["me",1e999]}'], ids=lambda value: value[:20])
def test_bytes_that_are_no_json_are_passed_by(world, value):
    append(world, "jobs.requests", value, b"s\0a")
    world.clock.advance(1)
    assert is_well(world)


@pytest.mark.parametrize("ask", [["me", "x"], [1], 7, {"a": 1}, [None, None]], ids=str)
def test_a_request_whose_sender_is_not_named_is_passed_by(world, ask):
    append(world, "jobs.requests", json.dumps({**UPSERT, "ask": ask}).encode(), b"s\0a")
    world.clock.advance(1)
    assert is_well(world)


@pytest.mark.parametrize("change", [
    {"at": 10**18}, {"id": "x" * 2000}, {"id": ""}, {"tenant": "\0"}, {"payload": b"x" * (5 << 20)}, {"id": "\ud800"},
], ids=lambda change: next(iter(change)))  # fmt: skip
def test_a_client_refuses_what_no_node_would_take(world, change):
    with pytest.raises(BadArgument):
        world.ask(replace(world.upsert("a", world.now + 5000), **change))
    assert is_well(world)


CONTROL = {
    "no json": b"\xff",
    "another kind": b'{"kind":"explode"}',
    "a tenant without a topic": json.dumps(
        {"kind": "registered", "tenant": {"tenant": "s", "type": "MESSAGING", "props": {}}}
    ).encode(),
    "a tenant with a topic as a number": json.dumps(
        {"kind": "registered", "tenant": {"tenant": "s", "type": "MESSAGING", "props": {"topic": 5}}}
    ).encode(),
    "a tenant with a rate as text": json.dumps(
        {"kind": "registered", "tenant": {"tenant": "s", "type": "HTTP", "props": {"url": "http://a"}, "rate": "fast"}}
    ).encode(),
    "a tenant that is paused as text": json.dumps(
        {"kind": "registered", "tenant": {"tenant": "s", "type": "HTTP", "props": {"url": "http://a"}, "paused": "no"}}
    ).encode(),
    "a type as a list": json.dumps({"kind": "registered", "tenant": {"tenant": "s", "type": ["HTTP"]}}).encode(),
    "a removal of a list": json.dumps({"kind": "removed", "tenant": ["s"]}).encode(),
    "a pause of a map": json.dumps({"kind": "paused", "tenant": {}, "paused": True}).encode(),
    "a pause as text": json.dumps({"kind": "paused", "tenant": "s", "paused": "no"}).encode(),
    "deep nesting": b"[" * 100_000,
    "a tenant as a list": json.dumps({"kind": "registered", "tenant": ["s"]}).encode(),
}


@pytest.mark.parametrize("value", CONTROL.values(), ids=CONTROL)
def test_a_control_record_that_is_none_is_passed_by(world, value):
    append(world, "jobs.control", value)
    world.clock.advance(1)
    assert is_well(world)
    assert world.client.tenants()["s"].stream == "out"


CARD = {
    "node": "n9", "member": "m9", "host": "h", "port": 1, "wall": 1_700_000_000_000, "shards": [0], "master": False,
    "underWay": 0,
}  # fmt: skip
CARDS = {
    "no json": b"\xff",
    "deep nesting": b"[" * 100_000,
    "a list": b"[]",
    "null": b"null",
    "nothing in it": b"{}",
    **{
        f"{name} = {value!r}": json.dumps({**CARD, name: value}).encode()
        for name, values in {
            "member": (None, ["m"], 7), "node": (None, {}), "host": (5,), "port": ("1", None, True),
            "wall": ("now", 10**30, float("inf"), None), "shards": (None, 3, ["0"], {"a": 1}), "underWay": ("0",),
            "master": (None, "yes"),
        }.items()
        for value in values
    },
}  # fmt: skip


@pytest.mark.parametrize("value", CARDS.values(), ids=CARDS)
def test_a_card_that_is_none_is_passed_by(world, value):
    append(world, "jobs.nodes", value)
    assert [card["node"] for card in world.client.nodes()] == ["n1"]
    world.clock.advance(2)
    assert [card["node"] for card in world.client.nodes()] == ["n1"]
    assert is_well(world)


def test_nodes_that_are_all_gone_are_not_listed(world):
    assert [card["node"] for card in world.client.nodes()] == ["n1"]
    world.kill("n1")
    world.clock.advance(10)
    world.client.nodes()  # the last card may have come since
    world.clock.advance(10)
    assert world.client.nodes() == []
    world.start("n2")
    world.clock.advance(10)
    assert [card["node"] for card in world.client.nodes()] == ["n2"]


STORED = {
    "an unknown type": replace(CRON, id="bad", type="SYSTEMD"),
    "an unknown zone": replace(CRON, id="bad", tz="Mars/Olympus"),
    "an expression that can't be read": replace(CRON, id="bad", expression="every day"),
}


@pytest.mark.parametrize("row", STORED.values(), ids=STORED)
def test_a_stored_cron_that_this_version_does_not_understand_stops_no_other(world, row, caplog):
    # Given a cron beside one that another version stored
    world.ask(PutCron(CRON))
    node = world.nodes["n1"]
    fence = node._owned[0].shard.fence
    node._store.commit([Change(0, fence, crons={cron_key(row.tenant, row.id, row.type): row})])
    world.clock.advance(2)
    before = len(world.fired())
    # When another node takes over
    world.kill("n1")
    world.start("n2")
    world.clock.advance(5)
    # Then it says so, and the others tick
    assert world.nodes["n2"].error is None
    assert "s/bad/" in caplog.text
    assert len(world.fired()) > before
    # And it is still there, for a version that understands it
    assert len(list(world.client.store.crons(0))) == 2


def test_an_event_that_is_larger_than_its_stream_takes_fails_and_holds_up_nobody(world):
    # Given a tenant whose stream takes small records
    world.bus.create("small", StreamConfig(max_record_bytes=1000))
    tenant = Tenant(tenant="t", type=TenantType.MESSAGING, props={"topic": "small"})
    world.client.control(Registered(tenant))
    world.schedule("big", 1000, tenant="t", payload="x" * 1000)
    world.schedule("tiny", 1000, tenant="t", payload="x")
    world.clock.advance(3)
    assert world.fired("small") == ["tiny"]
    found = world.client.find("t", "big")
    assert found.status is Status.FAILED
    assert "1000" in found.error
    assert is_well(world)


def test_very_large_events_fire_in_rounds_of_some_bytes(world, monkeypatch):
    committed = []
    node = world.nodes["n1"]
    commit = node._store.commit
    node._store.commit = lambda changes: committed.append(changes) or commit(changes)
    at = world.now + 5000
    for number in range(30):
        world.client.send([world.upsert(f"e{number}", at, payload="x" * (2 << 20))])
    world.clock.advance(10)
    assert len(world.fired()) == 30
    sizes = [sum(len(one.value) for change in changes for one in change.outgoing if one.stream == "out")
             for changes in committed]  # fmt: skip
    assert max(sizes) < 40 << 20


def test_a_node_that_fails_hands_its_shards_over_at_once(world):
    # Given two nodes, of which one meets an error that nobody foresaw
    world.start("n2")
    world.clock.advance(5)
    failing = world.nodes["n1"]
    assert failing.shards or world.nodes["n2"].shards
    failing = next(node for node in world.nodes.values() if node.shards)

    def explode(changes):
        message = "nobody foresaw this"
        raise RuntimeError(message)

    failing._store.commit = explode
    world.client.send([world.upsert("a", world.now + 1000)])
    world.clock.advance(5)
    assert isinstance(failing.error, RuntimeError)
    # Then the other one goes on
    assert world.fired() == ["a"]


# clients


def test_answers_arrive_although_the_ring_overran_the_reader(world, monkeypatch):
    client = world.client
    read, failures = client._answers.read, iter([Trimmed(offset=0, stream="jobs.answers", first=1)])

    def trimmed_once(offset, **more):
        for error in failures:
            raise error
        return read(offset, **more)

    monkeypatch.setattr(client._answers, "read", trimmed_once)
    assert world.schedule("a", 1000)["verdict"] == "ACCEPTED"


def test_answers_arrive_after_the_bus_was_away(world, monkeypatch):
    client = world.client
    read, failures = client._answers.read, iter([ServerUnreachable(server="x", reason="it is away")] * 2)

    def away_twice(offset, **more):
        for error in failures:
            raise error
        return read(offset, **more)

    monkeypatch.setattr(client._answers, "read", away_twice)
    assert world.schedule("a", 1000)["verdict"] == "ACCEPTED"


def test_answers_that_are_none_are_passed_by(world):
    append(world, "jobs.answers", b"\xff", world.client._id.encode())
    append(world, "jobs.answers", b"[]", world.client._id.encode())
    append(world, "jobs.answers", b'{"number":1e999}', world.client._id.encode())
    append(world, "jobs.answers", b"[" * 100_000, world.client._id.encode())
    assert world.schedule("a", 1000)["verdict"] == "ACCEPTED"
