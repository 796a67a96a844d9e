"""A drill past one machine: a broker of three and a Spark worker of two die, and the subscriber does not notice."""

from __future__ import annotations

import pytest
from sparkless_engine import sparkless_command

from lockstep.drill.engines import Machines
from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.report import Silence
from lockstep.drill.run import run_drill

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.soak, pytest.mark.timeout(1200)]
EVENTS, RATE, LEASE_S = 20_000, 1_500.0, 2.0


def test_a_broker_of_three_is_killed_under_two_engines(kafka_cluster):
    options = DrillOptions(
        events=6_000, rate=RATE, bus=kafka_cluster.url, lease_s=LEASE_S, fault=Fault.SERVER, repeat=1
    )
    result = run_drill(options, Silence(), servers=Machines({Fault.SERVER: kafka_cluster}), command=sparkless_command)
    assert result.anomalies == ()
    tree = result.tree()
    assert (tree["identical"], tree["lost"], tree["doubled"], tree["blocks"]) == (True, 0, 0, 6_000)


def test_a_broker_and_a_spark_worker_are_killed(kafka_cluster, spark_cluster):
    options = DrillOptions(
        events=EVENTS, rate=RATE, bus=kafka_cluster.url, master=spark_cluster.url, lease_s=LEASE_S,
        fault=Fault.SERVER, then=(Fault.SPARK_WORKER,),
    )  # fmt: skip
    servers = Machines({Fault.SERVER: kafka_cluster, Fault.SPARK_WORKER: spark_cluster})
    result = run_drill(options, Silence(), servers=servers)
    assert result.anomalies == ()
    tree = result.tree()
    assert (tree["identical"], tree["lost"], tree["doubled"], tree["blocks"]) == (True, 0, 0, EVENTS)
    assert [(fault["kind"], fault["engine"]) for fault in tree["faults"]] == [
        ("server", "broker-1"),
        ("spark-worker", "worker-1"),
    ]
