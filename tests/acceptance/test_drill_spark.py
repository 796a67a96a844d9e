"""Real engines on Spark under real faults: the subscriber's file is that of an undisturbed run, byte for byte."""

from __future__ import annotations

import pytest

from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.run import run_drill
from lockstep.drill.telling import Silence

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(1200)]
EVENTS, RATE = 20_000, 1_500.0


@pytest.mark.parametrize("fault", ["stop", "jvm", "worker", "takeover", "disk"])
def test_a_fault_is_survived(fault):
    result = run_drill(DrillOptions(events=EVENTS, rate=RATE, repeat=1, fault=Fault(fault)), Silence())
    assert result.anomalies == ()
    assert (result.account.lost, result.account.doubled, result.account.blocks) == (0, 0, EVENTS)


def test_killed_there_and_back_the_file_is_the_same():
    result = run_drill(DrillOptions(events=EVENTS, rate=RATE), Silence())
    assert result.anomalies == ()
    tree = result.tree()
    assert tree["identical"]
    assert tree["takeovers"] >= 2
    assert [fault["kind"] for fault in tree["faults"]] == ["kill", "kill"]
    assert all(fault["by"] not in (None, fault["engine"]) for fault in tree["faults"])
    assert tree["counts"]["e1"] == tree["counts"]["e2"] == tree["counts"]["expected"]
