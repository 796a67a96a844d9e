"""Part B, continued: no copies, conditions, transactions, shards, compression and serializers."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest
from worlds import everything, in_parallel, offsets, publish, take, values

from lockstep import BYTES, JSON, TEXT, Serializer, StreamConfig, dataclass_json, shard_of
from lockstep.errors import (
    BadConfig,
    Closed,
    DecodeFailed,
    OffsetConflict,
    StoreFull,
    StreamNotFound,
)


def refused(stream="orders"):
    return StoreFull(stream=stream, reason="the test says so")


@pytest.mark.real_servers
@pytest.mark.parametrize("fault", ["lose_ack", "late", "duplicate"])
def test_b11_a_retry_after_an_ambiguous_error_does_not_duplicate(world, fault):
    # Given an append that landed, will land late, or landed twice, without its publisher being sure
    bus, shaky = world.shaky()
    publisher = bus.publisher("orders", retry_s=0.001)
    getattr(shaky.plan, fault)(log="orders")
    # When the publisher sends it again
    receipts = [publisher.publish(b"x"), publisher.publish(b"y")]
    found = [receipt.result(20) for receipt in receipts]
    shaky.release_late()
    found.append(publisher.publish(b"z").result(20))
    # Then it is there once, at the offset that was told
    assert shaky.plan.counts[fault] == 1
    stored = everything(bus, "orders")
    assert values(stored) == [b"x", b"y", b"z"]
    if bus.promises.dedupe:  # else readers pass over a copy, and either of the two may be the one that was told
        assert offsets(stored) == found
    assert [bus.get("orders", offset).value for offset in found] == [b"x", b"y", b"z"]


@pytest.mark.needs("conditional")
def test_b12_an_append_can_depend_on_the_last_offset(bus):
    # Given a stream that two writers believe to be empty
    publisher, rival = bus.publisher("account"), bus.publisher("account")
    assert publisher.publish_direct(b"opened", expected_last=-1) == 0
    # When the second one writes
    with pytest.raises(OffsetConflict, match="account ends at offset"):
        rival.publish_direct(b"opened", expected_last=-1)
    # Then nothing was written, and it can decide again
    assert rival.publish_direct(b"paid", expected_last=0) == 1
    assert values(everything(bus, "account")) == [b"opened", b"paid"]


@pytest.mark.real_servers
@pytest.mark.needs("conditional")
def test_b12_of_many_writers_one_wins(threads):
    wins, losses = [], []

    def write():
        publisher = threads.node().publisher("account")
        for last in range(-1, 9):
            try:
                wins.append(publisher.publish_direct(b"x", expected_last=last))
            except OffsetConflict:
                losses.append(last)

    threads.node().create("account")
    in_parallel(*[write] * 3)
    assert sorted(wins) == list(range(len(wins)))
    assert len(wins) + len(losses) == 30
    assert threads.node().bounds("account").next == len(wins) == 10


@pytest.mark.real_servers
def test_b13_many_records_are_stored_in_one_step(world):
    # Given records that need several batches
    bus, shaky = world.shaky()
    with bus.publisher("orders", batch_bytes=100) as publisher:
        # When the first attempt is refused
        shaky.plan.fail(refused(), log="orders")
        with pytest.raises(StoreFull):
            publisher.publish_many([b"x" * 10] * 95).result(20)
        # Then there are none of them; and when it is accepted, all
        assert everything(bus, "orders") == []
        receipt = publisher.publish_many([b"%010d" % n for n in range(95)], keys=[b"k"] * 95)
        assert receipt.wait(20) == 94
        assert receipt.result(20) == list(range(95))
        assert len(receipt) == 95
    assert len(bus.bus.open("orders").read(0)) > 1


def test_b13_publishing_nothing_is_nothing(bus):
    receipt = bus.publisher("orders").publish_many([])
    assert (receipt.result(0), len(receipt), receipt.done()) == ([], 0, True)


@pytest.mark.real_servers
@pytest.mark.needs("atomic")
def test_b13_a_transaction_writes_to_several_streams_or_to_none(bus):
    bus.create("debits")
    bus.create("credits")
    # Given a transaction that fails in its middle
    with pytest.raises(ZeroDivisionError), bus.transaction() as together:
        _publish_and_fail(together)
    assert everything(bus, "debits") == []
    # When it comes to its end
    with bus.transaction() as together:
        together.publish("debits", b"7", key=b"k", headers=[("h", b"1")])
        together.publish("credits", b"7")
        together.put("balance", b"7")
        assert together.get("balance") == b"7"
    # Then all of it is there
    assert together.offsets == [0, 0]
    [debit] = everything(bus, "debits")
    assert (debit.value, debit.key, debit.headers) == (b"7", b"k", (("h", b"1"),))
    assert values(everything(bus, "credits")) == [b"7"]
    with bus.transaction() as later:
        assert later.get("balance") == b"7"
        later.put("balance", None)
    with bus.transaction() as later:
        assert later.get("balance") is None


def _publish_and_fail(together):
    together.publish("debits", b"7")
    raise ZeroDivisionError


@pytest.mark.needs("atomic")
def test_b13_a_transaction_that_the_bus_refuses_leaves_nothing(world):
    bus, shaky = world.shaky()
    bus.create("debits")
    together = bus.transaction()
    together.publish("debits", b"7")
    together.put("balance", b"7")
    with pytest.raises(StreamNotFound):
        together.publish("missing", b"7")
    shaky.plan.fail(refused(), on="atomic")
    with pytest.raises(StoreFull):
        together.commit()
    assert everything(bus, "debits") == []
    assert bus.transaction().get("balance") is None


@pytest.mark.real_servers
def test_b14_keys_choose_the_shard(bus):
    # Given a stream with shards
    config = StreamConfig(shards=4)
    keys = [b"customer-%d" % n for n in range(40)]
    with bus.publisher("orders", config=config) as publisher:
        for turn in range(3):
            for key in keys:
                publisher.publish(b"%d" % turn, key=key)
    # When everything is read
    with bus.subscriber("orders", initial="earliest") as reader:
        records = take(reader, 120)
    # Then all records of a key are in one shard, in order, and the shards share the keys
    shards = {key: {record.stream for record in records if record.key == key} for key in keys}
    assert {len(found) for found in shards.values()} == {1}
    assert len({next(iter(found)) for found in shards.values()}) == 4
    for key in keys:
        assert [record.value for record in records if record.key == key] == [b"0", b"1", b"2"]


def test_b14_the_shard_of_a_key_never_changes():
    """Literal answers: another process or another version of Python must give the same."""
    assert [shard_of(key, 8) for key in (b"", b"a", b"customer-7", b"\xff" * 9)] == [0, 3, 0, 0]
    assert [shard_of(b"customer-7", count) for count in (1, 2, 3, 5, 1024)] == [0, 0, 2, 0, 328]


def test_b14_records_without_key_are_spread_over_the_shards(bus):
    with bus.publisher("orders", config=StreamConfig(shards=3)) as publisher:
        for _ in range(9):
            publisher.publish(b"x")
    assert [log.bounds().next for log in bus.logs("orders")] == [3, 3, 3]


@pytest.mark.needs("atomic")
def test_b14_a_transaction_publishes_to_the_shard_of_the_key(bus):
    # Given a stream with shards
    bus.create("orders", StreamConfig(shards=4))
    with bus.transaction() as together:
        for number in range(20):
            together.publish("orders", b"%d" % number, key=b"customer-%d" % number)
    # When it is read
    with bus.subscriber("orders", initial="earliest") as reader:
        records = take(reader, 20)
    # Then every record is where its publisher would have put it
    for record in records:
        assert record.stream.endswith(f"/{shard_of(record.key, 4)}")


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "gzip", "snappy"])
def test_b16_batches_are_compressed_and_readers_need_not_know(bus, codec):
    # Given a stream with compression
    sent = [b"the same again and again %03d" % n for n in range(300)]
    publish(bus, "orders", *sent, config=StreamConfig(compression=codec))
    # When it is read without a word about that
    assert values(everything(bus, "orders")) == sent
    # Then it took less room, and the metrics say how much
    raw, stored = (_metric(bus, f"lockstep_batch_{kind}_bytes_total") for kind in ("raw", "stored"))
    assert stored <= raw if codec == "none" else stored < raw / 3


def _metric(bus, name):
    return sum(float(line.split()[-1]) for line in bus.metrics.render().decode().splitlines() if line.startswith(name))


@dataclass
class Order:
    item: str
    count: int


@pytest.mark.parametrize(
    ("value", "key", "sent", "its_key"),
    [
        (BYTES, BYTES, b"\xff", b"k"),
        (TEXT, JSON, "größe", ["k", 1]),
        (JSON, TEXT, {"a": [1, None]}, "k"),
        (dataclass_json(Order), BYTES, Order("nail", 3), b"k"),
        (Serializer(lambda n: n.to_bytes(8), int.from_bytes), BYTES, 7, None),
    ],
    ids=["bytes", "text", "json", "dataclass", "own"],
)
@pytest.mark.parametrize("pipeline", [False, True])
def test_b17_serializers_of_value_and_key_are_independent(bus, value, key, sent, its_key, pipeline):
    with bus.publisher("orders", value=value, key=key, pipeline=pipeline) as publisher:
        publisher.publish(sent, key=its_key).result(20)
        publisher.publish_many([sent], keys=[its_key]).result(20)
    with bus.subscriber("orders", initial="earliest", value=value, key=key) as reader:
        assert [(record.value, record.key) for record in take(reader, 2)] == [(sent, its_key)] * 2


def test_b17_what_cant_be_decoded_is_named(bus):
    publish(bus, "orders", b"{}", b"not json")
    with bus.subscriber("orders", initial="earliest", value=JSON) as reader:
        batch = reader.poll()
        with pytest.raises(DecodeFailed, match="value of record 1 of orders"):
            list(batch)
        with pytest.raises(DecodeFailed, match="value of record 1 of orders"):
            batch.values()


def test_b18_serialization_can_run_in_the_background_in_order(threads):
    # Given a publisher that serializes in the background
    where = set()

    def encode(number):
        where.add(threading.get_ident())
        return b"%d" % number

    bus = threads.node()
    with bus.publisher("orders", value=Serializer(encode, int), pipeline=True) as publisher:
        # When objects are published
        for number in range(2500):
            publisher.publish(number)
    # Then they are stored in order, and this thread serialized none of them
    assert values(everything(bus, "orders")) == [b"%d" % number for number in range(2500)]
    assert threading.get_ident() not in where


def test_b18_what_cant_be_serialized_fails_and_the_publisher_goes_on(bus):
    with bus.publisher("orders", value=JSON, pipeline=True) as publisher:
        assert isinstance(publisher.publish(object()).exception(20), TypeError)
        assert publisher.publish({}).result(20) == 0


def test_b19_publish_after_close_is_refused(bus):
    publisher = bus.publisher("orders")
    publisher.close()
    for attempt in (lambda: publisher.publish(b"x"), lambda: publisher.publish_many([b"x"])):
        with pytest.raises(Closed, match="orders"):
            attempt()


@pytest.mark.parametrize(
    "options", [{"batch_records": 0}, {"linger_s": -1}, {"when_full": "wait"}, {"no_such": 1}, {"buffer_bytes": 0}]
)
def test_unknown_or_senseless_options_are_refused(bus, options):
    with pytest.raises(BadConfig):
        bus.publisher("orders", **options)
