"""Ranges of the sequence as columns, and blocks of the past read from the log again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_engine import LocalEngine
from run_worlds import TRADES, frame, input_log, put, sums_graph, two_sources_graph

from lockstep.engine.errors import LogTooShort
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.runtime.sequence.reader import RangeReader, values_between
from lockstep.engine.runtime.worker import history as history_module
from lockstep.engine.runtime.worker.history import LogHistory
from lockstep.errors import DataError, Trimmed

SCHEMAS = {"q/in": TRADES}


@pytest.fixture
def engine(tmp_path):
    """Ten entries of one frame with two blocks each."""
    engine = LocalEngine(sums_graph(), frozenset({"q/in"}), tmp_path)
    fill(engine, 10)
    return engine


def fill(engine: LocalEngine, frames: int) -> None:
    log = input_log(engine, "q/in")
    put(log, *[frame([2 * at + 1, 2 * at + 2]) for at in range(frames)])
    engine.settle()


def reader_of(engine: LocalEngine) -> RangeReader:
    return RangeReader(engine.bus, engine.graph, engine.streams)


def ids(batch: EventBatch) -> list[int]:
    return batch.column("ID").to_pylist()


# Ranges


def test_a_range_ends_with_the_entry_that_makes_it_large_enough(engine):
    reader = reader_of(engine)
    taken = reader.read(reader.start(), 10, max_events=5)
    assert (taken.end.number, taken.end.events, taken.span.last) == (3, 6, 6)
    assert reader.read(taken.end, 10, max_events=1).end.number == 4
    assert reader.read(taken.end, 10).span.first == 7


def test_nothing_behind_a_position_is_an_empty_range(engine):
    reader = reader_of(engine)
    end = reader.read(reader.start(), 4).end
    taken = reader.read(end, 4)
    assert taken.end == end
    assert (taken.span.first, taken.span.last, dict(taken.span.inputs)) == (9, 8, {})


def test_an_entry_that_is_not_there_is_an_error_that_names_it(engine):
    reader = reader_of(engine)
    with pytest.raises(DataError, match=r"Entry 12 of test.p.S is not there; the last is 10"):
        reader.read(reader.start(), 12)


def test_only_the_columns_that_are_needed_are_read(engine):
    reader = reader_of(engine).only({"q/in": frozenset({"ID"})})
    batch = reader.read(reader.start(), 1).span.inputs["q/in"]
    assert ids(batch) == [1, 2]
    assert [column is None for column in batch.columns] == [False, True, True]


def test_an_input_that_was_trimmed_is_an_error_with_window_stream_and_offsets(engine):
    # Given an input that lost its first four records
    reader = reader_of(engine)
    late = reader.read(reader.start(), 4).end
    input_log(engine, "q/in").trim(4)
    # Then what needs them says so, before it begins or when it reads
    for refused in (lambda: reader.read(reader.start(), 10), lambda: reader.check_reach(reader.start())):
        with pytest.raises(LogTooShort) as told:
            refused()
        assert told.value.params == {"window": "q/in", "stream": "test.p.q.in.I", "needed": 0, "first": 4}
    # And what does not need them goes on
    reader.check_reach(late)
    assert reader.read(late, 10).end == engine.sequencer.position


def test_a_sequence_log_that_was_trimmed_can_be_read_from_a_later_position_only(engine):
    reader = reader_of(engine)
    late = reader.read(reader.start(), 4).end
    engine.bus.open(engine.streams.sequence).trim(late.sequence.upto + 1)
    assert reader.read(late, 10).end == engine.sequencer.position
    with pytest.raises((Trimmed, LogTooShort), match=r"test.p.S"):
        reader.read(reader.start(), 10)


def test_an_input_that_became_shorter_is_an_error(engine):
    log = input_log(engine, "q/in")
    with pytest.raises(DataError, match="ends before offset 11"):
        list(values_between(log, 8, 11))


# History


@pytest.fixture
def small_segments(monkeypatch):
    monkeypatch.setattr(history_module, "_SEGMENT_EVENTS", 4)
    monkeypatch.setattr(history_module, "_CACHED_EVENTS", 6)


def remembered(engine: LocalEngine, marks=()) -> LogHistory:
    """A history that followed the log entry by entry."""
    reader = reader_of(engine)
    history, position = LogHistory(reader, SCHEMAS, marks), reader.start()
    while position.number < engine.sequencer.position.number:
        taken = reader.read(position, position.number + 1)
        history.add(position, taken.end, taken.span)
        position = taken.end
    return history


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize(("first", "last"), [(1, 20), (4, 5), (3, 17), (20, 20), (1, 1), (5, 4)])
def test_any_blocks_of_the_past_can_be_read_again(engine, first, last):
    history = remembered(engine)
    for _ in range(2):  # the second time some of it is kept
        batch = history.read("q/in", first, last)
        assert ids(batch) == list(range(first, last + 1))
        assert batch.block.tolist() == list(range(first, last + 1))


@pytest.mark.usefixtures("small_segments")
def test_what_was_forgotten_is_not_held_on_the_logs(engine):
    history = remembered(engine)
    assert history.earliest == reader_of(engine).start()
    history.forget_before(11)
    assert history.earliest is not None
    assert 6 <= history.earliest.block < 11
    # The logs may now lose what lies before
    input_log(engine, "q/in").trim(history.earliest.ends["q/in"])
    assert ids(history.read("q/in", 11, 20)) == list(range(11, 21))
    history.forget_before(None)
    assert history.earliest == engine.sequencer.position


@pytest.mark.usefixtures("small_segments")
def test_a_restart_has_the_marks_only_and_reads_the_same(engine):
    before = remembered(engine)
    before.forget_before(6)
    after = LogHistory(reader_of(engine), SCHEMAS, before.marks)
    assert ids(after.read("q/in", 6, 20)) == list(range(6, 21))
    # And it goes on from there
    position = engine.sequencer.position
    put(input_log(engine, "q/in"), frame([21, 22]))
    engine.settle()
    taken = reader_of(engine).read(position, engine.sequencer.position.number)
    after.add(position, taken.end, taken.span)
    assert ids(after.read("q/in", 19, 22)) == [19, 20, 21, 22]
    assert len(after.marks) < 12


def test_a_quiet_engine_does_not_keep_ever_more_small_ranges(engine, monkeypatch):
    monkeypatch.setattr(history_module, "_CACHED_SPANS", 3)
    history = remembered(engine)
    assert len(history._spans) == 3
    assert ids(history.read("q/in", 1, 20)) == list(range(1, 21))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=5), st.lists(st.tuples(st.integers(1, 20), st.integers(0, 6)), max_size=6))
def test_ranges_of_any_size_and_reads_in_any_order_give_the_log(tmp_path_factory, steps, asked):
    engine = LocalEngine(sums_graph(), frozenset(), tmp_path_factory.mktemp("h"))
    fill(engine, 10)
    reader = reader_of(engine)
    history, position = LogHistory(reader, SCHEMAS, ()), reader.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_module, "_SEGMENT_EVENTS", 5)
        patch.setattr(history_module, "_CACHED_EVENTS", 3)
        for step in steps:
            taken = reader.read(position, min(position.number + step, 10))
            history.add(position, taken.end, taken.span)
            position = taken.end
        earliest = 1
        for first, count in asked:
            first, last = max(first, earliest), min(first + count, position.block)
            if first <= last:
                assert ids(history.read("q/in", first, last)) == list(range(first, last + 1))
                history.forget_before(first)
                earliest = first


def test_a_source_without_events_gives_an_empty_batch(tmp_path):
    engine = LocalEngine(two_sources_graph(), frozenset(), tmp_path)
    put(input_log(engine, "q/left"), frame([1, 2, 3]))
    engine.settle()
    reader = reader_of(engine)
    taken = reader.read(reader.start(), 1)
    history = LogHistory(reader, {"q/left": TRADES, "q/right": TRADES}, ())
    history.add(reader.start(), taken.end, taken.span)
    assert len(history.read("q/right", 1, 3)) == 0
