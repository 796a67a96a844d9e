"""The sequence fold against a list that is written down by hand."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.sequence import Entry, Mark, SequenceState, chain, fold

calm = settings(deadline=None, max_examples=150)  # a busy machine is no failure
owners = st.sampled_from(["e1", "e2", "e3"])


@st.composite
def logs(draw) -> list[Mark | Entry]:
    """Marks and entries of leaders that mostly know where the sequence is."""
    log: list[Mark | Entry] = []
    state = SequenceState()
    for at in range(draw(st.integers(0, 40))):
        owner, slip = draw(owners), draw(st.sampled_from([0, 0, 0, 1, -1]))
        fresh = [
            Mark(max(state.epoch + 1 + slip, 0), owner),
            Entry(state.epoch + slip, owner, state.number + 1, state.digest, f"b{at}"),
            Entry(state.epoch, state.owner or owner, state.number + 1 + slip, state.digest, f"b{at}"),
            Entry(state.epoch, state.owner or owner, state.number + 1, draw(st.sampled_from([state.digest, ""])), "c"),
        ]
        log.append(draw(st.sampled_from(fresh + log[-3:])))
        state, _ = fold(state, at, log[-1])
    return log


@calm
@given(logs())
def test_the_fold_is_what_is_written_down_by_hand(log) -> None:
    state, applied, digests = SequenceState(), [], [""]
    for at, record in enumerate(log):
        marks = [mark for mark in log[:at] if isinstance(mark, Mark)]
        highest = max((mark.epoch for mark in marks), default=0)
        first = next((mark.owner for mark in marks if mark.epoch == highest), None) if highest else None
        state, counted = fold(state, at, record)
        if isinstance(record, Mark):
            assert counted == (record.epoch > highest)
            continue
        in_force = (record.epoch, record.owner) == (highest, first)
        assert counted == (in_force and record.number == len(applied) + 1 and record.after == digests[-1])
        if counted:
            applied.append(record.body)
            digests.append(chain(digests[-1], record))
    assert (state.number, state.digest) == (len(applied), digests[-1])


@calm
@given(logs(), st.data())
def test_a_fold_may_begin_in_the_middle(log, data) -> None:
    # Given the state after any part of the log
    cut = data.draw(st.integers(0, len(log)))
    whole = part = SequenceState()
    for at, record in enumerate(log):
        whole, _ = fold(whole, at, record)
        if at < cut:
            part = whole
    # When the fold goes on from there, reading some of it again
    for at in range(data.draw(st.integers(0, cut)), len(log)):
        part, _ = fold(part, at, log[at])
    # Then it ends in the same place
    assert part == whole


@calm
@given(logs())
def test_behind_a_mark_nothing_older_counts(log) -> None:
    state, newest = SequenceState(), 0
    for at, record in enumerate(log):
        state, counted = fold(state, at, record)
        if counted:
            assert record.epoch >= newest
            newest = record.epoch
