"""The drill on every bus: the active engine is killed, and the subscriber's file is the same, byte for byte."""

from __future__ import annotations

import pytest

from lockstep.drill.options import DrillOptions
from lockstep.drill.run import run_drill
from lockstep.drill.telling import Silence

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(1200)]
EVENTS, RATE = 20_000, 1_500.0


@pytest.mark.parametrize("bus", ["kafka", "rabbitmq", "redis", "hazelcast"])
def test_a_killed_engine_is_survived_on_every_bus(bus, request):
    url = request.getfixturevalue(f"{bus}_server").url
    result = run_drill(DrillOptions(events=EVENTS, rate=RATE, repeat=1, bus=url), Silence())
    assert result.anomalies == ()
    assert (result.account.lost, result.account.doubled, result.account.blocks) == (0, 0, EVENTS)
    assert result.tree()["identical"]
