"""The fold of a group's log."""

from __future__ import annotations

from lockstep.core.group import (
    RESETS_REMEMBERED,
    Beat,
    Claim,
    Confirm,
    GroupState,
    Leave,
    Member,
    Record,
    Release,
    Reset,
    Snapshot,
    fold,
    restore,
)  # fmt: skip


def folded(*records: Record, state: GroupState | None = None) -> GroupState:
    state = state or GroupState()
    for at, record in enumerate(records, state.upto + 1):
        state = fold(state, at, record)
    return state


OWNED = folded(Beat("p1", 1, ("a",), {}), Claim("p1", "a", 1, 0), Confirm("p1", "a", 1, 7))


def test_a_beat_is_how_a_member_joins() -> None:
    state = folded(Beat("p1", 1, ("a", "b"), {}))
    assert state.members == {"p1": Member(("a", "b"), 0)}
    assert state.seat("a").owner is None


def test_a_beat_counts_for_the_seats_it_names() -> None:
    # Given an owner of two seats
    state = folded(Claim("p1", "a", 1, -1), Claim("p1", "b", 1, 0))
    # When it beats for one of them
    state = fold(state, 5, Beat("p1", 1, ("a", "b"), {"a": 1}))
    # Then only that one shows a sign of life
    assert (state.seat("a").counted, state.seat("b").counted) == (5, 1)


def test_each_record_reaches_its_seat_and_no_other() -> None:
    state = folded(Claim("p1", "a", 1, -1), Confirm("p1", "a", 1, 3), Release("p1", "a", 1), Claim("p2", "b", 1, 2))
    assert (state.seat("a").owner, state.seat("a").confirmed) == (None, 3)
    assert (state.seat("b").owner, state.seat("b").confirmed) == ("p2", None)


def test_what_is_folded_in_already_is_ignored() -> None:
    assert fold(OWNED, 2, Reset("a", 0, "r1")) is OWNED
    assert fold(OWNED, 0, Release("p1", "a", 1)) is OWNED


def test_a_record_that_does_not_count_moves_only_the_position() -> None:
    state = fold(OWNED, 9, Confirm("p2", "a", 1, 20))
    assert (state.seats, state.members, state.upto) == (OWNED.seats, OWNED.members, 9)


def test_a_reset_that_lands_twice_resets_once() -> None:
    # Given a reset, a new owner that has confirmed something, and the same reset again
    state = folded(Reset("a", 2, "r1"), Claim("p2", "a", 3, 3), Confirm("p2", "a", 3, 4), state=OWNED)
    again = folded(Reset("a", 2, "r1"), state=state)
    # Then the owner keeps the seat and the position
    assert again.seat("a") == state.seat("a")
    # And another request does count
    assert folded(Reset("a", 2, "r2"), state=again).seat("a").owner is None


def test_only_so_many_resets_are_remembered() -> None:
    state = folded(*(Reset("a", 0, f"r{n}") for n in range(RESETS_REMEMBERED + 1)))
    assert len(state.resets) == RESETS_REMEMBERED
    assert "r0" not in state.resets


def test_a_leave_counts_unless_the_member_beat_since() -> None:
    # Given a member that beat at offset 0
    # When somebody says it is gone, having read that beat; or not
    assert folded(Leave("p1", 2), state=OWNED).members == {}
    beaten = fold(OWNED, 3, Beat("p1", 2, ("a",), {"a": 1}))
    assert "p1" in fold(beaten, 4, Leave("p1", 2)).members
    assert fold(OWNED, 3, Leave("nobody", 2)).members == OWNED.members


def test_a_leave_does_not_take_a_seat_away() -> None:
    assert folded(Leave("p1", 2), state=OWNED).seat("a").owner == "p1"


def test_a_snapshot_record_changes_nothing() -> None:
    state = fold(OWNED, 3, Snapshot(2, GroupState()))
    assert (state.seats, state.members) == (OWNED.seats, OWNED.members)


def test_a_fold_that_begins_at_a_snapshot_skips_what_is_in_it() -> None:
    state = restore(Snapshot(2, OWNED))
    assert state == OWNED
    assert fold(state, 2, Release("p1", "a", 1)) == OWNED
    assert fold(state, 3, Release("p1", "a", 1)).seat("a").owner is None


def test_the_fold_leaves_the_state_it_was_given_alone() -> None:
    before = repr(OWNED)
    folded(Beat("p2", 1, ("a",), {}), Reset("a", 0, "r"), Leave("p1", 9), state=OWNED)
    assert repr(OWNED) == before
