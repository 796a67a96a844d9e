"""Part G: what a stream keeps, what happens to readers that are too slow, and histories."""

from __future__ import annotations

import asyncio

import pytest
from worlds import CALM, everything, has_gaps, offsets, publish, take, values

from lockstep import Gap, StreamConfig
from lockstep.errors import StoreFull, Trimmed
from lockstep.log.history import HeapHistory

NUMBERS = [b"%d" % number for number in range(25)]


def history_for(world, tmp_path):
    return StreamConfig(capacity=10, history="heap:" if hasattr(world, "grid") else f"lmdb:{tmp_path / 'history'}")


def test_g1_a_ring_keeps_the_last_records(bus):
    """Section 5, Publisher: five, then twenty more, into a capacity of ten."""
    config = StreamConfig(capacity=10)
    assert publish(bus, "orders", *NUMBERS[:5], config=config) == [0, 1, 2, 3, 4]
    assert bus.bounds("orders").count == 5
    publish(bus, "orders", *NUMBERS[5:], batch_records=3)
    stored = everything(bus, "orders")
    assert values(stored) == NUMBERS[15:]
    bounds = bus.bounds("orders")
    assert (bounds.first, bounds.next) == (stored[0].offset, stored[-1].offset + 1)
    assert (bounds.first, bounds.next) == (15, 25) or has_gaps(bus, "orders")


def test_g1_the_size_never_exceeds_the_capacity(bus):
    with bus.publisher("orders", config=StreamConfig(capacity=3)) as publisher:
        published = 0
        for size in (1, 2, 7, 1, 3, 4):
            publisher.publish_many([b"x"] * size).wait(20)
            published += size
            kept = everything(bus, "orders")
            assert len(kept) == min(3, published)
            assert bus.bounds("orders").first == kept[0].offset


@pytest.mark.parametrize(("margin", "resumed"), [(0.0, 15), (0.1, 16), (0.5, 20)])
def test_g2_a_reader_that_was_overtaken_is_told_of_the_gap(dense_bus, margin, resumed):
    # Given a reader that was overtaken
    bus, told = dense_bus, []
    bus.create("orders", StreamConfig(capacity=10))
    reader = bus.subscriber("orders", initial="earliest", stale_margin=margin, on_gap_found=told.append)
    publish(bus, "orders", *NUMBERS[:5])
    assert offsets(take(reader, 2)) == [0, 1]
    reader.seek(2)  # what was fetched already can't be lost
    publish(bus, "orders", *NUMBERS[5:])
    # When it polls
    batch = reader.poll()
    # Then the gap is named with the first records behind it, once, and it goes on
    gap = Gap("orders", 2, resumed)
    assert (batch.gap, gap.count) == (gap, resumed - 2)
    assert offsets(batch) == list(range(resumed, 25))
    assert told == [gap]
    assert not reader.poll()
    text = bus.metrics.render().decode()
    assert 'lockstep_gaps_total{group=""} 1.0' in text
    assert f'lockstep_gap_records_total{{group=""}} {float(resumed - 2)}' in text


def test_g2_a_stream_of_one_record(bus):
    """Section 5: capacity 1, margin 0, two records: only the second is read, and that is no error."""
    told = []
    reader = bus.subscriber(
        "orders", initial="earliest", config=StreamConfig(capacity=1), on_error=lambda *error: told.append(error)
    )
    publish(bus, "orders", b"0", b"1", batch_records=1)
    assert values(take(reader, 1)) == [b"1"]
    assert told == []


def test_g2_a_gap_can_be_an_error(bus):
    reader = bus.subscriber("orders", initial="earliest", config=StreamConfig(capacity=2), on_gap="fail")
    publish(bus, "orders", *NUMBERS[:5])
    for _ in range(2):
        with pytest.raises(Trimmed, match="Offset 0 of orders was trimmed; the first readable one is 3"):
            reader.poll()
    reader.seek(3)
    assert offsets(take(reader, 2)) == [3, 4]


def test_g2_a_gap_with_nothing_behind_it_is_told_too(threads):
    bus = threads.node()
    readers = [bus.subscriber("orders", initial="earliest") for _ in range(2)]
    publish(bus, "orders", b"0", b"1")
    end = bus.bounds("orders").next
    bus.trim("orders", end)
    found = [readers[0].poll(), asyncio.run(readers[1].apoll(0.01))]
    assert [(len(batch), batch.gap) for batch in found] == [(0, Gap("orders", 0, end))] * 2


def test_g2_a_reader_that_is_overtaken_again_gets_one_gap(virtual):
    # Given a reader that is overtaken, and overtaken again while it looks
    bus, shaky = virtual.shaky()
    reader = bus.subscriber("orders", initial="earliest", config=StreamConfig(capacity=2))
    publish(bus, "orders", *NUMBERS[:5])
    shaky.plan.fail(Trimmed(offset=0, stream="orders", first=1), log="orders", on="read", times=2)
    # When it polls
    batch = reader.poll()
    # Then the gap reaches up to where it goes on
    assert batch.gap == Gap("orders", 0, 3)


def test_g2_wrap_around_while_reading_loses_nothing_silently(virtual):
    """What is delivered and what the gaps name is everything, and each offset once."""
    bus = virtual.node()
    reader = bus.subscriber("orders", initial="earliest", config=StreamConfig(capacity=7))
    covered = []
    for number in range(60):
        publish(bus, "orders", *NUMBERS[: number % 5], batch_records=2)
        batch = reader.poll(max_records=number % 4 + 1, max_bytes=1)
        if batch.gap is not None:
            covered += range(batch.gap.first, batch.gap.resumed)
        covered += offsets(batch)
    covered += offsets(take(reader, bus.bounds("orders").next - reader.offset()))
    assert covered == list(range(bus.bounds("orders").next))
    assert reader.meter.gaps > 0


def test_g3_history_is_read_as_if_nothing_had_been_dropped(world, bus, tmp_path):
    """Section 5, Publisher with a store: all 25 readable with a capacity of ten."""
    publish(bus, "orders", *NUMBERS, config=history_for(world, tmp_path), batch_records=4)
    assert bus.bounds("orders").first == 0
    reader = bus.subscriber("orders", initial="earliest")
    found = take(reader, 25)
    assert values(found) == NUMBERS
    assert offsets(found) == list(range(25))
    assert reader.meter.gaps == 0


def test_g4_a_failing_history_fails_the_publish(virtual, monkeypatch):
    bus = virtual.node()
    publisher = bus.publisher("orders", config=StreamConfig(capacity=10, history="heap:"))
    publisher.publish(b"0").result()

    def fail(*_):
        raise OSError("the archive is full")

    with monkeypatch.context() as broken:
        broken.setattr(HeapHistory, "store", fail)
        assert isinstance(publisher.publish(b"1").exception(), OSError)
    assert bus.bounds("orders").next == 1
    assert publisher.publish(b"2").result() == 1
    assert values(everything(bus, "orders")) == [b"0", b"2"]


def test_g5_a_stream_made_anew_goes_on_where_its_history_ends(world, bus, tmp_path):
    config = history_for(world, tmp_path)
    publish(bus, "orders", *NUMBERS, config=config)
    bus.delete("orders")
    assert publish(bus, "orders", b"again", config=config) == [25]
    reader = bus.subscriber("orders", initial="earliest")
    reader.seek(20)
    assert values(take(reader, 6)) == [*NUMBERS[20:], b"again"]


def test_g6_the_default_capacity_is_ten_thousand(bus):
    assert StreamConfig().capacity == 10_000
    with bus.publisher("orders") as publisher:
        publisher.publish_many([b"x"] * 10_500).wait(20)
    assert bus.bounds("orders").count == 10_000
    publish(bus, "small", *NUMBERS, config=StreamConfig(capacity=5))
    publish(bus, "all", *NUMBERS, config=StreamConfig(capacity=None))
    assert (bus.bounds("small").count, bus.bounds("all").count) == (5, 25)


def test_g7_retention_by_bytes(bus):
    config = StreamConfig(capacity=None, retain_bytes=2000)
    publish(bus, "orders", *([b"x" * 100] * 100), config=config, batch_records=1)
    assert 5 <= bus.bounds("orders").count <= 20


def test_g7_retention_by_age(virtual):
    bus = virtual.node()
    config = StreamConfig(capacity=None, retain_age_s=10.0)
    for number in range(5):
        publish(bus, "orders", b"%d" % number, config=config)
        virtual.runtime.advance(4.0)
    assert values(everything(bus, "orders")) == [b"2", b"3", b"4"]


def test_g7_a_protected_stream_keeps_what_a_group_has_not_confirmed(world, bus):
    # Given a protected stream, and a group that has begun but confirmed nothing
    config = StreamConfig(capacity=5, protect=True)
    member = bus.subscriber("orders", group="g", config=config, group_options=CALM)
    world.until(lambda: member.is_assigned)
    # When more is published than the capacity
    publish(bus, "orders", *NUMBERS, batch_records=1)
    # Then nothing is gone
    assert offsets(take(member, 25)) == list(range(25))
    # And what it confirms may go
    member.confirm(21, sync=True)
    publish(bus, "orders", b"x", batch_records=1)
    assert bus.bounds("orders").first == 21
    member.close()
    publish(bus, "orders", *NUMBERS, batch_records=1)
    assert bus.bounds("orders").first == 22


def test_g7_a_protected_stream_has_a_ceiling(world, bus):
    config = StreamConfig(capacity=5, protect=True, protect_bytes=3000)
    member = bus.subscriber("orders", group="g", config=config, group_options=CALM)
    world.until(lambda: member.is_assigned)
    with bus.publisher("orders", batch_records=1) as publisher:
        receipts = [publisher.publish(b"x" * 100) for _ in range(40)]
        publisher.flush(20)
    failed = [receipt for receipt in receipts if receipt.exception(0) is not None]
    assert failed
    assert {type(receipt.exception(0)) for receipt in failed} == {StoreFull}
    assert len(take(member, 40 - len(failed))) == 40 - len(failed)


def test_g7_a_deleted_group_protects_nothing(world, bus):
    config = StreamConfig(capacity=5, protect=True)
    with bus.subscriber("orders", group="g", config=config, group_options=CALM) as member:
        world.until(lambda: member.is_assigned)
    bus.groups.delete("g")
    publish(bus, "orders", *NUMBERS, batch_records=1)
    assert bus.bounds("orders").count == 5


def test_g7_a_transaction_lets_go_of_what_it_confirms(world, bus):
    config = StreamConfig(capacity=5, protect=True)
    member = bus.subscriber("orders", group="g", config=config, group_options=CALM)
    world.until(lambda: member.is_assigned)
    publish(bus, "orders", *NUMBERS[:10], batch_records=1)
    records = take(member, 10)
    with bus.group_transaction(member) as together:
        together.confirm(records[-1])
    publish(bus, "orders", b"x", batch_records=1)
    assert bus.bounds("orders").first == 6


def test_g9_the_bus_on_disk_is_what_it_promises(disk):
    promises = disk.node().promises
    assert (promises.durability, promises.opened_by, promises.atomic) == ("fsync", "host", True)
    assert set(promises.retention) == {"capacity", "bytes", "age", "protect"}


def test_g10_many_confirmations_are_one_write(virtual):
    """Confirmations are gathered: positions are kept without a write for each."""
    bus = virtual.node()
    publish(bus, "orders", *NUMBERS)
    member = bus.subscriber("orders", group="g", group_options=CALM)
    records = take(member, 25)
    before = bus.bus.open("_group.g").bounds().next
    for record in records:
        member.confirm(record)
    member.flush_confirms()
    assert member.confirmed_offset() == 24
    assert bus.bus.open("_group.g").bounds().next - before <= 3
