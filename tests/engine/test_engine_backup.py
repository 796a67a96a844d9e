"""A whole installation is backed up while it runs, lost, and restored as docs/howto/operate.md says."""

from __future__ import annotations

import shutil

import pytest
from failover_worlds import WANTED, finish, pair, send
from local_cluster import LocalCluster
from run_worlds import sums_graph

from lockstep.engine.errors import LogShortened, OutputDiffers


@pytest.mark.slow
def test_engines_go_on_from_a_backup_that_was_taken_while_they_ran(tmp_path):
    # Given engines that persist and trim; snapshots are copied first, then the bus, with input under way
    kept, copied = tmp_path / "kept", tmp_path / "copied"
    cluster = LocalCluster(sums_graph(), WANTED, tmp_path / "engines", persist_to=kept)
    pair(cluster)
    for first in (6, 9):
        finish(cluster, *range(first, first + 3))
        cluster.ask("persist")
    cluster.ask("trim")
    cluster.until(lambda: cluster.input("q/in").bounds().first > 0)
    shutil.copytree(kept, copied)
    send(cluster, 12, 13)
    bus = cluster.replica()
    # When everything is lost some time later, and put back without the state folders
    finish(cluster, 14)
    cluster.ask("persist")
    for node in cluster.nodes.values():
        node.kill()
        cluster.remove_disk(node)
    shutil.rmtree(kept)
    shutil.copytree(copied, kept)
    readers = list(cluster.subscribers.values())
    cluster.subscribers.clear()
    cluster.may_lose = True
    cluster.promote(bus)
    # Then the engines begin with the newest snapshot of the copy, and go on
    for node in cluster.nodes.values():
        node.start()
    send(cluster, 20, 21)
    cluster.settle()
    assert {node.computed().events for node in cluster.awake} == {15}
    # And a reader that had read more than the copy has is told so
    cluster.advance(25.0)
    assert all(isinstance(error, OutputDiffers | LogShortened) for reader in readers for error in reader.failed)
    assert any(reader.failed for reader in readers)
