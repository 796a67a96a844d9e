"""Engines of a project take over from each other: subscribers get each block once, in order, whoever dies or sleeps."""

from __future__ import annotations

import logging

import pytest
from local_cluster import LEASE_S, LocalCluster, LocalNode
from run_worlds import sums_graph, trade, two_sources_graph

from lockstep.engine.errors import ModelMismatch
from lockstep.engine.run import publishing, worker
from lockstep.engine.run.catalog import project_graph, project_statement
from lockstep.engine.run.conducting import ACTIVE, STANDBY

WANTED = frozenset({"q/in", "q/sums"})


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


def send(cluster: LocalCluster, *ids: int) -> None:
    for one in ids:
        cluster.publish("q/in", [trade(one, symbol="ABC"[one % 3], price=one / 4)])


def pair(cluster: LocalCluster) -> tuple[LocalNode, LocalNode]:
    """An active engine and a standby, in step, with five blocks out."""
    cluster.start("a")
    cluster.until_active("a")
    cluster.start("b")
    send(cluster, *range(1, 6))
    cluster.settle()
    return cluster.nodes["a"], cluster.nodes["b"]


def finish(cluster: LocalCluster, *ids: int) -> None:
    """More blocks, and everything is as if nothing had happened."""
    send(cluster, *ids)
    cluster.settle()
    cluster.check()


def test_the_first_engine_states_the_model(cluster):
    cluster.start("a")
    cluster.until_active("a")
    assert project_graph(cluster.bus, "local", "p").fingerprint == cluster.graph.fingerprint
    assert project_statement(cluster.bus, "local", "p").publish == ("q/in", "q/sums")
    # And those who come later do not state it again
    cluster.start("b")
    cluster.nodes["a"].kill()
    cluster.until_active("b")
    finish(cluster, 1, 2)
    assert cluster.nodes["b"].team.sequencer.position.stated_at == 1


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
    assert active.team.publisher.published == 5
    assert (standby.buffer().first, standby.buffer().last) == (6, 11)
    # Then the standby holds it until the leader has published it, and publishes nothing itself
    assert standby.team.publisher.published == 5
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


def test_a_takeover_takes_about_a_lease(cluster):
    active, standby = pair(cluster)
    killed_at = cluster.clock.monotonic()
    active.kill()
    cluster.until_active("b")
    assert cluster.clock.monotonic() - killed_at < 3 * LEASE_S


# Pauses


@pytest.mark.parametrize("stream", ["between two steps", ".S", ".C", "q.in.O", "q.sums.O", ".engines"])
@pytest.mark.parametrize("after", [False, True])
def test_an_active_engine_that_slept_becomes_a_standby_and_nothing_it_writes_counts(cluster, stream, after):
    sleeper, standby = pair(cluster)

    def meanwhile() -> None:
        cluster.until_active("b")
        send(cluster, *range(10, 14))
        cluster.until(lambda: standby.team.publisher.published == 13)
        cluster.advance(1.0)

    # Given an engine that stands still beyond its lease, between two steps or in the middle of one
    if stream == "between two steps":
        send(cluster, *range(6, 10))
        sleeper.machine.stand_still(meanwhile)
    else:
        sleeper.stall_at(stream, meanwhile, after=after)
        send(cluster, *range(6, 10))
    # When it wakes it finds out by itself
    cluster.until(lambda: standby.is_active and not sleeper.is_active)
    cluster.settle()
    assert [change.role for change in sleeper.roles] == [ACTIVE, STANDBY]
    finish(cluster, *range(14, 18))
    assert cluster.active is standby
    # And it can take over again
    standby.kill()
    cluster.until_active("a")
    finish(cluster, 18)


def test_a_pause_shorter_than_the_lease_costs_nothing(cluster):
    active, standby = pair(cluster)
    active.pause()
    cluster.advance(LEASE_S / 3)
    active.wake()
    finish(cluster, 6, 7)
    assert active.is_active
    assert standby.roles == []


def test_a_late_word_of_a_leader_that_slept_does_not_keep_others_from_starting(cluster):
    # Given an engine that fell asleep just before it said what is published, and said it long after others went on
    sleeper, standby = pair(cluster)

    def meanwhile() -> None:
        cluster.until_active("b")
        send(cluster, *range(7, 14))
        cluster.until(lambda: standby.team.publisher.published == 13)
        send(cluster, 14)  # so that everything up to 13 is in the standby's state
        cluster.until(lambda: standby.team.publisher.published == 14)
        cluster.advance(1.0)

    sleeper.stall_at(".C", meanwhile)
    send(cluster, 6)
    cluster.until(lambda: standby.is_active and not sleeper.is_active)
    # Then everybody still knows what is out, and an engine that starts goes on
    cluster.advance(0.5)
    assert sleeper.team.publisher.published == 14
    assert sleeper.buffer().files == 0
    standby.kill()
    standby.start()
    finish(cluster, 15)
    assert standby.failure is None


def test_a_standby_may_sleep_as_long_as_it_likes(cluster):
    active, standby = pair(cluster)
    standby.pause()
    for one in range(6, 26):
        send(cluster, one)
        cluster.advance(0.2)
    standby.wake()
    finish(cluster, 26)
    active.kill()
    cluster.until_active("b")
    finish(cluster, 27)


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
        "before its mark", "behind its mark", "before its barrier", "behind its barrier", "behind all barriers",
        "before its first frame", "behind its first frame", "behind all frames", "before its beat", "behind its beat",
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


@pytest.mark.parametrize("frames", range(4))
def test_the_standby_may_die_in_the_middle_of_a_long_block(cluster, monkeypatch, frames):
    # Given a block of many frames
    for module in (worker, publishing):
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
    from run_worlds import put

    put(cluster.output(path), *frames)


def frames_on(cluster: LocalCluster, path: str) -> list[bytes]:
    from lockstep.engine.run.barriers import is_barrier
    from lockstep.engine.run.reading import values_between

    log = cluster.output(path)
    return [value for _, value in values_between(log, 0, log.bounds().next) if not is_barrier(value)]


# As planned


def test_a_planned_hand_over_changes_roles_and_nothing_else(cluster):
    active, standby = pair(cluster)
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


def test_an_engine_that_is_stopped_in_order_lets_the_standby_lead_at_once(cluster):
    active, standby = pair(cluster)
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


def sums_graph_of_minima():
    from dataclasses import replace

    from lockstep.engine.model.validation import compile_project
    from lockstep.engine.model.windows import AggregateWindow

    project = sums_graph().project
    (query,) = project.queries
    source, sums = query.windows
    assert isinstance(sums, AggregateWindow)
    other = replace(query, windows=(source, replace(sums, fields=("ESP_aMin(price)",))))
    return compile_project(replace(project, queries=(other,)))


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


# A bus that is unsure


@pytest.mark.parametrize("kind", ["drop", "lose_ack", "late", "duplicate"])
def test_appends_that_are_lost_late_or_doubled_do_not_show(cluster, kind):
    active, standby = pair(cluster)
    streams = cluster.streams
    logs = [
        streams.sequence, streams.control, streams.reports, f"_group.{streams.group}",
        cluster.output("q/in").name, cluster.output("q/sums").name,
    ]  # fmt: skip
    for node in (active, standby):
        for log in logs:
            getattr(node.bus.plan, kind)(2, log=log)
    for one in range(6, 16):
        send(cluster, one)
        cluster.advance(0.2)
    cluster.settle()
    cluster.check()
    assert [active.failure, standby.failure] == [None, None]
    assert active.bus.plan.counts[kind] >= 8
    cluster.active.kill()
    finish(cluster, 16)


def test_an_out_stream_that_is_trimmed_before_a_frame_was_read_back_goes_on(cluster):
    active, standby = pair(cluster)
    log = cluster.output("q/in")

    def trim() -> None:
        cluster.subscribers["q/in"].step()
        log.trim(log.bounds().next)

    active.bus.trap("q.in.O", trim, after=True)
    finish(cluster, 6, 7)
    assert active.is_active
    # Also if it is a barrier
    standby.bus.trap("q.in.O", trim, after=True)
    active.kill()
    finish(cluster, 8)
