"""What a sequence log and its inputs say: entries name ends, and leader and reader number the same blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_engine import LocalEngine
from run_worlds import (
    HEAD_DAMAGED,
    body_damaged,
    frame,
    input_log,
    put,
    run_all,
    sums_graph,
    told,
    two_sources_graph,
)

from lockstep.core.sequence import Entry, Mark, SequenceState
from lockstep.engine.events.frames import read_head
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.sequence.entries import BlockCounter, Decision, SequencePosition, counted, decode, encode
from lockstep.engine.runtime.sequence.reader import RangeReader
from lockstep.engine.runtime.sequence.streams import CONTROL_STREAM
from lockstep.errors import DataError
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import ThreadRuntime

ANNA, BERT = b"a" * 16, b"b" * 16


@pytest.fixture
def engine(tmp_path):
    return LocalEngine(sums_graph(), frozenset({"q/in"}), tmp_path)


def ids(engine: LocalEngine, path: str = "q/in") -> list[tuple[int, int]]:
    """Block and ID of everything that came out."""
    return [(number, event.values[0]) for number, events in engine.out(path) for event in events]


def read_everything(engine: LocalEngine) -> SequencePosition:
    reader = RangeReader(engine.bus, engine.graph, engine.streams)
    return reader.read(reader.start(), engine.sequencer.position.number).end


# Entries


def test_an_entry_comes_back_from_the_log_as_it_was():
    decision = Decision({"q/a": 3, "q/b": 17}, 5, 9, 1_000)
    entry = Entry(2, "me", 7, "digest", decision.body())
    assert Decision.of(decode(encode(entry))) == decision
    assert decode(encode(Mark(3, "me"))) == Mark(3, "me")


def test_a_record_of_a_newer_kind_stops_the_reader():
    with pytest.raises(DataError, match="unknown kind 'fence'"):
        decode(b'{"kind":"fence"}')


def test_only_entries_that_count_are_seen():
    # Given two leaders' records on one log: what the first one writes after the second's mark does not count
    log = MemoryBroker().bus(ThreadRuntime()).create("s", CONTROL_STREAM)
    first = [Entry(1, "old", number, "", "") for number in (1, 2)]
    states = []
    put(log, encode(Mark(1, "old")), encode(first[0]))
    states += [state for state, _ in counted(log, SequenceState())]
    stale = replace(first[1], after=states[0].digest)
    put(log, encode(Mark(2, "new")), encode(stale), encode(replace(stale, epoch=2, owner="new", body="b")))
    # Then reading from the beginning and reading on from the first state agree
    everything = [(state.number, entry.owner) for state, entry in counted(log, SequenceState())]
    assert everything == [(1, "old"), (2, "new")]
    assert [entry.owner for _, entry in counted(log, states[0])] == ["new"]
    assert list(counted(log, SequenceState(), upto=0)) == []
    assert [state.number for state, _ in counted(log, SequenceState(), upto=1)] == [1]


def test_what_lies_between_ends_is_the_input_whoever_wrote_it(engine):
    # Given records of two writers, one of which names no client
    put(input_log(engine, "q/in"), frame([1, 2]), frame([3], client=ANNA), frame([4]))
    run_all(engine)
    assert ids(engine) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert engine.sequencer.position.ends == {"q/in": 3}


def test_a_reader_refuses_an_entry_whose_counts_are_not_those_of_its_inputs(engine):
    put(input_log(engine, "q/in"), frame([1, 2]))
    engine.settle()
    last = engine.sequencer.position.sequence
    lie = Decision({"q/in": 1}, 5, 2)
    put(
        engine.bus.open(engine.streams.sequence),
        encode(Entry(last.epoch, str(last.owner), last.number + 1, last.digest, lie.body())),
    )
    reader = RangeReader(engine.bus, engine.graph, engine.streams)
    with pytest.raises(DataError, match="says 5, 2 where its inputs hold 2 blocks, 2 events"):
        reader.read(reader.start(), last.number + 1)


def test_a_position_comes_back_from_plain_values():
    position = SequencePosition(SequenceState(2, "me", 5, "d", 9), {"q/in": 1}, 7, 8, {ANNA.hex(): 3})
    assert SequencePosition.of(position.tree()) == position


# Client message ids


@pytest.mark.parametrize(
    ("frames", "numbers"),
    [
        ([(1, 3), (1, 3)], [1, 2, 3]),
        ([(1, 3), (2, 2)], [1, 2, 3]),
        ([(1, 2), (2, 3)], [1, 2, 3, 4]),
        ([(1, 3), (1, 5)], [1, 2, 3, 4, 5]),
        ([(41, 2), (43, 1)], [41, 42, 43]),
        ([(41, 2), (40, 1), (43, 1)], [41, 42, 43]),
    ],
    ids=["the same again", "a part again", "overlapping", "the same and more", "begins anywhere", "older"],
)
def test_messages_that_came_before_are_dropped(engine, frames, numbers):
    log = input_log(engine, "q/in")
    for first, count in frames:
        put(log, frame(range(first, first + count), client=ANNA, first_id=first))
    run_all(engine)
    assert [one for _, one in ids(engine)] == numbers
    assert [block for block, _ in ids(engine)] == list(range(1, len(numbers) + 1))
    assert told(engine, engine.streams.bad) == []
    assert read_everything(engine) == engine.sequencer.position


def test_two_producers_count_for_themselves(engine):
    log = input_log(engine, "q/in")
    put(log, frame([1, 2], client=ANNA), frame([11, 12], client=BERT), frame([2, 3], client=ANNA, first_id=2))
    put(log, frame([12, 13], client=BERT, first_id=2))
    run_all(engine)
    assert [one for _, one in ids(engine)] == [1, 2, 11, 12, 3, 13]
    assert engine.sequencer.position.clients == {f"q/in/{ANNA.hex()}": 3, f"q/in/{BERT.hex()}": 3}


def test_a_gap_is_refused_and_shown_and_what_was_missing_may_still_come(engine):
    # Given message 3 without message 2, then both in order
    log = input_log(engine, "q/in")
    put(log, frame([1], client=ANNA), frame([3], client=ANNA, first_id=3), frame([2, 3], client=ANNA, first_id=2))
    run_all(engine)
    # Then nothing is taken out of order, and people can see what was refused
    assert ids(engine) == [(1, 1), (3, 2), (4, 3)]
    (record,) = told(engine, engine.streams.bad)
    assert (record["block"], record["reason"]) == (2, "unparsable")
    assert "before it are missing" in str(record["detail"])
    assert record["window"] == "test.p.q.in.I offset 1"


def test_ids_are_remembered_over_a_new_leader_and_a_restart(engine):
    log = input_log(engine, "q/in")
    put(log, frame([1, 2], client=ANNA))
    run_all(engine)
    engine.restart()
    put(log, frame([1, 2, 3], client=ANNA))
    run_all(engine)
    assert ids(engine) == [(1, 1), (2, 2), (3, 3)]


# Damaged records


def test_a_record_that_is_no_frame_is_an_empty_block_under_whose_number_it_is_shown(engine):
    put(input_log(engine, "q/in"), frame([1]), HEAD_DAMAGED, b"", frame([2]))
    run_all(engine)
    assert ids(engine) == [(1, 1), (4, 2)]
    records = told(engine, engine.streams.bad)
    assert [(one["block"], one["reason"], one["window"]) for one in records] == [
        (2, "unparsable", "test.p.q.in.I offset 1"),
        (3, "unparsable", "test.p.q.in.I offset 2"),
    ]
    assert engine.publisher.bad == {"unparsable": 2}


@pytest.mark.parametrize("refused", [HEAD_DAMAGED, frame([9], client=ANNA, first_id=9)], ids=["garbage", "gap"])
def test_what_is_refused_is_shown_also_if_nothing_comes_behind_it(engine, refused):
    # Given a record that comes alone, after everything that is published
    put(input_log(engine, "q/in"), frame([1], client=ANNA))
    run_all(engine)
    put(input_log(engine, "q/in"), refused)
    run_all(engine)
    assert [one["block"] for one in told(engine, engine.streams.bad)] == [2]
    # And it is shown once, whatever comes later
    engine.restart()
    put(input_log(engine, "q/in"), frame([2], client=ANNA, first_id=2))
    run_all(engine)
    assert len(told(engine, engine.streams.bad)) == 1
    assert ids(engine) == [(1, 1), (3, 2)]


@pytest.mark.parametrize("known", [0, 1], ids=["new", "known in part"])
def test_a_frame_with_a_damaged_body_leaves_empty_blocks(engine, known):
    log = input_log(engine, "q/in")
    put(log, frame(range(1, 1 + known), client=ANNA)) if known else None
    put(log, body_damaged([1, 2, 3], client=ANNA), frame([4], client=ANNA, first_id=4))
    run_all(engine)
    assert ids(engine)[-1] == (4, 4)
    assert len(ids(engine)) == 1 + known
    assert [one["block"] for one in told(engine, engine.streams.bad)] == [1 + known]
    assert engine.published() == 4


def test_a_frame_of_another_schema_leaves_empty_blocks(engine):
    put(input_log(engine, "q/in"), frame([1, 2], schema=Schema.parse("ID*:int32")), frame([3]))
    run_all(engine)
    assert ids(engine) == [(3, 3)]
    (record,) = told(engine, engine.streams.bad)
    assert "another schema" in str(record["detail"])


def test_damage_on_one_input_does_not_touch_the_other(tmp_path):
    engine = LocalEngine(two_sources_graph(), frozenset({"q/left", "q/right"}), tmp_path, entry_events=100)
    put(input_log(engine, "q/left"), body_damaged([1, 2]), HEAD_DAMAGED)
    put(input_log(engine, "q/right"), frame([1, 2], client=BERT))
    run_all(engine)
    assert engine.out("q/left") == []
    assert ids(engine, "q/right") == [(4, 1), (5, 2)]
    assert len(told(engine, engine.streams.bad)) == 2


# Leader and reader agree

pieces = st.one_of(
    st.tuples(st.just("client"), st.sampled_from([ANNA, BERT]), st.integers(1, 6), st.integers(1, 4)),
    st.tuples(st.just("damaged"), st.sampled_from([ANNA, BERT]), st.integers(1, 6), st.integers(1, 4)),
    st.tuples(st.just("free"), st.just(b""), st.just(1), st.integers(1, 4)),
    st.tuples(st.just("garbage"), st.just(b""), st.just(1), st.just(1)),
)


def record(kind: str, client: bytes, first: int, count: int) -> bytes:
    if kind == "garbage":
        return HEAD_DAMAGED
    if kind == "free":
        return frame(range(count))
    make = frame if kind == "client" else body_damaged
    return make(range(first, first + count), client=client, first_id=first)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(pieces, min_size=1, max_size=12), st.integers(1, 20), st.integers(0, 12))
def test_a_reader_counts_like_the_leader_whatever_comes(tmp_path_factory, given_pieces, entry_events, cut):
    engine = LocalEngine(sums_graph(), frozenset(), tmp_path_factory.mktemp("r"), entry_events=entry_events)
    put(input_log(engine, "q/in"), *[record(*piece) for piece in given_pieces])
    engine.settle()
    reader, number = RangeReader(engine.bus, engine.graph, engine.streams), engine.sequencer.position.number
    # In one go, in two, and entry by entry with a bound
    whole = reader.read(reader.start(), number).end
    halves = reader.read(reader.read(reader.start(), min(cut, number)).end, number).end
    at = reader.start()
    while at.number < number:
        at = reader.read(at, number, 1).end
    assert whole == halves == at == engine.sequencer.position


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=12))
def test_each_message_of_a_client_is_taken_once_and_in_order(sent):
    # Given a client whose first frame is the first of the list
    tally, taken, refused = BlockCounter(0, 0, {}), [], 0
    for first, count in sent:
        known = tally.take(read_head(frame(range(count), client=ANNA, first_id=first)), 0)
        taken += [] if known is None else range(first + known, first + count)
        refused += known is None
    # Then what was taken is contiguous; every message is a block, and so is every frame that was refused
    assert taken == [*range(taken[0], taken[0] + len(taken))] if taken else not refused
    assert tally.block == len(taken) + refused
