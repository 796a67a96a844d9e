"""A drill past one machine: a broker of three, a Spark worker of two and the active engine die, and nobody notices."""

from __future__ import annotations

import pytest

from lockstep.drill.machines import Machines
from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.run import run_drill
from lockstep.drill.telling import Silence

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(1200)]
EVENTS, RATE = 30_000, 1_500.0


def test_a_broker_a_spark_worker_and_an_engine_are_killed(kafka_cluster, spark_cluster):
    options = DrillOptions(
        events=EVENTS, rate=RATE, bus=kafka_cluster.url, master=spark_cluster.url, lease_s=2.0,
        fault=Fault.SERVER, then=(Fault.SPARK_WORKER, Fault.KILL),
    )  # fmt: skip
    servers = Machines({Fault.SERVER: kafka_cluster, Fault.SPARK_WORKER: spark_cluster})
    result = run_drill(options, Silence(), servers=servers)
    assert result.anomalies == ()
    tree = result.tree()
    assert (tree["identical"], tree["lost"], tree["doubled"], tree["blocks"]) == (True, 0, 0, EVENTS)
    assert [fault["kind"] for fault in tree["faults"]] == ["server", "spark-worker", "kill"]
