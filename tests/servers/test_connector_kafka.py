"""Kafka connectors with a real Kafka: each block once, over takeovers, kills and an old leader that wakes."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[1] / "connectors"))
from connector_worlds import SCHEMA, World, connector, csv, event, model, running, until

from lockstep.connectors.errors import ConnectorDown, SourceForgot
from lockstep.connectors.kafka import HEADER
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.frames import encode_frame, read_head
from lockstep.events.clients import client_id

kafka = pytest.importorskip("confluent_kafka")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def servers(kafka_server) -> str:
    return kafka_server.url.removeprefix("kafka://").partition("?")[0]


@pytest.fixture
def topic() -> str:
    return f"t{uuid4().hex}"


@pytest.fixture
def world_of(tmp_path):
    made = []

    def world(**what) -> World:
        made.append(World(f"lmdb:{tmp_path / 'bus'}", model(**what)))
        return made[-1]

    yield world
    for one in made:
        one.close()


def from_topic(servers, topic, **properties):
    wish = {"kafkatype": "csv", "kafkapartition": 0, **properties}
    return [connector("kafka", "in", type="pub", kafkahostport=servers, kafkatopic=topic, **wish)]


def to_topic(servers, topic, **properties):
    wish = {"kafkatype": "binary", "hotfailover": "true", "numbufferedmsgs": 100, "snapshot": "false", **properties}
    wish |= {"urlhostport": "esp:5555"}
    return [connector("kafka", "out", type="sub", kafkahostport=servers, kafkatopic=topic, **wish)]


def make_topic(servers: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def produce(servers: str, topic: str, *values: bytes | str) -> None:
    producer = kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def consume(servers: str, topic: str) -> list:
    """All committed messages, as a plain client reads them."""
    wish = {"group.id": "plain", "isolation.level": "read_committed", "enable.partition.eof": True,
            "enable.auto.commit": False, "bootstrap.servers": servers, "log_level": 0}  # fmt: skip
    consumer = kafka.Consumer(wish)
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "no answer"
            if message.error() is None:
                found.append(message)
            elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(message.error())
    finally:
        consumer.close()


# --- in -----------------------------------------------------------------------------------------------------------


def test_messages_become_blocks_and_who_takes_over_goes_on_at_the_next_offset(servers, topic, world_of):
    make_topic(servers, topic)
    produce(servers, topic, csv(1), csv(2, 3))
    world = world_of(into=from_topic(servers, topic))
    first = world.engine()
    first.until(lambda: world.taken() == [1, 2, 3])
    first.die()
    produce(servers, topic, csv(4), "nonsense\n", b"", csv(5))
    second = world.engine()
    second.until(lambda: world.taken() == [1, 2, 3, 4, 5])
    assert second.work.last == 6
    second.die()


def test_an_old_leader_that_wakes_adds_nothing(servers, topic, world_of):
    make_topic(servers, topic)
    produce(servers, topic, *(csv(number) for number in range(1, 21)))
    world = world_of(into=from_topic(servers, topic))
    old, new = world.engine(), world.engine()
    new.until(lambda: len(world.taken()) >= 20)
    old.until(lambda: old.work.last == 20)
    old.die()
    new.die()
    assert world.taken() == list(range(1, 21))


def test_offsets_of_transactions_are_no_hindrance(servers, topic, world_of):
    # Given a topic with marks of transactions between the messages
    make_topic(servers, topic)
    producer = kafka.Producer({"bootstrap.servers": servers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for number in (1, 2, 3):
        producer.begin_transaction()
        producer.produce(topic, csv(number))
        producer.commit_transaction(30)
    world = world_of(into=from_topic(servers, topic))
    # When one engine reads them and another goes on
    first = world.engine()
    first.until(lambda: world.taken() == [1, 2, 3])
    first.die()
    producer.begin_transaction()
    producer.produce(topic, csv(4))
    producer.commit_transaction(30)
    second = world.engine()
    second.until(lambda: world.taken() == [1, 2, 3, 4])
    second.die()


def test_it_may_begin_with_the_newest_and_that_is_decided_once(servers, topic, world_of):
    make_topic(servers, topic)
    produce(servers, topic, csv(1), csv(2))
    world = world_of(into=from_topic(servers, topic, kafkainitialoffset="largest"))
    world.engine().die()
    produce(servers, topic, csv(3))
    engine = world.engine()
    engine.until(lambda: world.taken() == [3])
    engine.die()


def test_blocks_with_numbers_of_their_own_keep_them(servers, topic, world_of):
    # Given a publisher that numbers its blocks and sent one of them twice
    make_topic(servers, topic)
    frames = [
        encode_frame(EventBatch.of(SCHEMA, [(n, [event(n)])]), client=client_id("feed"), first_id=n) for n in (1, 2, 3)
    ]
    produce(servers, topic, frames[0], frames[1], frames[1])
    world = world_of(into=from_topic(servers, topic, kafkatype="binary", useclientmsgid="true"))
    first = world.engine()
    first.until(lambda: world.taken() == [1, 2])
    first.die()
    produce(servers, topic, frames[2])
    second = world.engine()
    second.until(lambda: world.taken() == [1, 2, 3])
    second.die()


def test_messages_that_are_gone_are_an_error_that_says_so(servers, topic, world_of):
    from confluent_kafka.admin import AdminClient

    make_topic(servers, topic)
    produce(servers, topic, csv(1), csv(2))
    world = world_of(into=from_topic(servers, topic))
    first = world.engine()
    first.until(lambda: world.taken() == [1, 2])
    first.die()
    produce(servers, topic, csv(3), csv(4))
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.delete_records([kafka.TopicPartition(topic, 0, 3)]).values():
        future.result(30)
    with pytest.raises(SourceForgot, match="from 2 on, and it begins at 3"):
        world.engine()


# --- out ----------------------------------------------------------------------------------------------------------


def numbers(messages) -> list[int]:
    return [int(dict(message.headers())[HEADER]) for message in messages]


def test_killed_between_sending_and_noting_nothing_is_lost_or_doubled(servers, topic, world_of, monkeypatch):
    # Given a connector that has sent blocks 1 and 2
    world = world_of(out=to_topic(servers, topic))
    world.prepare()
    first = world.engine()
    world.come_out(1, 2)
    first.until(lambda: first.work.sent == 2)
    # When it sends 3 and 4 and is killed before it notes that
    world.come_out(3, 4)
    monkeypatch.setattr(first.work._notes, "write", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        first.until(lambda: False)
    monkeypatch.undo()
    first.die()
    # Then the next one reads the last message of the topic, and goes on behind it
    second = world.engine()
    assert second.work.sent == 4
    world.come_out(5)
    second.until(lambda: second.work.sent == 5)
    second.die()
    messages = consume(servers, topic)
    assert numbers(messages) == [1, 2, 3, 4, 5]
    assert [read_head(message.value()).last for message in messages] == [1, 2, 3, 4, 5]


def test_killed_in_mid_transaction_nothing_of_it_counts(servers, topic, world_of):
    world = world_of(out=to_topic(servers, topic))
    world.prepare()
    first = world.engine()
    world.come_out(1)
    first.until(lambda: first.work.sent == 1)
    target = first.work._target
    target._producer.begin_transaction()
    target._producer.produce(topic, b"half", partition=0)
    target._producer.flush(30)
    second = world.engine()
    world.come_out(2)
    second.until(lambda: second.work.sent == 2)
    first.die()
    second.die()
    assert numbers(consume(servers, topic)) == [1, 2]


def test_an_old_leader_that_wakes_is_shut_out(servers, topic, world_of):
    world = world_of(out=to_topic(servers, topic))
    world.prepare()
    old = world.engine()
    world.come_out(1)
    old.until(lambda: old.work.sent == 1)
    new = world.engine()
    world.come_out(2)
    new.until(lambda: new.work.sent == 2)
    with pytest.raises(ConnectorDown):
        old.until(lambda: False)
    old.die()
    new.die()
    assert numbers(consume(servers, topic)) == [1, 2]


def test_text_messages_carry_the_number_in_a_header(servers, topic, world_of):
    world = world_of(out=to_topic(servers, topic, kafkatype="csv", hotfailover="false"))
    world.prepare()
    for number in (1, 2):
        engine = world.engine()
        world.come_out(number)
        engine.until(lambda engine=engine, number=number: engine.work.sent == number)
        engine.die()
    messages = consume(servers, topic)
    assert numbers(messages) == [1, 2]
    assert [message.value().decode() for message in messages] == [csv(1), csv(2)]


def test_without_a_topic_the_cluster_names_it(servers, world_of):
    cluster = f"esp{uuid4().hex[:8]}:5555"
    out = [connector("kafka", "out", type="sub", kafkahostport=servers, kafkatype="csv", urlhostport=cluster)]
    world = world_of(out=out)
    world.prepare()
    engine = world.engine()
    world.come_out(1)
    engine.until(lambda: engine.work.sent == 1)
    engine.die()
    assert numbers(consume(servers, f"{cluster.replace(':', '_')}.desk.q.Copy.O")) == [1]


def test_a_topic_that_was_deleted_goes_on_with_what_is_new(servers, topic, world_of):
    # Given a topic that was deleted while nobody led
    from confluent_kafka.admin import AdminClient

    world = world_of(out=to_topic(servers, topic))
    world.prepare()
    first = world.engine()
    world.come_out(1, 2)
    first.until(lambda: first.work.sent == 2)
    first.die()
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=30).topics)
    # Then what was noted counts, as an empty topic can't tell
    second = world.engine()
    world.come_out(3)
    second.until(lambda: second.work.sent == 3)
    second.die()
    assert numbers(consume(servers, topic)) == [3]


@pytest.mark.soak
def test_a_server_that_is_away_is_waited_for(topic, world_of, caplog, breakable_kafka):
    server = breakable_kafka.server
    servers = server.url.removeprefix("kafka://").partition("?")[0]
    world = world_of(out=to_topic(servers, topic))
    with running(world) as connectors:
        world.come_out(1)
        until(lambda: connectors.have_sent({"q/Copy/out": 1}))
        server.kill()
        world.come_out(2)
        until(lambda: "is tried again" in caplog.text)
        server.restart()
        until_long(lambda: connectors.have_sent({"q/Copy/out": 2}))
    assert numbers(consume(servers, topic)) == [1, 2]


def until_long(condition) -> None:
    for _ in range(5):
        try:
            return until(condition)
        except AssertionError:
            continue
    raise AssertionError("it did not come about")
