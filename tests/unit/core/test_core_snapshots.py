"""A snapshot may be used when everything before it is out; what lies below the second newest may go."""

from __future__ import annotations

import pytest

from lockstep.core.outputs import OutState
from lockstep.core.snapshots import Hole, Reach, Snapshot, complete, holes, is_complete, kept, newest_usable, trimmable


def taken(number: int, **outs: int) -> Snapshot:
    """A snapshot after an entry: ten offsets of the sequence log and a hundred of the input to each entry."""
    reach = Reach(number * 10, {"in": number * 100})
    return Snapshot(f"s{number}", number, reach, {name: OutState(last) for name, last in outs.items()})


@pytest.mark.parametrize(
    ("out", "usable"),
    [
        ({"a": OutState(7), "b": OutState(5)}, True),
        ({"a": OutState(9), "b": OutState(9)}, True),
        ({"a": OutState(7), "b": OutState(4)}, False),
        ({"a": OutState(7), "b": OutState(5, 3)}, False),  # three pieces of block 5, and more to come
        ({"a": OutState(7)}, False),
        ({}, False),
    ],
)
def test_a_snapshot_is_complete_when_every_out_stream_has_reached_it(out, usable) -> None:
    assert is_complete(taken(1, a=7, b=5), out) is usable


def test_a_snapshot_without_output_is_complete() -> None:
    assert is_complete(taken(1), {})
    assert is_complete(taken(1, a=0), {})


def test_the_newest_two_complete_ones_are_kept_and_what_is_not_complete_yet() -> None:
    # Given five snapshots, of which the last two are not published yet
    snapshots = [taken(number, a=number) for number in (4, 1, 5, 2, 3)]
    out = {"a": OutState(3)}
    # Then what is older than the second newest complete one may be deleted
    assert [each.number for each in complete(snapshots, out)] == [1, 2, 3]
    assert [each.number for each in kept(snapshots, out)] == [2, 3, 4, 5]


def test_while_none_is_complete_all_are_kept() -> None:
    snapshots = [taken(1, a=1), taken(2, a=2)]
    assert kept(snapshots, {}) == snapshots
    assert kept([], {}) == []


def test_logs_are_trimmed_below_the_second_newest() -> None:
    assert trimmable([taken(3), taken(1), taken(2)]) == Reach(20, {"in": 200})


@pytest.mark.parametrize("usable", [[], [taken(9)]])
def test_nothing_is_trimmed_below_the_only_snapshot(usable) -> None:
    assert trimmable(usable) == Reach()


def test_a_cursor_holds_back_what_it_needs_and_nothing_else() -> None:
    usable = [taken(2), taken(3)]
    assert trimmable(usable, [Reach(5, {"in": 150}), Reach(30, {"in": 170})]) == Reach(5, {"in": 150})
    assert trimmable(usable, [Reach(90, {"other": 1})]) == Reach(20, {"in": 200})


def test_an_input_that_the_older_snapshot_does_not_know_is_not_trimmed() -> None:
    newer = Snapshot("s3", 3, Reach(30, {"in": 300, "new": 50}))
    assert "new" not in trimmable([taken(2), newer]).inputs


def test_a_log_that_begins_too_late_is_named_with_what_is_missing() -> None:
    assert holes(Reach(20, {"in": 200}), Reach(20, {"in": 200})) == []
    assert holes(Reach(20, {"in": 200, "b": 0}), Reach(21, {"in": 250})) == [Hole(20, 21), Hole(200, 250, "in")]


def test_a_newcomer_begins_at_the_newest_snapshot_that_the_logs_still_reach() -> None:
    usable = [taken(1), taken(2), taken(3)]
    assert newest_usable(usable, Reach(20, {"in": 200})) == taken(3)
    assert newest_usable(usable[:2], Reach(20, {"in": 200})) == taken(2)
    assert newest_usable(usable[:1], Reach(20, {"in": 200})) is None
