"""Part B, continued: futures always complete, whatever the store, the callbacks or the end of the program do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from worlds import CALM, everything, values

import lockstep
from forks import exit_code_of_a_fork
from lockstep import JSON, Serializer, StreamConfig
from lockstep.errors import (
    AppendUncertain,
    BadRecord,
    BufferFull,
    Closed,
    ForkedProcess,
    IllegalState,
    PublishFailed,
    RecordTooLarge,
    StoreFull,
    TimedOut,
)
from lockstep.streams.shards import checked_headers


@contextmanager
def busy_store(bus):
    """Somebody else holds the lock that every append needs."""
    held, let_go = threading.Event(), threading.Event()

    def hold(_):
        held.set()
        assert let_go.wait(20)

    thread = threading.Thread(target=lambda: bus.bus.atomic(hold), daemon=True)
    thread.start()
    assert held.wait(20)
    try:
        yield
    finally:
        let_go.set()
        thread.join(20)


def stuck_and_queued(world, publisher):
    """A record whose append is under way, and one behind it."""
    stuck = publisher.publish(b"stuck")
    world.until(lambda: publisher._lanes[0]._sending, "the append")
    return stuck, publisher.publish(b"queued")


def test_close_completes_every_future_in_its_time_though_the_store_is_stuck(disk):
    # Given an append that does not return, and a record behind it
    bus = disk.node()
    publisher = bus.publisher("orders")
    told = []
    with busy_store(bus):
        stuck, queued = stuck_and_queued(disk, publisher)
        stuck.add_done_callback(lambda offset, error: told.append((offset, error)))
        # When the publisher is closed
        started = disk.runtime.monotonic()
        with pytest.raises(PublishFailed, match="1 records"):  # of the other its callback was told
            publisher.close(0.1)
        # Then it takes no longer than that, and says of each record what is known
        assert disk.runtime.monotonic() - started < 5.0
        with pytest.raises(TimedOut, match="may or may not be stored"):
            stuck.result(0)
        with pytest.raises(TimedOut, match="Closing the publisher to orders"):
            queued.result(0)
    # And the append that returns later changes nothing of that
    disk.until(lambda: publisher._lanes[0]._sending == [], "the late return")
    assert told == [(None, stuck.exception(0))]
    assert publisher._lanes[0].queued == (0, 0)
    assert b"queued" not in values(everything(bus, "orders"))


def test_close_has_one_timeout_for_all_shards(virtual):
    # Given a publisher to four shards, none of which acknowledges anything
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", config=StreamConfig(shards=4), retry_s=10.0, retry_max_s=10.0)
    for shard in range(4):
        shaky.plan.drop(times=100, log=f"orders/{shard}")
    receipts = [publisher.publish(b"x") for _ in range(8)]
    # When it is closed
    started = virtual.runtime.monotonic()
    with pytest.raises(PublishFailed, match="8 records"):
        publisher.close(1.0)
    # Then the timeouts don't add up
    assert virtual.runtime.monotonic() - started == pytest.approx(1.0)
    assert all(receipt.done() for receipt in receipts)


def test_a_stuck_shard_keeps_no_other_from_sending(virtual):
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", config=StreamConfig(shards=2), linger_s=10.0)
    shaky.plan.drop(times=100, log="orders/0")
    stuck, fine = publisher.publish(b"x"), publisher.publish(b"y")
    with pytest.raises(PublishFailed, match="1 records"):
        publisher.close(0.01)
    assert isinstance(stuck.exception(), TimedOut)
    assert fine.result() == 0


def test_nobody_waits_much_longer_than_the_delivery_timeout(disk):
    # Given an append that does not return
    bus = disk.node()
    publisher = bus.publisher("orders", delivery_timeout_s=0.05, buffer_records=2)
    with busy_store(bus):
        stuck, queued = stuck_and_queued(disk, publisher)
        # When somebody waits without a limit
        # Then both fail soon after their delivery timeout
        assert isinstance(queued.exception(), TimedOut)
        assert isinstance(stuck.exception(), AppendUncertain)
        # And so does the future that is awaited
        assert isinstance(asyncio.run(_outcome(publisher.publish(b"awaited"))), TimedOut)
        publisher.flush()


async def _outcome(receipt):
    try:
        return await receipt
    except TimedOut as error:
        return error


def test_what_was_queued_too_long_is_not_sent(threads):
    # Given a record that is being serialized for longer than its delivery timeout, and one behind it
    started, go_on = threading.Event(), threading.Event()

    def encode(value):
        started.set()
        assert go_on.wait(20)
        return value

    bus = threads.node()
    publisher = bus.publisher(
        "orders", value=Serializer(encode, bytes), pipeline=True, delivery_timeout_s=0.01, batch_records=1
    )
    publisher.publish(b"slow")
    assert started.wait(20)
    late = publisher.publish(b"late")
    threads.until(lambda: late._draft.overdue_in() < 0, "the deadline")
    # When the publisher comes to it
    go_on.set()
    threads.until(late.done, "the end")
    # Then it has failed
    assert isinstance(late.exception(0), TimedOut)
    assert values(everything(bus, "orders")) == [b"slow"]


@pytest.mark.parametrize(
    "wait",
    [
        lambda publisher, later: publisher.flush(),
        lambda publisher, later: publisher.close(),
        lambda publisher, later: later.result(),
        lambda publisher, later: publisher.publish_direct(b"direct"),
        lambda publisher, later: publisher.publish_direct(b"direct", expected_last=0),
    ],
    ids=["flush", "close", "result", "direct", "conditional"],
)
def test_a_callback_may_not_wait_for_its_own_publisher(world, wait):
    # Given a callback that waits for what only its own thread could do
    bus = world.node()
    publisher = bus.publisher("orders")
    refused = []

    def call_back(_offset, _error):
        later = publisher.publish(b"later")
        try:
            wait(publisher, later)
        except IllegalState as error:
            refused.append(str(error))

    # When it is called
    publisher.publish(b"x", callback=call_back).result(20)
    world.until(lambda: refused, "the refusal")
    # Then it is refused at once, and the publisher goes on
    assert "publish callback" in refused[0]
    publisher.publish(b"y").result(20)
    assert values(everything(bus, "orders")) == [b"x", b"later", b"y"]


def test_a_callback_does_not_wait_for_room_that_it_has_to_make(virtual):
    publisher = virtual.node().publisher("orders", buffer_records=2)
    told = []

    def fill(_offset, _error):
        for _ in range(3):
            try:
                publisher.publish(b"more")
            except BufferFull as error:
                told.append(error)

    publisher.publish(b"x", callback=fill)
    publisher.flush()
    assert len(told) == 1


def test_the_end_of_the_program_flushes_what_a_forgotten_publisher_queued(disk, tmp_path):
    program = (
        "import lockstep, sys, gc\n"
        "def job(): lockstep.connect(sys.argv[1]).publisher('orders', linger_s=5.0).publish(b'x')\n"
        "job(); gc.collect()\n"
    )
    bus = disk.node()
    subprocess.run([sys.executable, "-c", program, f"lmdb:{tmp_path / 'bus'}"], check=True, timeout=60)
    assert values(everything(bus, "orders")) == [b"x"]


@pytest.mark.parametrize("options", [{"batch_records": 3}, {"batch_bytes": 3}], ids=["records", "bytes"])
def test_a_full_batch_does_not_linger(virtual, options):
    # Given a publisher that lingers
    publisher = virtual.node().publisher("orders", linger_s=10.0, **options)
    first = publisher.publish(b"x")
    virtual.runtime.advance(1.0)
    assert not first.done()
    # When the batch becomes full
    publisher.publish(b"y")
    publisher.publish(b"z")
    virtual.runtime.run_until_idle()
    # Then it is sent at once, and what is not full still lingers
    assert first.done()
    last = publisher.publish(b"0")
    virtual.runtime.advance(1.0)
    assert not last.done()


def test_a_record_lingers_no_longer_than_it_may_take(virtual):
    publisher = virtual.node().publisher("orders", linger_s=10.0, delivery_timeout_s=1.0)
    assert publisher.publish(b"x").result() == 0


def test_publish_direct_after_close_is_refused(bus):
    publisher = bus.publisher("orders")
    publisher.close()
    for expected_last in (None, -1):
        with pytest.raises(Closed, match="orders"):
            publisher.publish_direct(b"x", expected_last=expected_last)
    assert everything(bus, "orders") == []


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([1] * 100 + [60], [50, 50, 1]),
        ([60] + [1] * 3, [4]),
        ([200, 1, 200], [1, 1, 1]),
        ([30, 30, 40, 31], [3, 1]),
        ([0, 0, 0], [3]),
        ([10] * 12, [10, 2]),
        ([1] * 60, [50, 10]),
    ],
)
def test_many_records_are_cut_by_what_they_take(virtual, sizes, batches):
    # Given batches of 100 bytes and 50 records, and records that differ
    bus = virtual.node()
    publisher = bus.publisher("orders", batch_bytes=100, batch_records=50)
    sent = [b"x" * size for size in sizes]
    # When they are published together
    receipt = publisher.publish_many(sent)
    # Then no more batches are made than needed, and they count for what they take
    assert [draft.count for draft in receipt._drafts] == batches
    assert publisher._lanes[0].queued == (len(sizes), sum(sizes))
    assert receipt.result() == list(range(len(sizes)))
    assert values(everything(bus, "orders")) == sent


def test_many_records_count_with_their_keys(virtual):
    publisher = virtual.node().publisher("orders", batch_bytes=10)
    receipt = publisher.publish_many([b"x"] * 4, keys=[b"1234", None, b"1234", b"1234"])
    assert [draft.count for draft in receipt._drafts] == [2, 2]
    assert publisher._lanes[0].queued == (4, 16)


def test_a_value_that_cant_be_serialized_in_the_background_fails_alone(virtual):
    # Given a publisher that serializes in the background, and bad values among good ones
    bus = virtual.node()
    bus.create("orders", StreamConfig(max_record_bytes=20))
    publisher = bus.publisher("orders", value=JSON, pipeline=True)
    told = []
    sent = [object(), 1, "x" * 30, 2, object(), 3]
    receipts = [
        publisher.publish(
            value, key=b"%d" % n, headers={"n": b"%d" % n}, created_ns=n, callback=lambda *told_: told.append(told_)
        )
        for n, value in enumerate(sent)
    ]
    # When they are stored
    publisher.flush()
    # Then only the bad ones failed, each with its own error, and the others have the offsets they were stored at
    assert [type(receipt.exception()) for receipt in receipts] == [
        TypeError, type(None), RecordTooLarge, type(None), TypeError, type(None)
    ]  # fmt: skip
    assert [receipt.offset for receipt in receipts] == [None, 0, None, 1, None, 2]
    assert told == [(receipt.offset, receipt.exception()) for receipt in receipts]
    assert [(record.value, record.key, record.headers, record.created_ns) for record in everything(bus, "orders")] == [
        (b"%d" % value, b"%d" % n, (("n", b"%d" % n),), n) for value, n in ((1, 1), (2, 3), (3, 5))
    ]
    assert publisher._lanes[0]._meter.failed == 3


def test_what_is_not_bytes_fails_alone_in_the_background_too(virtual):
    publisher = virtual.node().publisher("orders", pipeline=True)
    bad, good = publisher.publish("text"), publisher.publish(bytearray(b"x"))
    assert isinstance(bad.exception(), BadRecord)
    assert good.result() == 0


def test_a_receipt_that_is_kept_keeps_no_payload(virtual):
    # Given receipts of records that were stored
    publisher = virtual.node().publisher("orders", batch_records=2)
    single = publisher.publish(b"x" * 100, key=b"k", headers={"h": b"1"})
    many = publisher.publish_many([b"y"] * 5)
    publisher.flush()
    # Then they know what they need, and hold nothing else
    assert (single.result(), many.result(), len(many)) == (0, [1, 2, 3, 4, 5], 5)
    for draft in (single._draft, *many._drafts):
        assert (draft.values, draft.keys, draft.headers, draft.created) == ([], None, None, [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_instead_of_hanging(threads):
    # Given a publisher with a record in its queue
    publisher = threads.node().publisher("orders", linger_s=20.0)
    receipt = publisher.publish(b"x")

    # When a child waits for it
    def use_it():
        refusals = sum(_is_refused_in_a_fork(wait) for wait in (publisher.flush, receipt.result))
        publisher.close()
        return refusals

    # Then it is refused there, and the parent stores it
    assert exit_code_of_a_fork(use_it) == 2
    publisher.close()
    assert receipt.result(0) == 0


def _is_refused_in_a_fork(wait):
    try:
        wait()
    except ForkedProcess:
        return True
    return False


@pytest.mark.parametrize("policy", ["block", "raise", "drop-oldest"])
def test_a_record_larger_than_the_buffer_is_taken_when_it_is_empty(virtual, policy):
    publisher = virtual.node().publisher("orders", buffer_bytes=10, when_full=policy)
    assert publisher.publish(b"x" * 20).result() == 0
    assert publisher.publish_many([b"x" * 20]).result() == [1]


@pytest.mark.parametrize("headers", [{"a": b"1"}, [("a", b"1")], (pair for pair in [("a", b"1")])])
def test_headers_are_pairs_or_a_mapping(headers):
    assert checked_headers(headers, "orders") == (("a", b"1"),)


@pytest.mark.parametrize("headers", [5, ["a"], [("a", "text")], {1: b"1"}, [("n" * 70_000, b"")]])
def test_other_headers_are_refused(headers):
    with pytest.raises(BadRecord, match="orders"):
        checked_headers(headers, "orders")


def full():
    return StoreFull(stream="orders", reason="the disk is full")


@pytest.mark.parametrize("end", ["flush", "close", "with"])
def test_records_that_failed_without_anybody_looking_are_an_error(virtual, caplog, end):
    # Given records that are published without keeping their receipts, and that can't be stored
    bus, shaky = virtual.shaky()
    shaky.plan.fail(full(), times=2, log="orders")
    publisher = bus.publisher("orders", batch_records=1)
    for _ in range(3):
        publisher.publish(b"x")
    # When the publisher is flushed or closed
    # Then that raises, with how many and why
    with pytest.raises(PublishFailed, match=r"3 records published to orders.*the disk is full") as caught:  # noqa: PT012
        if end == "with":
            with publisher:
                pass
        else:
            getattr(publisher, end)()
    assert caught.value.params["count"] == 3
    assert isinstance(caught.value.__cause__, StoreFull)
    # And once; and it was logged
    publisher.close()
    assert "publish_failed" in {getattr(record, "action", None) for record in caplog.records}


def test_failed_records_that_somebody_was_told_of_are_not_told_again(virtual):
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", batch_records=1)
    shaky.plan.fail(full(), times=4, log="orders")
    told = []
    receipt = publisher.publish(b"x")
    publisher.publish(b"y", callback=lambda offset, error: told.append(error))
    many = publisher.publish_many([b"1", b"2"])
    assert isinstance(receipt.exception(), StoreFull)
    with pytest.raises(StoreFull):
        many.result()
    late = publisher.publish(b"z")
    late.add_done_callback(lambda offset, error: told.append(error))
    publisher.flush()
    publisher.close()
    assert [type(error) for error in told] == [StoreFull, StoreFull]


def test_records_dropped_by_the_policy_are_no_error_of_closing(virtual):
    bus = virtual.node()
    publisher = bus.publisher("orders", buffer_records=2, batch_records=1, when_full="drop-oldest")
    dropped = [publisher.publish(b"%d" % n) for n in range(6)]
    publisher.close()
    assert sum(receipt.exception() is not None for receipt in dropped) == 4


def test_an_error_that_ends_the_with_block_is_not_hidden_by_failed_records(virtual):
    bus, shaky = virtual.shaky()
    shaky.plan.fail(full(), times=10, log="orders")
    with pytest.raises(ZeroDivisionError), bus.publisher("orders") as publisher:  # noqa: PT012
        publisher.publish(b"x")
        raise ZeroDivisionError


def test_closing_the_connection_raises_for_failed_records(virtual):
    bus, shaky = virtual.shaky()
    shaky.plan.fail(full(), times=10, log="orders")
    bus.publisher("orders").publish(b"x")
    with pytest.raises(PublishFailed, match="1 records"):
        bus.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("url", ["memory:", "lmdb:{folder}?map_bytes=16777216"])
def test_a_connection_carried_through_a_fork_is_refused_and_closing_it_does_not_hang(tmp_path, url):
    # Given a member of a group whose locks are held by a thread while the process forks
    with lockstep.connect(url.format(folder=tmp_path / "bus")) as bus:
        bus.create("orders")
        member = bus.subscriber("orders", group="g", group_options=CALM)
        together = bus.transaction()
        together.publish("orders", b"lost")

        def use_them():
            uses = (
                together.commit, member.poll, bus.transaction, bus.streams, lambda: bus.bounds("orders"),
                lambda: bus.publisher("orders"), lambda: bus.first_time("a", "b"), member.flush_confirms,
            )  # fmt: skip
            refusals = sum(map(_is_refused_in_a_fork, uses))
            member.close()
            bus.close()
            return refusals

        # Then every use is refused in the child, closing returns, and the parent goes on
        with held(member._member._pumping), held(member._polling), held(bus._books):
            assert exit_code_of_a_fork(use_them) == 8
        assert bus.bounds("orders").count == 0
        assert member.wait_assigned(20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_bus_in_memory_begins_empty_in_a_fork(tmp_path):
    with lockstep.connect(f"memory:{tmp_path}") as bus:
        bus.create("orders")
        assert exit_code_of_a_fork(lambda: len(lockstep.connect(f"memory:{tmp_path}").streams())) == 0


@contextmanager
def held(lock):
    """A lock held by a thread that a fork does not copy."""
    taken, done = threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            done.wait(30)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert taken.wait(10)
    try:
        yield
    finally:
        done.set()
        thread.join(10)
