"""Balanced, and moving as little as possible."""

from __future__ import annotations

from collections import Counter

from lockstep.core.assignment import assign


def everybody_wants(seats: str, members: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(seats, members)


def test_a_lone_member_gets_everything() -> None:
    assert assign(everybody_wants("abc", ["p1"]), {}) == {"a": "p1", "b": "p1", "c": "p1"}


def test_nobody_there_nothing_placed() -> None:
    assert assign({"a": []}, {"a": "p1"}) == {}
    assert assign({}, {}) == {}


def test_what_is_balanced_stays() -> None:
    owners = {"a": "p1", "b": "p2", "c": "p1"}
    assert assign(everybody_wants("abc", ["p1", "p2"]), owners) == owners


def test_a_newcomer_to_a_balanced_group_with_nothing_to_spare_gets_nothing() -> None:
    owners = {"a": "p1", "b": "p2"}
    assert assign(everybody_wants("ab", ["p1", "p2", "p3"]), owners) == owners


def test_a_newcomer_gets_its_share_and_nothing_else_moves() -> None:
    # Given six seats with two members
    owners = {seat: "p1" if seat in "abc" else "p2" for seat in "abcdef"}
    # When a third joins
    placed = assign(everybody_wants("abcdef", ["p1", "p2", "p3"]), owners)
    # Then it gets two, and the others keep two of their own each
    assert Counter(placed.values()) == {"p1": 2, "p2": 2, "p3": 2}
    assert all(placed[seat] in (owners[seat], "p3") for seat in owners)


def test_the_seats_of_a_member_that_is_gone_are_spread() -> None:
    owners = {"a": "gone", "b": "gone", "c": "p1", "d": "p2"}
    placed = assign(everybody_wants("abcd", ["p1", "p2"]), owners)
    assert (placed["c"], placed["d"]) == ("p1", "p2")
    assert {placed["a"], placed["b"]} == {"p1", "p2"}


def test_a_seat_goes_only_to_a_member_that_wants_it() -> None:
    placed = assign({"a": ["p1"], "b": ["p1"], "c": ["p1", "p2"]}, {"c": "p1"})
    assert placed == {"a": "p1", "b": "p1", "c": "p2"}


def test_the_answer_does_not_depend_on_the_order_of_the_arguments() -> None:
    one = assign({"a": ["p1", "p2"], "b": ["p1", "p2"]}, {})
    two = assign({"b": ["p2", "p1"], "a": ["p2", "p1"]}, {})
    assert one == two


def test_a_newcomer_is_served_by_all_and_not_by_the_first_alone() -> None:
    # Given eleven seats with two members, six and five
    seats = [f"s{number}" for number in range(11)]
    owners = {seat: "p1" if seats.index(seat) < 6 else "p2" for seat in seats}
    # When a third joins
    placed = assign(dict.fromkeys(seats, ("p1", "p2", "p3")), owners)
    # Then three seats move, and all of them to it
    assert sorted(Counter(placed.values()).values()) == [3, 4, 4]
    assert [placed[seat] for seat in seats if placed[seat] != owners[seat]] == ["p3"] * 3
