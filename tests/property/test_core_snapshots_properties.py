"""Snapshots and trimming against a list of everything that somebody may still want to read."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.outputs import OutState
from lockstep.core.snapshots import Reach, Snapshot, complete, holes, kept, newest_usable, trimmable

calm = settings(deadline=None, max_examples=100)  # a busy machine is no failure


@st.composite
def histories(draw) -> list[Snapshot]:
    """Snapshots of one growing sequence, in any order."""
    found, at, inputs, block = [], 0, {"x": 0, "y": 0}, 0
    for number in range(1, draw(st.integers(1, 7)) + 1):
        at += draw(st.integers(1, 3))
        inputs = {name: offset + draw(st.integers(0, 4)) for name, offset in inputs.items()}
        block += draw(st.integers(0, 2))
        found.append(
            Snapshot(f"s{number}", number, Reach(at, inputs), {"a": OutState(block), "b": OutState(block // 2)})
        )
    return draw(st.permutations(found))


outs = st.fixed_dictionaries(
    {"a": st.builds(OutState, st.integers(0, 12)), "b": st.builds(OutState, st.integers(0, 6))}
)
cursors = st.lists(st.builds(Reach, st.integers(0, 20), st.fixed_dictionaries({"x": st.integers(0, 20)})), max_size=2)


@calm
@given(histories(), outs, cursors)
def test_whatever_is_trimmed_two_snapshots_and_every_cursor_can_still_be_read(snapshots, out, held) -> None:
    # Given everything that was trimmed and deleted that may be
    below = trimmable(complete(snapshots, out), held)
    left = kept(snapshots, out)
    # Then nobody who may still come is missing anything
    assert all(not holes(Reach(cursor.sequence, cursor.inputs), below) for cursor in held)
    usable = complete(left, out)
    assert all(not holes(each.reach, below) for each in left)
    assert usable == complete(snapshots, out)[-2:]
    newest = max((each.number for each in complete(snapshots, out)), default=None)
    chosen = newest_usable(usable, below)
    assert (chosen.number if chosen else None) == newest


@calm
@given(histories(), st.lists(outs, min_size=2, max_size=4))
def test_what_may_be_trimmed_only_grows(snapshots, steps) -> None:
    # Given out streams that only move on
    reached, before = {"a": 0, "b": 0}, Reach()
    for step in steps:
        reached = {name: max(last, step[name].last) for name, last in reached.items()}
        below = trimmable(complete(snapshots, {name: OutState(last) for name, last in reached.items()}))
        assert below.sequence >= before.sequence
        assert all(below.inputs[name] >= at for name, at in before.inputs.items())
        before = below
