"""Which entries count: the owner in force, the next number, and the right past."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.core.sequence import Entry, Mark, SequenceState, chain, fold

LED = SequenceState(epoch=2, owner="e1", number=4, digest="d4", upto=9)
NEXT = Entry(2, "e1", 5, "d4", "body")


def test_a_mark_opens_an_epoch() -> None:
    state, counted = fold(LED, 10, Mark(3, "e2"))
    assert counted
    assert (state.epoch, state.owner, state.number, state.digest, state.upto) == (3, "e2", 4, "d4", 10)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_mark_of_an_epoch_that_began_already_is_ignored(epoch) -> None:
    # Given an epoch with an owner
    # When another marks the same epoch, or an older one
    state, counted = fold(LED, 10, Mark(epoch, "e2"))
    # Then the first mark's owner keeps it
    assert not counted
    assert state == replace(LED, upto=10)


def test_the_next_entry_of_the_owner_in_force_counts() -> None:
    state, counted = fold(LED, 10, NEXT)
    assert counted
    assert (state.number, state.digest) == (5, chain("d4", NEXT))


@pytest.mark.parametrize(
    "change", [{"epoch": 1}, {"epoch": 3}, {"owner": "e2"}, {"number": 4}, {"number": 6}, {"after": "d3"}]
)
def test_any_other_entry_does_not(change) -> None:
    state, counted = fold(LED, 10, replace(NEXT, **change))
    assert not counted
    assert state == replace(LED, upto=10)


def test_an_entry_behind_a_newer_mark_does_not_count() -> None:
    # Given a leader whose entry was on its way when another marked the log
    state, _ = fold(LED, 10, Mark(3, "e2"))
    # When it lands after the mark
    # Then it counts for nobody
    assert fold(state, 11, NEXT) == (replace(state, upto=11), False)


def test_an_entry_that_lands_twice_counts_once() -> None:
    state, _ = fold(LED, 10, NEXT)
    assert fold(state, 11, NEXT) == (replace(state, upto=11), False)


def test_what_is_folded_in_already_is_ignored() -> None:
    assert fold(LED, 9, NEXT) == (LED, False)


def test_the_digest_names_number_and_body_and_not_who_decided() -> None:
    assert chain("d", NEXT) == chain("d", replace(NEXT, epoch=7, owner="e7"))
    assert (
        len(
            {
                chain("d", NEXT),
                chain("e", NEXT),
                chain("d", replace(NEXT, number=6)),
                chain("d", replace(NEXT, body="")),
            }
        )
        == 4
    )
