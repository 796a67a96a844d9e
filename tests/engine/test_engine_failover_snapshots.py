"""Snapshots, trimming, a new day and a stop: all engines do it at the same block, and whoever starts goes on there."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from failover_worlds import WANTED, finish, leader, send
from local_cluster import LocalCluster, LocalNode
from run_worlds import recent_graph, sums_graph

from lockstep.engine.errors import LogTooShort
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.runtime.output.event_streams import out_batches
from lockstep.engine.runtime.sequence.model_statement import last_reset
from lockstep.engine.runtime.snapshots.store import SnapshotStore
from lockstep.errors import LockstepError

pytestmark = pytest.mark.slow


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "kept"


@pytest.fixture
def cluster(tmp_path, kept):
    return LocalCluster(sums_graph(), WANTED, tmp_path, persist_to=kept)


def pair(cluster: LocalCluster) -> tuple[LocalNode, LocalNode]:
    """An active engine and a standby that have reported."""
    active, standby = leader(cluster), cluster.start("b")
    cluster.advance(1.6)
    return active, standby


def blocks(folder: Path) -> list[int]:
    return [info.block for info in SnapshotStore(folder).complete()]


# Snapshots


def test_one_engine_writes_a_snapshot_and_it_is_a_standby(cluster, kept):
    active, standby = pair(cluster)
    finish(cluster, *range(1, 8))
    answer = cluster.ask("persist")
    assert answer.result == {"engine": "b", "block": 7, "path": str(kept)}
    assert blocks(kept) == [7]
    assert cluster.oracle().persists == 1
    assert standby.engine.report().snapshot_block == 7
    assert active.engine.report().snapshot_block == 0
    finish(cluster, 8)


def test_without_a_standby_the_active_engine_writes_it(cluster, kept):
    cluster.start("a")
    cluster.until_active("a")
    finish(cluster, 1, 2)
    assert cluster.ask("persist").result["engine"] == "a"
    assert blocks(kept) == [2]


def test_a_snapshot_counts_only_when_everything_up_to_it_is_published(cluster, kept):
    active, standby = pair(cluster)
    finish(cluster, 1)
    active.slow(1e6)
    send(cluster, *range(2, 6))
    cluster.until(lambda: standby.computed().block == 5)
    # Given a snapshot of blocks that are not out
    cluster.ask_later("persist")
    cluster.until(lambda: any(standby.computing.setup.staging.glob("*/*.snapshot")))
    cluster.advance(0.5)
    assert blocks(kept) == []
    active.kill()
    cluster.until(lambda: blocks(kept) != [])
    assert standby.control.publisher.published >= 5
    finish(cluster, 6)


def test_an_engine_with_an_empty_folder_begins_with_the_snapshot_and_is_in_step(cluster):
    active, standby = pair(cluster)
    finish(cluster, *range(1, 20))
    cluster.ask("persist")
    finish(cluster, 20, 21)
    third = cluster.start("c")
    assert third.computing.setup.first > 0
    cluster.settle()
    cluster.check()
    # And it can lead
    active.kill()
    standby.kill()
    cluster.until_active("c")
    finish(cluster, 22)


def test_all_engines_lose_their_folders_and_begin_with_the_snapshot(cluster):
    active, standby = pair(cluster)
    finish(cluster, *range(1, 12))
    cluster.ask("persist")
    send(cluster, *range(12, 20))
    cluster.advance(0.1)
    for node in (active, standby):
        node.kill()
        cluster.remove_disk(node)
        node.start()
    finish(cluster, 20)
    assert [node.computed().block for node in (active, standby)] == [20, 20]
    assert all(node.computing.setup.first > 0 for node in (active, standby)), "they began at the beginning"


def test_snapshots_are_taken_now_and_then_by_themselves_and_two_are_kept(tmp_path, kept):
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path, persist_to=kept, persist_every_s=1.0)
    pair(cluster)
    for one in range(1, 30):
        send(cluster, one)
        cluster.advance(0.2)
    cluster.settle()
    cluster.check()
    assert cluster.oracle().persists >= 4
    assert len(blocks(kept)) == 2
    assert blocks(kept)[-1] > 15


def test_a_folder_that_can_not_be_used_any_more_ends_no_engine(tmp_path, kept, caplog):
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path, persist_to=kept, persist_every_s=1.0, trim=True)
    active, standby = pair(cluster)
    send(cluster, 1, 2)
    cluster.advance(3.0)
    shutil.rmtree(kept)
    kept.touch()
    send(cluster, 3, 4)
    cluster.advance(3.0)
    assert "can't be used" in caplog.text
    # When it can be used again, then there are snapshots again
    kept.unlink()
    send(cluster, 5)
    cluster.advance(3.0)
    assert (active.failure, standby.failure) == (None, None)
    assert blocks(kept) == [5]


@pytest.mark.parametrize("when", ["before it writes", "while the others lead"])
def test_an_engine_that_dies_with_a_snapshot_leaves_nothing_half_done(cluster, kept, when):
    _active, standby = pair(cluster)
    finish(cluster, *range(1, 5))
    if when == "before it writes":
        standby.slow(1e6)
    cluster.ask_later("persist")
    cluster.advance(0.08)
    standby.kill()
    cluster.advance(1.0)
    standby.start()
    finish(cluster, 5, 6)
    assert SnapshotStore(kept).refused() == []
    cluster.advance(1.6)
    assert cluster.ask("persist").result["block"] == 6


def test_two_snapshots_may_be_asked_for_at_once(cluster, kept):
    pair(cluster)
    finish(cluster, 1, 2, 3)
    for _ in range(2):
        cluster.ask_later("persist")
    cluster.ask_later("state", {"value": "running"})
    cluster.until(lambda: len(blocks(kept)) == 2)
    finish(cluster, 4)
    assert all(node.failure is None for node in cluster.nodes.values())


# Trimming


def recent_cluster(tmp_path: Path, kept: Path | None) -> LocalCluster:
    return LocalCluster(recent_graph(30), frozenset({"q/sums"}), tmp_path, persist_to=kept, entry_events=10)


def send_recent(cluster: LocalCluster, first: int, last: int) -> None:
    """One event a second of its own time: rows leave after thirty."""
    for one in range(first, last + 1):
        cluster.publish("q/in", [Event(Opcode.INSERT, Flag.NORMAL, (one, "AB"[one % 2], one / 4, one))])
    cluster.settle()


def persisted_cluster(tmp_path: Path, kept: Path) -> LocalCluster:
    """Two engines, and snapshots at 40, 80 and 120 blocks, of which two are kept; then ten more."""
    cluster = recent_cluster(tmp_path, kept)
    pair(cluster)
    first = 1
    for last in (40, 80, 120):
        send_recent(cluster, first, last)
        cluster.ask("persist")
        first = last + 1
    send_recent(cluster, 121, 130)
    return cluster


def test_trimming_keeps_what_the_second_newest_snapshot_and_the_windows_need(tmp_path, kept):
    cluster = persisted_cluster(tmp_path / "one", kept)
    plain = recent_cluster(tmp_path / "plain", None)
    plain.start("a")
    plain.until_active("a")
    send_recent(plain, 1, 140)
    # When it is trimmed
    answer = cluster.ask("trim")
    assert answer.result["trimmed"] is True
    cluster.settle()
    # Then what the snapshot at 80 needs is there, and the thirty seconds before it
    first = cluster.input("q/in").bounds().first
    assert first == 40
    assert cluster.bus.open(cluster.streams.sequence).bounds().first > 0
    # And engines that lost everything begin with a snapshot; windows read what leaves them from the log
    for node in cluster.awake:
        node.kill()
        cluster.remove_disk(node)
        node.start()
    send_recent(cluster, 131, 140)
    assert cluster.subscribers["q/sums"].got == plain.subscribers["q/sums"].got
    assert {str(node.computed().counts) for node in cluster.awake} == {str(plain.active.computed().counts)}


def test_the_older_of_two_snapshots_is_enough_after_trimming(tmp_path, kept):
    cluster = persisted_cluster(tmp_path / "one", kept)
    cluster.ask("trim")
    cluster.settle()
    counts = cluster.active.computed().counts
    newest = SnapshotStore(kept).complete()[-1].path
    for file in newest.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    for node in cluster.awake:
        node.kill()
        cluster.remove_disk(node)
        node.start()
    cluster.settle()
    assert {str(node.computed().counts) for node in cluster.awake} == {str(counts)}


def test_with_fewer_than_two_snapshots_nothing_is_trimmed(cluster):
    pair(cluster)
    finish(cluster, *range(1, 8))
    cluster.ask("persist")
    answer = cluster.ask("trim")
    assert answer.result == {"trimmed": False, "reason": "two complete snapshots of the model in force are needed"}
    cluster.settle()
    assert cluster.input("q/in").bounds().first == 0


def test_without_a_snapshot_an_engine_says_what_is_missing(tmp_path, kept):
    cluster = persisted_cluster(tmp_path / "one", kept)
    cluster.ask("trim")
    cluster.settle()
    first = cluster.bus.open(cluster.streams.sequence).bounds().first
    # Given an engine that has neither its folder nor a snapshot
    failure = refusal_of(cluster, cluster.node("c", persist_to=None))
    assert isinstance(failure, LogTooShort), failure
    assert failure.params == {"window": "p", "stream": "local.p.S", "needed": 0, "first": first}
    # Then the others go on
    send_recent(cluster, 131, 132)
    assert len(cluster.awake) == 2


def refusal_of(cluster: LocalCluster, node: LocalNode) -> LockstepError | None:
    """How an engine ends that can't start."""
    try:
        node.start()
    except LockstepError as error:
        return error
    cluster.until(lambda: node.failure is not None)
    return node.failure


def test_an_engine_that_is_restarted_with_its_folder_needs_no_snapshot_after_trimming(tmp_path, kept):
    cluster = persisted_cluster(tmp_path / "one", kept)
    cluster.ask("trim")
    send_recent(cluster, 131, 132)
    for name in "ab":
        node = cluster.nodes[name]
        node.kill()
        node.options = replace(node.options, persist_to=None)
        node.start()
        cluster.settle()
    send_recent(cluster, 133, 134)
    assert len({str(node.computed().counts) for node in cluster.awake}) == 1


# A new day


def test_a_reset_empties_the_windows_at_the_same_block_everywhere(cluster):
    active, standby = pair(cluster)
    finish(cluster, *range(1, 8))
    expected = cluster.oracle()
    answer = cluster.ask("reset")
    assert answer.result["block"] == 7
    cluster.advance(0.5)
    send(cluster, 1, 2)  # the same keys again are new
    cluster.settle()
    # Then windows begin empty, numbers go on
    for node in (active, standby):
        assert node.computed().block == 9
        assert node.computed().counts["q/in"][0] == 2
    got = cluster.subscribers["q/in"].got
    assert got[: len(expected.answer["q/in"])] == expected.answer["q/in"]
    assert [block for block, _ in got[-2:]] == [8, 9]
    # And also for whoever starts later
    standby.kill()
    standby.start()
    cluster.settle()
    assert standby.computed().counts == active.computed().counts
    active.kill()
    cluster.until_active("b")
    send(cluster, 3)
    cluster.settle()
    assert cluster.subscribers["q/in"].got[-1][0] == 10


def test_a_reset_does_not_take_from_a_slow_standby_what_it_still_computes(cluster):
    active, standby = pair(cluster)
    finish(cluster, 1, 2, 3)
    standby.slow(2.0)
    send(cluster, *range(4, 9))
    cluster.until(lambda: active.control.publisher.published == 8)
    cluster.ask("reset", {"force": True})
    standby.slow(0.0)
    send(cluster, 20, 21)
    cluster.settle()
    assert standby.failure is None
    assert standby.computed().counts == active.computed().counts


def test_a_reset_lets_go_of_nothing_that_is_not_out_yet(cluster):
    active, _standby = pair(cluster)
    finish(cluster, 1, 2, 3)
    active.slow(1.0)
    send(cluster, *range(4, 9))
    cluster.until(lambda: active.control.sequencer.position.block == 8)
    cluster.ask("reset", {"force": True})
    active.slow(0.0)
    send(cluster, 20)
    cluster.settle()
    assert [block for block, _ in cluster.subscribers["q/in"].got] == list(range(1, 10))
    assert all(node.failure is None for node in cluster.nodes.values())


def test_after_a_reset_all_engines_may_be_started_again(cluster):
    """It came before its last blocks were out, and nothing came since: what is stored is from before it."""
    nodes = pair(cluster)
    finish(cluster, 1, 2, 3)
    for node in nodes:
        node.slow(0.5)
    send(cluster, 4, 5, 6)
    cluster.until(lambda: nodes[0].control.sequencer.position.block == 6)
    cluster.ask("reset", {"force": True})
    for node in nodes:
        node.kill()
    for node in nodes:
        node.start()
    finish(cluster, 1, 20)
    for node in nodes:
        assert node.computed().counts["q/in"][0] == 2
        node.kill()
        node.start()
    finish(cluster, 2)
    assert [node.computed().counts["q/in"][0] for node in nodes] == [3, 3]


def test_a_reset_lets_go_of_nothing_that_came_after_it(cluster):
    pair(cluster)
    finish(cluster, 1, 2, 3)
    answer = cluster.bus.open(cluster.ask_later("reset", {"force": True}))
    for trade in itertools.count(4):
        send(cluster, trade)
        cluster.advance(0.02)
        if answer.bounds().next:
            break
    found = last_reset(cluster.bus.open(cluster.streams.sequence))
    assert found is not None
    assert 0 < cluster.input("q/in").bounds().first <= found[0].ends["q/in"]
    cluster.settle()
    node = cluster.graph.find("q/in")
    assert node is not None
    first = next(out_batches(cluster.output("q/in"), node.schema))
    assert first.block[0] <= found[0].block + 1


def test_after_a_reset_an_engine_with_an_empty_folder_can_join(cluster):
    active, _ = pair(cluster)
    finish(cluster, 1, 2, 3)
    cluster.ask("reset")
    send(cluster, 20, 21)
    cluster.settle()
    third = cluster.start("c", persist_to=None)
    cluster.settle()
    assert third.failure is None
    assert third.computed().counts == active.computed().counts


# Stopped and running


def test_while_it_is_stopped_no_input_is_taken(cluster):
    active, standby = pair(cluster)
    finish(cluster, 1, 2)
    assert cluster.ask("state", {"value": "stopped"}).result == {"state": "stopped"}
    send(cluster, 3, 4)
    cluster.advance(2.0)
    assert active.control.sequencer.position.block == 2
    # Whoever leads
    active.kill()
    cluster.until_active("b")
    cluster.advance(1.0)
    assert standby.control.sequencer.position.block == 2
    cluster.ask("state", {"value": "running"})
    finish(cluster, 5)
    assert standby.control.sequencer.position.block == 5


def test_a_stopped_project_is_stopped_after_a_restart_of_all(cluster):
    active, standby = pair(cluster)
    finish(cluster, 1, 2)
    cluster.ask("state", {"value": "stopped"})
    active.kill()
    standby.kill()
    send(cluster, 3)
    active.start()
    standby.start()
    cluster.until_active()
    cluster.advance(1.0)
    assert cluster.active.control.publisher.published == 2
    cluster.ask("state", {"value": "running"})
    finish(cluster, 4)
