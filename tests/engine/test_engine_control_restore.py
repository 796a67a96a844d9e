"""A restore on request: the state is thrown away once, taken from the newest snapshot, and the engine goes on."""

from __future__ import annotations

import pytest
from failover_worlds import WANTED, finish
from local_cluster import LocalCluster
from local_spark import MachineCompute
from run_worlds import sums_graph


@pytest.fixture
def restarts(monkeypatch):
    """The restarts of Spark's queries, by engine."""
    found: list[str] = []
    restart = MachineCompute.restart

    def counted(self: MachineCompute, incarnation: str) -> None:
        found.append(self._machine.name)
        restart(self, incarnation)

    monkeypatch.setattr(MachineCompute, "restart", counted)
    return found


@pytest.fixture
def cluster(tmp_path):
    found = LocalCluster(sums_graph(), WANTED, tmp_path / "engines", persist_to=tmp_path / "kept")
    found.start("a")
    found.until_active("a")
    finish(found, 1, 2, 3)
    found.ask("persist")
    return found


def test_a_restore_happens_once_and_counts_are_right(cluster, restarts):
    finish(cluster, 4, 5)
    answer = cluster.ask("state", {"value": "restored"}).result
    assert (answer["engine"], answer["block"]) == ("a", 3)
    cluster.advance(20.0)
    finish(cluster, 6, 7)
    assert restarts == ["a1"]
    cluster.advance(10.0)
    assert len(restarts) == 1
    assert cluster.active.computed().events == 7


def test_a_standby_leads_while_the_leader_restores_and_only_that_one_restores(cluster, restarts):
    cluster.start("b")
    finish(cluster, 4, 5)
    cluster.advance(3.0)
    assert cluster.ask("state", {"value": "restored"}).result["engine"] == "a"
    cluster.until_active("b")
    finish(cluster, 6, 7)
    cluster.advance(10.0)
    assert restarts == ["a1"]
    assert {node.computed().events for node in cluster.awake} == {7}
    # And both can lead again
    cluster.nodes["b"].kill()
    cluster.until_active("a")
    finish(cluster, 8)
