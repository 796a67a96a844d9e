"""Events as records on topics of a real Kafka, read back with a plain consumer."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[1] / "schedule"))
from delivery_parts import Results, delivered, event

pytest.importorskip("confluent_kafka")

import confluent_kafka as kafka
from confluent_kafka import admin

from lockstep.core.agenda import Form, Option
from lockstep.schedule.delivery.kafka import KafkaCourier
from lockstep.schedule.delivery.port import CourierOptions, Delivery, Outcome
from lockstep.schedule.tenants import Tenant, TenantType

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
WAIT_S = 30.0


@pytest.fixture
def servers(kafka_server) -> str:
    return kafka_server.url.removeprefix("kafka://").partition("?")[0]


@pytest.fixture
def topic_of(servers):
    client = admin.AdminClient({"bootstrap.servers": servers})

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t{uuid4().hex}"
        made = client.create_topics([admin.NewTopic(name, partitions, 1, config=config)])
        made[name].result(WAIT_S)
        return name

    return make


@pytest.fixture
def courier_of():
    made = []

    def make(**options) -> KafkaCourier:
        made.append(KafkaCourier(CourierOptions(**options)))
        return made[-1]

    yield make
    for courier in made:
        courier.close()


def tenant_of(servers: str, topic: str, name: str = "Orders/EU", **props) -> Tenant:
    named = {"topic": topic, "bootstrap.servers": servers, **props}
    return Tenant(tenant=name, type=TenantType.MESSAGING, props=named)


def records(servers: str, topic: str, count: int) -> list:
    consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = []
    try:
        while len(found) < count:
            batch = consumer.consume(count - len(found), WAIT_S)
            assert batch, f"{len(found)} of {count} records"
            assert all(message.error() is None for message in batch)
            found += batch
    finally:
        consumer.close()
    return found


def test_an_event_is_a_record_with_its_id_as_the_key(servers, topic_of, courier_of):
    topic, courier = topic_of(), courier_of()
    tenant = tenant_of(servers, topic)
    courier.check(tenant)
    assert delivered(courier, tenant, attempt=2) == (Outcome.TAKEN, None)
    [record] = records(servers, topic, 1)
    assert record.key() == b"e1"
    assert json.loads(record.value())["eventStatus"] == "TRIGGERED"
    assert json.loads(record.value())["payload"] == '{"n":1}'
    assert record.headers() == [
        ("Idempotency-Key", b"id-1"),
        ("Lockstep-Tenant", b"Orders/EU"),
        ("Lockstep-Event-Time", b"2023-11-14T22:13:20.001Z"),
        ("Lockstep-Attempt", b"2"),
        ("Lockstep-Payload", b"json"),
    ]


def test_a_payload_alone_is_the_value_and_a_dry_run_says_so(servers, topic_of, courier_of):
    topic, courier, results = topic_of(), courier_of(), Results()
    one = event(payload=b"\x00\xffraw", form=Form.BYTES, option=Option.PAYLOAD_ONLY)
    courier.deliver(Delivery(one, tenant_of(servers, topic), dry_run=True), results)
    assert results.wait(1)[0].outcome is Outcome.TAKEN
    [record] = records(servers, topic, 1)
    assert record.value() == b"\x00\xffraw"
    assert ("Lockstep-Dry-Run", b"true") in record.headers()


def test_many_events_are_all_stored_once(servers, topic_of, courier_of):
    topic, courier, results = topic_of(partitions=3), courier_of(), Results()
    tenant = tenant_of(servers, topic)
    for number in range(3000):
        courier.deliver(Delivery(event(number), tenant), results)
    assert {result.outcome for result in results.wait(3000)} == {Outcome.TAKEN}
    assert sorted(results.times().values()) == [1] * 3000
    keys = [record.key().decode() for record in records(servers, topic, 3000)]
    assert sorted(keys) == sorted(f"e{number}" for number in range(3000))


def test_keys_are_in_the_partitions_of_clients_for_java(servers, topic_of, courier_of):
    topic, courier, results = topic_of(partitions=5), courier_of(), Results()
    for number in range(3):
        courier.deliver(Delivery(event(number), tenant_of(servers, topic)), results)
    results.wait(3)
    found = {record.key(): record.partition() for record in records(servers, topic, 3)}
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % 5 for key in (b"e0", b"e1", b"e2")}


def murmur2(data: bytes) -> int:
    """The hash of Kafka's default partitioner, from its description."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    for start in range(0, len(data) // 4 * 4, 4):
        k = int.from_bytes(data[start : start + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ (k >> 24)) * m & mask)
    rest = data[len(data) // 4 * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


@pytest.mark.parametrize("props", [{}, {"acks": "0", "enable.idempotence": "false"}])
def test_a_record_that_is_too_large_for_its_topic_is_refused_whatever_acks_are_asked_for(
    servers, topic_of, courier_of, props
):
    topic, courier = topic_of(**{"max.message.bytes": "1000"}), courier_of()
    outcome, error = delivered(courier, tenant_of(servers, topic, **props), payload=b"x" * 5000, form=Form.TEXT)
    assert outcome is Outcome.REFUSED
    assert f"is too large for topic {topic}" in error
    assert delivered(courier, tenant_of(servers, topic, **props), payload=b"small", form=Form.TEXT)[0] is Outcome.TAKEN


def test_a_record_that_is_too_large_for_the_tenant_s_own_limit_is_refused(servers, topic_of, courier_of):
    tenant = tenant_of(servers, topic_of(), **{"max.request.size": 1000})
    outcome, error = delivered(courier_of(), tenant, payload=b"x" * 5000, form=Form.TEXT)
    assert (outcome, "is too large" in error) == (Outcome.REFUSED, True)


def test_a_wrong_login_is_tried_again_and_the_reason_is_told(servers, topic_of, courier_of):
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u",
             "sasl.password": "hidden-word"}  # fmt: skip
    outcome, error = delivered(courier_of(timeout_s=2), tenant_of(servers, topic_of(), **login))
    assert outcome is Outcome.FAILED
    assert "last error: " in error
    assert "hidden-word" not in error


# --- producers --------------------------------------------------------------------------------------------------------


def producer_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "lockstep-kafka-producer"}


def wait_ended(threads: set[threading.Thread]) -> None:
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_tenants_with_the_same_settings_share_a_producer_until_the_last_is_forgotten(servers, topic_of, courier_of):
    before, courier = producer_threads(), courier_of()
    tenants = [tenant_of(servers, topic_of(), f"t{number}") for number in range(3)]
    for tenant in tenants:
        assert delivered(courier, tenant)[0] is Outcome.TAKEN
    [thread] = own = producer_threads() - before
    courier.forget("t0")
    courier.forget("t1")
    assert delivered(courier, tenants[2])[0] is Outcome.TAKEN
    assert (thread.is_alive(), producer_threads() - before) == (True, own)
    courier.forget("t2")
    wait_ended(own)
    assert delivered(courier, tenants[2])[0] is Outcome.TAKEN


def test_other_settings_make_another_producer_and_the_number_is_bounded(servers, topic_of, courier_of):
    before, courier = producer_threads(), courier_of(kafka_producers=1)
    first, second = (tenant_of(servers, topic_of(), f"t{ms}", **{"linger.ms": ms}) for ms in (1, 2))
    assert delivered(courier, first)[0] is Outcome.TAKEN
    own = producer_threads() - before
    assert delivered(courier, second)[0] is Outcome.TAKEN
    wait_ended(own)
    assert delivered(courier, first)[0] is Outcome.TAKEN


def test_a_producer_that_is_not_used_is_closed(servers, topic_of, courier_of):
    before, courier, tenant = producer_threads(), courier_of(kafka_idle_s=0.2), tenant_of(servers, topic_of())
    assert delivered(courier, tenant)[0] is Outcome.TAKEN
    wait_ended(producer_threads() - before)
    assert delivered(courier, tenant)[0] is Outcome.TAKEN
