"""Streams with shards: names, positions, and what is refused because it would be ambiguous."""

from __future__ import annotations

import pytest
from worlds import CALM, everything, publish, take, values

from lockstep import TEXT, StreamConfig, shard_of
from lockstep.errors import BadArgument, BadConfig, BadName, BufferFull, ConfigMismatch, StreamNotFound

FOUR = StreamConfig(shards=4)


def test_a_shard_is_called_after_its_stream(bus):
    # Given a stream with four shards and a record with a key
    bus.create("orders", FOUR)
    with bus.publisher("orders") as publisher:
        publisher.publish(b"x", key=b"anna").result()
    # When it is read
    with bus.subscriber("orders", initial="earliest") as reader:
        [record] = take(reader, 1)
    # Then it names its shard, which can be looked at by that name, and only the stream is listed
    assert record.stream == f"orders/{shard_of(b'anna', 4)}"
    assert bus.get(record.stream, 0).value == b"x"
    assert bus.bounds(record.stream).next == 1
    assert bus.streams() == ["orders"]


@pytest.mark.parametrize("call", ["bounds", "get", "offset_at", "reset"])
def test_an_offset_of_a_stream_with_shards_means_nothing_until_a_shard_is_named(bus, call):
    # Given a stream with shards that a group reads
    bus.create("orders", FOUR)
    bus.subscriber("orders", group="billing", group_options=CALM).close()
    calls = {
        "bounds": lambda: bus.bounds("orders"),
        "get": lambda: bus.get("orders", 0),
        "offset_at": lambda: bus.offset_at("orders", 0),
        "reset": lambda: bus.groups.reset("billing", "orders", "earliest"),
    }
    # When an offset is asked for without a shard, then the error names one
    with pytest.raises(BadArgument, match="it has 4 shards; name one of them, for example orders/0"):
        calls[call]()


def test_a_group_is_reset_shard_by_shard(bus):
    # Given a group that has confirmed what was in a shard
    bus.create("orders", FOUR)
    with bus.publisher("orders/2") as publisher:
        publisher.publish(b"x").result()
    with bus.subscriber("orders", group="billing", group_options=CALM) as member:
        take(member, 1)
        member.confirm(stream="orders/2", sync=True)
    # When that shard is reset
    assert bus.groups.reset("billing", "orders/2", "earliest") == 0
    # Then the group reads it again
    with bus.subscriber("orders", group="billing", group_options=CALM) as member:
        assert take(member, 1)[0].value == b"x"


def test_a_delete_that_was_cut_short_can_be_done_again(bus):
    # Given a stream of which a killed process deleted one shard
    bus.create("orders", FOUR)
    bus.bus.delete("orders/1")
    # When it is deleted again
    bus.delete("orders")
    # Then nothing of it is left
    assert bus.bus.names() == []


@pytest.mark.parametrize("name", ["orders/", "orders/x", "orders/1/2", "/1", "../1"])
def test_names_that_only_look_like_shards(bus, name):
    with pytest.raises(BadName):
        bus.bounds(name)


def test_no_stream_can_be_created_under_the_name_of_a_shard(bus):
    with pytest.raises(BadName):
        bus.create("orders/1")


def test_a_shard_that_does_not_exist(bus):
    bus.create("orders", FOUR)
    with pytest.raises(StreamNotFound, match="orders/9"):
        bus.bounds("orders/9")


def test_a_member_can_wait_until_it_is_assigned(world):
    # Given a stream with a member, and one that comes second
    first, second = world.node(), world.node()
    publish(first, "orders", b"x")
    with first.subscriber("orders", group="billing", group_options=CALM) as owner:
        assert owner.wait_assigned(20.0)
        # When the second waits while the first stays, then it waits in vain; when the first leaves, it is assigned
        with second.subscriber("orders", group="billing", group_options=CALM) as waiting:
            assert not waiting.wait_assigned(0.05)
            owner.close()
            assert waiting.wait_assigned(20.0)
            assert take(waiting, 1)[0].value == b"x"


def test_what_closed_publishers_and_subscribers_did_stays_counted_in_one_place(bus):
    # Given many that were opened and closed
    for _ in range(30):
        publish(bus, "orders", b"x")
        bus.subscriber("orders").close()
    # When one more comes
    publish(bus, "orders", b"x")
    # Then the figures are all there, and the books did not grow
    assert b'lockstep_published_records_total{stream="orders"} 31.0' in bus.metrics.render()
    assert len(bus.metrics._meters) <= 3
    assert len(bus._opened) <= 3


def test_two_subscribers_with_the_same_labels_give_one_sample(bus):
    # Given two readers of one stream, one further behind
    publish(bus, "orders", b"1", b"2", b"3")
    ahead, behind = bus.subscriber("orders"), bus.subscriber("orders", initial="earliest")
    # When the metrics are read, then there is one lag: the larger
    lines = [line for line in bus.metrics.render().decode().splitlines() if line.startswith("lockstep_lag_records{")]
    assert lines == ['lockstep_lag_records{group="",stream="orders"} 3.0']
    # And a stream deleted meanwhile is no reason to fail
    bus.delete("orders")
    assert b"lockstep_lag_records{" not in bus.metrics.render()
    ahead.close()
    behind.close()


def test_a_key_that_is_serialized_in_the_background_chooses_its_shard_all_the_same(bus):
    # Given a publisher that serializes in the background
    bus.create("orders", FOUR)
    with bus.publisher("orders", key=TEXT, pipeline=True) as publisher:
        publisher.publish(b"x", key="anna").result(20)
    # When the record is read, then it is in the shard of its key
    with bus.subscriber("orders", initial="earliest") as reader:
        [record] = take(reader, 1)
    assert record.stream == f"orders/{shard_of(b'anna', 4)}"


@pytest.mark.parametrize("partitioner", ["crc32", "murmur2"])
def test_a_key_can_choose_its_shard_as_clients_of_kafka_do(virtual, partitioner):
    # Given keys and the partitions that librdkafka and the Java client choose for them among eight
    chosen = {"crc32": {b"a": 3, b"order-17": 4}, "murmur2": {b"a": 4, b"order-17": 1}}[partitioner]
    bus = virtual.node()
    with bus.publisher("orders", config=StreamConfig(shards=8), partitioner=partitioner) as publisher:
        for key in chosen:
            publisher.publish(key, key=key)
    for key, shard in chosen.items():
        assert values(everything(bus, f"orders/{shard}")) == [key]


def test_an_unknown_partitioner_is_refused(virtual):
    with pytest.raises(BadConfig, match="crc32 or murmur2"):
        virtual.node().publisher("orders", partitioner="random")


KEYS = [b"anna", b"bert", b"carl", None, b"anna", b"dora"]


@pytest.mark.parametrize("partitioner", ["crc32", "murmur2"])
def test_a_key_has_one_shard_whoever_writes_and_however(virtual, partitioner):
    # Given a stream whose settings name a partitioner
    bus = virtual.node()
    bus.create("orders", StreamConfig(shards=8, partitioner=partitioner))
    keys = [key for key in KEYS if key is not None]
    # When records of the same keys are published one by one, together, and in a transaction
    with bus.publisher("orders") as publisher:
        for key in keys:
            publisher.publish(b"single", key=key)
        publisher.publish_many([b"many"] * len(keys), keys=keys).wait()
    with bus.transaction() as together:
        for key in keys:
            together.publish("orders", b"together", key=key)
    # Then each key is in its shard and nowhere else
    for record in everything(bus, "orders"):
        assert record.stream == f"orders/{shard_of(record.key, 8, partitioner)}"


def test_many_records_go_to_the_shards_of_their_keys_and_offsets_come_in_their_order(virtual):
    bus = virtual.node()
    values = [b"%d" % number for number in range(len(KEYS))]
    with bus.publisher("orders", config=StreamConfig(shards=4)) as publisher:
        many = publisher.publish_many(values, keys=KEYS)
        found = many.result()
    assert len(found) == len(many) == len(KEYS)
    assert many.wait() == found[-1]
    for value, key, offset in zip(values, KEYS, found, strict=True):
        if key is not None:
            record = bus.get(f"orders/{shard_of(key, 4)}", offset)
            assert (record.value, record.key) == (value, key)
    assert sorted(record.value for record in everything(bus, "orders")) == values


def test_many_records_for_a_shard_that_takes_none_fail_their_receipt(virtual):
    bus = virtual.node()
    publisher = bus.publisher("orders", config=FOUR, buffer_records=2, when_full="raise", linger_s=9.0)
    for _ in range(2):
        publisher.publish(b"x", key=b"bert")
    many = publisher.publish_many([b"1", b"2"], keys=[b"anna", b"bert"])
    with pytest.raises(BufferFull):
        many.result()
    publisher.close()
    assert {record.value for record in everything(bus, "orders")} == {b"x", b"1"}


def test_a_publisher_with_another_partitioner_is_refused(virtual):
    bus = virtual.node()
    bus.create("orders", StreamConfig(shards=8))
    with pytest.raises(ConfigMismatch, match="partitioner = 'crc32', not 'murmur2'"):
        bus.publisher("orders", partitioner="murmur2")
    bus.publisher("orders", partitioner="crc32").close()
    # One that makes the stream decides for all
    bus.publisher("bills", partitioner="murmur2").close()
    assert bus.config("bills").partitioner == "murmur2"
    bus.publisher("bills").close()
