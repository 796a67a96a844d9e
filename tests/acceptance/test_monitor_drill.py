"""Servers of a monitor are killed and paused while checks change state: each change is told once."""

from __future__ import annotations

import pytest

from lockstep.drill.fleet import FleetDrill, FleetDrillOptions
from lockstep.errors import BadArgument

pytestmark = pytest.mark.acceptance


def drilled(folder, **options):
    said = []
    result = FleetDrill(folder, FleetDrillOptions(**options), said.append).run()
    assert result.tree() == {
        **result.tree(),
        "missing": [],
        "duplicated": [],
        "unexpected": [],
        "repeats_not_listed": [],
    }
    assert result.ok
    assert result.told == 3 * result.transitions
    assert result.commands == result.transitions
    return result


def test_each_change_is_told_once_although_servers_are_killed_and_paused(tmp_path):
    faults = ("kill", "stop", "agent", "resend", "standby-stop")
    result = drilled(tmp_path, agents=10, transitions=60, seconds=12.0, faults=faults, runner="local")
    assert tuple(result.faults) == faults


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_change_is_told_once_although_the_broker_dies(tmp_path):
    pytest.importorskip("pika")
    faults = ("broker", "broker-stop", "agent", "agent-stop", "kill", "broker")
    drilled(tmp_path, agents=20, transitions=120, seconds=60.0, faults=faults, runner="local")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_change_is_told_once_on_spark_whatever_dies(tmp_path):
    drilled(tmp_path, agents=50, transitions=200, seconds=120.0, runner="spark")


@pytest.mark.parametrize(("runner", "fault"), [("local", "jvm"), ("spark", "flood"), ("local", "worker-stop")])
def test_a_fault_that_can_not_be_is_refused(runner, fault):
    with pytest.raises(BadArgument, match=fault):
        FleetDrillOptions(runner=runner, faults=(fault,))
