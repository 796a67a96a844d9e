"""confluent-kafka alone, on a topic that the broker syncs to disk at every append, as the embedded bus does."""

from __future__ import annotations

from lockstep.bench import plain_kafka
from lockstep.bench.plain_kafka import reader, remove, sender

__all__ = ["SETTINGS", "make", "reader", "remove", "sender"]

SETTINGS = f"{plain_kafka.SETTINGS}; topic with flush.messages=1"


def make(url: str, stream: str) -> None:
    """Make the topic."""
    plain_kafka.make(url, stream, {"flush.messages": "1"})
