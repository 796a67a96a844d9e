"""The bus is away for a while: engines wait, and go on when it is back, and what comes out is the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from failover_worlds import WANTED, finish, pair, send
from local_cluster import LocalCluster, LocalNode
from run_worlds import sums_graph

from lockstep.engine.runtime import engine
from lockstep.errors import ServerUnreachable
from lockstep.testing.faults import FaultPlan

EVERYTHING = frozenset({"append", "read", "bounds", "trim", "open", "create", "delete"})
WRITES = frozenset({"append", "trim", "create", "delete"})
READS = EVERYTHING - WRITES
LOGS = ("", ".S", ".C", ".O", ".I", ".engines")
"""Endings of the logs that are away; the first one takes all."""


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path, persist_to=tmp_path / "kept")


def outage(node: LocalNode, operations: frozenset[str], ending: str) -> Callable[[], None]:
    """From now on an engine can't do this on logs whose names end so; returns what brings them back."""

    def take(operation: str, log: str | None) -> None:
        if operation in operations and (log or "").endswith(ending):
            raise ServerUnreachable(server="the bus", reason="it is away")

    node.bus.plan.take = take  # type: ignore[method-assign]

    def end() -> None:
        node.bus.plan.take = FaultPlan.take.__get__(node.bus.plan)  # type: ignore[method-assign]

    return end


@pytest.mark.parametrize("ending", LOGS)
@pytest.mark.parametrize("what", ["everything", "writes", "reads"])
def test_an_engine_lives_through_an_outage_and_what_comes_out_is_the_same(cluster, what, ending):
    operations = {"everything": EVERYTHING, "writes": WRITES, "reads": READS}[what]
    pair(cluster)
    for name in ("a", "b"):
        node = cluster.nodes[name]
        # Given an outage for one of two engines, active or standby, at a moment when it has work to do
        send(cluster, 10)
        cluster.advance(0.05)
        back = outage(node, operations, ending)
        send(cluster, 11, 12)
        cluster.advance(6.0)
        assert node.is_alive, node.failure
        # When it is over, then everything comes out once
        back()
        finish(cluster, 13)
        assert all(each.is_alive for each in cluster.nodes.values())
        # And the other one does the same
        if cluster.until_active().name == "a":
            cluster.advance(2.0)
            cluster.ask("handover")
            cluster.until_active("b")


def test_a_leader_that_can_not_reach_the_bus_is_replaced_and_follows_when_it_is_back(cluster):
    a, b = pair(cluster)
    back = outage(a, EVERYTHING, "")
    cluster.until(lambda: b.is_active, timeout=5.0)
    send(cluster, 6, 7)
    cluster.advance(3.0)
    back()
    finish(cluster, 8)
    assert cluster.active is b
    assert not a.is_active


def test_a_leader_that_can_not_write_the_sequence_log_alone_lets_another_lead(cluster):
    a, b = pair(cluster)
    outage(a, WRITES, ".S")
    send(cluster, 6)
    cluster.until(lambda: b.is_active, timeout=10.0)
    cluster.advance(3.0)
    assert cluster.oracle().events == 6


def test_all_engines_wait_for_a_bus_that_nobody_reaches(cluster):
    a, b = pair(cluster)
    ends = [outage(node, EVERYTHING, "") for node in (a, b)]
    cluster.advance(60.0)
    for end in ends:
        end()
    finish(cluster, 6, 7)
    assert a.is_alive
    assert b.is_alive


def test_a_request_that_an_outage_interrupts_is_carried_out_once(cluster):
    a, _ = pair(cluster)
    cluster.advance(3.0)
    cluster.ask_later("persist", id_="once")
    cluster.advance(0.1)
    back = outage(a, EVERYTHING, "")
    cluster.advance(0.3)
    back()
    cluster.ask("persist", id="once")
    assert cluster.oracle().persists == 1
    finish(cluster, 6)


def test_an_engine_that_does_not_wait_would_be_noticed(cluster, monkeypatch):
    monkeypatch.setattr(engine, "through_outages", lambda _, step: step)
    a, b = pair(cluster)
    outage(a, READS, "")
    cluster.advance(3.0)
    assert not a.is_alive
    assert b.is_alive
