"""A small project with engines to be killed, for the tests of failover."""

from __future__ import annotations

from local_cluster import LocalCluster, LocalNode
from run_worlds import trade

WANTED = frozenset({"q/in", "q/sums"})


def send(cluster: LocalCluster, *ids: int) -> None:
    """One trade in each block."""
    for one in ids:
        cluster.publish("q/in", [trade(one, symbol="ABC"[one % 3], price=one / 4)])


def leader(cluster: LocalCluster) -> LocalNode:
    """The first engine, active."""
    node = cluster.start("a")
    cluster.until_active("a")
    return node


def pair(cluster: LocalCluster) -> tuple[LocalNode, LocalNode]:
    """An active engine and a standby, in step, with five blocks out."""
    active, standby = leader(cluster), cluster.start("b")
    finish(cluster, *range(1, 6))
    return active, standby


def finish(cluster: LocalCluster, *ids: int) -> None:
    """More blocks, and everything is as if nothing had happened."""
    send(cluster, *ids)
    cluster.settle()
    cluster.check()
