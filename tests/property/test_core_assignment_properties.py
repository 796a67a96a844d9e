"""Assignment against what can be said about any answer."""

from __future__ import annotations

import random
from collections import Counter
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.assignment import assign

calm = settings(deadline=None, max_examples=100)  # a busy machine is no failure
names = st.integers(0, 30).map(str)
members = st.lists(st.integers(0, 9).map(lambda n: f"p{n}"), min_size=1, max_size=8, unique=True)
seats = st.lists(names, max_size=20, unique=True)


@st.composite
def groups(draw) -> tuple[dict[str, list[str]], dict[str, str | None]]:
    """Members that want some of the seats, and any owners, also ones that are gone."""
    who, what = draw(members), draw(seats)
    wanted = {seat: draw(st.lists(st.sampled_from(who), unique=True)) for seat in what}
    owners = {seat: draw(st.sampled_from([*who, "gone", None])) for seat in what}
    return wanted, owners


@calm
@given(groups())
def test_a_seat_is_placed_if_and_only_if_somebody_wants_it(group) -> None:
    wanted, owners = group
    placed = assign(wanted, owners)
    assert set(placed) == {seat for seat, who in wanted.items() if who}
    assert all(placed[seat] in wanted[seat] for seat in placed)


@calm
@given(seats, members, st.randoms(use_true_random=False))
def test_where_everybody_wants_everything_nobody_has_two_more_than_another(seats, members, rng: random.Random) -> None:
    owners = {seat: rng.choice([*members, "gone", None]) for seat in seats}
    placed = assign(dict.fromkeys(seats, members), owners)
    load = Counter(placed.values())
    assert max(load[member] for member in members) - min(load[member] for member in members) <= 1


@calm
@given(seats, members)
def test_a_join_moves_no_more_than_a_share_and_only_to_the_newcomer(seats, members) -> None:
    # Given any balanced group
    before = assign(dict.fromkeys(seats, members), {})
    # When one joins
    after = assign(dict.fromkeys(seats, (*members, "new")), before)
    # Then at most its share moved, and to nobody else
    moved = {seat for seat in seats if before[seat] != after[seat]}
    assert len(moved) <= ceil(len(seats) / (len(members) + 1))
    assert all(after[seat] == "new" for seat in moved)


@calm
@given(seats, members)
def test_a_leave_moves_only_what_the_one_who_left_had(seats, members) -> None:
    before = assign(dict.fromkeys(seats, (*members, "leaving")), {})
    after = assign(dict.fromkeys(seats, members), before)
    assert all(after[seat] == before[seat] for seat in seats if before[seat] != "leaving")


@calm
@given(groups())
def test_what_was_assigned_stays(group) -> None:
    wanted, owners = group
    placed = assign(wanted, owners)
    assert assign(wanted, placed) == placed


@calm
@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_does_not_matter(group, rng: random.Random) -> None:
    wanted, owners = group
    mixed_seats, mixed_owners = list(wanted), list(owners.items())
    rng.shuffle(mixed_seats)
    rng.shuffle(mixed_owners)
    mixed = {seat: rng.sample(wanted[seat], len(wanted[seat])) for seat in mixed_seats}
    assert assign(mixed, dict(mixed_owners)) == assign(wanted, owners)
