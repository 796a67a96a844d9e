"""What a frame is to a reader that knows how far the stream is out."""

from __future__ import annotations

import pytest

from lockstep.core.outputs import Cut, OutState, Verdict, after, before, fold, further

NEW, PARTLY, COPY, GAP = Verdict.NEW, Verdict.PARTLY, Verdict.COPY, Verdict.GAP


@pytest.mark.parametrize(
    ("state", "cut", "then", "verdict"),
    [
        (OutState(), Cut(1, 1, 0), OutState(1), NEW),
        (OutState(4), Cut(7, 9, 4), OutState(9), NEW),  # 5 and 6 were empty
        (OutState(9), Cut(7, 9, 4), OutState(9), COPY),
        (OutState(12), Cut(7, 9, 4), OutState(12), COPY),
        (OutState(7), Cut(7, 9, 4), OutState(9), PARTLY),
        (OutState(8), Cut(7, 9, 4), OutState(9), PARTLY),
        (OutState(3), Cut(7, 9, 4), OutState(3), GAP),
        (OutState(5), Cut(7, 9, 4), OutState(5), GAP),  # the frame says that there is no block 5
        # a long block, in pieces
        (OutState(4), Cut(5, 5, 4, more=True), OutState(5, 1), NEW),
        (OutState(5, 1), Cut(5, 5, 4, part=1, more=True), OutState(5, 2), NEW),
        (OutState(5, 2), Cut(5, 5, 4, part=2), OutState(5), NEW),
        (OutState(5, 2), Cut(5, 8, 4, part=2), OutState(8), NEW),  # the last piece, and blocks after it
        (OutState(4), Cut(5, 5, 4, part=1), OutState(4), GAP),
        (OutState(5, 1), Cut(5, 5, 4, part=2), OutState(5, 1), GAP),
        (OutState(5, 2), Cut(5, 5, 4, part=1, more=True), OutState(5, 2), COPY),
        (OutState(5, 2), Cut(5, 5, 4, more=True), OutState(5, 2), COPY),
        (OutState(5), Cut(5, 5, 4, part=2), OutState(5), COPY),
        (OutState(6), Cut(5, 8, 4, part=2), OutState(8), PARTLY),
        (OutState(5, 1), Cut(6, 6, 5), OutState(5, 1), GAP),
        (OutState(2), Cut(3, 5, 2, more=True), OutState(5, 1), NEW),  # two whole blocks, and the beginning of a third
        (OutState(4), Cut(3, 5, 2, more=True), OutState(5, 1), PARTLY),
        # cut at other places: nobody can tell what is new in it
        (OutState(5, 1), Cut(5, 5, 4), OutState(5, 1), GAP),
        (OutState(5, 2), Cut(5, 5, 4, part=1), OutState(5, 2), GAP),
        (OutState(5, 1), Cut(3, 7, 2), OutState(5, 1), GAP),
    ],
)
def test_a_frame_counts_where_it_chains(state, cut, then, verdict) -> None:
    assert fold(state, cut) == (then, verdict)


@pytest.mark.parametrize("cut", [Cut(7, 9, 4), Cut(7, 7, 4, part=2), Cut(7, 9, 4, part=1, more=True)])
def test_a_frame_is_new_in_the_state_before_it_and_a_copy_in_the_state_after_it(cut) -> None:
    assert fold(before(cut), cut) == (after(cut), NEW)
    assert fold(after(cut), cut) == (after(cut), COPY)


def test_of_two_facts_the_further_one_is_taken() -> None:
    assert further(OutState(5, 2), OutState(5)) == further(OutState(5), OutState(5, 2)) == OutState(5)
    assert further(OutState(5, 2), OutState(5, 1)) == OutState(5, 2)
    assert further(OutState(4), OutState(5, 1)) == OutState(5, 1)


A4, A9, B4, B9 = "a4", "a9", "b4", "b9"
MINE = Cut(7, 9, 4, before=A4, lineage=((7, "a7"), (9, A9)))


@pytest.mark.parametrize(
    ("state", "cut", "then", "verdict"),
    [
        (OutState(4, digest=A4), MINE, OutState(9, digest=A9), NEW),
        (OutState(9, digest=A9), MINE, OutState(9, digest=A9), COPY),
        (OutState(7, digest="a7"), MINE, OutState(9, digest=A9), PARTLY),
        (OutState(8, digest=A9), MINE, OutState(9, digest=A9), PARTLY),  # 8 and 9 were decided by one entry
        (OutState(12, digest="b12"), MINE, OutState(12, digest="b12"), COPY),  # it says nothing of block 12
        (OutState(4), MINE, OutState(9, digest=A9), NEW),  # what is not known agrees with any
        (OutState(4, digest=A4), Cut(7, 9, 4), OutState(9), NEW),
        (OutState(4, digest=B4), MINE, OutState(4, digest=B4), Verdict.DIFFERS),
        (OutState(7, digest="b7"), MINE, OutState(7, digest="b7"), Verdict.DIFFERS),
        (OutState(9, digest=B9), MINE, OutState(9, digest=B9), Verdict.DIFFERS),
        (OutState(7, 1, "b7"), Cut(7, 7, 7, part=1, lineage=((7, "a7"),)), OutState(7, 1, "b7"), Verdict.DIFFERS),
    ],
)
def test_a_frame_of_another_sequence_is_told_from_a_copy(state, cut, then, verdict):
    assert fold(state, cut) == (then, verdict)
