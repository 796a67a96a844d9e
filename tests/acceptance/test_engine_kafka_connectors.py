"""Kafka connectors of a model and kill -9 of the active engine: the topic outside has each block once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
import sparkless_engine

from lockstep.connectors.kafka import HEADER
from lockstep.engine.events.frames import decode_frame
from lockstep.engine.events.schema import Schema

kafka = pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(900)]
SCHEMA = Schema.parse("ID*:int64,price:double")
MESSAGES, WAIT_S = 3_000, 300.0
CONNECTOR = """<connectors><connector class="kafka" name="{name}"><properties>
<property name="type">{direction}</property><property name="kafkahostport">{servers}</property>
<property name="kafkatopic">{topic}</property><property name="kafkatype">{form}</property>
<property name="urlhostport">esp:5555</property>{more}</properties></connector></connectors>"""
FAILOVER = '<property name="hotfailover">true</property><property name="numbufferedmsgs">10000</property>'
MODEL = """<project name="copied"><contqueries><contquery name="q"><windows>
<window-source name="Trades" insert-only="true">
<schema-string>ID*:int64,price:double</schema-string>{into}</window-source>
<window-copy name="Copy">{out}</window-copy>
</windows><edges><edge source="Trades" target="Copy"/></edges></contquery></contqueries></project>"""


def model(servers: str, into: str, out: str) -> str:
    reads = CONNECTOR.format(name="in", direction="pub", servers=servers, topic=into, form="csv", more="")
    writes = CONNECTOR.format(name="out", direction="sub", servers=servers, topic=out, form="binary", more=FAILOVER)
    return MODEL.format(into=reads, out=writes)


class Engines:
    """Engines of the model in a folder, all on one embedded bus."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        words = ["engine", "run", "model.xml", "--bus", "lmdb:bus", "--name", name, "--state", f"state-{name}"]
        with (self._folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, sparkless_engine.__file__, *words], cwd=self._folder, stdout=log, stderr=log,
                env=self._environ, start_new_session=True,
            )  # fmt: skip

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            ended = [name for name, process in self.running.items() if process.poll() is not None]
            assert not ended, (what, self.said(ended[0]))
            assert time.monotonic() < end, (what, *map(self.said, self.running))
            time.sleep(0.05)  # polling other processes, not timing one

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.wait(60)

    def close(self) -> None:
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


@pytest.fixture
def engines(tmp_path):
    made = Engines(tmp_path)
    yield made
    made.close()


def produce(servers: str, topic: str, numbers: range) -> None:
    producer = kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in numbers:
        producer.produce(topic, f"i,n,{number},{number / 4}\n", partition=0)
    assert producer.flush(60) == 0


def committed(servers: str, topic: str) -> list:
    """All that a plain reader gets."""
    wish = {"group.id": "plain", "isolation.level": "read_committed", "enable.partition.eof": True,
            "enable.auto.commit": False, "bootstrap.servers": servers, "log_level": 0}  # fmt: skip
    consumer, found = kafka.Consumer(wish), []
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    try:
        while (message := consumer.poll(60)) is not None:
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == kafka.KafkaError._PARTITION_EOF, message.error()
                return found
    finally:
        consumer.close()
    raise AssertionError("no answer")


def test_the_active_engine_is_killed_and_the_topic_has_each_block_once(engines, tmp_path, kafka_server):
    from confluent_kafka.admin import AdminClient, NewTopic

    # Given topics of our own, and two engines on an embedded bus that knows nothing of Kafka
    servers = kafka_server.url.removeprefix("kafka://").partition("?")[0]
    into, out = f"in{uuid4().hex}", f"out{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(into, 1, 1), NewTopic(out, 1, 1)]).values():
        made.result(60)
    (tmp_path / "model.xml").write_text(model(servers, into, out))
    engines.start("a")
    engines.until(lambda: "switched to active" in engines.said("a"), "the first is active")
    engines.start("b")
    engines.until(lambda: "standby" in engines.said("b"), "the second stands by")
    # When the active one is killed in mid-stream
    produce(servers, into, range(1, MESSAGES // 3 + 1))
    engines.until(lambda: bool(committed(servers, out)), "the first blocks are out")
    produce(servers, into, range(MESSAGES // 3 + 1, 2 * MESSAGES // 3 + 1))
    engines.kill("a")
    produce(servers, into, range(2 * MESSAGES // 3 + 1, MESSAGES + 1))
    # Then the other one goes on, and a plain reader finds every block once and in order
    engines.until(lambda: len(committed(servers, out)) >= MESSAGES, "everything arrives")
    messages = committed(servers, out)
    numbers = [int(dict(message.headers())[HEADER]) for message in messages]
    assert numbers == sorted(set(numbers))
    events = [event for message in messages for event in decode_frame(message.value(), SCHEMA).batch.events()]
    assert [event.values[0] for event in events] == list(range(1, MESSAGES + 1))
