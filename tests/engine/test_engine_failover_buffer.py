"""What a standby keeps: as much as fits, and when something of it is lost it is computed again."""

from __future__ import annotations

import pytest
from failover_worlds import WANTED, finish, leader, send
from local_cluster import LocalCluster
from run_worlds import sums_graph

from lockstep.engine.runtime.control.leadership import ACTIVE, STANDBY
from lockstep.engine.runtime.control.storage import MEASURE_S, FolderSize, folder_size
from lockstep.engine.runtime.snapshots.checkpoint import checkpoint_position
from lockstep.engine.runtime.snapshots.format import HEAD, decode_head

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


@pytest.mark.parametrize("bounds", [{"buffer_blocks": 4}, {"buffer_bytes": 3000}], ids=["blocks", "bytes"])
def test_a_full_buffer_stops_computing_and_drops_nothing(cluster, bounds):
    active, standby = leader(cluster), cluster.start("b", batch_events=1, **bounds)
    finish(cluster, 1)
    active.slow(1e6)
    send(cluster, *range(2, 30))
    cluster.until(lambda: active.control.sequencer.position.block == 29)
    cluster.until(lambda: standby.buffer().blocks >= 4)
    cluster.advance(0.3)
    # Then the standby waits with what fits
    full = standby.buffer()
    assert full.first == 2
    assert 4 <= full.blocks < 20
    assert standby.computed().block == full.last < active.control.sequencer.position.block
    cluster.advance(0.3)
    assert standby.buffer() == full
    # And takes over with it, and goes on
    active.kill()
    cluster.until_active("b")
    assert standby.roles[0].last == 1
    finish(cluster, 30)


def test_what_a_standby_notes_of_its_state_is_what_spark_has(cluster):
    # Given a standby that computes what is not published yet, in several batches
    active, standby = leader(cluster), cluster.start("b", batch_events=1)
    finish(cluster, 1, 2, 3)
    active.slow(1e6)
    send(cluster, *range(4, 12))
    cluster.until(lambda: standby.computed().block == 11)
    # Then its note does not run ahead of what is stored: who restarts with it would look for a snapshot in vain
    head = decode_head(standby.disk.checkpoint(0).stored[HEAD], None, "the checkpoint")
    noted = checkpoint_position(standby.disk.folder, 1)
    assert noted is not None
    assert noted.number <= head.position.number


def test_a_full_buffer_is_reported(cluster):
    active, standby = leader(cluster), cluster.start("b", batch_events=1, buffer_blocks=4)
    active.slow(1e6)
    send(cluster, *range(1, 12))
    cluster.advance(1.5)
    report = standby.engine.report()
    assert (report.role, report.buffer_blocks, report.buffer_blocks_max) == (STANDBY, 4, 4)
    assert report.buffer_peak_blocks == 4
    assert report.buffer_bytes > 0
    assert (report.block, report.published, report.sequenced) == (4, 0, 11)


def test_a_leader_whose_own_buffer_was_full_as_a_standby_still_publishes_in_order(cluster):
    active, standby = leader(cluster), cluster.start("b", batch_events=1, buffer_blocks=3)
    third = cluster.start("c", batch_events=1, buffer_blocks=3, preference=1)
    active.slow(1e6)
    send(cluster, *range(1, 20))
    cluster.advance(2.0)
    active.kill()
    standby.kill_at("q.sums.O", skip=2, after=True)
    cluster.until(lambda: not standby.is_alive)
    cluster.until_active("c")
    finish(cluster, 20)
    assert third.is_active


# Lost files


def test_what_was_deleted_from_the_buffer_is_computed_again(cluster):
    # Given a standby whose buffer somebody deletes a part of
    active, standby = leader(cluster), cluster.start("b", batch_events=1)
    finish(cluster, 1, 2, 3)
    active.slow(1e6)
    send(cluster, *range(4, 12))
    cluster.until(lambda: standby.computed().block == 11)
    assert standby.lose_spool() > 2
    # When it has to lead, it notices, computes again, and leads
    active.kill()
    cluster.until_active("b")
    finish(cluster, *range(12, 15))
    assert standby.failure is None
    assert standby.computing.setup.incarnation != standby.control.election.me


def test_with_another_standby_that_one_leads_while_the_buffer_is_computed_again(cluster):
    active, standby = leader(cluster), cluster.start("b", batch_events=1)
    third = cluster.start("c", preference=1)
    finish(cluster, 1, 2, 3)
    active.slow(1e6)
    send(cluster, *range(4, 12))
    cluster.until(lambda: standby.computed().block == third.computed().block == 11)
    standby.lose_spool()
    active.kill()
    cluster.until_active("b", "c")
    finish(cluster, 12)
    assert third.is_active
    # And the first can lead again
    third.kill()
    cluster.until_active("b")
    finish(cluster, 13)


def test_a_leader_that_lost_its_buffer_leads_again_although_it_is_alone(cluster):
    active = leader(cluster)
    finish(cluster, 1, 2, 3)

    # Given blocks that were computed, and are deleted while an earlier one is being published
    def lose() -> None:
        send(cluster, *range(5, 12))
        active.machine.is_paused = False  # all but the publisher goes on
        cluster.until(lambda: active.computed().block == 11)
        for path in sorted(active.computing.spools[0].folder.glob("*.spool"))[:2]:
            path.unlink()

    active.stall_at("q.in.O", lose)
    send(cluster, 4)
    # Then it steps back, computes them again, and leads
    cluster.until(lambda: len(active.roles) == 3)
    finish(cluster, 12)
    assert [change.role for change in active.roles] == [ACTIVE, STANDBY, ACTIVE]


def test_an_engine_that_recomputed_its_buffer_can_persist(cluster, tmp_path):
    active, standby = leader(cluster), cluster.start("b", batch_events=1)
    finish(cluster, 1, 2, 3)
    active.slow(1e6)
    send(cluster, *range(4, 12))
    cluster.until(lambda: standby.computed().block == 11)
    standby.lose_spool()
    active.kill()
    cluster.until_active("b")
    cluster.settle()
    answer = cluster.ask("persist", {"path": str(tmp_path / "kept")})
    assert answer.result["block"] == 11


# A leader that does not get on


def test_a_leader_that_publishes_nothing_although_a_standby_could_lets_it_lead(cluster):
    active, standby = leader(cluster), cluster.start("b")
    finish(cluster, 1)
    active.slow(1e6)
    send(cluster, *range(2, 9))
    cluster.until_active("b")
    cluster.until(lambda: standby.control.publisher.published == 8)
    assert [change.role for change in active.roles] == [ACTIVE, STANDBY]
    active.slow(0.0)
    finish(cluster, 9)
    assert standby.is_active


def test_what_its_folders_occupy_is_reported(cluster, tmp_path):
    snapshots = tmp_path / "snapshots"
    snapshots.mkdir()
    (snapshots / "one").write_bytes(b"12345")
    engine = cluster.start("a", persist_to=snapshots, persist_every_s=60.0, trim=True)
    cluster.until_active("a")
    finish(cluster, 1, 2, 3)
    cluster.advance(MEASURE_S)
    report = engine.engine.report()
    assert FolderSize(report.state_files, report.state_bytes) == folder_size(engine.disk.folder)
    assert report.state_files > 0
    assert report.snapshots_bytes >= 5
    assert report.trims == 1
