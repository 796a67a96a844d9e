"""The checklist of BigBen's features, lines 1 to 82, over HTTP: a real server, a real receiver, real time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from schedule_server_worlds import FAR, World, eventually, scheduling, serving

from lockstep.core.ladder import Ladder
from lockstep.schedule.delivery.couriers import CourierOptions, Couriers
from lockstep.schedule.fired import Fired
from lockstep.schedule.times import parse_time

pytestmark = pytest.mark.slow

QUICK = Ladder(initial_delay_ms=20)
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
ELSEWHERE = {
    31: "rows are sharded by key, so there is no shard size; GET /v2/buckets has the minutes",
    32: "tests/unit/core: the shares of a group", 38: "tests/unit/core: the ladder is the node's, not the event's",
    39: "tests of stores", 40: "tests/schedule: takeovers", 41: "tests/schedule: takeovers",
    44: "lockstep bench schedule", 45: "lockstep bench schedule", 46: "no locks: one owner for each shard",
    48: "tests/schedule: takeovers deliver again", 51: "tests/servers/test_schedule_inflow.py",
    64: "tests/schedule: ticks after a takeover", 70: "rows and runs are one commit, whatever the key says",
    71: "crons are rows of the 32 shards", 74: "command line", 75: "command line", 76: "command line",
    77: "command line", 78: "tests of stores", 79: "Python API", 80: "command line", 81: "stores make their schema",
    82: "command line",
}  # fmt: skip
LINES: dict[int, list[Callable[[World], None]]] = {}


class PlainProcessor:
    """Made without arguments."""

    got: list[Fired] = []  # noqa: RUF012

    def process(self, fired: Fired) -> None:
        self.got.append(fired)


class NamedProcessor:
    """Made with the tenant and its props."""

    got: list[tuple[str, object, Fired]] = []  # noqa: RUF012

    def __init__(self, tenant: str, props: dict) -> None:
        self.tenant, self.props = tenant, props

    def process(self, fired: Fired) -> None:
        self.got.append((self.tenant, self.props["own"], fired))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    options = CourierOptions(allow_loopback=True, processors={"a.b.Plain": PlainProcessor, "a.b.Named": NamedProcessor})
    with serving("memory:", courier=Couriers(options), ladder=QUICK) as made:
        eventually(lambda: made.get("/readyz").status == 200, "the node owns its shards")
        yield made


def line(*numbers: int) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def note(check: Callable[[World], None]) -> Callable[[World], None]:
        for number in numbers:
            LINES.setdefault(number, []).append(check)
        return check

    return note


@line(1)
def ping(world):
    answer = world.get("/ping")
    assert (answer.status, answer.json) == (200, {"status": "OK"})
    assert answer.text == '{\n  "status": "OK"\n}'
    assert {"start-time", "end-time", "duration", "node"} <= answer.headers.keys()
    assert answer.headers["duration"].endswith(" ms")
    assert parse_time(answer.headers["start-time"]) <= parse_time(answer.headers["end-time"])


@line(3, 7, 10)
def register_messaging(world):
    tenant = world.stream_tenant()
    shown = world.get("/events/tenants").json[tenant]
    assert shown == {"tenant": tenant, "type": "MESSAGING", "props": {"topic": tenant}}


@line(4, 7, 8)
def register_http_with_headers(world):
    tenant = world.http_tenant(headers={"header1": "value1", "X-Api-Key": "hidden"}, secret="whsec_c2VjcmV0LXRleHQ=")
    assert "/" in tenant
    answer = world.get("/events/tenants")
    assert answer.json[tenant]["type"] == "HTTP"
    assert answer.json[tenant]["props"]["headers"] == {"header1": "value1", "X-Api-Key": "***"}
    assert answer.json[tenant]["props"]["secret"] == "***"
    name = world.name()
    world.item(id=name, tenant=tenant, eventTime="2010-01-01T00:00Z")
    [(headers, _)] = eventually(lambda: world.got(name))
    assert (headers["header1"], headers["x-api-key"]) == ("value1", "hidden")
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert headers["accept"] == "*/*"


@line(5)
def register_custom_class(world):
    for kind, got in (("a.b.Plain", PlainProcessor.got), ("a.b.Named", NamedProcessor.got)):
        tenant, name = world.name("custom"), world.name()
        props = {"eventProcessorClass": kind, "own": 7}
        answer = world.post("/events/tenant/register", {"tenant": tenant, "type": "CUSTOM_CLASS", "props": props})
        assert answer.json[tenant]["props"] == props
        world.item(id=name, tenant=tenant, eventTime="2010-01-01T00:00Z", payload="p")
        eventually(lambda got=got: got, kind)
        eventually(lambda t=tenant, n=name: world.find(t, n).json["eventStatus"] == "PROCESSED")
    assert PlainProcessor.got[0].payload == b"p"
    assert NamedProcessor.got[0][1] == 7


@line(6)
def registered_again_it_is_replaced(world):
    tenant, name = world.http_tenant("/status/500"), world.name()
    props = {"url": world.receiver.url("/status/202")}
    world.post("/events/tenant/register", {"tenant": tenant, "type": "HTTP", "props": props})
    world.item(id=name, tenant=tenant, eventTime="2010-01-01T00:00Z")
    eventually(lambda: world.find(tenant, name).json["eventStatus"] == "PROCESSED")
    assert [one.path for one in world.receiver.received if json.loads(one.body).get("id") == name] == ["/status/202"]


@line(9)
def tenants_are_checked_before_they_are_stored(world):
    before = world.get("/events/tenants").json
    for fields, message in [
        ({"type": "HTTP", "props": {"url": "http://x"}}, "tenant must not be null"),
        ({"tenant": None, "type": "HTTP", "props": {"url": "http://x"}}, "tenant must not be null"),
        ({"tenant": "t", "props": {"a": 1}}, "type must be one of MESSAGING, HTTP, CUSTOM_CLASS"),
        ({"tenant": "t", "type": "", "props": {"a": 1}}, "type must be one of MESSAGING, HTTP, CUSTOM_CLASS"),
        ({"tenant": "t", "type": "HTTP", "props": {}}, "props must be an object with at least one property"),
        ({"tenant": "t", "type": "HTTP"}, "props must be an object with at least one property"),
        ({"tenant": "t", "type": "MESSAGING", "props": {"a": 1}}, "no topic in props"),
        ({"tenant": "t", "type": "HTTP", "props": {"url": "ftp://x"}}, "url must begin with http:// or https://"),
        ({"tenant": "t", "type": "HTTP", "props": {"url": "http://x"}, "more": 1}, "unknown property: more"),
    ]:
        answer = world.post("/events/tenant/register", fields)
        assert (answer.status, answer.json) == (400, {"message": message}), fields
    unknown = world.post(
        "/events/tenant/register",
        {"tenant": "t", "type": "CUSTOM_CLASS", "props": {"eventProcessorClass": "os.path"}},
    )
    assert unknown.status == 400
    assert world.get("/events/tenants").json == before


@line(10)
def tenants_are_isolated(world):
    one, other, name = world.stream_tenant(), world.http_tenant(), world.name()
    items = world.schedule(
        {"id": name, "tenant": one, "eventTime": "2010-01-01T00:00Z", "payload": "1"},
        {"id": name, "tenant": other, "eventTime": "2010-01-01T00:00Z", "payload": "2"},
    ).json
    assert [item["eventStatus"] for item in items] == ["TRIGGERED", "TRIGGERED"]
    [(_, body)] = eventually(lambda: world.got(name))
    [record] = eventually(lambda: world.records(one))
    assert (body["tenant"], body["payload"]) == (other, "2")
    assert (json.loads(record.value)["tenant"], json.loads(record.value)["payload"]) == (one, "1")


@line(11, 12)
def batches_keep_their_order_and_have_one_status(world):
    tenant = world.stream_tenant()
    good = [{"id": world.name(), "tenant": tenant, "eventTime": FAR} for _ in range(50)]
    bad = {"id": "x", "tenant": "nobody", "eventTime": FAR}
    answer = world.schedule(*good)
    assert answer.status == 200
    assert [item["id"] for item in answer.json] == [event["id"] for event in good]
    mixed = world.schedule(good[0], bad, good[1])
    assert mixed.status == 206
    assert [item["eventStatus"] for item in mixed.json] == ["UPDATED", "REJECTED", "UPDATED"]
    assert world.schedule(bad, bad).status == 400
    empty = world.schedule()
    assert (empty.status, empty.json) == (400, [])


@line(13, 18, 28)
def a_new_event_is_accepted(world):
    tenant, name = world.stream_tenant(), world.name()
    item = world.item(id=name, tenant=tenant, eventTime="2090-01-01T00:00:00+05:30")
    assert item.pop("eventId")
    assert item == {
        "id": name, "eventTime": "2090-01-01T00:00:00+05:30", "tenant": tenant, "payload": None, "mode": "UPSERT",
        "deliveryOption": "FULL_EVENT", "triggeredAt": None, "eventStatus": "ACCEPTED", "error": None,
    }  # fmt: skip
    assert list(item)[:4] == ["id", "eventTime", "tenant", "payload"]


@line(14)
def the_same_time_updates_the_payload(world):
    tenant, name = world.stream_tenant(), world.name()
    first = world.item(id=name, tenant=tenant, eventTime=FAR, payload="one")
    second = world.item(id=name, tenant=tenant, eventTime="2090-01-01T01:00+01:00", payload="two")
    assert (second["eventStatus"], second["eventId"]) == ("UPDATED", first["eventId"])
    assert world.find(tenant, name).json["payload"] == "two"
    world.item(id=name, tenant=tenant, eventTime=FAR)
    assert world.find(tenant, name).json["payload"] == "two"  # null keeps


@line(15)
def another_time_replaces_the_event(world):
    tenant, name = world.stream_tenant(), world.name()
    first = world.item(id=name, tenant=tenant, eventTime=FAR, payload="one")
    second = world.item(id=name, tenant=tenant, eventTime=world.soon(0.2), payload="two")
    assert second["eventStatus"] == "UPDATED"
    assert second["eventId"] not in (None, first["eventId"])
    [record] = eventually(lambda: world.records(tenant))
    assert json.loads(record.value)["eventId"] == second["eventId"]


@line(16, 24)
def a_removed_event_is_gone(world):
    tenant, name = world.stream_tenant(), world.name()
    event_id = world.item(id=name, tenant=tenant, eventTime=FAR)["eventId"]
    item = world.item(id=name, tenant=tenant, eventTime=FAR, mode="REMOVE")
    assert (item["eventStatus"], item["eventId"], item["mode"]) == ("DELETED", event_id, "REMOVE")
    found = world.find(tenant, name)
    assert (found.status, found.json) == (404, {"status": "not found"})


@line(17)
def removing_what_is_not_there_is_no_error(world):
    answer = world.schedule({"id": "none", "tenant": "nobody", "mode": "REMOVE"})
    assert answer.status == 200
    assert (answer.json[0]["eventStatus"], answer.json[0]["error"], answer.json[0]["eventId"]) == (None, None, None)


@line(19, 26, 33)
def what_is_delivered(world):
    http, stream = world.http_tenant(), world.stream_tenant()
    full, alone = world.name(), world.name()
    payload = json.dumps({"id": alone, "own": True})
    for tenant in (http, stream):
        when = world.soon(0.2)
        item = world.item(id=full, tenant=tenant, eventTime=when, payload="p")
        only = world.item(id=alone, tenant=tenant, eventTime=when, payload=payload, deliveryOption="PAYLOAD_ONLY")
        assert only["eventId"].startswith("a-")
        if tenant == http:
            [(_, body)] = eventually(lambda: world.got(full))
            [(_, raw)] = eventually(lambda: world.got(alone))
        else:
            records = eventually(lambda: len(found := world.records(stream)) == 2 and found)
            by_key = {record.key.decode(): json.loads(record.value) for record in records}
            body, raw = by_key[full], by_key[alone]
        assert raw == json.loads(payload)
        assert body.pop("triggeredAt") >= when[:19]
        assert body == {
            "id": full, "eventTime": when, "tenant": tenant, "payload": "p", "mode": "UPSERT",
            "deliveryOption": "FULL_EVENT", "eventId": item["eventId"], "eventStatus": "TRIGGERED", "error": None,
        }  # fmt: skip
        eventually(lambda t=tenant: world.find(t, full).json["eventStatus"] == "PROCESSED")


@line(20, 21, 29)
def rejections(world):
    tenant = world.stream_tenant()
    good = {"id": "x", "tenant": tenant, "eventTime": FAR}
    for change, message in [
        ({"tenant": None}, "tenant not present"),
        ({"eventTime": None}, "event time not present"),
        ({"tenant": "nobody"}, "tenant not registered / unknown tenant: nobody"),
        ({"deliveryOption": "PAYLOAD_ONLY"}, "payload must not be null for deliveryOption PAYLOAD_ONLY"),
        ({"eventTime": "tomorrow"}, "event time can not be parsed. Must be in ISO 8601 format."),
        ({"id": None}, "id not present"),
        ({"tenant": None, "eventTime": None, "id": None}, "tenant not present"),
        ({"eventTime": "tomorrow", "deliveryOption": "PAYLOAD_ONLY"},
         "payload must not be null for deliveryOption PAYLOAD_ONLY"),
    ]:  # fmt: skip
        answer = world.schedule({**good, **change})
        [item] = answer.json
        assert (answer.status, item["eventStatus"]) == (400, "REJECTED")
        assert item["error"] == {"code": 400, "message": message}
        assert (item["id"], item["eventTime"]) == ({**good, **change}["id"], {**good, **change}["eventTime"])
        assert item["eventId"] is None


@line(22)
def what_has_lapsed_fires_at_once_and_is_stored(world):
    tenant, name = world.http_tenant(), world.name()
    answer = world.schedule({"id": name, "tenant": tenant, "eventTime": "2018-01-31T04:00Z"})
    [item] = answer.json
    assert (answer.status, item["eventStatus"], item["eventId"]) == (200, "TRIGGERED", None)
    assert parse_time(item["triggeredAt"])
    [(headers, body)] = eventually(lambda: world.got(name))
    assert (body["eventId"], body["eventStatus"]) == (None, "TRIGGERED")
    assert headers["idempotency-key"]
    assert eventually(lambda: world.find(tenant, name)).status == 200


@line(23, 28)
def found_in_utc(world):
    tenant = world.stream_tenant()
    for sent, shown in [
        ("2090-01-31T04:00Z", "2090-01-31T04:00Z"),
        ("2090-01-31T04:00:00Z", "2090-01-31T04:00Z"),
        ("2090-01-31T04:00:00.000+00:00", "2090-01-31T04:00Z"),
        ("2090-01-31T04:00:01.5+05:30", "2090-01-30T22:30:01.500Z"),
        ("2090-01-31T04:00:01.123456789Z[Europe/Berlin]", "2090-01-31T04:00:01.123Z"),
    ]:
        name = world.name()
        assert world.item(id=name, tenant=tenant, eventTime=sent)["eventTime"] == sent
        assert world.find(tenant, name).json["eventTime"] == shown
    for wrong in ("2018-01-31T04:00.00Z", "2018-01-31", "2018-01-31T04:00", "2018-1-31T04:00Z", "", " "):
        assert world.item(id="x", tenant=tenant, eventTime=wrong)["eventStatus"] == "REJECTED"


@line(24)
def find_needs_an_id_and_a_tenant(world):
    for query, message in [("id=&tenant=t", "null id"), ("tenant=t", "null id"), ("id=x", "null tenant")]:
        for method, path in (("GET", "/events/find"), ("POST", "/events/dryrun")):
            answer = world.ask(method, f"{path}?{query}")
            assert (answer.status, answer.json) == (400, {"message": message})


@line(25)
def a_dry_run_changes_nothing(world):
    for tenant in (world.http_tenant(), world.stream_tenant()):
        name = world.name()
        world.item(id=name, tenant=tenant, eventTime=FAR)
        before = world.find(tenant, name).json
        ran = world.post(f"/events/dryrun?id={name}&tenant={quote(tenant, safe='')}")
        assert (ran.status, ran.json) == (200, before)
        if "/" in tenant:
            [(headers, body)] = eventually(lambda n=name: world.got(n))
            assert headers["lockstep-dry-run"] == "true"
        else:
            [record] = eventually(lambda t=tenant: world.records(t))
            body = json.loads(record.value)
        assert body["eventStatus"] == "TRIGGERED"
        assert world.find(tenant, name).json == before
    missing = world.post("/events/dryrun?id=none&tenant=x")
    assert (missing.status, missing.json) == (404, {"status": "not found"})


@line(27)
def random_events(world):
    tenant = world.stream_tenant()
    wanted = {"offset": "PT1H", "period": "PT2M30S", "numEvents": 200, "tenant": tenant}
    answer = world.post("/generation/random", wanted)
    assert answer.status == 200
    assert sum(answer.json.values()) == 200
    assert list(answer.json) == sorted(answer.json)
    assert len(answer.json) in (2, 3)
    page = world.get(f"/v2/events?tenant={tenant}&limit=1000").json["events"]
    assert len(page) == 200
    assert {event["eventTime"][:16] + "Z" for event in page} == set(answer.json)
    for change, message in [
        ({"tenant": "nobody"}, "unknown tenant: nobody"),
        ({"offset": "1 minute"}, "offset must be a span in ISO 8601, as PT1M30S"),
        ({"period": None}, "period must be a span in ISO 8601, as PT1M30S"),
        ({"numEvents": -1}, "numEvents must be a whole number from 0 to 100000"),
    ]:
        refused = world.post("/generation/random", {**wanted, **change})
        assert (refused.status, refused.json) == (400, {"message": message})


@line(30)
def it_fires_at_its_time_and_not_before(world):
    tenant, name = world.http_tenant(), world.name()
    when = world.soon(0.3)
    world.item(id=name, tenant=tenant, eventTime=when)
    assert world.find(tenant, name).json["eventStatus"] == "UN_PROCESSED"
    [(_, body)] = eventually(lambda: world.got(name))
    assert 0 <= parse_time(body["triggeredAt"]) - parse_time(when) < 5000


@line(34)
def four_hundred_is_tried_once(world):
    tenant, name = world.http_tenant("/status/400?body=no+thanks"), world.name()
    world.item(id=name, tenant=tenant, eventTime="2010-01-01T00:00Z")
    found = eventually(lambda: (one := world.find(tenant, name).json)["eventStatus"] == "ERROR" and one)
    assert found["error"] == {"code": 500, "message": "no thanks"}
    assert found["triggeredAt"] is not None
    assert len(world.got(name)) == 1


@line(35)
def five_hundred_is_tried_four_times_in_a_round(world):
    tenant, name = world.http_tenant("/status/500"), world.name()
    world.item(id=name, tenant=tenant, eventTime="2010-01-01T00:00Z")
    attempts = eventually(lambda: len(got := world.got(name)) == 4 and got)
    assert [headers["lockstep-attempt"] for headers, _ in attempts] == ["1", "2", "3", "4"]
    assert len({headers["idempotency-key"] for headers, _ in attempts}) == 1
    path = f"/v2/events/{quote(tenant, safe='')}/{name}"
    stored = eventually(lambda: (one := world.get(path).json)["attempt"] == 4 and one["status"] == "RETRY" and one)
    assert stored["error"] == "HTTP 500"
    assert parse_time(stored["nextTryAt"]) - parse_time(stored["triggeredAt"]) > 50_000  # the next round


@line(47)
def minutes_with_counts(world):
    tenant = world.stream_tenant()
    for second in ("00", "30", "59"):
        world.item(id=world.name(), tenant=tenant, eventTime=f"2090-03-04T05:06:{second}Z")
    answer = world.get(f"/v2/buckets?tenant={tenant}&from=2090-01-01T00:00Z&to=2091-01-01T00:00Z")
    assert answer.json == {"buckets": [{"minute": "2090-03-04T05:06Z", "total": 3, "WAITING": 3}], "complete": True}


@line(49)
def every_outcome_is_in_the_history(world):
    tenant, name = world.http_tenant(), world.name()
    world.item(id=name, tenant=tenant, eventTime="2010-01-01T00:00Z")
    eventually(lambda: world.find(tenant, name).json["eventStatus"] == "PROCESSED")
    [record] = [one for one in world.history if one.get("id") == name]
    assert (record["what"], record["attempt"]) == ("fired", 1)
    assert world.find(tenant, name).json["triggeredAt"] is not None


def delayed(world: World, *after: float) -> list[str]:
    """Events of a use case, with its delays cut down."""
    tenant = world.stream_tenant()
    names = [world.name() for _ in after]
    world.schedule(*(
        {"id": name, "tenant": tenant, "eventTime": world.soon(wait), "payload": f"{wait}"}
        for name, wait in zip(names, after, strict=True)
    ))  # fmt: skip
    records = eventually(lambda: len(found := world.records(tenant)) == len(after) and found)
    assert [record.key.decode() for record in records] == names
    return names


@line(52, 53)
def delayed_execution_and_a_back_off_ladder(world):
    delayed(world, 0.1, 0.2, 0.35, 0.5)


@line(54, 57)
def time_out_ticker_and_suspended_workflow(world):
    tenant, answered, silent = world.stream_tenant(), world.name(), world.name()
    for name in (answered, silent):
        world.item(id=name, tenant=tenant, eventTime=world.soon(0.4))
    assert world.item(id=answered, tenant=tenant, mode="REMOVE")["eventStatus"] == "DELETED"
    [record] = eventually(lambda: world.records(tenant))
    assert record.key.decode() == silent


@line(55, 56, 58, 63, 66, 67, 69, 73)
def a_cron_ticks_every_second(world):
    tenant, name = world.http_tenant(), "poll/1"
    cron = {
        "tenant": tenant, "id": name, "expression": "* * * * * ? *", "type": "QUARTZ", "logGranularity": "MINUTES",
        "retention": 2, "retentionUnits": "MINUTES",
    }  # fmt: skip
    answer = world.post("/cron", cron)
    assert (answer.status, answer.json) == (200, {"cron": cron, "description": "every second"})
    key = f"{tenant}/{name}/QUARTZ"
    ticks = eventually(lambda: len(got := world.got(key)) >= 2 and got)
    times = [body["eventTime"] for _, body in ticks[:2]]
    assert parse_time(times[1]) - parse_time(times[0]) == 1000
    for (headers, body), at in zip(ticks, times, strict=False):
        assert (body["eventId"], body["payload"]) == (f"{key}/{at}", "* * * * * ? *")
        assert (headers["idempotency-key"], body["eventStatus"]) == (
            body["eventId"].encode().decode("latin-1"),
            "TRIGGERED",
        )
    path = f"/v2/crons/{quote(tenant, safe='')}/{quote(name, safe='')}"
    runs = eventually(lambda: len(found := world.get(f"{path}/runs").json["runs"]) >= 2 and found)
    newest, older = (parse_time(run["executionTime"]) for run in runs[:2])
    assert newest > older
    assert runs[0]["bucket"].endswith("Z")
    assert runs[0]["event"]["eventStatus"] == "PROCESSED"
    shown = world.get(f"/cron/{quote(tenant, safe='')}/{quote(name, safe='')}").json[0]["cron"]
    assert shown.keys() == cron.keys() | {"lastUpdated", "lastExecutionTime"}
    removed = world.ask("DELETE", f"/cron/{quote(tenant, safe='')}/{quote(name, safe='')}/QUARTZ")
    assert removed.json == {"status": "OK"}


@line(59, 60)
def crons_that_are_refused(world):
    tenant = world.stream_tenant()
    good = {"tenant": tenant, "id": "c", "expression": "0 12 * * *", "type": "UNIX"}
    for change, message in [
        ({"tenant": "nobody"}, "unknown tenant: nobody"),
        ({"type": "BSD"}, "No enum constant com.cronutils.model.CronType.BSD; it must be one of"),
        ({"expression": "61 * * * *"}, "Value 61 not in range [0, 59]"),
        ({"expression": "* * * *"}, "Cron expression contains 4 parts but we expect one of [5]"),
        ({"expression": ""}, "expression must be text"),
        ({"id": None}, "id must be text"),
        ({"tz": "Mars/Base"}, "Time zone 'Mars/Base' does not exist."),
        ({"retention": "2"}, "retention must be a whole number"),
    ]:
        answer = world.post("/cron", {**good, **change})
        assert answer.status == 400
        assert answer.json["message"].startswith(message), answer.text
    for kind, expression in [
        ("UNIX", "0 12 * * *"), ("CRON4J", "0 12 * * *"), ("QUARTZ", "0 0 12 * * ?"), ("SPRING", "0 0 12 * * ?"),
    ]:  # fmt: skip
        answer = world.post("/cron", {**good, "expression": expression, "type": kind})
        assert (answer.status, answer.json["description"]) == (200, "at 12:00")


@line(61, 62)
def crons_of_all_types(world):
    tenant, name = world.stream_tenant(), "c/%2F ü"
    for kind, expression in (("QUARTZ", "0 0 12 * * ?"), ("UNIX", "0 12 * * *"), ("CRON4J", "0 12 * * *")):
        world.post("/cron", {"tenant": tenant, "id": name, "expression": expression, "type": kind})
    path = f"/cron/{tenant}/{quote(name, safe='')}"
    assert {one["cron"]["type"] for one in world.get(path).json} == {"QUARTZ", "UNIX", "CRON4J"}
    assert world.ask("DELETE", f"{path}/UNIX").json == {"status": "OK"}
    assert {one["cron"]["type"] for one in world.get(path).json} == {"QUARTZ", "CRON4J"}
    unknown = world.ask("DELETE", f"{path}/BSD")
    assert unknown.status == 400
    assert unknown.json["message"].startswith("No enum constant com.cronutils.model.CronType.BSD")
    for _ in range(2):
        assert world.ask("DELETE", f"{path}/*").json == {"status": "OK"}
        assert (world.get(path).status, world.get(path).json) == (200, [])


@line(65, 68)
def a_tick_has_four_tries_and_its_last_failure_is_logged(world):
    tenant = world.http_tenant("/status/503?body=busy")
    cron = {"tenant": tenant, "id": "c", "expression": "0 0 0 1 1 ? *", "type": "QUARTZ", "logGranularity": "DAYS"}
    world.post("/cron", cron)
    path = f"/v2/crons/{quote(tenant, safe='')}/c/QUARTZ"
    assert world.post(f"{path}/trigger").status == 200
    [run] = eventually(lambda: world.get(f"{path}/runs").json["runs"])
    assert run["event"]["error"] == {"code": 500, "message": "HTTP 503: busy"}
    assert run["bucket"] == run["executionTime"][:11] + "00:00Z"
    assert len(world.got(f"{tenant}/c/QUARTZ")) == 4


@line(66)
def without_a_granularity_nothing_is_logged(world):
    tenant = world.stream_tenant()
    world.post("/cron", {"tenant": tenant, "id": "c", "expression": "0 0 1 1 *", "type": "UNIX"})
    world.post(f"/v2/crons/{tenant}/c/trigger")
    eventually(lambda: world.records(tenant))
    assert world.get(f"/v2/crons/{tenant}/c/runs").json == {"runs": []}


@line(72)
def crons_without_seconds_fire_once_a_minute(world):
    tenant = world.stream_tenant()
    for kind in ("UNIX", "CRON4J"):
        world.post("/cron", {"tenant": tenant, "id": kind, "expression": "0/2 3 4 5 *", "type": kind})
        ticks = {"from": "2026-05-04T03:59Z", "to": "2026-05-04T04:00Z"}
        assert world.post(f"/v2/crons/{tenant}/{kind}/backfill", ticks).status == 200
        ticks = {"from": "2026-05-04T02:59:59Z", "to": "2026-05-04T03:04Z"}
        world.post(f"/v2/crons/{tenant}/{kind}/backfill", ticks)
    records = eventually(lambda: len(found := world.records(tenant)) == 6 and found)
    times = [json.loads(record.value)["eventTime"] for record in records]
    assert sorted(set(times)) == ["2026-05-04T03:00Z", "2026-05-04T03:02Z", "2026-05-04T03:04Z"]


CHECKS = [pytest.param(check, id=f"{n}-{check.__name__}") for n, found in sorted(LINES.items()) for check in found]
ONCE = list({id(one.values[0]): one for one in CHECKS}.values())


@pytest.mark.parametrize("check", ONCE)
def test_line(world, check):
    check(world)


OWN_WORLDS = {2, 36, 37, 42, 43, 50}
"""Lines with a test of their own, below."""


def test_no_line_is_left_out():
    assert set(LINES) | set(ELSEWHERE) | OWN_WORLDS == set(range(1, 83))


def test_line_2_42_43_one_master_and_it_moves():
    with serving("memory:pair") as first, scheduling("memory:pair", port=5702) as second:
        roles = lambda: sorted(first.get("/events/cluster").json.values())  # noqa: E731
        eventually(lambda: roles() == ["Master", "Slave"], "two nodes")
        assert {"[127.0.0.1]:5702"} < first.get("/events/cluster").json.keys()
        tenant = first.stream_tenant()
        eventually(lambda: first.scheduler.node.shards and second.node.shards, "both have shards")
        names = [first.name() for _ in range(60)]
        first.schedule(*({"id": name, "tenant": tenant, "eventTime": first.soon(0.3)} for name in names))
        records = eventually(lambda: len(found := first.records(tenant)) >= 60 and found)
        assert sorted(record.key.decode() for record in records) == sorted(names)
        second.close()
        eventually(lambda: first.get("/events/cluster").json == {first.address: "Master"}, "one node")


def test_line_22_events_within_the_lapse_offset_fire_at_once():
    with serving("memory:", lapse_ms=60_000) as world:
        tenant = world.stream_tenant()
        item = world.item(id="a", tenant=tenant, eventTime=world.soon(30))
        assert (item["eventStatus"], item["eventId"]) == ("TRIGGERED", None)
        assert eventually(lambda: world.records(tenant))


def test_lines_36_37_50_retries_the_limit_and_the_retention_can_be_set():
    ladder = Ladder(max_retries=1, initial_delay_ms=10, multiplier=1, round_ms=120, limit_ms=400)
    with serving("memory:", ladder=ladder, keep_ms=1500) as world:
        tenant, name = world.http_tenant("/status/500"), world.name()
        world.item(id=name, tenant=tenant, eventTime="2010-01-01T00:00Z")
        path = f"/v2/events/{quote(tenant, safe='')}/{name}"
        failed = eventually(lambda: (one := world.get(path).json)["status"] == "FAILED" and one)
        assert failed["nextTryAt"] is None
        assert 4 <= len(world.got(name)) <= 8
        assert world.find(tenant, name).json["eventStatus"] == "ERROR"
        replayed = world.post(f"{path}/replay")
        assert (replayed.status, replayed.json["verdict"]) == (200, "UPDATED")
        eventually(lambda: world.find(tenant, name).status == 404, "it is forgotten")
