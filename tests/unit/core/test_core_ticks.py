"""What becomes of each nominal tick: every policy."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from lockstep.core.ticks import CAUGHT_UP_MAX, Decision, Misfire, Overlap, Policy, decide

NOW = 1_000_000
MINUTES = [NOW - 600 + 60 * number for number in range(11)]
"""A tick each minute for ten minutes, the last of them now."""


def decided(nominal=MINUTES, now=NOW, *, latest=None, **more):
    names = {"caught_up", "paused", "busy"}
    policy = Policy(**{name: value for name, value in more.items() if name not in names})
    rest = {name: value for name, value in more.items() if name in names}
    last = nominal[-1] if latest is None else latest
    decisions = decide(nominal, now, policy, latest=lambda: last, **rest)
    return [tick for decision in decisions for tick in each(decision, nominal)]


class Tick(NamedTuple):
    """One nominal tick of a decision."""

    nominal: int
    late_s: int
    skipped: str | None


def each(decision, nominal):
    if decision.count == 1:
        return [Tick(decision.first, decision.late_s, decision.skipped)]
    seconds = [at for at in nominal if decision.first <= at <= decision.last]
    assert len(seconds) == decision.count
    return [Tick(at, decision.late_s + decision.first - at, decision.skipped) for at in seconds]


def fired(ticks):
    return [tick.nominal for tick in ticks if tick.skipped is None]


def reasons(ticks):
    return [tick.skipped for tick in ticks if tick.skipped is not None]


@pytest.mark.parametrize("misfire", list(Misfire))
def test_a_tick_in_time_fires_whatever_the_policy(misfire) -> None:
    [tick] = decided([NOW], misfire=misfire)
    assert (tick.nominal, tick.late_s, tick.skipped) == (NOW, 0, None)


@pytest.mark.parametrize("misfire", list(Misfire))
def test_within_the_grace_a_tick_fires_late_and_says_by_how_much(misfire) -> None:
    ticks = decided([NOW - 60, NOW - 30], misfire=misfire)
    assert [(tick.late_s, tick.skipped) for tick in ticks] == [(60, None), (30, None)]


def test_without_grace_a_tick_that_is_a_second_late_is_missed() -> None:
    assert reasons(decided([NOW - 1, NOW], grace_s=0, misfire=Misfire.SKIP)) == ["missed"]


def test_once_fires_the_last_of_the_missed_ticks() -> None:
    # Given ticks that were all missed, and a last one longer ago than the grace
    ticks = decided(MINUTES[:9], grace_s=60)
    assert fired(ticks) == [MINUTES[8]]
    assert reasons(ticks) == ["missed, a later tick fires"] * 8


def test_once_fires_none_of_the_missed_if_a_later_tick_is_in_time() -> None:
    ticks = decided(grace_s=60)
    assert fired(ticks) == MINUTES[-2:]
    assert reasons(ticks) == ["missed, a later tick fires"] * 9


def test_once_knows_of_ticks_that_are_decided_in_a_later_step() -> None:
    # Given a first piece of a long pause
    ticks = decided(MINUTES[:3], latest=MINUTES[8])
    assert fired(ticks) == []


def test_all_fires_every_missed_tick_in_order() -> None:
    assert fired(decided(misfire=Misfire.ALL)) == MINUTES


def test_all_fires_a_thousand_at_most_however_they_are_divided_into_steps() -> None:
    seconds = list(range(NOW - 5000, NOW))
    whole = decided(seconds, misfire=Misfire.ALL)
    missed = [tick for tick in whole if tick.late_s > 60]
    assert fired(missed) == seconds[:CAUGHT_UP_MAX]
    assert set(reasons(missed)) == {f"missed, after {CAUGHT_UP_MAX} that fired"}
    # And those in time fire in any case
    assert fired(whole)[CAUGHT_UP_MAX:] == list(range(NOW - 60, NOW))
    # When the same is decided in two steps
    first = decided(seconds[:700], misfire=Misfire.ALL)
    second = decided(seconds[700:], misfire=Misfire.ALL, caught_up=len(fired(first)))
    # Then it is the same
    assert first + second == whole


def test_a_tick_in_time_lets_another_thousand_be_caught_up() -> None:
    # Given a thousand that were caught up, and one that is late, but within the grace to the second
    first = decided([NOW - 60], misfire=Misfire.ALL, caught_up=CAUGHT_UP_MAX)
    assert fired(first) == [NOW - 60]
    # Then what is missed after it is caught up again
    both = decided([NOW - 60, NOW - 100], misfire=Misfire.ALL, caught_up=CAUGHT_UP_MAX)
    assert fired(both) == [NOW - 60, NOW - 100]


def test_skip_fires_none_of_the_missed() -> None:
    ticks = decided(misfire=Misfire.SKIP)
    assert fired(ticks) == MINUTES[-2:]
    assert reasons(ticks) == ["missed"] * 9


@pytest.mark.parametrize("misfire", list(Misfire))
def test_missed_ticks_older_than_catch_up_are_skipped(misfire) -> None:
    ticks = decided(MINUTES[:5], misfire=misfire, catch_up_s=100)
    assert reasons(ticks) == ["older than catch_up"] * 5
    # And one that is exactly as old is not
    assert reasons(decided([NOW - 100], misfire=misfire, catch_up_s=100)) in ([], ["missed"])


def test_catch_up_counts_for_missed_ticks_only() -> None:
    # Given a grace that is longer than catch_up
    assert fired(decided([NOW - 50], grace_s=60, catch_up_s=10)) == [NOW - 50]


@pytest.mark.parametrize("misfire", list(Misfire))
def test_a_paused_cron_skips_all_and_says_so(misfire) -> None:
    assert reasons(decided(misfire=misfire, paused=True)) == ["paused"] * len(MINUTES)


def test_ticks_overlap_if_that_is_allowed() -> None:
    assert fired(decided([NOW - 2, NOW - 1, NOW], busy=True)) == [NOW - 2, NOW - 1, NOW]


def test_while_one_is_under_way_no_other_tick_fires() -> None:
    ticks = decided([NOW - 2, NOW - 1, NOW], busy=True, overlap=Overlap.SKIP)
    assert reasons(ticks) == ["overlap"] * 3


def test_the_first_tick_of_a_step_keeps_the_others_from_firing() -> None:
    ticks = decided([NOW - 2, NOW - 1, NOW], overlap=Overlap.SKIP)
    assert fired(ticks) == [NOW - 2]
    assert reasons(ticks) == ["overlap"] * 2


def test_a_missed_tick_is_told_as_missed_and_not_as_an_overlap() -> None:
    ticks = decided([NOW - 500, NOW], overlap=Overlap.SKIP, busy=True, misfire=Misfire.SKIP)
    assert reasons(ticks) == ["missed", "overlap"]


def test_every_nominal_tick_has_one_decision_in_order() -> None:
    for misfire in Misfire:
        assert [tick.nominal for tick in decided(misfire=misfire)] == MINUTES


def test_consecutive_ticks_that_are_skipped_for_one_reason_are_one_decision() -> None:
    # Given an hour of ticks, the first of them too old, the others missed but for the last two
    seconds = [NOW - 3600 + 60 * number for number in range(61)]
    # When they are decided
    decisions = decide(seconds, NOW, Policy(catch_up_s=1800), latest=lambda: NOW)
    # Then there is a decision for each reason, and for each tick that fires
    assert decisions == [
        Decision(NOW - 3600, 3600, "older than catch_up", NOW - 1860, 30),
        Decision(NOW - 1800, 1800, "missed, a later tick fires", NOW - 120, 29),
        Decision(NOW - 60, 60, None, NOW - 60, 1),
        Decision(NOW, 0, None, NOW, 1),
    ]
