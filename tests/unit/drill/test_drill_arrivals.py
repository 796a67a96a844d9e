"""What the subscriber notes, and what follows from it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.drill.arrivals import Arrival, first_behind, longest_gap, parse, rates

arrival = st.builds(
    Arrival,
    st.floats(0, 1e9),
    *[st.integers(0, 2**62)] * 6,
    part=st.integers(0, 9),
)


def at(seconds: float, last: int, events: int | None = None) -> Arrival:
    return Arrival(seconds, last, last, 1, last if events is None else events, 0, 0)


@settings(deadline=None)
@given(st.lists(arrival), st.integers(0, 200))
def test_notes_are_read_as_they_were_written_and_one_that_was_cut_off_does_not_count(notes, cut):
    text = "".join(note.line() for note in notes)
    assert parse(text) == notes
    kept = text[: max(len(text) - cut, 0)]
    assert parse(kept) == notes[: kept.count("\n")]


def test_the_first_block_of_the_new_leader_is_told_from_stragglers_of_the_old():
    notes = [at(1.0, 10), at(2.1, 12), at(2.2, 13), at(5.0, 14)]
    assert first_behind(notes, 13, 2.0) == notes[3]
    assert first_behind(notes, 11, 0.0) == notes[1]
    assert first_behind(notes, 14, 0.0) is None
    assert first_behind(notes, 5, 4.0) == notes[3]


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=15), st.integers(0, 60), st.integers(1, 30))
def test_the_longest_wait_is_that_of_somebody_who_looks_at_every_moment(times, start, length):
    notes = [at(float(time), number) for number, time in enumerate(sorted(times), 1)]
    begin, end = longest_gap(notes, float(start), float(start + length))
    # the slow way: from each moment of the range on, or from its start, how long until the next arrival
    waits = [
        min((time for time in times if time > moment), default=moment) - moment
        for moment in range(start, start + length)
        if moment == start or moment in times
    ]
    assert end - begin == max(waits, default=0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), min_size=1, max_size=30), st.floats(0.1, 10))
def test_rates_add_up_to_all_events(steps, width):
    notes, now, events = [], 0.0, 0
    for wait, count in steps:
        now, events = now + wait, events + count
        notes.append(at(now, len(notes), events))
    found = rates(notes, width)
    assert round(sum(rate for _, rate in found) * width) == events
    assert all(after > before for (before, _), (after, _) in pairwise(found))


def test_nothing_arrived():
    assert rates([], 1.0) == []
    assert longest_gap([], 3.0, 5.0) == (3.0, 3.0)
