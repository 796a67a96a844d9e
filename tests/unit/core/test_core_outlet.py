"""A leader at an out stream: nothing before its barrier was read, one frame in flight, again until it is read back."""

from __future__ import annotations

import pytest

from lockstep.core.outlet import (
    Broken,
    Differs,
    Follow,
    Lead,
    Observed,
    Offer,
    OutletState,
    Published,
    Reset,
    Send,
    Tick,
    ready,
    step,
)
from lockstep.core.outputs import Barrier, Cut, OutState

MINE = Barrier(3, "e1")
NEXT = Cut(5, 6, 4)


def after(state: OutletState, *events) -> tuple[OutletState, list]:
    actions: list = []
    for event in events:
        state, actions = step(state, event)
    return state, actions


@pytest.fixture
def opened() -> OutletState:
    state, _ = after(OutletState("e1", OutState(4)), Lead(3), Tick(0.0), Observed(MINE))
    assert ready(state)
    return state


def test_a_leader_sends_a_barrier_until_it_reads_it_and_nothing_else() -> None:
    # Given a new leader
    state, actions = after(OutletState("e1", OutState(4)), Lead(3), Tick(0.0))
    assert actions == [Send(MINE)]
    assert after(state, Tick(0.4))[1] == []
    state, actions = step(state, Tick(0.5))
    assert actions == [Send(MINE)]
    # When it offers a frame before it read the barrier
    state, actions = after(state, Offer(NEXT), Tick(0.6))
    # Then the frame is passed over
    assert (actions, ready(state)) == ([], False)
    # Until it reads its barrier
    assert ready(step(state, Observed(MINE))[0])


@pytest.mark.parametrize("other", [Barrier(3, "e2"), Barrier(2, "e1"), Barrier(9, "e9")])
def test_the_barrier_of_another_opens_nothing(other) -> None:
    assert not after(OutletState("e1", OutState()), Lead(3), Tick(0.0), Observed(other))[0].is_open


def test_what_was_there_before_the_barrier_is_known() -> None:
    state, _ = after(OutletState("e1", OutState(4)), Lead(3), Tick(0.0), Observed(NEXT), Observed(MINE))
    assert (state.out, ready(state)) == (OutState(6), True)


def test_a_frame_is_sent_until_it_is_read_back(opened) -> None:
    state, actions = after(opened, Offer(NEXT), Tick(0.1))
    assert actions == [Send(NEXT)]
    assert after(state, Tick(0.2))[1] == []
    assert after(state, Tick(0.6))[1] == [Send(NEXT)]
    state, actions = step(state, Observed(NEXT))
    assert actions == [Published(NEXT)]
    assert (state.out, ready(state)) == (OutState(6), True)
    assert after(state, Tick(9.0))[1] == []


def test_one_frame_is_in_flight(opened) -> None:
    state, _ = after(opened, Offer(NEXT), Tick(0.1), Offer(Cut(7, 7, 6)))
    assert state.in_flight == NEXT


def test_the_copy_of_a_stale_leader_will_do(opened) -> None:
    # Given a frame of two blocks in flight
    state, _ = after(opened, Offer(NEXT), Tick(0.1))
    # When another leader's copies of its blocks land, cut otherwise
    state, actions = step(state, Observed(Cut(5, 5, 4)))
    assert actions == []
    state, actions = step(state, Observed(Cut(6, 6, 5)))
    # Then it is out
    assert actions == [Published(NEXT)]


def test_what_is_out_already_is_not_sent(opened) -> None:
    state, actions = after(opened, Offer(Cut(4, 4, 2)))
    assert actions == [Published(Cut(4, 4, 2))]
    assert after(state, Tick(9.0))[1] == []


def test_a_frame_that_is_partly_out_is_sent(opened) -> None:
    assert after(opened, Offer(Cut(4, 6, 2)), Tick(0.1))[1] == [Send(Cut(4, 6, 2))]


@pytest.mark.parametrize("cut", [Cut(7, 7, 6), Cut(6, 6, 2)], ids=["a hole", "a contradiction"])
def test_whoever_can_not_go_on_from_the_last_block_must_not_lead(opened, cut) -> None:
    state, actions = step(opened, Offer(cut))
    assert actions == [Broken(cut, 4)]
    assert after(state, Tick(9.0))[1] == []
    assert not ready(after(state, Observed(MINE))[0])


def test_a_frame_in_flight_that_is_contradicted_ends_the_lead(opened) -> None:
    state, _ = after(opened, Offer(Cut(6, 6, 4)), Tick(0.1))
    assert after(state, Observed(Cut(5, 5, 4)))[1] == [Broken(Cut(6, 6, 4), 5)]


def test_a_takeover_in_the_middle_of_a_long_block_goes_on_with_the_next_piece() -> None:
    # Given a block of three pieces, of which the leader before wrote one
    first, second = Cut(5, 5, 4, more=True), Cut(5, 5, 4, part=1, more=True)
    state, _ = after(OutletState("e1", OutState(4)), Lead(3), Tick(0.0), Observed(first), Observed(MINE))
    assert state.out == OutState(5, 1)
    # When it offers the pieces in turn
    state, actions = step(state, Offer(first))
    assert actions == [Published(first)]
    # Then only what is missing is sent
    assert after(state, Offer(second), Tick(0.1))[1] == [Send(second)]


def test_a_trimmed_stream_is_begun_anew_behind_a_new_barrier(opened) -> None:
    # Given a frame in flight, when the stream is trimmed under the cursor and a beat says that block 9 is out
    state, _ = after(opened, Offer(NEXT), Tick(0.1), Reset(OutState(9)))
    assert (state.out, ready(state), state.in_flight) == (OutState(9), False, None)
    # Then a new barrier is sent, and read
    state, actions = step(state, Tick(0.2))
    assert actions == [Send(MINE)]
    assert ready(step(state, Observed(MINE))[0])


def test_an_old_beat_takes_back_nothing_that_was_read(opened) -> None:
    assert step(opened, Reset(OutState(2)))[0].out == OutState(4)


def test_a_follower_reads_and_sends_nothing(opened) -> None:
    state, _ = after(opened, Offer(NEXT), Follow())
    assert after(state, Tick(9.0))[1] == []
    state, actions = step(state, Observed(NEXT))
    assert (state.out, actions) == (OutState(6), [])


def test_to_be_told_the_same_epoch_again_changes_nothing(opened) -> None:
    assert step(opened, Lead(3)) == (opened, [])
    assert not ready(step(opened, Lead(4))[0])


def test_a_frame_that_was_computed_from_another_sequence_is_never_sent():
    state, _ = after(OutletState("e1", OutState(4, digest="a4")), Lead(3), Tick(0.0), Observed(MINE))
    cut = Cut(5, 6, 4, before="b4", lineage=((6, "b6"),))
    state, actions = after(state, Offer(cut))
    assert actions == [Differs(4, "a4", "b4")]
    assert after(state, Tick(9.0))[1] == []


def test_what_somebody_else_published_instead_is_seen_when_it_is_read():
    state, _ = after(OutletState("e1", OutState(4, digest="a4")), Lead(3), Tick(0.0), Observed(MINE))
    mine, other = (Cut(5, 6, 4, before="a4", lineage=((6, digest),)) for digest in ("a6", "b6"))
    assert after(state, Offer(mine), Tick(1.0), Observed(other))[1] == [Differs(6, "b6", "a6")]
    assert after(state, Observed(other), Observed(mine))[1] == [Differs(6, "a6", "b6")]
