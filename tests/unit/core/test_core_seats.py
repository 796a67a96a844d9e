"""Who holds a seat: each record either counts or changes nothing."""

from __future__ import annotations

import pytest

from lockstep.core.seats import Seat, beat, claim, confirm, release, reset

OWNED = Seat(epoch=3, owner="p1", counted=10, start=0, confirmed=5)


def test_a_claim_on_an_untouched_seat_wins() -> None:
    # Given a seat nobody has touched
    # When it is claimed
    seat = claim(Seat(), 0, epoch=1, member="p1", seen=-1, start=4)
    # Then the claimant has it, from where it asked to begin
    assert seat == Seat(epoch=1, owner="p1", counted=0, start=4)
    assert seat.resume == 4


def test_a_claim_wins_over_a_silent_owner_if_its_maker_read_the_last_sign_of_life() -> None:
    seat = claim(OWNED, 11, epoch=4, member="p2", seen=10)
    assert (seat.epoch, seat.owner, seat.counted) == (4, "p2", 11)


@pytest.mark.parametrize(("epoch", "seen"), [(4, 9), (3, 10), (2, 10), (3, 9)])
def test_a_claim_with_an_old_view_or_an_old_epoch_changes_nothing(epoch, seen) -> None:
    assert claim(OWNED, 11, epoch=epoch, member="p2", seen=seen) is OWNED


def test_of_two_claims_made_at_once_the_first_on_the_log_wins() -> None:
    # Given two claims of the same epoch, made on the same view
    first = claim(OWNED, 11, epoch=4, member="p2", seen=10)
    # When the second is read, or the first a second time
    # Then neither counts
    assert claim(first, 12, epoch=4, member="p3", seen=10) is first
    assert claim(first, 13, epoch=4, member="p2", seen=10) is first


def test_a_takeover_keeps_the_position() -> None:
    # Given a seat with a confirmed position, and one on which nothing was confirmed
    # When they are taken over by somebody who would begin elsewhere
    # Then what the group knows comes first
    assert claim(OWNED, 11, epoch=4, member="p2", seen=10, start=99).resume == 6
    unconfirmed = Seat(epoch=1, owner="p1", counted=0, start=4)
    assert claim(unconfirmed, 1, epoch=2, member="p2", seen=0, start=99).resume == 4


def test_a_seat_without_any_position_says_so() -> None:
    assert claim(Seat(), 0, epoch=1, member="p1", seen=-1).resume is None


def test_a_beat_of_the_owner_counts() -> None:
    assert beat(OWNED, 12, epoch=3, member="p1").counted == 12


@pytest.mark.parametrize(("epoch", "member"), [(3, "p2"), (2, "p1")])
def test_a_beat_of_anybody_else_does_not(epoch, member) -> None:
    assert beat(OWNED, 12, epoch=epoch, member=member) is OWNED


def test_a_beat_of_a_higher_epoch_is_adopted() -> None:
    # Given a fold that did not see the claim that opened epoch 5
    # When its owner beats
    seat = beat(OWNED, 12, epoch=5, member="p2")
    # Then the fold catches up, and keeps the position
    assert (seat.epoch, seat.owner, seat.counted, seat.resume) == (5, "p2", 12, 6)


def test_a_release_leaves_the_seat_vacant_and_the_epoch_spent() -> None:
    seat = release(OWNED, 12, epoch=3, member="p1")
    assert (seat.epoch, seat.owner, seat.counted, seat.resume) == (3, None, 12, 6)
    assert claim(seat, 13, epoch=3, member="p1", seen=12) is seat


@pytest.mark.parametrize(("epoch", "member"), [(3, "p2"), (2, "p1"), (4, "p1")])
def test_a_release_by_anybody_else_changes_nothing(epoch, member) -> None:
    assert release(OWNED, 12, epoch=epoch, member=member) is OWNED


def test_a_confirmation_moves_forward_only() -> None:
    assert confirm(OWNED, epoch=3, member="p1", offset=6).confirmed == 6
    assert confirm(OWNED, epoch=3, member="p1", offset=5) is OWNED
    assert confirm(OWNED, epoch=3, member="p1", offset=4) is OWNED


@pytest.mark.parametrize(("epoch", "member"), [(3, "p2"), (2, "p1"), (4, "p1")])
def test_a_confirmation_of_another_generation_does_not_count(epoch, member) -> None:
    assert confirm(OWNED, epoch=epoch, member=member, offset=9) is OWNED


def test_a_confirmation_does_not_decide_who_may_claim() -> None:
    # Given a claim made before a confirmation landed
    seat = confirm(OWNED, epoch=3, member="p1", offset=9)
    # Then it still wins: a confirmation is no sign of life
    assert claim(seat, 13, epoch=4, member="p2", seen=10).owner == "p2"


def test_a_reset_begins_a_generation_that_nobody_owns() -> None:
    seat = reset(OWNED, 12, start=2)
    assert seat == Seat(epoch=4, owner=None, counted=12, start=2, confirmed=None)
    assert confirm(seat, epoch=3, member="p1", offset=9) is seat
    assert claim(seat, 13, epoch=4, member="p1", seen=12) is seat
    assert claim(seat, 13, epoch=5, member="p1", seen=12).resume == 2
