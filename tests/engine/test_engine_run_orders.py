"""Which entries a micro-batch takes: bounded in events, never past what may wait, always something if there is any."""

from __future__ import annotations

from dataclasses import replace

import pytest
from local_engine import LocalEngine
from run_worlds import frame, input_log, put, sums_graph

from lockstep.engine.compute.planner import SequenceTail
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.spark.query import Order, OrderReader


@pytest.fixture
def engine(tmp_path):
    """Six entries with two events each."""
    engine = LocalEngine(sums_graph(), frozenset({"q/in"}), tmp_path)
    put(input_log(engine, "q/in"), *[frame([2 * at, 2 * at + 1]) for at in range(6)])
    engine.settle()
    return engine


def tail_of(engine: LocalEngine, known: SequencePosition | None = None) -> SequenceTail:
    return SequenceTail(engine.bus.open(engine.streams.sequence), known)


@pytest.mark.parametrize(("room", "stops"), [(1, [1, 2, 3, 4, 5, 6]), (4, [2, 4, 6]), (5, [2, 4, 6]), (100, [6])])
def test_orders_are_bounded_in_events_and_take_at_least_one_entry(engine, room, stops):
    tail, found = tail_of(engine), [0]
    while (stop := tail.next_stop(found[-1], room)) > found[-1]:
        found.append(stop)
    assert found[1:] == stops


def test_an_entry_that_comes_later_is_seen(engine):
    tail = tail_of(engine)
    assert tail.next_stop(6, 100) == 6
    put(input_log(engine, "q/in"), frame([99]))
    engine.settle()
    assert tail.next_stop(6, 100) == 7


def test_a_tail_begins_where_everything_is_published_or_earlier_if_spark_is_behind(engine):
    whole = tail_of(engine)
    known = SequencePosition.of(engine.sequencer.position.tree())
    assert tail_of(engine, known).next_stop(6, 3) == 6
    for start in range(6):
        assert tail_of(engine, known).next_stop(start, 3) == tail_of(engine).next_stop(start, 3)
    assert whole.next_stop(0, 100) == 6


def test_no_new_work_while_too_much_waits_to_be_published(engine):
    engine.setup = replace(engine.setup, buffer_blocks=4, batch_events=2)
    reader = OrderReader(engine.setup.text(), 0)
    at = reader.latestOffset(reader.initialOffset(), None)
    assert at == {"number": 0, "start": engine.setup.incarnation}  # each start has a first batch, to load the state
    for _ in range(2):
        after = reader.latestOffset(at, None)
        assert after["number"] == at["number"] + 1
        engine.run_batch(after["number"], publish=False)
        at = after
    # Given as many parts as may wait
    assert reader.latestOffset(at, None) == at
    # When they are published, it goes on
    engine.publish()
    assert reader.latestOffset(at, None)["number"] == 3


def test_an_order_is_one_row(engine):
    reader = OrderReader(engine.setup.text(), 1)
    (order,) = reader.partitions({"number": 2}, {"number": 5})
    assert isinstance(order, Order)
    assert list(reader.read(order)) == [(1, 2, 5)]


def test_what_was_committed_and_not_published_gets_an_order_after_a_restart(engine):
    # Given a process that died when Spark had counted everything, and nothing was out
    engine.run_batch(6, publish=False)
    committed = {"number": 6, "start": engine.setup.incarnation}
    assert OrderReader(engine.setup.text(), 0).latestOffset(committed, None) == committed
    # When another one starts, then Spark has something to do, although nothing new was decided
    engine.restart()
    again = OrderReader(engine.setup.text(), 0).latestOffset(committed, None)
    assert again == {"number": 6, "start": engine.setup.incarnation} != committed
    (order,) = OrderReader(engine.setup.text(), 0).partitions(committed, again)
    assert isinstance(order, Order)
    assert (order.start, order.stop) == (6, 6)
    engine.run_batch(6)
    assert engine.published() == 12


def test_no_batch_begins_once_the_engine_stops_and_another_incarnation_goes_on(engine):
    reader = OrderReader(engine.setup.text(), 0)
    at = reader.latestOffset(reader.initialOffset(), None)
    engine.setup.end_orders()
    assert reader.latestOffset(at, None) == at
    engine.restart()
    after = OrderReader(engine.setup.text(), 0).latestOffset(at, None)
    assert after["start"] == engine.setup.incarnation
    assert OrderReader(engine.setup.text(), 0).latestOffset(after, None)["number"] == 6
