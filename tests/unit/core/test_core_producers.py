"""Which batches were seen before."""

from __future__ import annotations

import pytest

from lockstep.core.producers import PRODUCERS_REMEMBERED, Window, admit, window_of

SEEN_TO_4 = Window({b"p": 4})


@pytest.mark.parametrize(
    ("first", "count", "seen", "last"),
    [
        (5, 3, 0, 7),  # the next batch
        (0, 5, 5, 4),  # a copy
        (2, 2, 2, 4),  # part of a copy
        (3, 4, 2, 6),  # half seen: the front is a copy
        (9, 1, 0, 9),  # a gap is not this fold's to judge
    ],
)
def test_a_batch_is_admitted_as_far_as_it_is_new(first, count, seen, last) -> None:
    window, front = admit(SEEN_TO_4, b"p", first, count)
    assert (front, window.last[b"p"]) == (seen, last)


def test_a_copy_leaves_the_window_alone() -> None:
    assert admit(SEEN_TO_4, b"p", 4, 1) == (SEEN_TO_4, 1)


def test_an_empty_batch_changes_nothing() -> None:
    assert admit(SEEN_TO_4, b"p", 5, 0) == (SEEN_TO_4, 0)


def test_producers_do_not_mix() -> None:
    window, seen = admit(SEEN_TO_4, b"q", 0, 2)
    assert seen == 0
    assert dict(window.last) == {b"p": 4, b"q": 1}


def test_the_least_recently_active_producer_is_forgotten_first() -> None:
    # Given a window for two producers, in which p spoke last
    window = Window(limit=2)
    for producer, first in ((b"p", 0), (b"q", 0), (b"p", 1)):
        window, _ = admit(window, producer, first, 1)
    # When a third comes
    window, _ = admit(window, b"r", 0, 1)
    # Then q is forgotten, and its copy would pass
    assert list(window.last) == [b"p", b"r"]
    assert admit(window, b"q", 0, 1)[1] == 0


def test_a_window_is_large_by_default() -> None:
    assert Window().limit == PRODUCERS_REMEMBERED


def test_the_window_of_batches_is_the_one_they_lead_to_one_by_one() -> None:
    # Given batches of three producers, one of them sent twice, and room for two producers
    batches = [(b"p", 0, 3), (b"q", 0, 2), (b"p", 0, 3), (b"r", 5, 1), (b"q", 2, 1)]
    window = Window(limit=2)
    for producer, first, count in batches:
        window, _ = admit(window, producer, first, count)
    assert list(window_of(batches, 2).last.items()) == list(window.last.items()) == [(b"r", 5), (b"q", 2)]
