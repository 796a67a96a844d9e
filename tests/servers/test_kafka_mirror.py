"""`lockstep group mirror`: where a group is, as Kafka's own tools see it."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

from confluent_kafka import Consumer, TopicPartition

import lockstep


def test_a_groups_position_is_shown_to_kafkas_own_tools(kafka_server):
    # Given a group that confirmed two of three messages
    prefix = f"t{uuid.uuid4().hex[:12]}."
    url = f"{kafka_server.url}?prefix={prefix}"
    with lockstep.connect(url) as bus:
        with bus.publisher("orders") as publisher:
            for value in (b"a", b"b", b"c"):
                publisher.publish_direct(value)
        with bus.subscriber("orders", group="workers", initial="earliest") as subscriber:
            records = []
            while len(records) < 2:
                records += subscriber.poll(5, max_records=2 - len(records))
            subscriber.confirm(records[-1].offset, sync=True)
    # When it is mirrored
    command = [sys.executable, "-m", "lockstep.cli.main", "group", "mirror", "workers", "--bus", url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout)["positions"] == {"orders": records[-1].offset + 1}
    # Then a consumer group of Kafka stands before the third
    consumer = Consumer(
        {"bootstrap.servers": kafka_server.url.removeprefix("kafka://"), "group.id": f"{prefix}workers"}
    )
    try:
        [found] = consumer.committed([TopicPartition(f"{prefix}orders", 0)], timeout=20)
    finally:
        consumer.close()
    assert found.offset == 2
