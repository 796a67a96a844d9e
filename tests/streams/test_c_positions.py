"""The reader's position is that of the last record handed out: loops that end early lose nothing."""

from __future__ import annotations

import asyncio

import pytest
from worlds import CALM, offsets, publish, take, values

from lockstep import JSON
from lockstep.errors import DecodeFailed

TEN = [b"%d" % number for number in range(10)]


def reader_of(node, **options):
    return node.subscriber("orders", initial="earliest", **options)


def member_of(node, **options):
    return node.subscriber("orders", group="g", group_options=CALM, **options)


def test_c9_a_new_loop_goes_on_after_the_last_record_handed_out(bus):
    publish(bus, "orders", *TEN)
    reader = reader_of(bus)
    first = [next(reader.records()).value for _ in range(3)]
    for record in reader:
        first.append(record.value)
        break
    assert first == TEN[:4]
    assert (reader.last_read_offset(), reader.offset()) == (3, 4)
    # And polling goes on there too
    assert values(reader.poll()) == TEN[4:]


def test_c9_a_loop_and_polls_in_between_hand_out_each_record_once(virtual):
    bus = virtual.node()
    publish(bus, "orders", *TEN)
    reader = reader_of(bus)
    loop = reader.records(idle_s=0.01)
    seen = [next(loop).value]
    seen += values(reader.poll(max_records=2))
    seen.append(next(loop).value)
    reader.seek(8)
    seen += [record.value for record in loop]
    assert seen == [b"0", b"1", b"2", b"3", b"8", b"9"]


def test_c9_an_async_loop_that_ends_early_loses_nothing(virtual):
    bus = virtual.node()
    publish(bus, "orders", *TEN)
    reader = reader_of(bus)

    async def one():
        async for record in reader:
            return record.value

    async def main():
        return [await one(), await one()]

    assert asyncio.run(main()) == [b"0", b"1"]
    assert values(reader.poll()) == TEN[2:]


def test_e4_confirm_in_a_loop_covers_the_records_handed_out(virtual):
    # Given a member that confirms the first of ten records in a loop
    bus = virtual.node()
    publish(bus, "orders", *TEN)
    with member_of(bus) as member:
        for record in member:
            assert record.value == b"0"
            member.confirm()
            break
        member.flush_confirms()
        assert member.confirmed_offset() == 0
    # When another member takes over
    # Then it gets the other nine
    with member_of(bus) as other:
        assert values(take(other, 9)) == TEN[1:]


def test_e4_confirm_after_a_poll_covers_the_batch(virtual):
    bus = virtual.node()
    publish(bus, "orders", *TEN)
    with member_of(bus) as member:
        assert len(member.poll(5.0)) == 10
        member.confirm(sync=True)
        assert member.confirmed_offset() == 9


def test_a_record_that_cannot_be_decoded_is_raised_once_and_the_rest_stays_readable(virtual):
    bus = virtual.node()
    publish(bus, "orders", b"1", b"2", b"no JSON", b"4", b"5")
    reader = reader_of(bus, value=JSON)
    seen = []
    with pytest.raises(DecodeFailed, match="record 2"):
        seen.extend(record.value for record in reader)
    assert (seen, reader.last_read_offset()) == ([1, 2], 2)
    assert [record.value for record in reader.records(idle_s=0.01)] == [4, 5]


def test_a_batch_can_be_iterated_past_a_record_that_cannot_be_decoded(virtual):
    bus = virtual.node()
    publish(bus, "orders", b"1", b"no JSON", b"3")
    records = iter(reader_of(bus, value=JSON).poll())
    assert next(records).value == 1
    with pytest.raises(DecodeFailed, match="record 1"):
        next(records)
    assert offsets(records) == [2]


def test_e13_a_handler_that_confirms_confirms_the_record_it_handles(virtual):
    # Given a handler that confirms, and stops at the fourth of ten records that came in one batch
    bus = virtual.node()
    publish(bus, "orders", *TEN)
    member = member_of(bus)
    confirmed = []

    def handle(record):
        if record.value == b"3":
            raise ValueError("enough")
        member.confirm(sync=True)
        confirmed.append(member.confirmed_offset())

    receiver = bus.receive(member, handle, confirm="off")
    virtual.until(lambda: receiver.error is not None)
    # Then each call confirmed its own record and nothing after it
    assert confirmed == [0, 1, 2]


def test_c9_a_stream_that_is_paused_in_a_loop_hands_out_nothing_more(virtual):
    bus = virtual.node()
    publish(bus, "orders", *TEN)
    reader = reader_of(bus)
    found = []
    for record in reader.records(idle_s=0.0):
        found.append(record.value)
        if record.offset == 2:
            reader.pause()
    assert found == TEN[:3]
    reader.resume()
    assert values(reader.poll()) == TEN[3:]
