"""confluent-kafka alone: a topic with one partition, a message for each record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lockstep.bench.compare_means import address_of

_LINGER_MS, _BATCH_BYTES, _BATCH_MESSAGES = 5, 1_000_000, 10_000  # librdkafka's own
_READ_MESSAGES = 2_000
_WAIT_S = 30.0
SETTINGS = (
    f"acks=all, enable.idempotence, linger.ms={_LINGER_MS}, batch.size={_BATCH_BYTES}, "
    f"batch.num.messages={_BATCH_MESSAGES}, produce_batch and flush; poll and consume({_READ_MESSAGES})"
)


def _client(url: str) -> dict[str, Any]:
    address = address_of(url)
    found: dict[str, Any] = {"bootstrap.servers": address.servers, "log_level": 0}
    if address.user:
        secret = address.password.reveal() if address.password else ""
        found |= {"sasl.username": address.user, "sasl.password": secret, "sasl.mechanism": "PLAIN"}
        found["security.protocol"] = "SASL_SSL" if address.tls else "SASL_PLAINTEXT"
    return found


def make(url: str, stream: str, config: dict[str, str] | None = None) -> None:
    """Make the topic, with the broker's defaults but for what `config` says."""
    admin = AdminClient(_client(url))  # has to live until the answer is there
    for made in admin.create_topics([NewTopic(stream, num_partitions=1, config=config or {})]).values():
        made.result(_WAIT_S)


def remove(url: str, stream: str) -> None:
    """Delete the topic; raises if the broker does not confirm it in time."""
    admin = AdminClient(_client(url))
    for removed in admin.delete_topics([stream]).values():
        removed.result(_WAIT_S)


class _Sender:
    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer, self._topic = producer, topic
        self._failed: KafkaError | None = None

    def start(self, values: list[bytes]) -> None:
        self._producer.produce_batch(
            self._topic, [{"value": value} for value in values], partition=0, on_delivery=self._told
        )

    def wait(self) -> None:
        if self._producer.flush(_WAIT_S):
            message = f"not everything was acknowledged within {_WAIT_S:g} s"
            raise TimeoutError(message)
        if self._failed is not None:
            raise RuntimeError(self._failed.str())

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        """Only failures are reported; a completed flush confirms all other messages."""
        self._failed = self._failed or error


class _Reader:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def read(self, timeout: float) -> list[bytes]:
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        return [_value(message) for message in (first, *self._consumer.consume(_READ_MESSAGES, 0))]


def _value(message: Message) -> bytes:
    error = message.error()
    if error is not None:
        raise RuntimeError(error.str())
    value = message.value()
    assert isinstance(value, bytes)
    return value


@contextmanager
def sender(url: str, stream: str) -> Iterator[_Sender]:
    """Yield a connected producer, and flush it afterwards."""
    producer = Producer({
        **_client(url), "acks": "all", "enable.idempotence": True, "linger.ms": _LINGER_MS,
        "batch.size": _BATCH_BYTES, "batch.num.messages": _BATCH_MESSAGES, "delivery.report.only.error": True,
    })  # fmt: skip
    producer.list_topics(stream, _WAIT_S)  # connected before the clock runs
    yield _Sender(producer, stream)
    producer.flush(_WAIT_S)


@contextmanager
def reader(url: str, stream: str) -> Iterator[_Reader]:
    """Yield a consumer assigned to the start of the partition, and close it afterwards."""
    consumer = Consumer({**_client(url), "group.id": stream, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(stream, 0, OFFSET_BEGINNING)])
        consumer.get_watermark_offsets(TopicPartition(stream, 0), timeout=_WAIT_S)
        yield _Reader(consumer)
    finally:
        consumer.close()
