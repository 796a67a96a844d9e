"""Part A: streams, records, offsets."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from worlds import everything, has_gaps, in_parallel, offsets, publish, take, values

from lockstep import JSON, RecordBatch, StreamConfig
from lockstep.errors import BadRecord, FormatTooNew, IllegalState, RecordNotFound, RecordTooLarge
from lockstep.log import batch as batch_format
from lockstep.log.embedded import transaction
from lockstep.log.history import HeapHistory


@pytest.mark.real_servers
def test_a1_order_of_one_publisher_is_the_order_of_every_subscriber(bus):
    # Given two subscribers
    readers = [bus.subscriber("orders", initial="earliest") for _ in range(2)]
    # When one publisher publishes P before Q, many times over
    sent = [b"%d" % number for number in range(2500)]
    found = publish(bus, "orders", *sent)
    # Then P has the lower offset, and both read P first
    assert all(a < b for a, b in itertools.pairwise(found))
    for reader in readers:
        records = take(reader, len(sent))
        assert values(records) == sent
        assert offsets(records) == found


@pytest.mark.real_servers
def test_a2_concurrent_publishers_interleave_alike_for_all_subscribers(threads):
    # Given three publishers on connections of their own
    names = [b"a", b"b", b"c"]
    # When they publish at the same time
    in_parallel(
        *[
            lambda name=name: publish(threads.node(), "orders", *(name + b"%d" % n for n in range(300)))
            for name in names
        ]
    )
    # Then every reader sees the same interleaving, and in it each publisher's own order
    seen = [[(r.offset, r.value) for r in everything(threads.node(), "orders")] for _ in range(3)]
    assert seen[0] == seen[1] == seen[2]
    for name in names:
        own = [value for _, value in seen[0] if value.startswith(name)]
        assert own == [name + b"%d" % n for n in range(300)]


def test_a3_first_record_of_an_empty_stream_has_offset_0(bus):
    assert publish(bus, "orders", b"x", b"y") == [0, 1]
    assert bus.bounds("orders").next == 2


@pytest.mark.real_servers
def test_a3_offsets_grow_even_after_everything_was_trimmed(bus):
    publish(bus, "orders", b"x", b"y")
    end = bus.bounds("orders").next
    bus.trim("orders", end)
    [offset] = publish(bus, "orders", b"z")
    assert offset >= end
    assert offset == 2 or has_gaps(bus, "orders")


def test_a3_offsets_have_64_bits(virtual):
    # Given a stream that goes on where a very long history ended
    history = virtual.grid.histories.setdefault("heap:/orders", HeapHistory())
    last = batch_format.pack([b"long ago"], producer=bytes(16), sequence=0, created_ns=0)
    history.store((1 << 40) - 1, 1, last.seal(0))
    bus = virtual.node()
    # When records are published
    found = publish(bus, "orders", b"x", b"y", config=StreamConfig(history="heap:"))
    # Then their offsets are beyond 32 bits, and are read, found and confirmed like any other
    assert found == [1 << 40, (1 << 40) + 1]
    member = bus.subscriber("orders", group="g", initial="earliest")
    assert offsets(take(member, 3)) == [found[0] - 1, *found]
    member.confirm(sync=True)
    assert member.confirmed_offset() == found[-1]
    assert bus.get("orders", found[0]).value == b"x"


def test_a4_lookup_by_offset_looks_at_as_much_of_a_long_stream_as_of_a_short_one(dense_bus, monkeypatch):
    # Given a short and a long stream
    bus = dense_bus
    looked_at = []
    entry = transaction.Entry
    for stream, count in (("short", 20), ("long", 4000)):
        config = StreamConfig(capacity=None)
        publish(bus, stream, *(b"%d" % n for n in range(count)), config=config, batch_records=5)
    monkeypatch.setattr(transaction, "Entry", lambda *args: looked_at.append(args) or entry(*args))
    # When a record in the middle is looked up
    assert bus.get("short", 11).value == b"11"
    short = len(looked_at)
    assert bus.get("long", 2011).value == b"2011"
    # Then no more stored batches were looked at
    assert len(looked_at) - short <= short <= 3


def test_a4_lookup_of_a_missing_offset_says_so(bus):
    publish(bus, "orders", b"x")
    with pytest.raises(RecordNotFound, match="offset 1"):
        bus.get("orders", 1)


def test_a5_reading_changes_nothing(world, bus):
    def content():
        return hashlib.sha256(repr(everything(bus, "orders")).encode()).hexdigest()

    # Given a stream
    publish(bus, "orders", *(b"%d" % n for n in range(100)))
    before, bounds = content(), bus.bounds("orders")
    # When several read it, alone and in a group
    for group in (None, None, "g"):
        with world.node().subscriber("orders", initial="earliest", group=group) as reader:
            take(reader, 100)
    # Then it is what it was
    assert (content(), bus.bounds("orders")) == (before, bounds)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0", id="1 byte"),
        pytest.param(bytes(range(256)), id="all bytes"),
        pytest.param(b"\xff" * (1 << 20), id="1 MiB", marks=pytest.mark.real_servers),
    ],
)
def test_a6_payload_is_opaque(bus, payload):
    publish(bus, "orders", b"before", payload, b"after")
    assert values(everything(bus, "orders")) == [b"before", payload, b"after"]


def test_a7_a_stream_outlives_its_publishers_and_subscribers(disk):
    # Given a stream whose publisher and subscriber are gone, and nothing has the bus open
    first = disk.node()
    publish(first, "orders", b"x", b"y")
    everything(first, "orders")
    first.close()
    # When it is opened again
    # Then everything is there, and offsets go on
    again = disk.node()
    assert values(everything(again, "orders")) == [b"x", b"y"]
    assert publish(again, "orders", b"z") == [2]


@pytest.mark.parametrize(("publishers", "subscribers"), [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_a8_any_number_of_publishers_and_subscribers(world, publishers, subscribers):
    # Given n publishers and m subscribers, all open at once
    writers = [world.node().publisher("orders") for _ in range(publishers)]
    readers = [world.node().subscriber("orders", initial="earliest") for _ in range(subscribers)]
    # When the publishers take turns
    sent = [b"%d" % n for n in range(30)]
    for number, value in enumerate(sent):
        writers[number % publishers].publish(value).result(20)
    # Then every subscriber gets everything
    for reader in readers:
        assert values(take(reader, len(sent))) == sent


@pytest.mark.parametrize("payload", [None, "text", 7])
def test_a9_a_payload_that_is_not_bytes_is_refused(bus, payload):
    with bus.publisher("orders") as publisher:
        with pytest.raises(BadRecord, match="not bytes"):
            publisher.publish(payload)
        with pytest.raises(BadRecord, match="bytes"):
            publisher.publish_many([b"fine", payload])
        with pytest.raises(BadRecord, match="not bytes"):
            publisher.publish_direct(payload)
    assert everything(bus, "orders") == []


def test_a9_a_key_that_is_text_is_refused_with_the_option_that_allows_it(bus):
    with bus.publisher("orders", value=JSON) as publisher, pytest.raises(BadRecord, match=r"key=lockstep\.TEXT"):
        publisher.publish({"id": 1}, key="anna")


@pytest.mark.needs("atomic")
@pytest.mark.parametrize("payload", [None, "text", 7])
def test_a9_a_transaction_refuses_a_payload_that_is_not_bytes(bus, payload):
    bus.create("orders")
    with pytest.raises(BadRecord, match="bytes"), bus.transaction() as together:
        together.publish("orders", payload)
    assert everything(bus, "orders") == []


@pytest.mark.real_servers
def test_a10_record_carries_times_key_and_headers(world, bus):
    # Given a record with everything
    before = world.runtime.wall_ns()
    headers = [("trace", b"1"), ("retry", b""), ("trace", b"2")]
    with bus.publisher("orders") as publisher:
        publisher.publish(b"x", key=b"k", headers=headers, created_ns=123)
        publisher.publish(b"y")
    # When it is read
    full, plain = everything(bus, "orders")
    # Then it is as it was: headers in order, names may repeat, the last one counts
    assert (full.key, full.headers, full.created_ns) == (b"k", tuple(headers), 123)
    assert (full.header("trace"), full.header("retry"), full.header("none")) == (b"2", b"", None)
    assert (plain.key, plain.headers) == (None, ())
    assert before <= plain.created_ns <= plain.appended_ns <= world.runtime.wall_ns()


def test_a11_an_oversize_record_is_refused_before_it_is_queued(bus):
    # Given a stream with small records
    config = StreamConfig(max_record_bytes=10)
    with bus.publisher("orders", config=config) as publisher:
        # When too large ones are published, in any way
        for attempt in (
            lambda: publisher.publish(b"x" * 11),
            lambda: publisher.publish(b"x" * 6, key=b"k" * 5),
            lambda: publisher.publish(b"", headers=[("name", b"value")]),
            lambda: publisher.publish_many([b"fine", b"x" * 11]),
            lambda: publisher.publish_many([b"x" * 6], keys=[b"k" * 5]),
            lambda: publisher.publish_direct(b"x" * 11),
        ):
            with pytest.raises(RecordTooLarge, match="10 bytes"):
                attempt()
        # Then nothing of it is stored, and what fits is
        publisher.publish(b"x" * 10)
    assert values(everything(bus, "orders")) == [b"x" * 10]


@pytest.mark.needs("atomic", "conditional")
def test_a11_an_oversize_record_is_refused_on_a_condition_and_in_a_transaction(bus):
    with bus.publisher("orders", config=StreamConfig(max_record_bytes=10)) as publisher:
        with pytest.raises(RecordTooLarge, match="10 bytes"):
            publisher.publish_direct(b"x" * 11, expected_last=-1)
        with pytest.raises(RecordTooLarge), bus.transaction() as together:
            together.publish("orders", b"x" * 11)
    assert everything(bus, "orders") == []


def test_a11_a_record_serialized_in_the_background_is_measured_there(bus):
    config = StreamConfig(max_record_bytes=10)
    with bus.publisher("orders", config=config, pipeline=True) as publisher:
        for attempt in (
            lambda: publisher.publish(b"x" * 11),
            lambda: publisher.publish(b"x" * 6, key=b"k" * 5),
            lambda: publisher.publish(b"", headers=[("name", b"value")]),
        ):
            assert isinstance(attempt().exception(20), RecordTooLarge)
    assert everything(bus, "orders") == []


def test_a12_lookup_of_the_first_offset_at_or_after_a_time(virtual):
    # Given records appended a second apart
    bus = virtual.node()
    for number in range(20):
        publish(bus, "orders", b"%d" % number)
        virtual.runtime.advance(1.0)
    times = [record.appended_ns for record in everything(bus, "orders")]
    # When an offset is looked up by time
    # Then it is that of the first record then or later
    for number, time_ns in enumerate(times):
        assert bus.offset_at("orders", time_ns - 1) == number
        assert bus.offset_at("orders", time_ns) == number
        assert bus.offset_at("orders", time_ns + 1) == number + 1
    assert bus.offset_at("orders", 0) == 0
    # And so it is when the beginning is gone
    bus.trim("orders", 7)
    assert bus.offset_at("orders", 0) == 7


def test_a12_lookup_by_time_with_batches_of_many_records(bus):
    with bus.publisher("orders") as publisher:
        for _ in range(4):
            publisher.publish_many([b"x"] * 25).wait(20)
    first = {record.appended_ns: record.offset for record in reversed(everything(bus, "orders"))}
    for time_ns, offset in first.items():
        assert bus.offset_at("orders", time_ns) == offset


def test_a13_a_newer_format_stops_the_reader_and_is_not_skipped(bus, monkeypatch):
    # Given a batch of a newer version between two of this one
    publish(bus, "orders", b"old")
    with monkeypatch.context() as newer:
        newer.setattr(batch_format, "VERSION", batch_format.VERSION + 1)
        publish(bus, "orders", b"new")
    publish(bus, "orders", b"old again")
    # When it is read
    reader = bus.subscriber("orders", initial="earliest", max_bytes=1)
    assert values(take(reader, 1)) == [b"old"]
    # Then the reader gets a named error, as often as it tries, and stays where it is
    for _ in range(2):
        with pytest.raises(FormatTooNew, match="Nothing was skipped"):
            reader.poll()
    assert reader.offset() == 1


def test_a13_a_member_that_meets_a_newer_format_leaves_the_stream_to_others(world, bus, monkeypatch):
    # Given a newer batch, and a member of a group that can't read it
    with monkeypatch.context() as newer:
        newer.setattr(batch_format, "VERSION", batch_format.VERSION + 1)
        publish(bus, "orders", b"new")
    old = world.node().subscriber("orders", group="g")
    world.until(lambda: old.is_assigned, "the first member's assignment")
    # When it meets the batch
    with pytest.raises(FormatTooNew):
        old.poll()
    # Then it hands the stream over: another member gets it (here it meets the same batch)
    assert not old.is_assigned
    other = world.node().subscriber("orders", group="g")
    world.until(lambda: other.is_assigned, "the hand-over")
    assert other.epoch() is None or other.epoch() > 1


def test_a14_an_older_format_is_upgraded_step_by_step(bus, monkeypatch):
    # Given a stream written by this version, read by one two versions later
    publish(bus, "orders", b"x", b"y")
    steps = []

    def lift(data):
        steps.append(data[2])
        return data[:2] + bytes([data[2] + 1]) + data[3:]

    version = batch_format.VERSION
    monkeypatch.setattr(batch_format, "VERSION", version + 2)
    monkeypatch.setitem(batch_format.UPGRADES, version, lift)
    monkeypatch.setitem(batch_format.UPGRADES, version + 1, lambda data: _sealed_again(lift(data)))
    # When it is read, and the upgrades from version to version are known
    # Then it reads as if written today
    assert values(everything(bus, "orders")) == [b"x", b"y"]
    assert steps == [version, version + 1]


def _sealed_again(data):
    body = data[batch_format.HEADER.size :]
    header = data[:4] + data[8 : batch_format.HEADER.size]
    crc = batch_format.crc32c_extend(batch_format.crc32c(body), header)
    return data[:4] + crc.to_bytes(4, "little") + data[8:]


def test_an_empty_batch_has_neither_first_nor_last():
    batch = RecordBatch("orders", [])
    assert (len(batch), list(batch), batch.values(), batch.to_list()) == (0, [], [], [])
    assert not batch
    with pytest.raises(IndexError, match="empty"):
        batch.first()
    with pytest.raises(IndexError, match="empty"):
        batch.last()
    assert repr(batch) == "RecordBatch('orders', empty)"


def test_a_batch_knows_its_first_and_last_record(bus):
    publish(bus, "orders", b"x", b"y", b"z")
    batch = bus.subscriber("orders", initial="earliest").poll()
    assert (batch.first().value, batch.last().value, len(batch)) == (b"x", b"z", 3)
    assert (batch.first_offset, batch.last_offset, batch.stream) == (0, 2, "orders")
    assert batch.to_list() == list(batch)
    assert repr(batch) == "RecordBatch('orders', 3 records, offsets 0..2)"


@pytest.mark.needs("atomic")
def test_a_transaction_that_is_over_takes_no_more(bus):
    bus.create("orders")
    with bus.transaction() as together:
        together.publish("orders", b"x")
    with pytest.raises(IllegalState, match="it is over"):
        together.commit()
