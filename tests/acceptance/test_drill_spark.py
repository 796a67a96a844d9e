"""Real engines on Spark under real faults: the subscriber's file is that of an undisturbed run, byte for byte."""

from __future__ import annotations

import pytest

from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.report import Silence
from lockstep.drill.run import run_drill

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(1200)]
RATE = 1_500.0


def test_one_fault_after_the_other_is_survived():
    faults = (Fault.KILL, Fault.WORKER)
    result = run_drill(DrillOptions(events=9_000, rate=RATE, fault=faults[0], then=faults[1:]), Silence())
    assert result.anomalies == ()
    tree = result.tree()
    assert (tree["identical"], tree["lost"], tree["doubled"], tree["blocks"]) == (True, 0, 0, 9_000)
    assert tree["takeovers"] >= 1
    assert [fault["kind"] for fault in tree["faults"]] == list(faults)
    assert tree["faults"][0]["by"] not in (None, tree["faults"][0]["engine"])
    assert tree["counts"]["e1"] == tree["counts"]["e2"] == tree["counts"]["expected"]


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["kill", "stop", "jvm", "worker", "takeover", "disk"])
def test_a_fault_is_survived_there_and_back(fault):
    result = run_drill(DrillOptions(events=20_000, rate=RATE, fault=Fault(fault)), Silence())
    assert result.anomalies == ()
    assert (result.account.lost, result.account.doubled, result.account.blocks) == (0, 0, 20_000)
