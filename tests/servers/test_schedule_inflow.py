"""Requests from topics of a real Kafka: stored before they are committed, bad ones in the dead-letter stream."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[1] / "server"))
pytest.importorskip("confluent_kafka")

import confluent_kafka as kafka
from confluent_kafka import admin
from schedule_server_worlds import FAR, World, eventually, serving

from lockstep.errors import BadArgument, Unavailable
from lockstep.schedule.inflow import KafkaInflow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def servers(kafka_server) -> str:
    return kafka_server.url.removeprefix("kafka://").partition("?")[0]


@pytest.fixture(scope="module")
def world():
    with serving("memory:") as made:
        eventually(lambda: made.get("/readyz").status == 200)
        yield made


@pytest.fixture
def topic(servers) -> str:
    name = f"in{uuid4().hex}"
    make_topic(servers, name, 4)
    return name


def make_topic(servers: str, name: str, partitions: int) -> None:
    client = admin.AdminClient({"bootstrap.servers": servers})
    client.create_topics([admin.NewTopic(name, partitions, 1)])[name].result(WAIT_S)


def put(servers: str, topic: str, *values: object) -> None:
    producer = kafka.Producer({"bootstrap.servers": servers, "acks": "all"})
    for value in values:
        key = value.get("id") if isinstance(value, dict) else None
        data = value if isinstance(value, bytes) or value is None else json.dumps(value)
        producer.produce(topic, data, key=key if isinstance(key, str) else None)
    assert producer.flush(WAIT_S) == 0


def committed(servers: str, topic: str, group: str) -> int:
    consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        places = consumer.committed([kafka.TopicPartition(topic, number) for number in range(4)], timeout=WAIT_S)
        return sum(max(place.offset, 0) for place in places)
    finally:
        consumer.close()


def test_requests_come_in_and_bad_ones_are_dead_letters(world: World, servers, topic):
    tenant, group = world.stream_tenant(), uuid4().hex
    good = {"id": "k1", "tenant": tenant, "eventTime": FAR, "payload": "p"}
    bad = [b"{broken", b"\xff\xfe", None, b"7", {**good, "tenant": "nobody"}, {**good, "eventTime": "soon"},
           {**good, "id": None}, b"[" * 100_000]  # fmt: skip
    put(servers, topic, good, {**good, "id": "k2"}, {**good, "id": "k2", "mode": "REMOVE"}, *bad)
    put(servers, topic, {**good, "id": "k3", "eventTime": "2010-01-01T00:00Z"})
    inflow = KafkaInflow(world.scheduler.client, [topic], servers, group, consumers=2)
    try:
        eventually(lambda: inflow.counts.taken == 4 and inflow.counts.rejected == len(bad), within_s=WAIT_S)
        assert eventually(lambda: world.find(tenant, "k1").json).get("eventStatus") == "UN_PROCESSED"
        assert world.find(tenant, "k2").status == 404
        [record] = eventually(lambda: world.records(tenant))
        assert record.key == b"k3"
        eventually(lambda: committed(servers, topic, group) == 4 + len(bad), within_s=WAIT_S)
        dead = [
            one for one in world.records("jobs.inflow.dlq") if dict(one.headers)["Lockstep-Topic"] == topic.encode()
        ]
        reasons = Counter(dict(one.headers)["Lockstep-Reason"].decode() for one in dead)
        assert reasons == {
            "the record is not a JSON object": 5, "tenant not registered / unknown tenant: nobody": 1,
            "event time can not be parsed. Must be in ISO 8601 format.": 1, "id not present": 1,
        }  # fmt: skip
        assert b"{broken" in [one.value for one in dead]
    finally:
        inflow.close()
    assert inflow.error is None


def test_nothing_is_committed_before_it_is_stored(world: World, servers, topic, monkeypatch):
    tenant, group, tries = world.stream_tenant(), uuid4().hex, []
    client, send = world.scheduler.client, world.scheduler.client.send

    def away(asked, changes=None):
        tries.append(committed(servers, topic, group))
        if len(tries) < 3:
            raise Unavailable(reason="The bus is away.")
        send(asked, changes)

    monkeypatch.setattr(client, "send", away)
    put(servers, topic, *({"id": f"a{number}", "tenant": tenant, "eventTime": FAR} for number in range(20)))
    inflow = KafkaInflow(client, [topic], servers, group)
    try:
        eventually(lambda: inflow.counts.taken == 20, within_s=WAIT_S)
        assert tries[:3] == [0, 0, 0]
        eventually(lambda: committed(servers, topic, group) == 20, within_s=WAIT_S)
    finally:
        inflow.close()
    assert len(world.get(f"/v2/events?tenant={tenant}").json["events"]) == 20


def test_records_that_were_stored_and_not_committed_are_not_stored_again(world: World, servers, topic, monkeypatch):
    # Given an event that fired and was removed, by requests that were stored and never committed
    tenant, group, client = world.stream_tenant(), uuid4().hex, world.scheduler.client
    past = {"tenant": tenant, "eventTime": "2010-01-01T00:00Z"}
    with monkeypatch.context() as patched:
        patched.setattr(KafkaInflow, "_commit", lambda self, consumer, progress: None)
        first = KafkaInflow(client, [topic], servers, group)
        put(servers, topic, {**past, "id": "a"})
        eventually(lambda: world.records(tenant), within_s=WAIT_S)
        put(servers, topic, {**past, "id": "a", "mode": "REMOVE"}, b"no request")
        eventually(lambda: first.counts.taken == 2 and first.counts.rejected == 1, within_s=WAIT_S)
        first.close()
    assert committed(servers, topic, group) == 0
    # When another consumer reads the topic
    second = KafkaInflow(client, [topic], servers, group)
    try:
        put(servers, topic, {**past, "id": "b"})
        eventually(lambda: committed(servers, topic, group) == 4, within_s=WAIT_S)
    finally:
        second.close()
    # Then it takes only what is new
    assert (second.counts.taken, second.counts.rejected) == (1, 0)
    eventually(lambda: [record.key for record in world.records(tenant)] == [b"a", b"b"])


def test_consumers_that_come_and_go_lose_nothing(world: World, servers, topic):
    tenant, group = world.stream_tenant(), uuid4().hex
    client = world.scheduler.client
    first = KafkaInflow(client, [topic], servers, group)
    put(servers, topic, *({"id": f"m{number}", "tenant": tenant, "eventTime": FAR} for number in range(500)))
    second = KafkaInflow(client, [topic], servers, group)
    eventually(lambda: first.counts.taken + second.counts.taken >= 250, within_s=WAIT_S)
    first.close()
    put(servers, topic, *({"id": f"m{number}", "tenant": tenant, "eventTime": FAR} for number in range(500, 900)))
    eventually(lambda: committed(servers, topic, group) == 900, within_s=WAIT_S)
    second.close()
    assert (first.error, second.error) == (None, None)
    assert len(world.get(f"/v2/events?tenant={tenant}&limit=1000").json["events"]) == 900


def test_an_event_goes_from_one_topic_to_another(world: World, servers, topic):
    """Both channels of BigBen are Kafka's, and they can be mixed with HTTP."""
    tenant, out = world.name("kafka"), f"out{uuid4().hex}"
    make_topic(servers, out, 1)
    props = {"topic": out, "bootstrap.servers": servers}
    assert world.post("/events/tenant/register", {"tenant": tenant, "type": "MESSAGING", "props": props}).status == 200
    inflow = KafkaInflow(world.scheduler.client, [topic], servers, uuid4().hex)
    consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.subscribe([out])
    try:
        past = {"tenant": tenant, "eventTime": "2018-01-31T04:00Z", "payload": "p"}
        put(servers, topic, {**past, "id": "full"})
        assert world.item(**past, id="alone", deliveryOption="PAYLOAD_ONLY")["eventStatus"] == "TRIGGERED"
        found = {}
        while len(found) < 2:
            [message] = consumer.consume(1, WAIT_S)
            found[message.key()] = message.value()
        assert found[b"alone"] == b"p"
        body = json.loads(found[b"full"])
        assert (body["eventStatus"], body["tenant"], body["eventTime"]) == ("TRIGGERED", tenant, "2018-01-31T04:00Z")
    finally:
        consumer.close()
        inflow.close()


def test_settings_of_the_inflow_can_not_be_overruled(world: World):
    with pytest.raises(BadArgument, match="set by the inflow"):
        KafkaInflow(world.scheduler.client, ["t"], "localhost:1", settings={"enable.auto.commit": True})
    with pytest.raises(BadArgument):
        KafkaInflow(world.scheduler.client, [], "localhost:1")
