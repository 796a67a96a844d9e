"""Traps that a predecessor fell into; each is a regression test for us. T13 is about a bus that is not here."""

from __future__ import annotations

import threading

import pytest
from worlds import CALM, HASTY, everything, offsets, publish, take, values

from lockstep import GroupOptions, OnFailure, StreamConfig
from lockstep.errors import BufferFull, Fenced, LockstepError, PublishFailed, TimedOut


def join(node, *streams, timing=HASTY, **options):
    return node.subscriber(*streams or ["orders"], group="g", group_options=timing, **options)


def test_t1_a_paused_owner_does_not_move_the_position_back(world):
    # Given an owner that confirmed, paused, and whose successor confirmed further
    node, begin, end = world.outage()
    publish(node, "orders", *(b"%d" % n for n in range(10)))
    told = []
    paused = join(node, on_error=lambda summary, error: told.append(summary))
    take(paused, 5)
    paused.confirm(2)
    paused.flush_confirms()
    begin("g")
    heir = join(world.node())
    take(heir, 6)
    heir.confirm(sync=True)
    # When it wakes up, and what it had in its hands is written after all
    seat, epoch = paused._seat("orders"), paused.epoch()
    end()
    paused._member.confirm(seat, epoch, 4)
    world.until(lambda: told, "a report of the confirmation that did not count")
    # Then the position stays where the successor left it
    heir.flush_confirms()
    assert heir.confirmed_offset() == 8
    assert "did not count" in told[0]


def test_t2_a_member_in_a_long_poll_keeps_its_lease(virtual):
    # Given a member in one poll that lasts many leases, and another that waits for it to fail
    bus = virtual.node()
    member = join(bus)
    virtual.until(lambda: member.is_assigned)
    join(virtual.node())
    assert not member.poll(120.0)
    # Then it is still the owner, and reads what comes
    publish(bus, "orders", b"0")
    assert values(member.poll()) == [b"0"]
    assert member.epoch() == 1


def test_t2_records_read_after_the_lease_was_lost_are_not_handed_out(virtual):
    # Given a member whose lease ends while it waits
    node, begin, end = virtual.outage()
    member = join(node)
    virtual.until(lambda: member.is_assigned)
    member.poll()
    begin("g")
    virtual.runtime.advance(0.5)
    # When records come then
    publish(virtual.node(), "orders", b"0")
    # Then it does not hand them out, nor skip them
    assert not member.poll(1.0)
    end()
    assert values(take(member, 1)) == [b"0"]


def test_t3_a_busy_handler_keeps_its_stream(virtual):
    # Given a handler that works for many leases, and another member
    bus, handled = virtual.node(), []
    publish(bus, "orders", b"0", b"1")
    member = join(bus)
    other = join(virtual.node())

    def handle(record):
        pause = virtual.runtime.waiter()
        pause.wait(60.0)
        handled.append(record.offset)

    virtual.until(lambda: member.is_assigned)
    bus.receive(member, handle)
    # When it is through
    virtual.runtime.advance(130.0)
    # Then nothing was handed to anybody else, and it counts
    assert not other.poll()
    assert handled == [0, 1]
    assert member.confirmed_offset() == 1


def test_t4_a_poison_record_stops_one_member_and_not_the_group(virtual):
    """A handler's exception ends neither the receiver nor, one after the other, those of all members."""
    publish(virtual.node(), "orders", b"poison")
    calls, receivers = [], []

    def handle(record):
        calls.append(record.offset)
        raise ValueError

    for _ in range(3):
        node = virtual.node()
        receivers.append(node.receive(join(node), handle, on_failure=OnFailure(retries=2, backoff_s=0.1)))
    virtual.runtime.advance(60.0)
    assert len(calls) == 3
    assert [receiver.is_running for receiver in receivers] == [True] * 3
    assert sum(receiver.error is not None for receiver in receivers) == 1


def test_t5_a_callback_that_raises_does_not_stop_the_publisher(world, bus, caplog):
    def fail(offset, error):
        raise ValueError

    with bus.publisher("orders") as publisher:
        first = publisher.publish(b"0", callback=fail)
        assert first.result(20) == 0
        publisher.publish(b"1").result(20)
    assert values(everything(bus, "orders")) == [b"0", b"1"]
    assert [record.action for record in caplog.records] == ["callback_failed"]


@pytest.mark.parametrize("bound", [{"buffer_records": 10}, {"buffer_bytes": 10}])
def test_t6_the_buffer_is_bounded(virtual, bound):
    publisher = virtual.node().publisher("orders", when_full="raise", **bound)
    for _ in range(10):
        publisher.publish(b"x")
    with pytest.raises(BufferFull):
        publisher.publish(b"x")


def test_t7_closing_completes_every_future(virtual):
    # Given a bus that acknowledges nothing, and records in the queue
    bus, shaky = virtual.shaky()
    publisher = bus.publisher("orders", batch_records=1)
    shaky.plan.drop(times=1000, log="orders")
    receipts = [publisher.publish(b"x") for _ in range(5)]
    many = publisher.publish_many([b"x"] * 3)
    # When the publisher is closed
    with pytest.raises(PublishFailed, match="8 records"):
        publisher.close(timeout=1.0)
    # Then every future has a named error
    assert all(receipt.done() for receipt in receipts)
    assert {isinstance(receipt.exception(0), LockstepError) for receipt in receipts} == {True}
    assert many.done()
    with pytest.raises(TimedOut, match="Closing the publisher"):
        many.result(0)


def test_t8_sending_again_does_not_duplicate(world):
    bus, shaky = world.shaky()
    with bus.publisher("orders", retry_s=0.001) as publisher:
        shaky.plan.lose_ack(times=3, log="orders")
        for number in range(5):
            publisher.publish(b"%d" % number).result(20)
    assert values(everything(bus, "orders")) == [b"0", b"1", b"2", b"3", b"4"]


def test_t9_nothing_readable_is_skipped_and_nothing_lost_is_silent(bus):
    # Given a full ring, and a reader from the earliest and one that was overtaken
    bus.create("orders", StreamConfig(capacity=10))
    overtaken = bus.subscriber("orders", initial="earliest")
    publish(bus, "orders", *(b"%d" % n for n in range(25)))
    # When they read
    assert offsets(take(bus.subscriber("orders", initial="earliest"), 10)) == list(range(15, 25))
    batch = overtaken.poll()
    # Then both get all that is there, and the gap is an object
    assert offsets(batch) == list(range(15, 25))
    assert (batch.gap.first, batch.gap.resumed, batch.gap.count) == (0, 15, 15)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_t10_the_wall_clock_does_not_move_a_lease(virtual, jump):
    # Given an owner and a member that waits
    bus = virtual.node()
    publish(bus, "orders", b"0")
    member, other = join(bus), join(virtual.node())
    virtual.until(lambda: member.is_assigned or other.is_assigned)
    owner = member if member.is_assigned else other
    take(owner, 1)
    # When the administrator sets the clock
    virtual.runtime.jump_wall(jump)
    virtual.runtime.advance(5.0)
    # Then the lease is what it was
    assert owner.is_assigned
    assert owner.epoch() == 1
    owner.confirm(sync=True)


def test_t11_the_first_member_does_not_keep_every_stream(world):
    names = [f"stream-{number}" for number in range(6)]
    timing = GroupOptions(lease_s=5.0, beat_s=0.05)
    first = join(world.node(), *names, timing=timing)
    world.until(lambda: len(first.assigned) == 6)
    second = join(world.node(), *names, timing=timing)
    world.until(lambda: (first.poll(), second.poll()) and len(second.assigned) == 3)
    assert len(first.assigned) == 3


def test_t12_a_confirmation_never_goes_back(world, bus):
    # Given a member that confirms, and then confirms something older, written or not
    publish(bus, "orders", *(b"%d" % n for n in range(5)))
    member = join(bus, timing=CALM)
    take(member, 5)
    member.confirm(3)
    member.confirm(1)
    member.flush_confirms()
    assert member.confirmed_offset() == 3
    member.confirm(0, sync=True)
    # Then the newer one counts
    assert member.confirmed_offset() == 3
    member.close()
    # And only an explicit reset goes back
    assert bus.groups.reset("g", "orders", 1) == 1
    assert offsets(take(join(bus, timing=CALM), 4)) == [1, 2, 3, 4]


def test_flushing_waits_for_a_confirmation_that_is_being_written(threads):
    # Given a confirmation on its way to the disk
    node = threads.node()
    publish(node, "orders", b"0")
    member = join(node, timing=CALM)
    take(member, 1)
    writing, go_on = threading.Event(), threading.Event()
    append = type(member._member.grouplog).append

    def slow(self, records):
        if any(type(record).__name__ == "Confirm" for record in records):
            writing.set()
            assert go_on.wait(10)
        append(self, records)

    member._member.grouplog.append = slow.__get__(member._member.grouplog)
    member.confirm()
    assert writing.wait(10)
    # When the confirmations are flushed meanwhile
    flushed = threading.Thread(target=member.flush_confirms)
    flushed.start()
    flushed.join(0.05)
    # Then that waits for it
    assert flushed.is_alive()
    go_on.set()
    flushed.join(10)
    assert member.confirmed_offset() == 0


def test_confirming_after_the_stream_is_gone_is_fenced_not_forgotten(world, bus):
    publish(bus, "orders", b"0", b"1")
    member = join(bus, timing=CALM)
    [record, _] = take(member, 2)
    member.deactivate()
    for late in ((), (record,)):
        with pytest.raises(Fenced):
            member.confirm(*late)
