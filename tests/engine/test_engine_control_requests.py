"""Snapshots that are asked for, and models that engines can't run: an answer says what is so."""

from __future__ import annotations

import errno
from dataclasses import replace as changed
from pathlib import Path

import pytest
from failover_worlds import WANTED, finish
from local_cluster import LocalCluster
from run_worlds import sums_graph

from lockstep.engine.errors import ModelNotReplaceable, SnapshotRefused
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, FieldPlug
from lockstep.engine.runtime.coordinator import Coordinator
from lockstep.engine.runtime.snapshots import disk
from lockstep.engine.runtime.snapshots.store import SnapshotStore
from lockstep.errors import TimedOut


@pytest.fixture
def cluster(tmp_path):
    found = LocalCluster(sums_graph(), WANTED, tmp_path / "engines")
    found.start("a")
    found.until_active("a")
    finish(found, 1, 2, 3)
    return found


def with_field(field: str | FieldPlug) -> Graph:
    """The same windows, with another field."""
    project = sums_graph().project
    (query,) = project.queries
    source, sums = query.windows
    assert isinstance(sums, AggregateWindow)
    other = changed(query, windows=(source, changed(sums, fields=(field,))))
    return compile_project(changed(project, queries=(other,)))


# Snapshots


def test_a_second_snapshot_without_a_new_block_is_written_to_the_folder_that_is_named(cluster, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        answer = cluster.ask("persist", {"path": str(folder)}).result
        assert (answer["block"], answer["path"]) == (3, str(folder))
        assert [info.block for info in SnapshotStore(folder).complete()] == [3]


def test_a_snapshot_that_is_not_written_is_not_answered_as_if_it_were(cluster, tmp_path, monkeypatch):
    cluster.ask("persist", {"path": str(tmp_path / "first")})
    cluster.nodes["a"].slow(60.0)
    with pytest.raises(TimedOut):
        cluster.ask("persist", {"path": str(tmp_path / "second")}, timeout_s=20.0)
    assert SnapshotStore(tmp_path / "second").complete() == []


def test_a_snapshot_that_can_not_be_written_is_answered_with_the_reason(cluster, tmp_path, monkeypatch):
    write = SnapshotStore.write

    def damaged(self: SnapshotStore, **shard: object) -> None:
        write(self, **shard)  # type: ignore[arg-type]
        for path in (tmp_path / "kept").rglob("*.snapshot"):
            path.write_bytes(path.read_bytes()[:-1])

    monkeypatch.setattr(SnapshotStore, "write", damaged)
    with pytest.raises(SnapshotRefused, match="a could not write it"):
        cluster.ask("persist", {"path": str(tmp_path / "kept")})
    finish(cluster, 4)


def test_a_disk_that_takes_no_snapshot_of_its_engine_is_answered_with_the_reason_and_ends_nobody(
    cluster, tmp_path, monkeypatch
):
    """What a worker stages is on the disk of the state folder, and may not fit there."""
    with monkeypatch.context() as patch:
        patch.setattr(disk, "_write_part", no_space)
        with pytest.raises(SnapshotRefused, match=r"a could not write it: .*No space left on device"):
            cluster.ask("persist", {"path": str(tmp_path / "kept")})
    finish(cluster, 4)
    assert cluster.ask("persist", {"path": str(tmp_path / "kept")}).result["block"] == 4


def no_space(final: Path, *_: object) -> None:
    if "staging" in final.parts:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_the_next_leader_answers_for_a_snapshot_that_the_one_before_asked_for(cluster, tmp_path):
    b = cluster.start("b")
    cluster.advance(3.0)
    b.slow(2.0)
    cluster.ask_later("persist", {"path": str(tmp_path / "kept")}, id_="once")
    cluster.until(lambda: any("persist" in entry["body"] for entry in cluster.told(cluster.streams.sequence)[1:]
                              if entry["kind"] == "entry"))  # fmt: skip
    cluster.nodes["a"].kill()
    answer = cluster.ask("persist", {"path": str(tmp_path / "kept")}, id="once").result
    assert answer["engine"] == "b"
    assert len(SnapshotStore(tmp_path / "kept").complete()) == 1


# Models


def test_a_model_whose_module_is_missing_is_refused_and_nothing_changes(cluster):
    missing = with_field(FieldPlug(module="no_such_module", function="total"))
    with pytest.raises(ModelNotReplaceable, match=r"(?s)Engine a can't run it.*no_such_module"):
        cluster.ask("replace", {"model": to_yaml(missing.project)})
    cluster.nodes["a"].kill()
    cluster.nodes["a"].start()
    cluster.until_active("a")
    finish(cluster, 4)


def test_a_model_that_one_standby_can_not_run_is_refused_with_its_name(cluster, monkeypatch):
    cluster.start("b")
    cluster.advance(3.0)

    def only_a(self: Coordinator, states: object) -> str:
        return "" if self._options.name == "a" else "the module shop can't be loaded"

    monkeypatch.setattr(Coordinator, "_why_not_runnable", only_a)
    with pytest.raises(ModelNotReplaceable, match="Engine b can't run it: the module shop can't be loaded"):
        cluster.ask("replace", {"model": to_yaml(with_field("ESP_aMin(price)").project)})
    assert {node.engine.graph.fingerprint for node in cluster.awake} == {sums_graph().fingerprint}
    finish(cluster, 4)


def test_an_engine_that_does_not_say_whether_it_can_run_a_model_holds_the_replace_up(cluster, monkeypatch):
    b = cluster.start("b")
    cluster.advance(3.0)
    tries = Coordinator._try_proposals
    monkeypatch.setattr(
        Coordinator, "_try_proposals", lambda self: None if self is b.engine._coordinator else tries(self)
    )
    with pytest.raises(ModelNotReplaceable, match="Engine b did not say within 10 s"):
        cluster.ask("replace", {"model": to_yaml(with_field("ESP_aMin(price)").project)})
    # When it is not heard any more, the others are enough
    b.kill()
    assert cluster.ask("replace", {"model": to_yaml(with_field("ESP_aMin(price)").project)}).result["changed"]
