"""Part B: publishing."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading

import pytest
from worlds import everything, offsets, publish, values

from lockstep import Serializer
from lockstep.errors import (
    BadArgument,
    BufferFull,
    Dropped,
    StoreFull,
    TimedOut,
)


def refused(stream="orders"):
    return StoreFull(stream=stream, reason="the test says so")


def test_b1_publish_returns_a_future_at_once(virtual):
    # Given a bus where nothing happens until time passes
    publisher = virtual.node().publisher("orders")
    # When a record is published
    receipt = publisher.publish(b"x")
    # Then the future is there before the record is stored, and resolves to the offset
    assert not receipt.done()
    assert receipt.offset is None
    assert receipt.result() == 0
    assert receipt.done()


def test_b1_a_future_can_be_waited_for_in_vain(virtual):
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", delivery_timeout_s=100.0)
    shaky.plan.drop(times=100, log="orders")
    with pytest.raises(TimedOut, match="Publishing to orders"):
        publisher.publish(b"x").result(1.0)
    with pytest.raises(BadArgument, match="timeout"):
        publisher.publish(b"x").result(-1.0)


def test_b1_a_future_can_be_awaited(threads):
    async def main():
        async with threads.node().publisher("orders") as publisher:
            return [await publisher.publish(b"x"), *await publisher.publish_many([b"y", b"z"])]

    found = asyncio.run(main())
    assert found == offsets(everything(threads.node(), "orders"))
    assert found[0] == 0
    assert found[2] == found[1] + 1, "what is published together lies together"


def test_b2_a_callback_is_called_once_for_each_record(world, bus):
    # Given callbacks on every record
    told = []
    with bus.publisher("orders") as publisher:
        for number in range(50):
            publisher.publish(b"x", callback=lambda offset, error, number=number: told.append((number, offset, error)))
    # Then each was called once, in order, with the record's offset, and nobody polled for it
    assert told == [(number, number, None) for number in range(50)]


def test_b2_a_callback_added_late_is_called_at_once(bus):
    told = []
    receipt = bus.publisher("orders").publish(b"x")
    receipt.result(20)
    receipt.add_done_callback(lambda offset, error: told.append((offset, error)))
    assert told == [(0, None)]


def test_b3_a_failed_record_has_no_offset_and_the_cause(world):
    # Given a bus that refuses the next append
    bus, shaky = world.shaky()
    told, cause = [], refused()
    publisher = bus.publisher("orders")
    shaky.plan.fail(cause, log="orders")
    # When a record is published
    receipt = publisher.publish(b"x", callback=lambda offset, error: told.append((offset, error)))
    # Then the future raises the cause itself, the callback gets it, and there is no offset
    with pytest.raises(StoreFull):
        receipt.result(20)
    assert receipt.exception(20) is cause
    assert told == [(None, cause)]
    assert receipt.offset is None
    # And the next record is stored
    assert publisher.publish(b"y").result(20) == 0


def test_b3_all_records_of_a_failed_batch_fail(world):
    bus, shaky = world.shaky()
    with bus.publisher("orders") as publisher:
        shaky.plan.fail(refused(), log="orders")
        with pytest.raises(StoreFull):
            publisher.publish_many([b"x"] * 5).result(20)
    assert everything(bus, "orders") == []


def test_b4_publish_direct_returns_the_offset(bus):
    publisher = bus.publisher("orders")
    found = [publisher.publish_direct(b"%d" % n, key=b"k", headers=[("h", b"1")]) for n in range(2)]
    stored = everything(bus, "orders")
    assert found == offsets(stored)
    assert [record.headers for record in stored] == [(("h", b"1"),)] * 2


def test_b4_publish_direct_keeps_its_place_behind_what_is_queued(bus):
    publisher = bus.publisher("orders", linger_s=0.01)
    publisher.publish(b"queued")
    direct = publisher.publish_direct(b"direct")
    publisher.publish(b"queued too")
    publisher.flush()
    found = everything(bus, "orders")
    assert values(found) == [b"queued", b"direct", b"queued too"]
    assert found[1].offset == direct


@pytest.mark.needs("conditional")
def test_b4_publish_direct_on_a_condition_counts_what_is_queued(bus):
    publisher = bus.publisher("orders", linger_s=0.01)
    first = publish(bus, "orders", b"first")[-1]
    publisher.publish(b"queued")
    assert publisher.publish_direct(b"expected", expected_last=first + 1) == first + 2
    assert values(everything(bus, "orders")) == [b"first", b"queued", b"expected"]


def test_b5_the_receipt_knows_the_offset_after_success(bus):
    with bus.publisher("orders") as publisher:
        receipts = [publisher.publish(b"x") for _ in range(3)]
    assert [receipt.offset for receipt in receipts] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"batch_records": 4}, [4, 4, 2]),
        ({"batch_bytes": 30}, [3, 3, 3, 1]),
        ({"batch_bytes": 1}, [1] * 10),
        ({}, [10]),
    ],
)
def test_b6_records_are_stored_in_batches(virtual, options, sizes):
    # Given a publisher that batches by count or by bytes
    bus = virtual.node()
    with bus.publisher("orders", **options) as publisher:
        # When ten records of ten bytes are queued
        for number in range(10):
            publisher.publish(b"%010d" % number)
    # Then they are stored in batches of that size, in order
    entries = bus.bus.open("orders").read(0)
    assert [b - a for a, b in itertools.pairwise([*(entry.base for entry in entries), 10])] == sizes
    assert values(everything(bus, "orders")) == [b"%010d" % number for number in range(10)]


def test_b6_linger_waits_for_more(virtual):
    # Given a publisher that lingers
    bus = virtual.node()
    publisher = bus.publisher("orders", linger_s=0.5)
    # When records come within that time
    first = publisher.publish(b"x")
    virtual.runtime.advance(0.4)
    assert not first.done()
    second = publisher.publish(b"y")
    virtual.runtime.advance(0.11)
    # Then they are stored together, when it is over
    assert first.done()
    assert second.done()
    assert len(bus.bus.open("orders").read(0)) == 1


@pytest.mark.real_servers
def test_b6_more_than_a_thousand_records_in_one_go(bus):
    with bus.publisher("orders") as publisher:
        receipts = [publisher.publish(b"%d" % n) for n in range(3500)]
        assert [receipt.result(20) for receipt in receipts] == offsets(everything(bus, "orders"))
    assert values(everything(bus, "orders")) == [b"%d" % n for n in range(3500)]


def test_b7_what_was_not_acknowledged_is_sent_again_with_growing_pauses(virtual, caplog):
    # Given a bus that loses three appends
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", retry_s=0.1, retry_max_s=0.25)
    shaky.plan.drop(times=3, log="orders")
    started = virtual.runtime.monotonic()
    # When a record is published
    assert publisher.publish(b"x").result() == 0
    # Then it is sent again after 0.1, 0.2 and 0.25 seconds, and each time is logged and counted
    assert virtual.runtime.monotonic() - started == pytest.approx(0.1 + 0.2 + 0.25)
    assert [record.action for record in caplog.records] == ["append_retry"] * 3
    assert b'lockstep_publish_retries_total{stream="orders"} 3.0' in bus.metrics.render()


def test_b7_what_is_refused_is_not_sent_again(virtual):
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders")
    shaky.plan.fail(refused(), log="orders")
    assert isinstance(publisher.publish(b"x").exception(), StoreFull)
    assert shaky.plan.counts == {"fail": 1}


def test_b8_flush_returns_when_everything_is_done(threads):
    # Given a lot of records in the queue, again and again (a flush must not overlook what is being packed)
    publisher = threads.node().publisher("orders")
    for _ in range(60):
        receipts = [publisher.publish(b"x") for _ in range(20)]
        # When it is flushed
        publisher.flush(20)
        # Then all futures are done
        assert all(receipt.done() for receipt in receipts)


def test_b8_flush_waits_for_what_is_being_serialized(threads):
    # Given a record on its way from the queue to the bus
    started, go_on = threading.Event(), threading.Event()

    def encode(value):
        started.set()
        assert go_on.wait(20)
        return value

    publisher = threads.node().publisher("orders", value=Serializer(encode, bytes), pipeline=True)
    receipt = publisher.publish(b"x")
    assert started.wait(20)
    # When it is flushed
    # Then the flush does not take it for done
    with pytest.raises(TimedOut):
        publisher.flush(0.05)
    go_on.set()
    publisher.flush(20)
    assert receipt.done()


def test_b8_flush_gives_up_after_its_timeout(virtual):
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders")
    shaky.plan.drop(times=100, log="orders")
    receipt = publisher.publish(b"x")
    with pytest.raises(TimedOut):
        publisher.flush(0.5)
    assert not receipt.done()
    with pytest.raises(BadArgument, match="negative"):
        publisher.flush(-1)


def test_b8_close_flushes(bus):
    publisher = bus.publisher("orders", linger_s=30.0)
    receipt = publisher.publish(b"x")
    publisher.close()
    publisher.close()
    assert receipt.result(0) == 0


def test_b8_close_of_the_connection_flushes(world):
    bus = world.node()
    receipt = bus.publisher("orders", linger_s=30.0).publish(b"x")
    bus.close()
    assert receipt.result(0) == 0


def test_b8_the_end_of_the_program_flushes(disk, tmp_path):
    # Given a program that publishes and ends without closing anything
    program = (
        "import lockstep, sys\n"
        "publisher = lockstep.connect(sys.argv[1]).publisher('orders', linger_s=5.0)\n"
        "for number in range(10): publisher.publish(b'%d' % number)\n"
    )
    bus = disk.node()
    # When it ran
    subprocess.run([sys.executable, "-c", program, f"lmdb:{tmp_path / 'bus'}"], check=True, timeout=60)
    # Then everything is stored
    assert values(everything(bus, "orders")) == [b"%d" % number for number in range(10)]


def test_b9_a_full_buffer_blocks_until_there_is_room(threads):
    # Given a small buffer
    bus = threads.node()
    with bus.publisher("orders", buffer_records=5, batch_records=2) as publisher:
        # When more is published than it holds
        receipts = [publisher.publish(b"%d" % n) for n in range(200)]
    # Then publish waited, and nothing is lost
    stored = everything(bus, "orders")
    assert [receipt.result(0) for receipt in receipts] == offsets(stored)
    assert values(stored) == [b"%d" % n for n in range(200)]


def test_b9_a_full_buffer_raises_if_told_so(virtual):
    publisher = virtual.node().publisher("orders", buffer_records=2, when_full="raise")
    receipts = [publisher.publish(b"x"), publisher.publish(b"y")]
    with pytest.raises(BufferFull, match="2 records"):
        publisher.publish(b"z")
    with pytest.raises(BufferFull):
        publisher.publish_many([b"z"])
    publisher.flush()
    assert [receipt.result() for receipt in receipts] == [0, 1]
    assert publisher.publish(b"z").result() == 2


def test_b9_a_buffer_is_full_by_bytes_too(virtual):
    publisher = virtual.node().publisher("orders", buffer_bytes=10, when_full="raise")
    publisher.publish(b"x" * 8)
    with pytest.raises(BufferFull, match="8 bytes"):
        publisher.publish(b"x" * 3)
    publisher.publish(b"x" * 2)


def test_b9_a_full_buffer_drops_the_oldest_if_told_so(virtual):
    # Given a full buffer of batches of one
    bus = virtual.node()
    publisher = bus.publisher("orders", buffer_records=2, batch_records=1, when_full="drop-oldest")
    first, second = publisher.publish(b"0"), publisher.publish(b"1")
    # When another record comes
    third = publisher.publish(b"2")
    # Then the oldest fails with a name for it, and the others are stored
    assert isinstance(first.exception(), Dropped)
    assert [second.result(), third.result()] == [0, 1]
    assert values(everything(bus, "orders")) == [b"1", b"2"]


def test_b9_the_callback_of_a_dropped_record_may_publish(virtual):
    bus = virtual.node()
    publisher = bus.publisher("orders", buffer_records=2, batch_records=1, when_full="drop-oldest")
    told = []
    publisher.publish(b"0", callback=lambda offset, error: told.append(publisher.publish(b"in its place")))
    for number in range(1, 3):
        publisher.publish(b"%d" % number)
    publisher.flush()
    assert told[0].done()


def test_b9_dropping_the_oldest_never_splits_what_belongs_together(virtual):
    # Given records published together, cut into several batches, in a full buffer
    bus = virtual.node()
    publisher = bus.publisher("orders", buffer_records=4, batch_bytes=1, when_full="drop-oldest")
    together = publisher.publish_many([b"a", b"b", b"c"])
    single = publisher.publish(b"d")
    # When there is room for only some of them
    publisher.publish(b"e")
    publisher.flush()
    # Then all of them are dropped, or none
    with pytest.raises(Dropped):
        together.result()
    assert single.done()
    assert values(everything(bus, "orders")) == [b"d", b"e"]


def test_b10_a_record_that_is_not_stored_in_time_fails(virtual):
    # Given a bus that acknowledges nothing
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", delivery_timeout_s=3.0)
    shaky.plan.drop(times=100, log="orders")
    started = virtual.runtime.monotonic()
    # When the delivery timeout passes
    error = publisher.publish(b"x").exception()
    # Then the future fails, saying what happened last
    assert "drop was planned" in str(error)
    assert 3.0 <= virtual.runtime.monotonic() - started <= 3.0 + 2.0
    assert shaky.plan.counts["drop"] > 3


def test_b10_waiting_for_room_ends_with_the_delivery_timeout(virtual):
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", buffer_records=1, delivery_timeout_s=1.0, retry_max_s=50.0, retry_s=50.0)
    shaky.plan.drop(times=100, log="orders")
    publisher.publish(b"x")
    with pytest.raises(TimedOut, match="room"):
        publisher.publish(b"y")
