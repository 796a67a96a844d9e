"""The drill on every bus: engines are killed, paused and relieved; the subscriber's file is the same, byte for byte.

In `make test` the engines are real processes with a stand-in for Spark, in `make soak` with Spark.
"""

from __future__ import annotations

import pytest
from sparkless_engine import sparkless_command

from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.report import Silence
from lockstep.drill.result import Result
from lockstep.drill.run import run_drill

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(1200)]
BUSES = ("kafka", "rabbitmq", "redis", "hazelcast")


def url_of(bus: str, request: pytest.FixtureRequest) -> str | None:
    return None if bus == "lmdb" else request.getfixturevalue(f"{bus}_server").url


def check(result: Result, events: int, faults: list[str]) -> None:
    assert result.anomalies == ()
    tree = result.tree()
    assert (tree["identical"], tree["lost"], tree["doubled"], tree["blocks"]) == (True, 0, 0, events)
    assert [fault["kind"] for fault in tree["faults"]] == faults
    assert tree["counts"]["e1"] == tree["counts"]["e2"] == tree["counts"]["expected"]


@pytest.mark.parametrize("bus", BUSES)
def test_killed_and_paused_engines_are_survived_on_every_bus(bus, request):
    faults = (Fault.KILL, Fault.STOP)
    options = DrillOptions(events=6_000, rate=1_500.0, fault=faults[0], then=faults[1:], bus=url_of(bus, request))
    check(run_drill(options, Silence(), command=sparkless_command), 6_000, list(faults))


def test_all_engines_may_die_at_once_or_while_one_takes_over():
    faults = (Fault.TAKEOVER, Fault.BOTH, Fault.HANDOVER)
    options = DrillOptions(events=6_000, rate=1_500.0, fault=faults[0], then=faults[1:])
    check(run_drill(options, Silence(), command=sparkless_command), 6_000, list(faults))


@pytest.mark.soak
@pytest.mark.parametrize("bus", BUSES)
def test_a_killed_engine_with_spark_is_survived_on_every_bus(bus, request):
    options = DrillOptions(events=20_000, rate=1_500.0, repeat=1, bus=url_of(bus, request))
    check(run_drill(options, Silence()), 20_000, ["kill"])
