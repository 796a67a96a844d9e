"""Which process of which server a fault ends."""

from __future__ import annotations

import pytest

from lockstep.drill.engines import Machines, machines, spark_words
from lockstep.drill.options import DrillOptions, Fault
from lockstep.errors import BadArgument


class Node:
    """A node of a server that notes what is done to it."""

    def __init__(self, name: str) -> None:
        self.name, self.done = name, []

    def kill(self) -> None:
        self.done.append("killed")


class Cluster:
    def __init__(self, *names: str) -> None:
        self.nodes = tuple(map(Node, names))

    def start(self) -> None:
        for node in self.nodes:
            node.done += ["restarted"] if node.done[-1:] == ["killed"] else []


def test_nodes_of_a_cluster_are_killed_in_turn_and_stay_down_until_they_are_revived():
    cluster = Cluster("one", "two")
    made = Machines({Fault.SERVER: cluster})
    assert made.kill(Fault.SERVER) == "one"
    assert cluster.nodes[0].done == ["killed"]
    assert (made.revive(), made.revive()) == (["one"], [])
    assert cluster.nodes[0].done == ["killed", "restarted"]
    assert [made.kill(Fault.SERVER) for _ in range(2)] == ["two", "one"]


def test_a_server_that_is_alone_is_started_again_at_once():
    alone = Cluster("only")
    made = Machines({Fault.SERVER: alone})
    made.kill(Fault.SERVER)
    assert alone.nodes[0].done == ["killed", "restarted"]
    assert made.revive() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fault": Fault.SERVER, "bus": "kafka://127.0.0.1:1"}, "--bus = 'kafka://127.0.0.1:1'"),
        ({"fault": Fault.SERVER}, "--fault server ends a process of a server"),
        ({"then": (Fault.SPARK_WORKER,)}, "--master = None"),
    ],
)
def test_a_server_that_nobody_started_here_is_refused_before_anything_else(options, words, tmp_path):
    with pytest.raises(BadArgument, match=words):
        machines(DrillOptions(**options, servers=tmp_path), environ={})


def test_engines_alone_need_no_servers(tmp_path):
    assert machines(DrillOptions(servers=tmp_path / "none"), environ={}).revive() == []


def test_engines_on_a_cluster_take_a_slot_of_each_worker_unless_told_otherwise():
    assert spark_words(DrillOptions()) == []
    words = spark_words(DrillOptions(master="spark://here:1", conf=(("spark.cores.max", "4"),)))
    assert words[:2] == ["--master", "spark://here:1"]
    assert "spark.cores.max=4" in words
    assert "spark.cores.max=2" not in words
