"""BigBen's own tests, by their names in APITests and BigBenTests, over HTTP on a bus in memory and on LMDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from schedule_server_worlds import World, eventually, serving

from lockstep.core.ladder import Ladder

pytestmark = pytest.mark.slow

PAST = "2018-01-31T04:00:00Z"
HEADERS = {"header1": "value1", "header2": "value2"}


@pytest.fixture(scope="module", params=["memory", "lmdb"])
def world(request, tmp_path_factory) -> Iterator[World]:
    url = "memory:" if request.param == "memory" else f"lmdb:{tmp_path_factory.mktemp('bus')}/events"
    with serving(url, ladder=Ladder(initial_delay_ms=20)) as made:
        eventually(lambda: made.get("/readyz").status == 200)
        yield made


# APITests


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tenant": "unknown", "eventTime": PAST}, "tenant not registered / unknown tenant: unknown"),
        ({"eventTime": PAST}, "tenant not present"),
        ({"tenant": "TENANT"}, "event time not present"),
        ({"tenant": "TENANT", "eventTime": "tomorrow"},
         "event time can not be parsed. Must be in ISO 8601 format."),
        ({"tenant": "TENANT", "eventTime": PAST, "deliveryOption": "PAYLOAD_ONLY"},
         "payload must not be null for deliveryOption PAYLOAD_ONLY"),
    ],
    ids=["unknown_tenant", "missing_tenant", "missing_event_time", "bad_event_time", "payload_only_without_payload"],
)  # fmt: skip
def test_api_rejected(world, fields, message):
    tenant = world.http_tenant()
    sent = {"id": "id_1", **fields}
    answer = world.schedule({**sent, "tenant": tenant} if sent.get("tenant") == "TENANT" else sent)
    [item] = answer.json
    assert (answer.status, item["eventStatus"]) == (400, "REJECTED")
    assert item["error"] == {"code": 400, "message": message}


def test_api_past_event_full(world):
    tenant, name = world.http_tenant(headers=HEADERS), world.name()
    answer = world.schedule({"id": name, "tenant": tenant, "eventTime": PAST})
    assert (answer.status, answer.json[0]["eventStatus"]) == (200, "TRIGGERED")
    [(headers, body)] = eventually(lambda: world.got(name))
    assert (body["eventStatus"], body["id"], body["tenant"]) == ("TRIGGERED", name, tenant)
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert headers["content-type"].startswith("application/json")


def test_api_past_event_payload_only(world):
    tenant, name = world.http_tenant(), world.name()
    before = len(world.receiver.received)
    item = world.item(id=name, tenant=tenant, eventTime=PAST, payload="testP", deliveryOption="PAYLOAD_ONLY")
    assert item["eventStatus"] == "TRIGGERED"
    eventually(lambda: b"testP" in [one.body for one in world.receiver.received[before:]])


@pytest.mark.parametrize("option", ["FULL_EVENT", "PAYLOAD_ONLY"])
def test_api_find_and_dry_run(world, option):
    tenant, name, at = world.http_tenant(headers=HEADERS), world.name(), "2090-05-06T07:08:09Z"
    payload = json.dumps({"id": name, "text": "hello"})
    sent = {"id": name, "tenant": tenant, "eventTime": at, "payload": payload, "deliveryOption": option}
    assert world.item(**sent)["eventStatus"] == "ACCEPTED"
    found = world.find(tenant, name).json
    assert (found["eventStatus"], found["payload"], found["eventTime"]) == ("UN_PROCESSED", payload, at)
    assert found["eventId"].startswith("a-") is (option == "PAYLOAD_ONLY")
    assert found["deliveryOption"] == option
    ran = world.post(f"/events/dryrun?id={name}&tenant={quote(tenant, safe='')}")
    assert ran.json == found
    [(headers, body)] = eventually(lambda: world.got(name))
    assert headers["header1"] == "value1"
    assert body == json.loads(payload) if option == "PAYLOAD_ONLY" else body["eventStatus"] == "TRIGGERED"
    assert world.find(tenant, name).json == found


@pytest.mark.parametrize("option", ["FULL_EVENT", "PAYLOAD_ONLY"])
def test_api_messaging_past_event(world, option):
    """Kafka tenants of BigBen; here a stream of the bus, and a real topic in tests/servers."""
    tenant, name = world.stream_tenant(), world.name()
    world.item(id=name, tenant=tenant, eventTime=PAST, payload="p", deliveryOption=option)
    [record] = eventually(lambda: world.records(tenant))
    assert record.key.decode() == name
    if option == "PAYLOAD_ONLY":
        assert record.value == b"p"
        return
    body = json.loads(record.value)
    assert (body["eventStatus"], body["payload"], body["tenant"]) == ("TRIGGERED", "p", tenant)
    assert (body["deliveryOption"], body["eventTime"]) == (option, "2018-01-31T04:00Z")


def test_api_2000_events_in_one_bucket(world):
    tenant = world.stream_tenant()
    for offset in ("PT0S", "PT1S"):
        answer = world.post(
            "/generation/random", {"offset": offset, "period": "PT0S", "numEvents": 1000, "tenant": tenant}
        )
        assert sum(answer.json.values()) == 1000
    path = f"/v2/events?tenant={tenant}&limit=1000"
    first = eventually(lambda: (page := world.get(f"{path}&status=DONE").json)["next"] and page)
    second = eventually(
        lambda: (
            len((page := world.get(f"{path}&status=DONE&cursor={first['next']}").json)["events"]) == 1000
            and page["next"] is None
            and page
        )
    )
    ids = {event["id"] for page in (first, second) for event in page["events"]}
    assert len(ids) == 2000
    assert len({event["eventTime"] for page in (first, second) for event in page["events"]}) in (1, 2)


# BigBenTests


def test_event_schedule_find_update_remove(world):
    tenant, name = world.http_tenant(), world.name()
    first = world.item(id=name, tenant=tenant, eventTime="2090-01-01T00:00Z", payload="one")
    assert first["eventStatus"] == "ACCEPTED"
    assert world.find(tenant, name).json["payload"] == "one"
    assert world.item(id=name, tenant=tenant, eventTime="2090-01-01T00:00Z", payload="two")["eventStatus"] == "UPDATED"
    assert world.find(tenant, name).json["payload"] == "two"
    moved = world.item(id=name, tenant=tenant, eventTime="2090-01-02T00:00Z", payload="two")
    assert moved["eventStatus"] == "UPDATED"
    found = world.find(tenant, name).json
    assert (found["eventTime"], found["eventId"]) == ("2090-01-02T00:00Z", moved["eventId"])
    assert world.item(id=name, tenant=tenant, mode="REMOVE")["eventStatus"] == "DELETED"
    assert world.find(tenant, name).status == 404


def test_http_event_processor_ok_past(world):
    tenant, name = world.http_tenant(), world.name()
    assert world.item(id=name, tenant=tenant, eventTime=PAST, payload="Payload1")["eventId"] is None
    [(_, body)] = eventually(lambda: world.got(name))
    assert (body["payload"], body["eventId"], body["eventStatus"]) == ("Payload1", None, "TRIGGERED")
    eventually(lambda: world.find(tenant, name).json["eventStatus"] == "PROCESSED")


def test_http_event_processor_ok_future_with_update_before_the_fire(world):
    tenant, name, at = world.http_tenant(), world.name(), world.soon(0.6)
    world.item(id=name, tenant=tenant, eventTime=at, payload="Payload1")
    item = world.item(id=name, tenant=tenant, eventTime=at, payload="Payload2")
    assert item["eventStatus"] == "UPDATED"
    [(_, body)] = eventually(lambda: world.got(name))
    assert (body["payload"], body["eventId"]) == ("Payload2", item["eventId"])


def test_http_event_processor_500_is_tried_exactly_four_times(world):
    tenant, name = world.http_tenant("/status/500"), world.name()
    world.item(id=name, tenant=tenant, eventTime=PAST)
    path = f"/v2/events/{quote(tenant, safe='')}/{name}"
    eventually(lambda: (event := world.get(path).json)["attempt"] == 4 and event["status"] == "RETRY")
    assert len(world.got(name)) == 4
    assert world.find(tenant, name).json["eventStatus"] == "ERROR"


def test_http_event_processor_400_is_tried_exactly_once(world):
    tenant, name = world.http_tenant("/status/400"), world.name()
    world.item(id=name, tenant=tenant, eventTime=PAST)
    eventually(lambda: world.find(tenant, name).json["eventStatus"] == "ERROR")
    assert len(world.got(name)) == 1


def test_messaging_processor_ok(world):
    tenant, name = world.stream_tenant(), world.name()
    item = world.item(id=name, tenant=tenant, eventTime=world.soon(0.2), payload="p")
    [record] = eventually(lambda: world.records(tenant))
    assert json.loads(record.value)["eventId"] == item["eventId"]
    assert world.find(tenant, name).json["eventStatus"] == "PROCESSED"
