"""Part C: a subscriber alone."""

from __future__ import annotations

import asyncio

import pytest
from worlds import in_parallel, offsets, publish, take, values

from lockstep.errors import BadArgument, BadConfig, BadOffset, Closed, IllegalState, StoreBroken, StreamNotFound


def test_c1_poll_returns_an_empty_batch_when_its_time_is_up(virtual):
    # Given an empty stream
    reader = virtual.node().subscriber("orders")
    started = virtual.runtime.monotonic()
    # When it is polled for a while
    batch = reader.poll(2.5)
    # Then the batch is empty, and not a moment more has passed
    assert (len(batch), batch.gap) == (0, None)
    assert virtual.runtime.monotonic() - started == pytest.approx(2.5)


def test_c1_poll_of_an_empty_stream_twice(bus):
    reader = bus.subscriber("orders")
    assert [len(reader.poll()), len(reader.poll(0.01))] == [0, 0]
    assert reader.is_assigned
    with pytest.raises(BadArgument, match="timeout"):
        reader.poll(-1)


def test_c2_poll_with_records_there_does_not_wait(virtual):
    bus = virtual.node()
    reader = bus.subscriber("orders", initial="earliest")
    publish(bus, "orders", b"x", b"y")
    started = virtual.runtime.monotonic()
    assert values(reader.poll(60.0)) == [b"x", b"y"]
    assert virtual.runtime.monotonic() == started


@pytest.mark.real_servers
def test_c2_a_waiting_poll_returns_as_soon_as_a_record_comes(threads):
    bus = threads.node()
    reader = bus.subscriber("orders")
    found = []
    in_parallel(lambda: found.extend(reader.poll(20.0)), lambda: publish(threads.node(), "orders", b"x"))
    assert values(found) == [b"x"]


def test_c3_subscribers_have_positions_of_their_own(bus):
    # Given a first, a latest and one from an offset
    publish(bus, "orders", *(b"%d" % n for n in range(10)))
    first, latest, given = (bus.subscriber("orders", initial=where) for where in ("earliest", "latest", "earliest"))
    given.seek(7)
    assert [reader.offset() for reader in (first, latest, given)] == [0, 10, 7]
    # When one of them is slow, and more is published
    assert offsets(take(first, 1)) == [0]
    [last] = publish(bus, "orders", b"10")
    # Then each reads from where it is
    assert offsets(take(latest, 1)) == [last]
    assert offsets(take(given, 4)) == [7, 8, 9, last]
    assert offsets(take(first, 10)) == [*range(1, 10), last]
    assert [reader.last_read_offset() for reader in (first, latest, given)] == [last] * 3


def test_c4_a_reopened_subscriber_has_lost_its_position(bus):
    publish(bus, "orders", b"x", b"y")
    with bus.subscriber("orders", initial="earliest") as reader:
        take(reader, 2)
    with bus.subscriber("orders", initial="earliest") as again:
        assert values(take(again, 2)) == [b"x", b"y"]


@pytest.mark.real_servers
def test_c5_seek_reads_again(bus):
    publish(bus, "orders", b"x", b"y")
    reader = bus.subscriber("orders", initial="earliest")
    take(reader, 2)
    reader.seek(1)
    assert values(take(reader, 1)) == [b"y"]
    assert not reader.poll()


def test_c5_seek_forgets_what_was_fetched_ahead(bus):
    # Given a reader that took only some of what it fetched
    publish(bus, "orders", *(b"%d" % n for n in range(10)))
    reader = bus.subscriber("orders", initial="earliest")
    assert offsets(take(reader, 3)) == [0, 1, 2]
    # When it seeks, forward and back
    # Then it goes on there, and not with the rest
    for target in (7, 1, 0):
        reader.seek(target)
        assert offsets(take(reader, 2)) == [target, target + 1]


def test_c5_seek_below_0_is_a_value_error(bus):
    reader = bus.subscriber("orders")
    with pytest.raises(ValueError, match="-5"):
        reader.seek(-5)


def test_c5_seek_beyond_the_end_is_reported_by_poll(bus):
    reader = bus.subscriber("orders")
    reader.seek(1)
    for _ in range(2):
        with pytest.raises(BadOffset, match="beyond the end"):
            reader.poll()
    # And it reads on where there is something
    reader.seek(0)
    publish(bus, "orders", b"x")
    assert values(take(reader, 1)) == [b"x"]


def test_c5_seek_can_be_checked_at_once(bus):
    publish(bus, "orders", b"0", b"1", b"2")
    bus.trim("orders", 1)
    reader = bus.subscriber("orders")
    for offset in (0, 4):
        with pytest.raises(BadOffset, match="range is 1 to 3"):
            reader.seek(offset, check=True)
    reader.seek(1, check=True)
    reader.seek(3, check=True)


def test_c5_seek_to_the_end_waits_for_new_records(bus):
    publish(bus, "orders", b"x")
    reader = bus.subscriber("orders", initial="earliest")
    reader.seek(1)
    assert not reader.poll(0.01)
    publish(bus, "orders", b"y")
    assert values(take(reader, 1)) == [b"y"]


@pytest.mark.parametrize("action", ["confirm", "deactivate", "reactivate", "flush_confirms", "confirmed_offset"])
def test_c6_what_needs_a_group_is_refused_without_one(bus, action):
    with pytest.raises(IllegalState, match="without a group"):
        getattr(bus.subscriber("orders"), action)()


def test_c6_a_group_transaction_needs_a_group(bus):
    with pytest.raises(IllegalState, match="without a group"):
        bus.group_transaction(bus.subscriber("orders"))


@pytest.mark.parametrize(
    ("action", "arguments"),
    [("seek", [0]), ("seek_to_beginning", []), ("seek_to_end", []), ("seek_by", [1]), ("seek_to_time", [0])],
)
def test_c6_seek_in_a_group_is_refused(bus, action, arguments):
    member = bus.subscriber("orders", group="g")
    with pytest.raises(IllegalState, match="in a group"):
        getattr(member, action)(*arguments)


def test_c7_a_subscriber_alone_is_assigned_at_once(bus):
    reader = bus.subscriber("orders", "payments")
    assert reader.is_assigned
    assert reader.assigned == ["orders", "payments"]
    assert (reader.epoch("orders"), reader.group, reader._member) == (None, None, None)


def test_c8_seek_to_the_beginning_the_end_a_time_and_by_a_number(virtual):
    # Given records a second apart, of which the first is trimmed
    bus = virtual.node()
    for number in range(6):
        publish(bus, "orders", b"%d" % number)
        virtual.runtime.advance(1.0)
    times = [bus.get("orders", number).appended_ns for number in range(6)]
    bus.trim("orders", 1)
    reader = bus.subscriber("orders")
    # Then every way to seek leads there
    reader.seek_to_beginning()
    assert reader.offset() == 1
    reader.seek_to_end()
    assert reader.offset() == 6
    reader.seek_to_time(times[3])
    assert reader.offset() == 3
    reader.seek_to_time(times[5] + 1)
    assert reader.offset() == 6
    # And a number of records is counted from where the reader is, within what is readable
    reader.seek_by(-2)
    assert offsets(take(reader, 1)) == [4]
    reader.seek_by(-100)
    assert reader.offset() == 1
    reader.seek_by(+100)
    assert reader.offset() == 6


def test_c9_records_can_be_iterated(bus):
    publish(bus, "orders", *(b"%d" % n for n in range(25)))
    reader = bus.subscriber("orders", initial="earliest", max_records=10)
    assert offsets(reader.records(idle_s=0.01)) == list(range(25))
    assert list(reader.records(idle_s=0.01)) == []


def test_c9_a_for_loop_ends_when_the_subscriber_is_closed(threads):
    # Given a loop over a subscriber, on a thread of its own
    bus = threads.node()
    reader = bus.subscriber("orders", initial="earliest")
    seen = []

    def loop():
        seen.extend(record.value for record in reader)

    def close():
        publish(bus, "orders", b"x")
        threads.until(lambda: seen)
        reader.close()

    # When the subscriber is closed meanwhile
    in_parallel(loop, close)
    # Then the loop ends
    assert seen == [b"x"]


def test_c9_records_can_be_iterated_in_an_event_loop(threads):
    bus = threads.node()

    async def main():
        seen = []
        async with bus.subscriber("orders", initial="earliest") as reader, bus.publisher("orders") as publisher:
            await publisher.publish(b"x")

            async def write():
                await publisher.publish(b"y")

            writing = asyncio.ensure_future(write())
            async for record in reader:
                seen.append(record.value)
                if len(seen) == 2:
                    break
            await writing
            assert not await reader.apoll(0.01)
        return seen

    assert asyncio.run(asyncio.wait_for(main(), 20)) == [b"x", b"y"]


def test_c9_an_async_loop_ends_when_the_subscriber_is_closed(threads):
    bus = threads.node()

    async def main():
        reader = bus.subscriber("orders", initial="earliest")
        await asyncio.to_thread(publish, bus, "orders", b"x")
        seen = []

        async def close():
            await asyncio.to_thread(threads.until, lambda: seen)
            await asyncio.to_thread(reader.close)

        closing = asyncio.ensure_future(close())
        async for record in reader:
            seen += [record.value]
        await closing
        return seen

    assert asyncio.run(asyncio.wait_for(main(), 20)) == [b"x"]


def test_c9_poll_takes_a_limit_of_records(bus):
    publish(bus, "orders", *(b"%d" % n for n in range(10)))
    reader = bus.subscriber("orders", initial="earliest")
    assert [len(reader.poll(max_records=count)) for count in (3, 1, 100)] == [3, 1, 6]
    assert reader.last_read_offset() == 9


def test_c9_poll_takes_a_limit_of_bytes(bus):
    # Given batches of some 100 bytes each
    publish(bus, "orders", *([b"x" * 100] * 20), batch_records=1)
    reader = bus.subscriber("orders", initial="earliest")
    # When polls are limited
    # Then they return whole batches up to about that, and one at least
    assert len(reader.poll(max_bytes=1)) == 1
    assert 2 <= len(reader.poll(max_bytes=600)) <= 6
    assert len(reader.poll()) >= 13


def test_a_read_that_fails_is_told_once_and_poll_returns_empty(virtual):
    """Section 5: rigged read failure."""
    # Given a subscriber with an error handler, on a bus whose reads fail
    bus, shaky = virtual.shaky()
    told = []
    reader = bus.subscriber("orders", initial="earliest", on_error=lambda summary, error: told.append(error))
    publish(bus, "orders", b"x")
    cause = StoreBroken(path="orders", reason="the test says so")
    shaky.plan.fail(cause, log="orders", on="read")
    # When it polls
    started = virtual.runtime.monotonic()
    batch = reader.poll(3.0)
    # Then the handler gets the cause once, the batch is empty, the time was waited out, and nothing spins
    assert told == [cause]
    assert not batch
    assert virtual.runtime.monotonic() - started == pytest.approx(3.0)
    # And the next poll reads
    assert values(reader.poll()) == [b"x"]


def test_an_error_handler_hears_of_a_bad_position(bus):
    told = []
    reader = bus.subscriber("orders", on_error=lambda summary, error: told.append(error))
    reader.seek(1)
    assert not reader.poll()
    assert [type(error) for error in told] == [BadOffset]


def test_several_streams_take_turns(bus):
    # Given three streams with records
    names = ["orders", "payments", "returns"]
    for name in names:
        publish(bus, name, *(b"%d" % n for n in range(4)))
    reader = bus.subscriber(*names, initial="earliest")
    # When they are read in small polls
    seen = [reader.poll(max_records=2).stream for _ in range(6)]
    # Then every poll is of one stream, and none starves
    assert sorted(seen[:3]) == sorted(seen[3:]) == names
    with pytest.raises(BadArgument, match="name one of them"):
        reader.offset()
    with pytest.raises(BadArgument, match="orders, payments, returns"):
        reader.offset("others")
    assert [reader.offset(name) for name in names] == [4, 4, 4]


def test_one_bad_stream_does_not_hide_the_others(bus):
    publish(bus, "payments", b"x")
    reader = bus.subscriber("orders", "payments", initial="earliest", on_error=lambda summary, error: None)
    reader.seek(5, stream="orders")
    assert values(take(reader, 1)) == [b"x"]


def test_closed_means_closed(world):
    bus = world.node()
    reader = bus.subscriber("orders")
    reader.close()
    reader.close()
    with pytest.raises(Closed):
        reader.poll()
    bus.close()
    bus.close()
    with pytest.raises(Closed):
        bus.subscriber("orders")


@pytest.mark.parametrize("options", [{"on_gap": "stop"}, {"stale_margin": 1.0}, {"max_records": 0}, {"no_such": 1}])
def test_unknown_or_senseless_options_of_a_subscriber_are_refused(bus, options):
    with pytest.raises(BadConfig):
        bus.subscriber("orders", **options)


def test_a_missing_stream_is_refused_where_it_may_not_be_made(bus):
    with pytest.raises(StreamNotFound, match="orders"):
        bus.subscriber("orders", create=False)
    with pytest.raises(BadArgument, match="at least one"):
        bus.subscriber()
    assert bus.streams() == []
