"""Resets among engines that die, are away or have nothing: each begins where all before it is out; nothing hangs."""

from __future__ import annotations

import itertools

import pytest
from failover_worlds import WANTED, finish, leader, send
from local_cluster import LocalCluster, LocalNode
from run_worlds import sums_graph

from lockstep.engine.runtime.sequence.model_statement import last_reset


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


def two(cluster: LocalCluster) -> tuple[LocalNode, LocalNode]:
    nodes = leader(cluster), cluster.start("b")
    finish(cluster, *range(1, 8))
    cluster.advance(1.6)
    return nodes


def is_reset(cluster: LocalCluster) -> bool:
    return last_reset(cluster.bus.open(cluster.streams.sequence)) is not None


def test_an_old_state_begins_at_the_last_reset_that_is_out(cluster):
    # Given an engine that was away during a reset, and a second reset whose blocks are not out yet
    active, standby = two(cluster)
    standby.kill()
    cluster.advance(4.0)
    cluster.ask("reset", {"force": True})
    finish(cluster, 11, 12)
    active.slow(3.0)
    send(cluster, 13, 14)
    cluster.until(lambda: active.control.sequencer.position.block == 11)
    cluster.ask_later("reset", {"force": True})
    cluster.advance(0.5)
    assert active.control.publisher.published < 11
    # When it starts
    standby.start()
    active.slow(0.0)
    cluster.settle()
    # Then it computes what is left
    assert standby.failure is None
    assert standby.computed().counts == active.computed().counts


def test_an_engine_without_a_state_computes_what_is_not_out(cluster):
    active = leader(cluster)
    finish(cluster, 1, 2, 3)
    active.slow(5.0)
    send(cluster, 4, 5, 6)
    cluster.until(lambda: active.control.sequencer.position.block == 6)
    cluster.ask_later("reset", {"force": True})
    cluster.advance(0.5)
    assert active.control.publisher.published == 3
    third = cluster.start("c")
    active.kill()
    cluster.until(lambda: third.is_active)
    finish(cluster, 20)
    assert [block for block, _ in cluster.subscribers["q/in"].got] == list(range(1, 8))


def test_a_reset_whose_leader_died_lets_go_of_the_input_all_the_same(cluster):
    active, _ = two(cluster)
    active.kill_at(".S", after=True)
    cluster.ask("reset", {"force": True}, timeout_s=60)
    assert not active.is_alive
    assert cluster.input("q/in").bounds().first > 0


def test_a_reset_that_was_decided_is_not_refused_because_the_new_day_has_begun(cluster):
    active, _ = two(cluster)
    active.kill_at(".S", after=True)
    trades = itertools.count(20)

    def begin_the_day() -> float:
        if is_reset(cluster):
            send(cluster, next(trades))
        return 0.5

    cluster._outside.spawn("feed", begin_the_day, cluster._outside.waiter(), cluster.surprises.append)
    assert cluster.ask("reset", timeout_s=60).result["block"] >= 7
