"""Engines of a project take over from each other: subscribers get each block once, in order, whoever dies."""

from __future__ import annotations

import logging

import pytest
from failover_worlds import WANTED, finish, pair, send
from local_cluster import LEASE_S, LocalCluster
from run_worlds import put, sums_graph, trade, two_sources_graph

from lockstep.engine.runtime.control.leadership import ACTIVE, STANDBY
from lockstep.engine.runtime.output import publisher
from lockstep.engine.runtime.output.outlet import is_barrier
from lockstep.engine.runtime.sequence.model_statement import project_graph, project_statement
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.worker import shard_worker
from memory_driver import MemoryServer

pytestmark = pytest.mark.slow


@pytest.fixture(params=["tables", "server"])
def cluster(request, tmp_path):
    """Both kinds of buses: offsets without gaps, and messages on a server."""
    return LocalCluster(sums_graph(), WANTED, tmp_path, server=MemoryServer() if request.param == "server" else None)


def test_the_first_engine_states_the_model(cluster):
    cluster.start("a")
    cluster.until_active("a")
    stated_at = cluster.nodes["a"].control.sequencer.position.stated_at
    assert project_graph(cluster.bus, "local", "p").fingerprint == cluster.graph.fingerprint
    assert project_statement(cluster.bus, "local", "p").publish == ("q/in", "q/sums")
    # And those who come later do not state it again
    cluster.start("b")
    cluster.nodes["a"].kill()
    cluster.until_active("b")
    finish(cluster, 1, 2)
    assert cluster.nodes["b"].control.sequencer.position.stated_at == stated_at


def test_one_engine_leads_and_the_others_follow(cluster):
    for name in "abc":
        cluster.start(name)
    cluster.until_active()
    finish(cluster, *range(1, 20))
    assert sorted(node.engine.role for node in cluster.awake) == [ACTIVE, STANDBY, STANDBY]
    assert {node.computed().block for node in cluster.awake} == {19}


def test_a_standby_keeps_what_the_leader_has_not_published_and_then_lets_it_go(cluster):
    active, standby = pair(cluster)
    assert standby.buffer().files == 0
    # When the leader decides, and computes late
    active.slow(2.0)
    send(cluster, *range(6, 12))
    cluster.until(lambda: standby.computed().block == 11)
    assert active.control.publisher.published == 5
    assert (standby.buffer().first, standby.buffer().last) == (6, 11)
    # Then the standby holds it until the leader has published it, and publishes nothing itself
    assert standby.control.publisher.published == 5
    active.slow(0.0)
    cluster.settle()
    assert standby.buffer().files == 0
    assert [change.role for change in standby.roles] == []
    cluster.check()


def test_when_the_active_engine_is_killed_the_standby_brings_the_rest(cluster):
    active, standby = pair(cluster)
    active.slow(5.0)
    send(cluster, *range(6, 30))
    cluster.until(lambda: standby.computed().block == 29)
    active.kill()
    cluster.until_active("b")
    (change,) = standby.roles
    assert (change.role, change.last, change.current) == (ACTIVE, 5, 29)
    finish(cluster, *range(30, 35))


@pytest.mark.parametrize("stream", [".S", ".C", "q.in.O", "q.sums.O", ".engines"])
@pytest.mark.parametrize("after", [False, True])
def test_the_active_engine_may_die_at_any_write(cluster, stream, after):
    active, _ = pair(cluster)
    active.kill_at(stream, skip=1, after=after)
    send(cluster, 6, 7)
    for one in range(8, 16):
        cluster.advance(0.05)
        send(cluster, one)
    cluster.until(lambda: not active.is_alive)
    cluster.until_active("b")
    active.start()
    finish(cluster, 16, 17)
    assert active.failure is None


def test_a_takeover_is_told_in_the_words_that_operators_know(cluster, caplog):
    active, standby = pair(cluster)
    active.slow(5.0)
    send(cluster, 6, 7, 8)
    cluster.until(lambda: standby.computed().block == 8)
    caplog.clear()
    with caplog.at_level(logging.INFO, "lockstep"):
        active.kill()
        cluster.until_active("b")
    told = [
        record.getMessage() for record in caplog.records if "tandby" in record.message or "ailover" in record.message
    ]
    assert told == [
        "Standby sending buffered messages, last message id = 5, current message id = 8",
        "Standby synced, current message id = 8",
        "Hot failover state switched to active",
    ]


def test_the_first_engine_to_lead_warns_of_nothing_and_one_that_takes_over_does(cluster, caplog):
    pair(cluster)
    assert [record for record in caplog.records if "ailover" in record.message] == []
    cluster.nodes["a"].kill()
    cluster.until_active("b")
    assert [record.levelname for record in caplog.records if "switched to active" in record.message] == ["WARNING"]


def test_a_takeover_takes_about_a_lease(cluster):
    active, _standby = pair(cluster)
    killed_at = cluster.clock.monotonic()
    active.kill()
    cluster.until_active("b")
    assert cluster.clock.monotonic() - killed_at < 3 * LEASE_S


# Several die


def test_both_engines_are_killed_and_started_again(cluster):
    active, standby = pair(cluster)
    active.slow(5.0)
    send(cluster, *range(6, 12))
    cluster.advance(0.3)
    active.kill()
    standby.kill()
    send(cluster, *range(12, 16))
    cluster.advance(3.0)
    standby.start()
    active.start()
    finish(cluster, 16)
    assert [node.computed().block for node in (active, standby)] == [16, 16]
    assert sum(node.is_active for node in (active, standby)) == 1


@pytest.mark.parametrize(
    ("stream", "skip", "after"),
    [
        (".S", 0, False),
        (".S", 0, True),
        ("q.in.O", 0, False),
        ("q.in.O", 0, True),
        ("q.sums.O", 0, True),
        ("q.in.O", 1, False),
        ("q.in.O", 1, True),
        ("q.sums.O", 1, True),
        (".C", 0, False),
        (".C", 0, True),
    ],
    ids=[
        "before its mark", "after its mark", "before its barrier", "after its barrier", "after all barriers",
        "before its first frame", "after its first frame", "after all frames", "before its beat", "after its beat",
    ],
)  # fmt: skip
def test_the_standby_may_die_while_it_takes_over(cluster, stream, skip, after):
    active, standby = pair(cluster)
    third = cluster.start("c", preference=1)
    active.slow(5.0)
    send(cluster, *range(6, 12))
    cluster.until(lambda: standby.computed().block == third.computed().block == 11)
    standby.kill_at(stream, skip=skip, after=after)
    active.kill()
    cluster.until(lambda: not standby.is_alive)
    cluster.until_active("c")
    for node in (active, standby):
        node.start()
    finish(cluster, 12)
    assert third.is_active
    assert [node.computed().block for node in (active, standby, third)] == [12, 12, 12]


@pytest.mark.parametrize("frames", range(4))
def test_the_standby_may_die_in_the_middle_of_a_long_block(cluster, monkeypatch, frames):
    # Given a block of many frames
    for module in (shard_worker, publisher):
        monkeypatch.setattr(module, "FRAME_BYTES", 700)
    active, standby = pair(cluster)
    active.slow(5.0)
    cluster.publish("q/in", [trade(one) for one in range(100, 160)])
    cluster.until(lambda: standby.computed().block == 6)
    part = standby.computing.spools[0].part_with(6)
    assert part is not None
    given = part.frames["q/in"]
    assert len(given) > 4
    # When only some of them are on the stream
    third = cluster.start("c", preference=1)
    cluster.until(lambda: third.computed().block == 6)
    write_some(cluster, "q/in", list(map(bytes, given[:frames])))
    active.kill()
    standby.kill_at("q.in.O", skip=1)
    cluster.until(lambda: not standby.is_alive)
    # Then whoever leads next goes on with the next piece
    cluster.until_active("c")
    finish(cluster, 6, 7)
    assert len(frames_on(cluster, "q/in")) >= len(given)


def write_some(cluster: LocalCluster, path: str, frames: list[bytes]) -> None:
    """As a leader did that died in the middle."""
    put(cluster.output(path), *frames)


def frames_on(cluster: LocalCluster, path: str) -> list[bytes]:
    log = cluster.output(path)
    return [value for _, value in values_between(log, 0, log.bounds().next) if not is_barrier(value)]


# Two sources


def test_the_order_of_two_sources_is_the_same_for_all_engines(tmp_path):
    graph = two_sources_graph()
    cluster = LocalCluster(graph, frozenset({"q/left", "q/right"}), tmp_path, seed=3)
    for name in "abc":
        cluster.start(name)
    for one in range(1, 30):
        cluster.publish(cluster.random.choice(["q/left", "q/right"]), [trade(one)])
        if one % 10 == 0:
            cluster.until_active()
            cluster.active.kill()
        cluster.advance(0.05)
        for node in cluster.nodes.values():
            if not node.is_alive and cluster.random.random() < 0.5:
                node.start()
    for node in cluster.nodes.values():
        if not node.is_alive:
            node.start()
    cluster.settle()
    cluster.check()
