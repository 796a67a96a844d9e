"""Part I, continued: what happens when a handler fails."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from worlds import CALM, HASTY, everything, publish, take, values

from lockstep import JSON, OnFailure, StreamConfig, dead_letters, redrive
from lockstep.errors import DataError, HandlerFailed, StoreFull
from lockstep.streams.deadletters import dead_letter_streams


def member_of(node, timing=CALM, **options):
    return node.subscriber("orders", group="g", group_options=timing, **options)


def poison(record):
    if record.value == b"poison":
        raise ValueError("can't swallow that")


def test_i3_a_failing_handler_is_tried_again_with_growing_pauses(virtual):
    # Given a handler that fails three times
    bus, tries = virtual.node(), []

    def handle(record, delivery):
        tries.append((delivery.attempt, virtual.runtime.monotonic()))
        if delivery.attempt <= 3:
            raise ValueError

    publish(bus, "orders", b"x")
    subscriber = member_of(bus)
    bus.receive(subscriber, handle, on_failure=OnFailure(retries=3, backoff_s=0.1, backoff_max_s=0.3))
    # When it gets a record
    virtual.until(lambda: len(tries) == 4)
    # Then it is called again after 0.1, 0.2 and 0.3 seconds, no sooner: nothing spins
    pauses = [b[1] - a[1] for a, b in itertools.pairwise(tries)]
    assert pauses == [pytest.approx(pause, abs=0.002) for pause in (0.1, 0.2, 0.3)]
    virtual.until(lambda: subscriber.confirmed_offset() == 0)


def test_i3_stop_stands_still_at_the_record_and_keeps_the_stream(virtual):
    # Given a handler that can't swallow a record
    told = []
    bus = virtual.node()
    publish(bus, "orders", b"0", b"poison", b"2")
    first = member_of(virtual.node(), on_error=lambda summary, error: told.append(error))
    receiver = bus.receive(first, poison, on_failure=OnFailure(retries=1, backoff_s=0.01))
    # When it fails for good
    virtual.until(lambda: receiver.error is not None)
    other = member_of(virtual.node())
    for _ in range(20):
        virtual.runtime.advance(1.0)
        assert not other.poll()
    # Then it stands still there, the error says where, and the record does not go round the group
    assert isinstance(receiver.error, HandlerFailed)
    assert "record 1 of orders after 2 attempts" in str(receiver.error)
    assert told == [receiver.error]
    assert receiver.is_running
    assert first.confirmed_offset() == 0


def test_i3_skip_goes_on_behind_the_record(world, bus):
    seen = []
    publish(bus, "orders", b"0", b"poison", b"2")
    subscriber = member_of(bus)
    bus.receive(subscriber, lambda r: poison(r) or seen.append(r.offset), on_failure=OnFailure(retries=0, then="skip"))
    world.until(lambda: subscriber.confirmed_offset() == 2)
    assert seen == [0, 2]
    assert b'lockstep_handler_failures_total{group="g"} 1.0' in bus.metrics.render()


@pytest.mark.real_servers
def test_i4_a_dead_letter_says_where_it_came_from_and_why(world, bus):
    # Given a policy with dead letters
    with bus.publisher("orders") as publisher:
        publisher.publish(b"0")
        publisher.publish(b"poison", key=b"k", headers=[("trace", b"7")])
        publisher.publish(b"2")
    subscriber = member_of(bus)
    # When a record fails for good
    bus.receive(subscriber, poison, on_failure=OnFailure(retries=1, backoff_s=0.01, then="dead-letter"))
    world.until(lambda: subscriber.confirmed_offset() == 2)
    # Then it is on the dead-letter stream with its value, key and headers, and all there is to know
    [letter] = dead_letters(bus, "orders.dlq")
    assert (letter.stream, letter.offset, letter.group, letter.attempts) == ("orders", 1, "g", 2)
    assert letter.reason == "ValueError: can't swallow that"
    assert (letter.record.value, letter.record.key, letter.record.header("trace")) == (b"poison", b"k", b"7")
    assert b"in poison" in letter.record.header("dlq-traceback")
    assert dead_letter_streams(bus) == ["orders.dlq"]
    assert b'lockstep_dead_letters_total{group="g"} 1.0' in bus.metrics.render()


@pytest.mark.needs("atomic")
def test_i4_redrive_sends_dead_letters_back_once(world, bus):
    publish(bus, "orders", b"poison", b"poison")
    subscriber = member_of(bus)
    policy = OnFailure(retries=0, then="dead-letter", dead_letters="letters")
    bus.receive(subscriber, poison, on_failure=policy).subscriber  # noqa: B018
    world.until(lambda: subscriber.confirmed_offset() == 1)
    subscriber.close()
    # When they are sent back, in two runs
    assert [redrive(bus, "letters", limit=1), redrive(bus, "letters"), redrive(bus, "letters")] == [1, 1, 0]
    # Then each is on its stream once more, without the marks of a dead letter
    again = everything(bus, "orders")[2:]
    assert [(record.value, record.headers) for record in again] == [(b"poison", ())] * 2


def test_i4_a_dead_letter_keeps_its_bytes_whatever_the_serializer(world, bus):
    # Given a reader of JSON, and records that are and are not JSON
    def refuse(record):
        raise ValueError

    publish(bus, "orders", b'{"a": 1}', b"not json", b"[2]")
    subscriber = member_of(bus, value=JSON)
    # When its handler, or the serializer, fails
    bus.receive(subscriber, refuse, on_failure=OnFailure(retries=0, then="dead-letter"))
    world.until(lambda: subscriber.confirmed_offset() == 2)
    # Then the dead letters are what was published, byte for byte
    letters = list(dead_letters(bus, "orders.dlq"))
    assert [letter.record.value for letter in letters] == [b'{"a": 1}', b"not json", b"[2]"]
    assert "DecodeFailed" in letters[1].reason


@pytest.mark.needs("atomic")
def test_i4_dead_letters_of_a_stream_with_shards(world, bus):
    with bus.publisher("orders", config=StreamConfig(shards=2)) as publisher:
        publisher.publish(b"poison", key=b"k")
    receiver = bus.receive(member_of(bus), poison, on_failure=OnFailure(retries=0, then="dead-letter"))
    world.until(lambda: "orders.dlq" in bus.streams() and everything(bus, "orders.dlq"))
    assert receiver.error is None
    receiver.close()
    assert redrive(bus, "orders.dlq") == 1
    with bus.subscriber("orders", initial="earliest") as reader:
        assert values(take(reader, 2)) == [b"poison", b"poison"]


def test_i4_what_is_no_dead_letter_is_not_redriven(bus):
    publish(bus, "orders", b"x")
    with pytest.raises(DataError, match="not a dead letter"):
        redrive(bus, "orders")


def test_i5_dead_letters_are_off_by_default(virtual):
    bus = virtual.node()
    publish(bus, "orders", b"poison")
    receiver = bus.receive(member_of(bus), poison, on_failure=OnFailure(retries=0))
    virtual.until(lambda: receiver.error is not None)
    assert bus.streams() == ["orders"]


def test_records_at_hand_survive_a_lease_that_ran_out_for_a_moment(virtual):
    """A lone member's lease may lapse without anybody taking over: what it fetched must still be handled."""
    # Given a record that waits to be tried again, and others behind it
    node, begin, end = virtual.outage()
    handled = []

    def handle(record, delivery):
        if record.offset == 0 and delivery.attempt < 4:
            raise ValueError
        handled.append(record.offset)

    publish(node, "orders", b"0", b"1", b"2")
    subscriber = member_of(node, HASTY)
    node.receive(subscriber, handle, on_failure=OnFailure(retries=5, backoff_s=0.5, backoff_max_s=0.5))
    virtual.runtime.advance(0.2)
    # When the lease runs out meanwhile and comes back
    begin("g")
    virtual.until(lambda: not subscriber.is_assigned)
    publish(node, "orders", b"3")
    virtual.runtime.advance(0.1)
    end()
    # Then every record is handled, in order
    virtual.until(lambda: subscriber.confirmed_offset() == 3)
    assert handled == [0, 1, 2, 3]


def failing(record):
    raise ValueError("no")


def test_i4_the_largest_records_fit_into_their_dead_letter_stream(virtual):
    # Given a stream that takes larger records than usual, and the largest it takes
    bus = virtual.node()
    bus.create("orders", StreamConfig(max_record_bytes=9 << 20))
    publish(bus, "orders", b"x" * (9 << 20), b"small")
    # When the handler fails
    bus.receive(member_of(bus), failing, on_failure=OnFailure(retries=0, then="dead-letter"))
    virtual.until(lambda: "orders.dlq" in bus.streams() and bus.bounds("orders.dlq").count == 2)
    # Then both are dead letters, whole
    assert [len(letter.record.value) for letter in dead_letters(bus, "orders.dlq")] == [9 << 20, 5]


def test_i4_a_record_that_does_not_fit_leaves_a_letter_without_its_value_and_can_be_sent_back(virtual, caplog):
    # Given a dead-letter stream that somebody made, with a limit below that of the records
    bus = virtual.node()
    bus.create("orders.dlq", StreamConfig(max_record_bytes=2000))
    publish(bus, "orders", b"x" * 5000, b"small")
    receiver = bus.receive(member_of(bus), failing, on_failure=OnFailure(retries=0, then="dead-letter"))
    virtual.until(lambda: bus.bounds("orders.dlq").count == 2)
    assert receiver.is_running
    letters = list(dead_letters(bus, "orders.dlq"))
    assert [(letter.is_cut, len(letter.record.value)) for letter in letters] == [(True, 0), (False, 5)]
    assert "letter_cut" in {getattr(record, "action", None) for record in caplog.records}
    receiver.close()
    # When it is sent back, the value is taken from the stream it came from
    assert redrive(bus, "orders.dlq") == 2
    assert [len(value) for value in values(everything(bus, "orders"))] == [5000, 5, 5000, 5]


def test_i4_long_names_have_dead_letter_streams_and_can_be_sent_back(virtual):
    bus = virtual.node()
    for name in ("o" * 128, "o" * 127 + "p", "o" * 122):
        publish(bus, name, b"x")
        member = bus.subscriber(name, group="g", group_options=CALM)
        with bus.receive(member, failing, on_failure=OnFailure(retries=0, then="dead-letter")):
            virtual.until(lambda member=member: member.confirmed_offset() == 0)
    streams = dead_letter_streams(bus)
    assert len(streams) == 3
    assert all(len(name) <= 128 for name in streams)
    assert [redrive(bus, name) for name in streams] == [1, 1, 1]


def test_i4_a_dead_letter_that_cannot_be_stored_now_is_tried_again(virtual):
    # Given a dead-letter stream that can't be written for a while
    told = []
    bus, shaky = virtual.shaky()
    bus.create("orders.dlq")
    publish(bus, "orders", b"poison", b"fine")
    shaky.plan.fail(StoreFull(stream="orders.dlq", reason="full"), times=3, log="orders.dlq")
    member = member_of(bus, on_error=lambda summary, error: told.append((summary, type(error))))
    calls = []

    def handle(record):
        calls.append(record.value)
        poison(record)

    receiver = bus.receive(member, handle, on_failure=OnFailure(retries=0, then="dead-letter"))
    # Then the receiver waits, says so, and goes on; the handler is not called again for it
    virtual.until(lambda: member.confirmed_offset() == 1)
    assert receiver.is_running
    assert calls == [b"poison", b"fine"]
    assert len(told) == 3
    assert "dead letter of record 0 of orders could not be stored" in told[0][0]
    assert [letter.offset for letter in dead_letters(bus, "orders.dlq")] == [0]


async def _cancelled(record):
    raise asyncio.CancelledError


def _exits(record):
    raise SystemExit(3)


@pytest.mark.parametrize("handler", [_exits, _cancelled])
def test_i3_a_handler_that_exits_or_is_cancelled_fails_by_the_policy(virtual, handler):
    bus = virtual.node()
    publish(bus, "orders", b"0", b"1")
    member = member_of(bus)
    receiver = bus.receive(member, handler, on_failure=OnFailure(retries=1, backoff_s=0.01, then="dead-letter"))
    virtual.until(lambda: member.confirmed_offset() == 1)
    assert receiver.is_running
    assert [letter.attempts for letter in dead_letters(bus, "orders.dlq")] == [2, 2]


@pytest.mark.needs("atomic")
def test_i4_a_letter_whose_key_or_headers_do_not_fit_stops_nothing_and_comes_back_whole(world, bus):
    # Given a dead-letter stream that takes less than the headers or the key of a record
    bus.create("orders.dlq", StreamConfig(max_record_bytes=2000))
    bus.create("orders", StreamConfig(max_record_bytes=10_000))
    with bus.publisher("orders") as publisher:
        publisher.publish(b"a", headers={"h": b"x" * 9000})
        publisher.publish(b"b", key=b"k" * 9000)
        publisher.publish(b"fine")
    handled = []

    def handler(record):
        if record.value != b"fine":
            raise ValueError
        handled.append(record.value)

    subscriber = bus.subscriber("orders", group="g")
    bus.receive(subscriber, handler, on_failure=OnFailure(retries=0, then="dead-letter"))
    world.until(lambda: handled == [b"fine"])
    subscriber.close()
    # When they are sent back, they are what they were
    assert redrive(bus, "orders.dlq") == 2
    assert bus.get("orders", 3).headers == (("h", b"x" * 9000),)
    assert (bus.get("orders", 4).value, bus.get("orders", 4).key) == (b"b", b"k" * 9000)
