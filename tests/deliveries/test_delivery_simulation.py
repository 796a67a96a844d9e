"""Carriers under random faults: every seed keeps the promises; leave out one rule, and a seed shows it."""

from __future__ import annotations

import delivery_simulation as simulation
import pytest
from delivery_simulation import VARIANTS, Summary, run_many, run_seed

pytestmark = [pytest.mark.sim, pytest.mark.slow]

SEEDS, SOAK_SEEDS = 100, 5000
CATCH_WITHIN = 60
CAUGHT_AS = {
    "no-begun": simulation.TWICE,
    "not-read-back": simulation.NOT_BEGUN,
    "no-barrier": simulation.TWICE,
    "confirmed-before-done": simulation.LOST,
}


@pytest.fixture(scope="module")
def summary() -> Summary:
    return run_many(range(SEEDS))


def told(summary: Summary) -> list[tuple[int, list[simulation.Anomaly]]]:
    return [(outcomes.seed, outcomes.anomalies) for outcomes in summary.failed]


def test_no_seed_breaks_a_promise(summary) -> None:
    assert told(summary) == []
    # And every kind of fault happened
    moments = {f"{kind} {when} it is done" for kind in ("kill", "pause", "hang") for when in ("before", "after")}
    others = {
        "kill",
        "pause",
        "close",
        "copy",
        "cut off",
        "receiver failed",
        "drop",
        "late",
        "lose_ack",
        "duplicate",
        "fail",
    }
    assert summary.faults.keys() == moments | others
    # And carriers did what they are there for, and met doubts
    assert summary.seen["effects"] > 15 * SEEDS
    assert summary.seen["doubts"] > SEEDS // 2


def test_a_seed_does_the_same_each_time() -> None:
    assert run_seed(3) == run_seed(3)


def test_every_broken_variant_has_an_anomaly_to_be_known_by() -> None:
    assert CAUGHT_AS.keys() == VARIANTS.keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_variant_is_caught(variant) -> None:
    # Given a carrier without one of its rules
    # When seeds are run one after the other
    found = set[str]()
    for seed in range(CATCH_WITHIN):
        found |= {anomaly.name for anomaly in run_seed(seed, variant).anomalies}
        if CAUGHT_AS[variant] in found:
            return
    # Then one of the first shows the anomaly that the rule prevents
    pytest.fail(f"{variant} was not caught in {CATCH_WITHIN} seeds, but {found}")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(SEEDS, SEEDS + SOAK_SEEDS, 100))
def test_thousands_of_seeds_break_no_promise(first) -> None:
    assert told(run_many(range(first, first + 100))) == []
