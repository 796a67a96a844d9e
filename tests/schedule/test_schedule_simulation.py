"""Nodes under random faults: every seed keeps the promises; leave out one rule, and a seed shows it."""

from __future__ import annotations

import pytest
import scheduler_simulation as simulation
from scheduler_simulation import VARIANTS, Summary, run_many, run_seed

pytestmark = [pytest.mark.sim, pytest.mark.slow, pytest.mark.timeout(600)]  # fifty seeds are one fixture

SEEDS, SOAK_SEEDS = 50, 5000
CATCH_WITHIN = 60
CAUGHT_AS = {
    "no-fence": simulation.STALE_WRITE,
    "fence-outside-the-transaction": simulation.STALE_WRITE,
    "mark-after-publishing": simulation.TICK_TWICE,
    "claims-without-epoch": simulation.STALE_WRITE,
    "answer-before-commit": simulation.ANSWERED_TWICE,
    "steps-before-the-outcome": simulation.ANSWERED_TWICE,
    "set-back-without-spans": simulation.TICK_TWICE,
}
ALSO_CAUGHT_AS = {
    "no-fence": {simulation.ANSWERED_TWICE, simulation.POSITION_BACK, simulation.TICK_TWICE},
    "fence-outside-the-transaction": {simulation.ANSWERED_TWICE, simulation.POSITION_BACK, simulation.TICK_TWICE},
    "claims-without-epoch": {simulation.ANSWERED_TWICE, simulation.POSITION_BACK, simulation.TICK_TWICE},
}
"""What users would see of it, beside what the simulation knows."""


@pytest.fixture(scope="module")
def summary() -> Summary:
    return run_many(range(SEEDS))


def told(summary: Summary) -> list[tuple[int, list[simulation.Anomaly]]]:
    return [(outcomes.seed, outcomes.anomalies) for outcomes in summary.failed]


def test_no_seed_breaks_a_promise(summary) -> None:
    assert told(summary) == []
    # And every kind of fault happened
    interrupted = {f"{kind} {when} the commit" for kind in ("kill", "pause", "hang") for when in ("before", "after")}
    others = {"kill", "pause", "close", "clock set", "tenant paused", "commit refused", "commit uncertain"}
    others |= {"ticks set back"}
    assert summary.faults.keys() == interrupted | others | {"drop", "late", "lose_ack", "duplicate"}
    # And schedulers did what they are there for
    assert summary.seen["published"] > 20 * SEEDS
    assert summary.seen["deliveries"] > 10 * SEEDS
    assert summary.seen["requests"] > 30 * SEEDS


def test_a_seed_does_the_same_each_time() -> None:
    assert run_seed(3) == run_seed(3)


def test_every_broken_variant_has_an_anomaly_to_be_known_by() -> None:
    assert CAUGHT_AS.keys() == VARIANTS.keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_broken_variant_is_caught(variant) -> None:
    # Given a scheduler without one of its rules
    # When seeds are run one after the other
    found = set[str]()
    wanted = {CAUGHT_AS[variant]}
    for seed in range(CATCH_WITHIN):
        found |= {anomaly.name for anomaly in run_seed(seed, variant).anomalies}
        if wanted <= found and (found & ALSO_CAUGHT_AS.get(variant, found)):
            return
    # Then one of the first shows the anomaly that the rule prevents
    pytest.fail(f"{variant} was not caught in {CATCH_WITHIN} seeds, but {found}")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(SEEDS, SEEDS + SOAK_SEEDS, SEEDS))
def test_thousands_of_seeds_break_no_promise(first) -> None:
    assert told(run_many(range(first, first + SEEDS))) == []
