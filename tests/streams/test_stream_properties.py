"""Properties: whatever the bus does to a publisher, every acknowledged record is read once, in order."""

from __future__ import annotations

import itertools
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import everything, virtual_world

from lockstep import RecordBatch, StreamConfig
from lockstep.errors import PublishFailed
from lockstep.log.batch import BatchView, pack
from lockstep.streams.cursor import Cursor
from lockstep.streams.lag import Lag
from lockstep.streams.record import Segment

FAULTS = st.lists(st.sampled_from(["drop", "lose_ack", "duplicate", "late", "fine"]), max_size=12)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=12)


@settings(max_examples=120, deadline=None)
@given(faults=FAULTS, sizes=SIZES, dedupe=st.booleans(), max_records=st.integers(1, 10), shaken=st.booleans())
def test_every_acknowledged_record_is_read_once_and_in_order(faults, sizes, dedupe, max_records, shaken):
    # Given a bus that tells copies or does not, and faults of all kinds
    world = virtual_world(dedupe=dedupe)
    bus, shaky = world.shaky()
    publisher = bus.publisher("orders", batch_records=3, retry_s=0.01)
    for kind in faults:
        getattr(shaky.plan, kind, lambda **_: None)(log="orders")
    # When records are published, one by one and together
    receipts, sent = [], []
    for number, size in enumerate(sizes):
        values = [b"%d.%d" % (number, index) for index in range(size)]
        sent += values
        if size % 2:
            receipts += [publisher.publish(value) for value in values]
        else:
            receipts.append(publisher.publish_many(values))
        if shaken:
            with suppress(PublishFailed):
                publisher.flush()
    with suppress(PublishFailed):
        publisher.close()
    shaky.release_late()
    assert all(receipt.done() for receipt in receipts)
    # Then a reader gets each once, in order, however it cuts its polls; and offsets grow
    reader = bus.subscriber("orders", initial="earliest", max_records=max_records, max_bytes=200)
    found = list(reader.records(idle_s=0.0))
    assert [record.value for record in found] == sent
    assert all(a.offset < b.offset for a, b in itertools.pairwise(found))
    world.close()


def test_copies_do_not_make_a_poll_wait_or_look_like_lag():
    # Given a bus that keeps copies, more of them than one fetch reads, before the next record and at the end
    world = virtual_world(dedupe=False)
    bus, shaky = world.shaky()
    publisher = bus.publisher("orders", retry_s=0.01)
    for value in (b"0", b"1"):
        shaky.plan.lose_ack(times=3, log="orders")
        publisher.publish(value).result()
    # When they are read, a batch at a time
    reader = bus.subscriber("orders", initial="earliest", max_bytes=1)
    started = world.runtime.monotonic()
    assert [record.value for _ in range(2) for record in reader.poll(60.0)] == [b"0", b"1"]
    # Then no poll waited, and nothing is left
    assert world.runtime.monotonic() == started
    assert not reader.poll()
    bus.metrics.render()
    assert reader._meter.lags() == {"orders": Lag(0, 0.0)}
    world.close()


@settings(max_examples=80, deadline=None)
@given(faults=FAULTS, sizes=SIZES, timeout=st.sampled_from([0.0, 0.02, 30.0]))
def test_what_was_acknowledged_is_there_and_what_failed_is_there_at_most_once(faults, sizes, timeout):
    # Given a publisher that gives up early
    world = virtual_world()
    bus, shaky = world.shaky()
    publisher = bus.publisher("orders", batch_records=2, retry_s=0.01, delivery_timeout_s=timeout)
    for kind in faults:
        getattr(shaky.plan, kind, lambda **_: None)(log="orders")
    receipts = {}
    for number, size in enumerate(sizes):
        for index in range(size):
            value = b"%d.%d" % (number, index)
            receipts[value] = publisher.publish(value)
    with suppress(PublishFailed):
        publisher.close()
    shaky.release_late()
    # Then acknowledged records are where they were told to be, and nothing is there twice
    found = everything(bus, "orders")
    where = {record.value: record.offset for record in found}
    assert len(where) == len(found)
    for value, receipt in receipts.items():
        if receipt.exception(0) is None:
            assert where[value] == receipt.result(0)
        else:
            assert receipt.offset is None
    world.close()


def stored(sizes):
    """Stored batches of these sizes with a gap before each, and all (offset, value) in them."""
    views, records, base = [], [], 0
    for number, size in enumerate(sizes):
        base += number % 3
        values = [b"%d.%d" % (number, index) for index in range(size)]
        data = pack(values, producer=bytes(16), sequence=base, created_ns=7).seal(9)
        views.append(BatchView(base, data, "orders"))
        records += [(base + index, value) for index, value in enumerate(values)]
        base += size
    return views, records


@given(sizes=SIZES, data=st.data())
def test_a_batch_is_like_a_list(sizes, data):
    # Given parts of stored batches
    views, _ = stored(sizes)
    segments, expected = [], []
    for view in views:
        start = data.draw(st.integers(0, view.count - 1))
        stop = data.draw(st.integers(start + 1, view.count))
        cut = data.draw(st.integers(1, stop - start))
        parts = [part for part in Segment(view, start, stop).cut(cut) if part.count]
        segments += parts
        expected += [(view.base + index, view.values()[index]) for index in range(start, stop)]
    # Then the batch is the list of their records, however it is looked at
    batch = RecordBatch("orders", segments)
    assert len(batch) == len(expected)
    assert [(record.offset, record.value) for record in batch] == expected
    assert batch.values() == [value for _, value in expected]
    assert (batch.first_offset, batch.last_offset) == (expected[0][0], expected[-1][0])
    assert ((batch.first().offset, batch.last().offset)) == (batch.first_offset, batch.last_offset)
    assert batch.raw().to_list() == batch.to_list()


@settings(deadline=None)
@given(
    sizes=SIZES,
    cuts=st.lists(st.integers(1, 9), min_size=1),
    max_bytes=st.sampled_from([1, 150, 10_000]),
    start=st.integers(0, 20),
    only_peeked=st.sets(st.integers(0, 30)),
    one_by_one=st.sets(st.integers(0, 30)),
)
def test_a_cursor_hands_out_everything_once_however_it_is_cut(sizes, cuts, max_bytes, start, only_peeked, one_by_one):
    # Given a log, and a cursor somewhere in it
    world = virtual_world()
    log = world.node().bus.create("orders", StreamConfig(capacity=None))
    for number, size in enumerate(sizes):
        log.append([pack([b"x"] * size, producer=bytes([1] * 16), sequence=100 * number, created_ns=0)])
    start = min(start, sum(sizes))
    cursor, found = Cursor(log, start), []
    # When it is read in pieces, some of which are only looked at, and some handed out only in part
    for turn in range(200):
        before = cursor.last_read
        read = cursor.peek if turn in only_peeked or turn in one_by_one else cursor.read
        segments, gap = read(cuts[turn % len(cuts)], max_bytes)
        assert gap is None
        if segments and turn in only_peeked:
            assert cursor.last_read == before
            continue
        if segments and turn in one_by_one:
            cursor.hand_out(segments[0].first_offset)
            found.append(segments[0].first_offset)
            continue
        if not segments and cursor.position >= sum(sizes):
            break
        count = sum(segment.count for segment in segments)
        assert count <= cuts[turn % len(cuts)]
        found += [s.view.base + index for s in segments for index in range(s.start, s.stop)]
        assert cursor.position == found[-1] + 1
    # Then every offset was handed out once
    assert found == list(range(start, sum(sizes)))
    world.close()
