"""Entries that show that the log lost something, and those that only do not count."""

from __future__ import annotations

import pytest

from lockstep.core.doubts import contradicts
from lockstep.core.sequence import Entry, SequenceState

LED = SequenceState(epoch=2, owner="e1", number=4, digest="d4", upto=9)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(2, "e1", 5, "d4", "the next one"),
        Entry(2, "e1", 4, "d3", "a copy"),
        Entry(1, "e9", 5, "d4", "of a stale leader"),
        Entry(1, "e9", 7, "x", "of a stale leader"),
    ],
)
def test_what_may_stand_on_a_log_that_lost_nothing(entry) -> None:
    assert not contradicts(LED, entry)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(2, "e1", 5, "other", "made after something else"),
        Entry(2, "e1", 6, "d5", "made after an entry that is not there"),
        Entry(3, "e2", 5, "d4", "of an epoch without a mark"),
        Entry(2, "e2", 5, "d4", "of an epoch that is another's"),
    ],
)
def test_what_may_not(entry) -> None:
    assert contradicts(LED, entry)
