"""A leader acts on what it read back, and on nothing else."""

from __future__ import annotations

import pytest

from lockstep.core.leader import Apply, LeaderState, Lost, Observed, Propose, Send, StepDown, Tick, Won, leads, step
from lockstep.core.sequence import Entry, Mark, SequenceState


def after(state: LeaderState, *events) -> tuple[LeaderState, list]:
    actions = []
    for event in events:
        state, actions = step(state, event)
    return state, actions


@pytest.fixture
def leading() -> LeaderState:
    state, _ = after(LeaderState("e1"), Won(1), Tick(0.0), Observed(0, Mark(1, "e1")))
    assert leads(state)
    return state


def test_a_winner_marks_its_epoch_and_leads_when_it_reads_the_mark() -> None:
    # Given an engine that won epoch 1
    state, actions = after(LeaderState("e1"), Won(1), Tick(0.0))
    # Then it marks the sequence log, and does not lead yet
    assert actions == [Send(Mark(1, "e1"))]
    assert not leads(state)
    # When it reads the mark back
    state, actions = step(state, Observed(0, Mark(1, "e1")))
    # Then it does
    assert leads(state)
    assert actions == []


def test_a_mark_that_is_not_read_back_is_sent_again_after_a_while() -> None:
    state, _ = after(LeaderState("e1"), Won(1), Tick(0.0))
    state, actions = step(state, Tick(0.4))
    assert actions == []
    assert step(state, Tick(0.5))[1] == [Send(Mark(1, "e1"))]


def test_a_new_epoch_is_above_every_epoch_on_the_sequence_log() -> None:
    state, _ = step(LeaderState("e1", SequenceState(epoch=7, owner="e9")), Won(2))
    assert step(state, Tick(0.0))[1] == [Send(Mark(8, "e1"))]


def test_one_decision_after_the_other(leading) -> None:
    # Given two proposals
    state, actions = after(leading, Propose("x"), Propose("y"), Tick(1.0))
    # Then the first is sent, and sent again while it is not read back
    first = Entry(1, "e1", 1, "", "x")
    assert actions == [Send(first)]
    assert after(state, Tick(1.1))[1] == []
    state, actions = step(state, Tick(1.5))
    assert actions == [Send(first)]
    # When it is read back
    state, actions = step(state, Observed(1, first))
    # Then it is applied, and the second follows it
    assert actions == [Apply(first)]
    state, actions = step(state, Tick(1.6))
    assert actions == [Send(Entry(1, "e1", 2, state.sequence.digest, "y"))]


def test_nothing_is_proposed_before_the_mark_was_read_back() -> None:
    assert after(LeaderState("e1"), Won(1), Propose("x"), Tick(0.0))[1] == [Send(Mark(1, "e1"))]


def test_a_leader_with_nothing_to_say_is_silent(leading) -> None:
    assert step(leading, Tick(9.0)) == (leading, [])


def test_a_higher_mark_ends_the_lead_and_what_lands_behind_it_is_not_applied(leading) -> None:
    # Given a leader with an entry in flight
    state, actions = after(leading, Propose("x"), Tick(1.0))
    entry = actions[0].record
    # When another marks the log before the entry lands
    state, actions = step(state, Observed(1, Mark(2, "e2")))
    # Then it steps down, and its entry is an orphan; the proposal is still its own to repeat
    assert actions == [StepDown(1)]
    state, actions = step(state, Observed(2, entry))
    assert actions == []
    assert state.waiting == ("x",)
    assert step(state, Tick(9.0))[1] == []


def test_an_epoch_that_another_marked_first_is_not_won() -> None:
    state, actions = after(LeaderState("e1"), Won(1), Tick(0.0), Observed(0, Mark(1, "e2")))
    assert actions == [StepDown(1)]
    assert state.epoch is None


def test_whoever_loses_the_seat_sends_nothing_more(leading) -> None:
    state, _ = after(leading, Propose("x"), Tick(1.0), Lost())
    assert step(state, Tick(9.0)) == (state, [])


def test_an_entry_of_the_old_epoch_that_counted_is_not_proposed_again(leading) -> None:
    # Given a leader that lost the seat with an entry on its way
    state, actions = after(leading, Propose("x"), Propose("y"), Tick(1.0))
    entry = actions[0].record
    state, _ = step(state, Lost())
    # When the entry lands before any other mark, and the engine wins again
    state, actions = step(state, Observed(1, entry))
    assert actions == [Apply(entry)]
    state, actions = after(state, Won(3), Tick(2.0), Observed(2, Mark(3, "e1")), Tick(2.1))
    # Then only the rest is proposed
    assert [action.record.body for action in actions] == ["y"]


def test_everybody_applies_what_counts() -> None:
    entry = Entry(1, "e1", 1, "", "x")
    assert after(LeaderState("e2"), Observed(0, Mark(1, "e1")), Observed(1, entry))[1] == [Apply(entry)]
    assert after(LeaderState("e2"), Observed(0, Mark(1, "e1")), Observed(1, entry), Observed(2, entry))[1] == []


def test_equal_proposals_are_two_decisions(leading) -> None:
    state, actions = after(leading, Propose("x"), Propose("x"), Tick(1.0))
    state, _ = step(state, Observed(1, actions[0].record))
    assert state.waiting == ("x",)
