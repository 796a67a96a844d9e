"""Part G: what a stream keeps, what happens to readers that are too slow, and histories."""

from __future__ import annotations

import asyncio

import pytest
from worlds import CALM, everything, has_gaps, offsets, publish, take, values

from lockstep import Gap, StreamConfig
from lockstep.errors import GroupGap, PublishFailed, StoreFull, Trimmed
from lockstep.log.history import HeapHistory

NUMBERS = [b"%d" % number for number in range(25)]


def history_for(world, tmp_path):
    return StreamConfig(capacity=10, history="heap:" if hasattr(world, "grid") else f"lmdb:{tmp_path / 'history'}")


@pytest.mark.real_servers
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


@pytest.mark.real_servers
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
    assert reader._meter.gaps > 0


@pytest.mark.needs("history")
def test_g3_history_is_read_as_if_nothing_had_been_dropped(world, bus, tmp_path):
    """Section 5, Publisher with a store: all 25 readable with a capacity of ten."""
    publish(bus, "orders", *NUMBERS, config=history_for(world, tmp_path), batch_records=4)
    assert bus.bounds("orders").first == 0
    reader = bus.subscriber("orders", initial="earliest")
    found = take(reader, 25)
    assert values(found) == NUMBERS
    assert offsets(found) == list(range(25))
    assert reader._meter.gaps == 0


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


@pytest.mark.needs("history")
def test_g5_a_stream_made_anew_goes_on_where_its_history_ends(world, bus, tmp_path):
    config = history_for(world, tmp_path)
    publish(bus, "orders", *NUMBERS, config=config)
    bus.delete("orders")
    assert publish(bus, "orders", b"again", config=config) == [25]
    reader = bus.subscriber("orders", initial="earliest")
    reader.seek(20)
    assert values(take(reader, 6)) == [*NUMBERS[20:], b"again"]


def test_g6_by_default_seven_days_are_kept_however_many(bus):
    assert (StreamConfig().capacity, StreamConfig().retain_age_s) == (None, 7 * 86_400)
    if "hazelcast" not in bus.url:  # its rings have a capacity
        with bus.publisher("orders") as publisher:
            publisher.publish_many([b"x"] * 10_500).wait(20)
        with bus.subscriber("orders", initial="earliest") as subscriber:
            assert sum(1 for _ in subscriber.records(idle_s=0.1)) == 10_500
    publish(bus, "small", *NUMBERS, config=StreamConfig(capacity=5))
    publish(bus, "all", *NUMBERS, config=StreamConfig(capacity=None))
    assert (bus.bounds("small").count, bus.bounds("all").count) == (5, 25)


@pytest.mark.real_servers
@pytest.mark.needs("bytes")
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


@pytest.mark.real_servers
@pytest.mark.needs("protect")
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


@pytest.mark.needs("protect")
def test_g7_a_protected_stream_has_a_ceiling(world, bus):
    config = StreamConfig(capacity=5, protect=True, protect_bytes=3000)
    member = bus.subscriber("orders", group="g", config=config, group_options=CALM)
    world.until(lambda: member.is_assigned)
    with bus.publisher("orders", batch_records=1) as publisher:
        receipts = [publisher.publish(b"x" * 100) for _ in range(40)]
        with pytest.raises(PublishFailed, match="protect_bytes"):
            publisher.flush(20)
    failed = [receipt for receipt in receipts if receipt.exception(0) is not None]
    assert failed
    assert {type(receipt.exception(0)) for receipt in failed} == {StoreFull}
    assert len(take(member, 40 - len(failed))) == 40 - len(failed)


@pytest.mark.needs("protect")
def test_g7_a_deleted_group_protects_nothing(world, bus):
    config = StreamConfig(capacity=5, protect=True)
    with bus.subscriber("orders", group="g", config=config, group_options=CALM) as member:
        world.until(lambda: member.is_assigned)
    bus.groups.delete("g")
    publish(bus, "orders", *NUMBERS, batch_records=1)
    assert bus.bounds("orders").count == 5


@pytest.mark.needs("protect", "atomic")
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


def test_g1_a_gap_in_a_group_fails_with_who_what_and_what_to_do(virtual):
    # Given a group that was away while more was published than the stream keeps
    bus = virtual.node()
    bus.create("orders", StreamConfig(capacity=10))
    with bus.subscriber("orders", group="billing", group_options=CALM) as member:
        publish(bus, "orders", *NUMBERS[:5])
        take(member, 5)
        member.confirm(4, sync=True)
    publish(bus, "orders", *NUMBERS)
    # When it reads on
    with bus.subscriber("orders", group="billing", group_options=CALM) as member:
        with pytest.raises(GroupGap) as caught:
            member.poll(5.0)
        # Then it is told which group missed what, and what to do; again and again
        expected = "Group 'billing' missed 15 offsets of orders: 5 to 19 were trimmed"
        assert expected in str(caught.value)
        assert "group reset billing orders --to earliest" in str(caught.value)
        with pytest.raises(GroupGap):
            member.poll(5.0)
    # And after a reset it goes on
    bus.groups.reset("billing", "orders", "earliest")
    with bus.subscriber("orders", group="billing", group_options=CALM) as member:
        assert offsets(take(member, 10)) == list(range(20, 30))


def test_g1_a_group_that_skips_gaps_says_so_in_the_log(virtual, caplog):
    bus = virtual.node()
    bus.create("orders", StreamConfig(capacity=10))
    with bus.subscriber("orders", group="billing", group_options=CALM, on_gap="skip") as member:
        assert member.wait_assigned(5.0)
        publish(bus, "orders", *NUMBERS)
        assert offsets(take(member, 10)) == list(range(15, 25))
    (said,) = [record.getMessage() for record in caplog.records if getattr(record, "action", None) == "gap"]
    assert "Group billing missed 15 offsets of orders: 0 to 14" in said
    assert "retention" in said


@pytest.mark.needs("history")
def test_g3_trimmed_records_are_gone_also_where_a_history_has_them(world, bus, tmp_path):
    publish(bus, "orders", *NUMBERS, config=history_for(world, tmp_path), batch_records=4)
    reader = bus.subscriber("orders", initial="earliest")
    bus.trim("orders", 7)
    # Below the trim nothing can be read, above it everything, from the history too
    assert bus.bounds("orders").first == 7
    with pytest.raises(Trimmed):
        bus.get("orders", 6)
    assert bus.get("orders", 7).value == b"7"
    batch = reader.poll()
    assert (batch.gap.first, batch.gap.resumed) == (0, 7)
    found = [*batch, *take(reader, 18 - len(batch))] if len(batch) < 18 else list(batch)
    assert values(found) == NUMBERS[7:]
    # And it never goes back
    bus.trim("orders", 3)
    assert bus.bounds("orders").first == 7
    bus.trim("orders", 25)
    assert bus.bounds("orders").count == 0


def test_g3_a_hole_in_a_history_is_one_gap_forward(virtual):
    # Given a history from which a part in the middle is gone
    bus = virtual.node()
    publish(bus, "orders", *NUMBERS, config=StreamConfig(capacity=5, history="heap:"), batch_records=1)
    history = virtual.grid.histories["heap:/orders"]
    for column in (history._bases, history._counts, history._data):
        del column[8:12]
    # When it is read from the beginning
    reader = bus.subscriber("orders", initial="earliest")
    found, gaps = [], []
    while batch := reader.poll():
        found += offsets(batch)
        gaps += [batch.gap] if batch.gap else []
    # Then everything that is there comes once, in order, and the hole is told once
    assert found == [*range(8), *range(12, 25)]
    assert gaps == [Gap("orders", 8, 12)]


def test_g3_processes_in_other_folders_use_the_same_history(disk, tmp_path, monkeypatch):
    # Given a stream with a history in a relative folder
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    first = disk.node()
    publish(first, "orders", *NUMBERS[:12], config=StreamConfig(capacity=5, history="lmdb:./archive"))
    # When a process that runs elsewhere publishes and reads
    monkeypatch.chdir(tmp_path / "two")
    second = disk.node()
    publish(second, "orders", *NUMBERS[12:])
    # Then there is one history, and it has everything
    assert values(everything(second, "orders")) == NUMBERS
    assert [item.name for item in tmp_path.glob("*/archive")] == ["archive"]


@pytest.mark.needs("protect")
def test_g7_a_stream_that_is_protected_later_keeps_what_its_groups_have_not_confirmed(bus):
    # Given a group that confirmed the first two of five records
    bus.create("orders", StreamConfig(capacity=5))
    publish(bus, "orders", *[b"%d" % number for number in range(5)])
    member = bus.subscriber("orders", group="g")
    assert member.wait_assigned(10)
    member.confirm(member.poll(10, max_records=2), sync=True)
    member.close()
    # When the stream is protected, and more is published than it holds
    bus.alter("orders", protect=True)
    publish(bus, "orders", *[b"%d" % number for number in range(5, 20)])
    # Then nothing is missing for the group
    assert bus.bounds("orders").first == 2
    # And a group that is deleted while the stream is not protected does not hold it afterwards
    bus.alter("orders", protect=False)
    bus.groups.delete("g")
    bus.alter("orders", protect=True)
    publish(bus, "orders", *[b"%d" % number for number in range(20, 30)])
    assert bus.bounds("orders").first == 25
