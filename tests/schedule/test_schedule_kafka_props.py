"""Properties of Kafka producers that tenants may set, and those that they may not."""

from __future__ import annotations

import pytest
from delivery_parts import Results, delivered, event

pytest.importorskip("confluent_kafka")

from lockstep.errors import BadArgument
from lockstep.schedule.delivery.kafka import ALLOWED, IGNORED, KafkaCourier
from lockstep.schedule.delivery.port import CourierOptions, Delivery, Outcome
from lockstep.schedule.tenants import Tenant, TenantType

NOBODY = "127.0.0.1:1"


def kafka_tenant(servers: str = NOBODY, name: str = "M", **props) -> Tenant:
    named = {"topic": "t", "bootstrap.servers": servers, **props}
    return Tenant(tenant=name, type=TenantType.MESSAGING, props=named)


@pytest.fixture
def courier():
    made = KafkaCourier(CourierOptions(timeout_s=1.0))
    yield made
    made.close()


@pytest.mark.parametrize(
    "name",
    [
        "plugin.library.paths", "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.config", "sasl.jaas.config",
        "sasl.login.callback.handler.class", "sasl.kerberos.kinit.cmd", "sasl.kerberos.keytab", "ssl.ca.location",
        "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location", "ssl.crl.location",
        "ssl.engine.location",
        "ssl.providers", "enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm",
        "transactional.id", "interceptor.classes", "partitioner.class", "debug", "log_cb", "error_cb", "stats_cb",
        "on_delivery", "enable.gapless.guarantee", "builtin.features", "no.such.property", "",
    ],
)  # fmt: skip
def test_a_property_that_is_not_on_the_list_is_refused(courier, name):
    tenant = kafka_tenant(**{name: "x"})
    with pytest.raises(BadArgument, match="is not allowed"):
        courier.check(tenant)
    assert delivered(courier, tenant)[0] is Outcome.REFUSED


@pytest.mark.parametrize(
    ("props", "reason"),
    [
        ({"sasl.mechanism": "OAUTHBEARER"}, "PLAIN, SCRAM"),
        ({"sasl.mechanisms": "GSSAPI"}, "PLAIN, SCRAM"),
        ({"linger.ms": "soon"}, "Invalid value"),
        ({"compression.type": "rar"}, "Invalid value"),
        ({"linger.ms": ["5"]}, "text, a number or a boolean"),
        ({"linger.ms": None}, "text, a number or a boolean"),
        ({"topic": "a b"}, "letters, digits"),
        ({"topic": ".."}, "letters, digits"),
        ({"topic": "x" * 250}, "letters, digits"),
        ({"bootstrap.servers": "169.254.169.254:9092"}, "link-local"),
        ({"bootstrap.servers": "kafka:9092,[::ffff:169.254.169.254]:9092"}, "link-local"),
        ({"bootstrap.servers": "ka fka:9092"}, "HOST:PORT"),
        ({"bootstrap.servers": "kafka:9092,"}, "HOST:PORT"),
    ],
)
def test_a_value_that_can_not_work_is_refused(courier, props, reason):
    with pytest.raises(BadArgument, match=reason):
        courier.check(kafka_tenant(**props))


def test_the_list_of_hosts_holds_for_brokers():
    courier = KafkaCourier(CourierOptions(allowed_hosts=("*.kafka.example",)))
    courier.check(kafka_tenant("a.kafka.example:9092,b.kafka.example:9092"))
    with pytest.raises(BadArgument, match="allowed hosts"):
        courier.check(kafka_tenant("a.kafka.example:9092,b.other.example:9092"))


def test_properties_of_clients_for_java_and_plain_values_are_accepted(courier):
    courier.check(
        kafka_tenant(
            **{
                "acks": "1", "retries": 3, "buffer.memory": 32400, "max.block.ms": 100, "enable.idempotence": False,
                "key.serializer": "org.apache.kafka.common.serialization.StringSerializer", "linger.ms": 7,
                "value.serializer": "org.apache.kafka.common.serialization.StringSerializer", "batch.size": 16384,
                "compression.type": "lz4", "socket.keepalive.enable": True, "max.request.size": 2_000_000,
                "delivery.timeout.ms": 120_000, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
                "sasl.username": "u", "sasl.password": "p",
            }
        )
    )  # fmt: skip


def test_the_lists_have_nothing_in_common():
    assert not ALLOWED & IGNORED


def test_errors_about_props_show_no_secret(courier):
    key = "-----BEGIN PRIVATE KEY-----\nhidden\n-----END PRIVATE KEY-----"
    with pytest.raises(BadArgument) as caught:
        courier.check(kafka_tenant(**{"security.protocol": "SSL", "ssl.key.pem": key, "sasl.password": "hidden-too"}))
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "servers", ["PLAINTEXT://user:hidden@h:9092", "user:hidden@h:9092", "h:1,x:hidden@169.254.1.1:1"]
)
def test_errors_about_servers_show_no_password(courier, servers):
    with pytest.raises(BadArgument) as caught:
        courier.check(kafka_tenant(**{"bootstrap.servers": servers}))
    assert "hidden" not in str(caught.value)


@pytest.mark.slow
def test_a_cluster_that_can_not_be_reached_is_tried_again(courier):
    outcome, error = delivered(courier, kafka_tenant())
    assert outcome is Outcome.FAILED
    assert error.startswith(f"Not stored in topic t at {NOBODY}: Local: Message timed out; last error: ")


def test_close_ends_all_that_is_under_way_once_each():
    courier, results = KafkaCourier(CourierOptions(timeout_s=60)), Results()
    for number in range(30):
        tenant = kafka_tenant(f"127.0.0.1:{1 + number % 3}", f"t{number % 3}")
        courier.deliver(Delivery(event(number, tenant=tenant.tenant), tenant), results)
    courier.close()
    assert {result.outcome for result in results.now} == {Outcome.FAILED}
    assert results.times() == {f"e{number}": 1 for number in range(30)}
    courier.close()
    courier.deliver(Delivery(event(99), kafka_tenant()), results)
    assert len(results.now) == 31


def test_more_clusters_than_may_be_are_tried_again_later():
    courier, results = KafkaCourier(CourierOptions(timeout_s=60, kafka_producers=2)), Results()
    for number in range(4):
        tenant = kafka_tenant(f"127.0.0.1:{1 + number}", f"t{number}")
        courier.deliver(Delivery(event(number, tenant=tenant.tenant), tenant), results)
    assert [result.error for result in results.wait(2)] == ["Not sent: 2 producers of Kafka are busy."] * 2
    courier.close()
    assert len(results.now) == 4


@pytest.mark.parametrize(
    "error", [ValueError("no"), TypeError("no"), RuntimeError("no")], ids=lambda error: type(error)
)
def test_a_producer_that_can_not_be_made_is_an_answer_and_does_not_hang(courier, monkeypatch, error):
    def raising(settings):
        raise error

    monkeypatch.setattr("lockstep.schedule.delivery.kafka.Producer", raising)
    outcome, reason = delivered(courier, kafka_tenant())
    assert (outcome, reason) == (Outcome.FAILED, f"The delivery failed: {type(error).__name__}.")
    courier.close()
