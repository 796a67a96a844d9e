"""Records that everybody can read, topics that others write, and their own tools."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from lockstep import Lockstep
from lockstep.errors import AppendTooLarge, BadArgument
from lockstep.log.batch import NO_PRODUCER, BatchView, pack
from lockstep.log.config import StreamConfig, crc32_partition, murmur2_partition
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import views
from servers.kafka_worlds import (
    KEEP_ALL,
    SOON_S,
    fresh,
    make_topic,
    one,
    opened,
    plain_messages,
    plain_producer,
    servers_of,
)


@pytest.fixture
def prefix():
    return fresh()


@pytest.fixture
def bus(kafka_server, prefix):
    with opened(kafka_server.url, prefix=prefix) as bus:
        yield bus


@pytest.fixture
def theirs(kafka_server, prefix):
    """A topic that others made."""
    make_topic(kafka_server.url, f"{prefix}theirs")
    return f"{prefix}theirs"


def take(subscriber, count):
    found = []
    for _ in range(int(SOON_S / 0.25)):
        found += subscriber.poll(0.25)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} came")


def test_what_others_send_is_read_by_a_subscriber(kafka_server, bus, theirs):
    node = Lockstep(bus, ThreadRuntime())
    with node.subscriber("theirs", initial="earliest") as subscriber, plain_producer(kafka_server.url) as producer:
        for number in range(20):
            producer.produce(theirs, b"v%d" % number, key=b"k%d" % number, headers=[("n", b"%d" % number)])
        producer.flush(SOON_S)
        found = take(subscriber, 20)
    assert [(record.offset, record.value, record.key) for record in found] == [
        (number, b"v%d" % number, b"k%d" % number) for number in range(20)
    ]
    assert found[3].headers == (("n", b"3"),)
    assert found[0].created_ns > 0


def test_what_a_publisher_sends_there_is_read_by_others(kafka_server, bus, theirs):
    node = Lockstep(bus, ThreadRuntime())
    with node.publisher("theirs") as publisher:
        receipts = [publisher.publish(b"v%d" % at, key=b"k", headers=[("h", b"x")]) for at in range(50)]
        publisher.publish_many([b"m1", b"m2"])
    assert [receipt.result(0) for receipt in receipts] == list(range(50))
    found = plain_messages(kafka_server.url, theirs)
    assert [message.value() for message in found] == [*(b"v%d" % at for at in range(50)), b"m1", b"m2"]
    assert {message.key() for message in found[:50]} == {b"k"}
    assert dict(found[0].headers())["h"] == b"x"
    assert set(dict(found[0].headers())) == {"h", "lockstep"}


def test_what_we_sent_comes_back_whole(bus, theirs):
    log = bus.open("theirs")
    log.append([one(b"a", 7, keys=[b"k"], headers=[(("x", b"1"), ("x", b"2"))]), one(b"", 8)])
    first, second = views(log)
    assert (first.producer, first.sequence, first.created_ns, first.values()) == (b"p" * 16, 7, 1, (b"a",))
    assert (first.keys(), first.headers()) == ((b"k",), ((("x", b"1"), ("x", b"2")),))
    assert first.append_ns <= second.append_ns
    assert (second.base, second.values(), second.keys()) == (1, (b"",), (None,))


def test_a_message_without_a_value_reads_as_an_empty_one(kafka_server, bus, theirs):
    with plain_producer(kafka_server.url) as producer:
        producer.produce(theirs, None, key=b"gone")
    [view] = views(bus.open("theirs"))
    assert (view.values(), view.keys(), view.producer) == ((b"",), (b"gone",), NO_PRODUCER)


def test_one_partition_of_a_wide_topic_is_read_by_its_number(kafka_server, bus, prefix):
    make_topic(kafka_server.url, f"{prefix}wide", partitions=3)
    with plain_producer(kafka_server.url) as producer:
        for partition in (0, 2, 2):
            producer.produce(f"{prefix}wide", b"p%d" % partition, partition=partition)
    assert [[view.values()[0] for view in views(bus.open(f"wide/{at}"))] for at in range(3)] == [
        [b"p0"],
        [],
        [b"p2", b"p2"],
    ]


def test_what_a_transaction_took_back_is_not_read(kafka_server, bus, theirs):
    with plain_producer(kafka_server.url, transactional_id=theirs) as producer:
        producer.init_transactions(SOON_S)
        for value, keep in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            producer.produce(theirs, value)
            producer.flush(SOON_S)
            producer.commit_transaction(SOON_S) if keep else producer.abort_transaction(SOON_S)
        log = bus.open("theirs")
        assert [(view.base, view.values()[0]) for view in views(log, 0)] == [(0, b"a"), (4, b"c")]
        assert log.read(5) == []  # the mark of the last commit
        # And what is not yet decided is not there
        producer.begin_transaction()
        producer.produce(theirs, b"d")
        producer.flush(SOON_S)
        assert log.read(5) == []
        producer.commit_transaction(SOON_S)
        assert [BatchView(entry.base, entry.data, "").values()[0] for entry in log.read(5)] == [b"d"]


def test_streams_can_be_written_as_plain_records(kafka_server, prefix):
    with opened(kafka_server.url, prefix=prefix, layout="records") as bus:
        node = Lockstep(bus, ThreadRuntime())
        with node.publisher("orders", config=KEEP_ALL) as publisher:
            publisher.publish_many([b"%d" % number for number in range(300)])
    found = plain_messages(kafka_server.url, f"{prefix}orders")
    assert [message.value() for message in found] == [b"%d" % number for number in range(300)]
    # And a bus without the option knows how they are written
    with opened(kafka_server.url, prefix=prefix) as bus:
        node = Lockstep(bus, ThreadRuntime())
        with node.publisher("orders") as publisher:
            publisher.publish(b"more").result(SOON_S)
        with node.subscriber("orders", group="workers") as subscriber:
            found = take(subscriber, 301)
        assert [record.offset for record in found] == list(range(301))
        assert found[-1].value == b"more"


def test_several_records_in_one_batch_are_refused_where_each_is_a_message(bus, theirs):
    log = bus.open("theirs")
    assert log.limits.batch_records == 1
    with pytest.raises(BadArgument, match="2 records"):
        log.append([pack([b"a", b"b"], producer=NO_PRODUCER, sequence=0, created_ns=1)])
    assert log.bounds().count == 0


def test_a_record_too_large_for_a_topic_of_others_keeps_those_around_it_out_too(kafka_server, bus, prefix):
    make_topic(kafka_server.url, f"{prefix}small", max_message_bytes="4000")
    log = bus.open("small")
    with pytest.raises(AppendTooLarge, match=rf"max\.message\.bytes of the topic {prefix}small"):
        log.append([one(b"a"), one(b"x" * 5000, 1), one(b"b", 2)])
    assert log.bounds().count == 0


def test_many_small_records_go_into_a_topic_with_a_low_limit(kafka_server, bus, prefix):
    make_topic(kafka_server.url, f"{prefix}small", max_message_bytes="4000")
    log = bus.open("small")
    assert log.append([one(b"x" * 100, number) for number in range(500)]) == list(range(500))


def test_shards_are_the_partitions_of_one_topic(kafka_server, bus, prefix):
    node = Lockstep(bus, ThreadRuntime())
    config = StreamConfig(capacity=None, shards=3)
    node.create("orders", config)
    keys = [b"customer-%d" % number for number in range(30)]
    with node.publisher("orders") as publisher:
        for key in keys:
            publisher.publish(key, key=key)
    with node.subscriber("orders", initial="earliest", create=False) as subscriber:
        assert sorted(record.value for record in take(subscriber, 30)) == sorted(keys)
    for partition in range(3):
        log = bus.open(f"orders/{partition}")
        stored = [value for view in views(log) for value in view.values()]
        assert stored == [key for key in keys if crc32_partition(key, 3) == partition]
        assert len(plain_messages(kafka_server.url, f"{prefix}orders", partition)) == len(views(log))
    node.delete("orders")
    assert bus.names() == []
    node.create("orders", config)
    assert [bus.open(f"orders/{shard}").bounds().count for shard in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("name", ["murmur2_random", "consistent_random"])
def test_keys_go_where_other_clients_put_them(kafka_server, prefix, name):
    ours = {"murmur2_random": murmur2_partition, "consistent_random": crc32_partition}[name]
    make_topic(kafka_server.url, f"{prefix}keyed", partitions=7)
    keys = [b"k" * size + b"%d" % size for size in range(60)]
    landed = {}
    with plain_producer(kafka_server.url, partitioner=name) as producer:
        for key in keys:
            producer.produce(
                f"{prefix}keyed",
                b"",
                key=key,
                on_delivery=lambda _, sent: landed.update({sent.key(): sent.partition()}),
            )
    assert landed == {key: ours(key, 7) for key in keys}


def test_positions_of_a_group_are_shown_to_kafkas_own_tools(kafka_server, bus, prefix, theirs):
    log = bus.create("orders", KEEP_ALL)
    for _ in range(4):
        log.append([pack([b"a", b"b"], producer=NO_PRODUCER, sequence=0, created_ns=1)])
    read_part = 2_000_001  # the second record of message 2 comes next
    bus.driver.commit_group("workers", {"orders": read_part, "theirs": 0})
    assert committed(kafka_server.url, f"{prefix}workers", f"{prefix}orders") == 2
    assert committed(kafka_server.url, f"{prefix}workers", f"{prefix}theirs") == 0
    bus.driver.commit_group("workers", {"orders": log.bounds().next})
    assert committed(kafka_server.url, f"{prefix}workers", f"{prefix}orders") == 4, "no lag is left"


def committed(url, group, topic):
    settings = {"group.id": group, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": servers_of(url), **settings})
    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=SOON_S)
    consumer.close()
    return found.offset
