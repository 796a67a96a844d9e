"""When deliveries are tried again."""

from __future__ import annotations

import pytest

from lockstep.core.ladder import Ladder


def times(ladder, count):
    now, found = 0, []
    for attempt in range(1, count + 1):
        found.append(now)
        now += ladder.delay_ms(attempt)
    return found


def test_by_default_four_tries_begin_each_minute() -> None:
    ladder = Ladder()
    assert ladder.tries == 4
    assert ladder.offsets_ms() == [0, 1000, 3000, 7000]
    expected = [minute * 60_000 + offset for minute in range(3) for offset in (0, 1000, 3000, 7000)]
    assert times(ladder, 12) == expected


@pytest.mark.parametrize(
    ("ladder", "expected"),
    [
        (Ladder(max_retries=0), [0, 60_000, 120_000]),
        (Ladder(max_retries=1, initial_delay_ms=500), [0, 500, 60_000, 60_500]),
        (Ladder(max_retries=2, multiplier=1.0), [0, 1000, 2000, 60_000]),
        (Ladder(max_retries=2, multiplier=1.5, initial_delay_ms=1000), [0, 1000, 2500, 60_000]),
    ],
    ids=["no retries", "one retry", "even", "half as long again"],
)
def test_a_ladder_of_other_steps(ladder, expected) -> None:
    assert times(ladder, len(expected)) == expected


def test_a_round_that_takes_longer_than_its_time_still_waits_before_the_next() -> None:
    # Given tries that need 63 seconds
    ladder = Ladder(max_retries=6)
    assert ladder.offsets_ms()[-1] == 63_000
    # Then the next round begins one delay later, and not at once
    assert times(ladder, 8)[-1] == 64_000


def test_the_last_try_of_a_round_is_known() -> None:
    assert [attempt for attempt in range(1, 13) if Ladder().is_last_of_round(attempt)] == [4, 8, 12]
    assert Ladder(max_retries=0).is_last_of_round(1)
