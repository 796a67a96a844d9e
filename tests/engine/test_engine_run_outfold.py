"""Reading an out stream that several leaders wrote to: each block once, in order, and whole."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.outputs import Barrier, OutState
from lockstep.engine.errors import FrameDamaged, OutputBroken
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import cut_frames, encode_frame, read_head
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.output.event_streams import OutFold, WholeBlocks
from lockstep.engine.runtime.output.outlet import cut_of, decode_barrier, encode_barrier, is_barrier
from lockstep.errors import DataError

SCHEMA = Schema.parse("ID*:int64,name:string")
Blocks = dict[int, int]
"""How many events each block has."""


def batch_of(blocks: Blocks) -> EventBatch:
    rows = {number: [(number * 1000 + at, "x" * (at % 9)) for at in range(events)] for number, events in blocks.items()}
    made = [(number, [Event(Opcode.INSERT, Flag.NORMAL, row) for row in each]) for number, each in rows.items() if each]
    return EventBatch.of(SCHEMA, made)


def frames_of(blocks: Blocks, previous: int = 0, max_bytes: int = 600) -> list[bytes]:
    return cut_frames(batch_of(blocks), max_bytes, previous=previous)


def given_out(fold: OutFold, values: Sequence[bytes]) -> list[int]:
    return [one for at, value in enumerate(values) for one in fold.take(at, value).column("ID").to_pylist()]


def ids(blocks: Blocks) -> list[int]:
    return [number * 1000 + at for number, events in blocks.items() for at in range(events)]


LARGE = {1: 1, 2: 60, 4: 2, 5: 3}


def test_a_copy_of_a_later_piece_is_dropped():
    frames = frames_of(LARGE)
    pieces = [frame for frame in frames if read_head(frame).first == 2]
    assert len(pieces) > 3
    late = [*frames[:3], *pieces[:2], pieces[1], *frames[3:], *pieces, *frames]
    assert given_out(OutFold("o", SCHEMA, 0), late) == ids(LARGE)


def test_a_missing_piece_is_a_gap():
    frames = frames_of(LARGE)
    at = next(at for at, frame in enumerate(frames) if read_head(frame).part == 2)
    with pytest.raises(OutputBroken) as told:
        given_out(OutFold("o", SCHEMA, 0), frames[:at] + frames[at + 1 :])
    assert told.value.params == {"number": 2, "stream": "o", "previous": 2, "last": 2}


def test_a_reader_goes_on_within_a_block():
    frames = frames_of(LARGE)
    fold = OutFold("o", SCHEMA, 0)
    first = given_out(fold, frames[:3])
    assert fold.state is not None
    assert fold.state == OutState(2, 2)
    assert first + given_out(OutFold("o", SCHEMA, fold.state), frames) == ids(LARGE)


def test_a_reader_that_comes_in_the_middle_of_a_block_leaves_it_out_whole():
    frames = frames_of(LARGE)
    at = next(at for at, frame in enumerate(frames) if read_head(frame).part == 2)
    assert given_out(OutFold("o", SCHEMA), frames[at:]) == ids({4: 2, 5: 3})


def test_a_frame_that_knows_nothing_of_the_last_block_is_a_gap():
    # Given somebody who has blocks 2 and 5 where this reader has 1, 2 and 3
    fold = OutFold("o", SCHEMA, 0)
    given_out(fold, frames_of({1: 1, 2: 1, 3: 1}))
    with pytest.raises(OutputBroken):
        fold.take(9, frames_of({2: 1, 5: 1}, 1)[0])


def test_blocks_in_pieces_are_given_whole_and_not_before():
    frames = frames_of(LARGE)
    fold = WholeBlocks(OutFold("o", SCHEMA, 0))
    at = next(at for at, frame in enumerate(frames) if read_head(frame).part == 2)
    early = [len(fold.take(offset, frame)) for offset, frame in enumerate(frames[: at + 1])]
    assert early == [1] + [0] * at
    assert fold.is_waiting
    late = [fold.take(offset, frame) for offset, frame in enumerate([*frames[2:4], *frames[at + 1 :]])]
    whole = next(batch for batch in late if len(batch))
    assert whole.column("ID").to_pylist()[:60] == ids({2: 60})
    assert not fold.is_waiting


def test_barriers_are_skipped_wherever_they_are():
    barrier = encode_barrier(Barrier(7, "größer"))
    assert is_barrier(barrier)
    assert decode_barrier(barrier) == Barrier(7, "größer")
    values = [barrier, *(value for frame in frames_of(LARGE) for value in (frame, barrier))]
    assert given_out(OutFold("o", SCHEMA), values) == ids(LARGE)


@pytest.mark.parametrize(
    "value", [b"", b"{", b"{}", b'{"kind":"beat"}', b'{"kind":"barrier","epoch":"1","owner":"a"}', b"LE\x01", b"[1]"]
)
def test_what_is_no_barrier_is_not_skipped(value):
    assert not is_barrier(value)
    with pytest.raises(DataError, match="no barrier"):
        decode_barrier(value)
    with pytest.raises(FrameDamaged):
        OutFold("o", SCHEMA, 0).take(0, value)


def test_pieces_from_before_they_had_numbers_are_read():
    first, second = batch_of({2: 10}), batch_of({2: 20}).slice(10, 20)
    values = [encode_frame(first, previous=1), encode_frame(second, previous=2), *frames_of({3: 1}, 2)]
    assert given_out(OutFold("o", SCHEMA, 1), values) == ids({2: 20, 3: 1})


@st.composite
def leaders(draw) -> tuple[Blocks, list[bytes]]:
    """Blocks, and a stream that leaders wrote: each goes on from some point that is out, some wake up late."""
    numbers = draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 40]), min_size=len(numbers), max_size=len(numbers)))
    blocks = {sum(numbers[: at + 1]): size for at, size in enumerate(sizes)}
    cuttings = [_cutting(draw, blocks) for _ in range(3)]
    values: list[bytes] = []
    oracle = OutState()
    reached = [0, 0, 0]
    for _ in range(40):
        who = draw(st.integers(0, 2))
        if draw(st.integers(0, 5)) == 0:
            values.append(encode_barrier(Barrier(who, "w")))
        if reached[who] == len(cuttings[who]):
            reached[who] = draw(st.integers(0, len(cuttings[who]) - 1))
        frame = cuttings[who][reached[who]]
        if _may_follow(oracle, frame):
            values.append(frame)
            reached[who] += 1
            head = read_head(frame)
            end = OutState(head.last, head.part + 1 if head.more else 0)
            oracle = max(oracle, end, key=lambda state: (state.last, state.part or 10**9))
    return blocks, values


def _cutting(draw, blocks: Blocks) -> list[bytes]:
    """The frames of one leader, which may put other blocks together than the next."""
    numbers = list(blocks)
    cuts = sorted({0, len(numbers), *draw(st.sets(st.integers(0, len(numbers)), max_size=3))})
    frames: list[bytes] = []
    for start, stop in pairwise(cuts):
        previous = numbers[start - 1] if start else 0
        frames += frames_of({number: blocks[number] for number in numbers[start:stop]}, previous)
    return frames


def _may_follow(state: OutState, frame: bytes) -> bool:
    """Whether a leader may have written this: it never writes after a gap."""
    head = read_head(frame)
    begins = (head.first, head.part) if head.part else (head.previous, 10**9)
    return begins <= (state.last, state.part or 10**9) and not (state.part and head.first < state.last <= head.last)


@settings(max_examples=100, deadline=None)
@given(leaders())
def test_whoever_writes_how_often_the_reader_gets_each_block_once(world):
    blocks, values = world
    found = given_out(OutFold("o", SCHEMA, 0), values)
    assert found == ids(blocks)[: len(found)]
    frames = [read_head(value) for value in values if not is_barrier(value)]
    whole = max((head.last for head in frames if not head.more), default=0)
    assert len(found) >= len(ids({number: size for number, size in blocks.items() if number <= whole}))


def test_a_cut_says_what_the_head_says():
    cuts = [cut_of(read_head(frame)) for frame in frames_of(LARGE)]
    assert (cuts[0].first, cuts[0].last, cuts[0].previous, cuts[0].part, cuts[0].more) == (1, 1, 0, 0, False)
    assert [(cut.part, cut.more) for cut in cuts[1:4]] == [(0, True), (1, True), (2, True)]
