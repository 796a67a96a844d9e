"""Who leads as people wish: hand-overs, stops and preferences; and models that do not fit are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from failover_worlds import WANTED, finish, pair, send
from local_cluster import LEASE_S, LocalCluster
from run_worlds import sums_graph

from lockstep.engine.errors import ModelMismatch
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow
from lockstep.engine.runtime.control.leadership import ACTIVE, STANDBY

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


def test_a_planned_hand_over_changes_roles_and_nothing_else(cluster):
    active, _standby = pair(cluster)
    send(cluster, *range(6, 10))
    answer = cluster.ask("handover")
    assert answer.result == {"from": "a", "standbys": ["b"]}
    cluster.until_active("b")
    cluster.until(lambda: not active.is_active)
    finish(cluster, *range(10, 14))
    assert [change.role for change in active.roles] == [ACTIVE, STANDBY]
    # And back
    cluster.ask("handover")
    cluster.until_active("a")
    finish(cluster, 14)


def test_a_hand_over_is_quicker_than_a_lease(cluster):
    pair(cluster)
    cluster.advance(1.5)
    cluster.ask("handover")
    begun = cluster.clock.monotonic()
    cluster.until_active("b")
    assert cluster.clock.monotonic() - begun < LEASE_S


def test_a_hand_over_waits_until_the_standby_has_computed_what_is_published(cluster):
    active, standby = pair(cluster)
    standby.slow(1e6)
    send(cluster, *range(6, 40))
    cluster.advance(3.0)
    cluster.ask_later("handover")
    cluster.advance(3.0)
    assert cluster.reports()["b"].state == "running", "it was in step once, and is heard"
    assert cluster.active is active
    before = cluster.reports()["a"].published
    send(cluster, *range(40, 50))
    cluster.advance(3.0)
    assert cluster.reports()["a"].published > before, "nothing waits meanwhile"
    standby.slow(0.0)
    cluster.until_active("b")
    finish(cluster, 50)


def test_an_engine_that_is_stopped_in_order_lets_the_standby_lead_at_once(cluster):
    active, _standby = pair(cluster)
    send(cluster, 6, 7)
    cluster.advance(0.1)
    active.stop()
    stopped_at = cluster.clock.monotonic()
    cluster.until_active("b")
    assert cluster.clock.monotonic() - stopped_at < LEASE_S
    active.start()
    finish(cluster, 8)
    assert not active.is_active


def test_of_several_standbys_the_preferred_one_takes_over(cluster):
    cluster.start("a", preference=5)
    cluster.until_active("a")
    for name, preference in (("b", 3), ("c", 1), ("d", 2)):
        cluster.start(name, preference=preference)
    # A preferred engine that comes later does not take the lead from one that does its work
    finish(cluster, 1)
    assert cluster.active.name == "a"
    for name in ("a", "c", "d"):
        cluster.nodes[name].kill()
        cluster.until_active({"a": "c", "c": "d", "d": "b"}[name])
    finish(cluster, 2)


# Models


def test_an_engine_with_another_model_is_refused_when_it_starts(cluster):
    pair(cluster)
    other = cluster.node("x", graph=sums_graph_of_minima())
    with pytest.raises(ModelMismatch, match="was made for model"):
        other.start()
    finish(cluster, 6)


def test_of_two_engines_with_different_models_that_start_at_once_one_ends_with_the_reason(cluster):
    first, second = cluster.node("a"), cluster.node("x", graph=sums_graph_of_minima())
    first.start()
    second.start()
    cluster.until(lambda: first.failure is not None or second.failure is not None)
    cluster.until_active()
    (ended,) = [node for node in (first, second) if not node.is_alive]
    assert isinstance(ended.failure, ModelMismatch)


def test_an_engine_that_publishes_other_windows_is_refused(cluster):
    pair(cluster)
    cluster.wanted = frozenset({"q/in"})
    with pytest.raises(ModelMismatch, match="published"):
        cluster.node("x").start()


def sums_graph_of_minima() -> Graph:
    """The same windows, with another field."""
    project = sums_graph().project
    (query,) = project.queries
    source, sums = query.windows
    assert isinstance(sums, AggregateWindow)
    other = replace(query, windows=(source, replace(sums, fields=("ESP_aMin(price)",))))
    return compile_project(replace(project, queries=(other,)))


def test_a_standby_is_not_told_that_it_has_nothing_to_do(tmp_path, caplog):
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path)
    pair(cluster)
    cluster.advance(10.0)
    assert not [record for record in caplog.records if "nothing to do" in record.getMessage()]
