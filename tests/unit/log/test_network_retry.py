"""Trying again: pauses, and one deadline for all tries of a call."""

from __future__ import annotations

import pytest

from lockstep.log.network.retry import Deadline, Retry
from lockstep.testing import VirtualRuntime


def tries(clock, seconds, **settings) -> list[float]:
    """When each further try begins."""
    retry, found = Retry(clock, Deadline(clock.monotonic, seconds), **settings), []
    while retry.again():
        found.append(round(clock.monotonic(), 3))
    return found


def test_tries_are_evenly_spaced_and_the_last_one_is_at_the_deadline():
    assert tries(VirtualRuntime(0), 0.35, pause_s=0.1) == [0.1, 0.2, 0.3, 0.35]


def test_pauses_double_up_to_a_bound():
    assert tries(VirtualRuntime(0), 1.0, pause_s=0.1, pause_most_s=0.3) == [0.1, 0.3, 0.6, 0.9, 1.0]


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_without_time_there_is_one_try_and_no_pause(seconds):
    clock = VirtualRuntime(0)
    assert tries(clock, seconds, pause_s=0.1) == []
    assert clock.monotonic() == 0


def test_a_failure_that_is_believed_earlier_ends_the_tries_earlier():
    clock = VirtualRuntime(0)
    retry = Retry(clock, Deadline(clock.monotonic, 10.0), pause_s=0.2)
    found = []
    while retry.again(limit_s=0.5):
        found.append(round(clock.monotonic(), 3))
    assert found == [0.2, 0.4, 0.5]
    assert retry.again(), "of another failure there may be more tries"
    assert not retry.again(limit_s=0.0)


def test_a_part_of_a_deadline_ends_before_it():
    clock = VirtualRuntime(0)
    whole = Deadline(clock.monotonic, 10.0)
    clock.advance(2.0)
    part = whole.part(0.5)
    assert (whole.left(), part.left(), whole.passed()) == (8.0, 4.0, 2.0)
    clock.advance(20.0)
    assert (whole.left(), part.left()) == (0.0, 0.0)
