"""What a connector to Kafka does without a server: ending a producer that another engine has shut out."""

from __future__ import annotations

import pytest

kafka = pytest.importorskip("confluent_kafka")

from lockstep.connectors.kafka import KafkaTarget  # noqa: E402


class ShutOut:
    """A producer after a fatal error: librdkafka raises it at every call."""

    def __init__(self) -> None:
        self.purged = 0

    def purge(self) -> None:
        self.purged += 1

    def flush(self, _timeout: float) -> int:
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._FENCED, "fenced", fatal=True))


def test_a_producer_that_was_shut_out_is_closed_without_an_error():
    target, producer = KafkaTarget(None, None, "w"), ShutOut()
    target._producer = producer
    target.close()
    target.close()
    assert producer.purged == 1
