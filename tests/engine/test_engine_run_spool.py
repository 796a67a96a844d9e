"""The spool, the engine's folder, and what travels to a worker."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from io import FileIO
from pathlib import Path

import pytest
from local_engine import LocalEngine
from run_worlds import recent_graph, sums_graph, two_sources_graph

from lockstep.engine.errors import EngineRunning, LogTooShort, ModelMismatch, UserCodeFailed
from lockstep.engine.runtime.output.spool import Spool, SpoolPart, all_errors
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources
from lockstep.engine.runtime.setup import EngineFolder, EngineSetup
from lockstep.errors import LockstepError
from lockstep.testing.virtual import VirtualRuntime


def part(first: int, last: int, **more) -> SpoolPart:
    return SpoolPart(first=first, last=last, position={"block": last}, frames={"q/w": [b"frame"]}, **more)


def names(spool: Spool) -> list[str]:
    return sorted(path.name for path in spool.folder.iterdir())


# The spool


def test_a_part_comes_back_as_it_was_written(tmp_path):
    spool = Spool(tmp_path)
    written = part(1, 5, bad=[{"block": 2, "values": [1, None, "x"]}], notices=[{"block": 3}], counts={"q/w": [1, 2]})
    spool.write(written)
    assert spool.part_with(3) == written
    assert spool.fill().files == 1


def test_the_part_that_holds_a_block_is_found_and_what_ends_before_it_is_removed(tmp_path):
    spool = Spool(tmp_path)
    for first, last in ((1, 5), (6, 6), (7, 9)):
        spool.write(part(first, last))
    assert spool.part_with(6) == part(6, 6)
    assert spool.fill().files == 2
    assert spool.part_with(10) is None
    assert spool.fill().files == 0


def test_a_part_that_comes_later_is_not_taken_for_one_that_is_missing(tmp_path):
    spool = Spool(tmp_path)
    spool.write(part(7, 9))
    assert spool.part_with(6) is None
    assert spool.fill().files == 1


def test_parts_that_overlap_are_both_good_and_one_written_again_replaces_its_equal(tmp_path):
    # Given a worker that was rebuilt, and cut differently the second time
    spool = Spool(tmp_path)
    for first, last in ((1, 4), (1, 9), (5, 6), (5, 6)):
        spool.write(part(first, last))
    assert spool.fill().files == 3
    found = spool.part_with(5)
    assert found is not None
    assert found.first <= 5 <= found.last


def test_numbers_are_ordered_as_numbers(tmp_path):
    spool = Spool(tmp_path)
    for first, last in ((9, 9), (10, 10), (100, 10**15)):
        spool.write(part(first, last))
    assert spool.part_with(10) == part(10, 10)
    assert spool.part_with(10**15) == part(100, 10**15)


def test_a_part_without_blocks_is_cleared_away(tmp_path):
    spool = Spool(tmp_path)
    spool.write(part(6, 5))
    assert spool.part_with(6) is None
    assert spool.fill().files == 0


def test_a_part_that_is_half_written_is_not_seen(tmp_path, monkeypatch):
    # Given a process that dies before the file has its name
    spool = Spool(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: pytest.fail("killed here"))
        with pytest.raises(pytest.fail.Exception):
            spool.write(part(1, 5))
    assert spool.part_with(1) is None
    assert spool.fill().files == 0
    spool.write(part(1, 5))
    assert names(spool) == [f"{1:020d}-{5:020d}.spool"]


def test_a_full_disk_leaves_no_part_and_is_told(tmp_path, monkeypatch):
    # Given a worker that can't write what it computed
    engine = LocalEngine(sums_graph(), frozenset({"q/in"}), tmp_path)
    engine.publishers["q/in"].publish([])
    engine.settle()

    class FullDisk(FileIO):
        def write(self, data) -> int:
            if self.tell():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.name)
            return super().write(data[:10])

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda path, mode, **_: FullDisk(path, mode))
        with pytest.raises(OSError, match="No space left"):
            engine.run_batch(1)
    # Then nothing can be published, and when there is room again nothing is missing
    assert engine.publisher.step() is False
    assert engine.published() == 0
    engine.workers = [None]
    engine.run_batch(1)
    assert engine.published() == 1


def test_an_error_of_a_worker_is_raised_as_it_was_raised_there(tmp_path):
    spool = Spool(tmp_path)
    assert spool.failure() is None
    error = UserCodeFailed(what="The handler f", window="q/w", block=7, event=2, reason="ValueError: {no}")
    spool.fail(error)
    found = spool.failure()
    assert type(found) is UserCodeFailed
    assert str(found) == str(error)
    assert found.exit_code == error.exit_code
    spool.fail(LogTooShort(window="w", stream="s", needed=1, first=2))
    assert isinstance(spool.failure(), LogTooShort)


def test_every_kind_of_error_can_be_told_by_its_code():
    codes = [kind.code for kind in all_errors(LockstepError) if kind.__module__.startswith("lockstep.")]
    assert sorted(codes) == sorted(set(codes))


# The folder


@pytest.fixture
def runtime():
    return VirtualRuntime()


def test_a_folder_has_one_engine_at_a_time(tmp_path, runtime):
    first = EngineFolder.open(tmp_path / "state", runtime)
    with pytest.raises(EngineRunning, match=f"pid {os.getpid()}"):
        EngineFolder.open(tmp_path / "state", runtime, wait_s=0.0)
    first.close()
    EngineFolder.open(tmp_path / "state", runtime, wait_s=0.0).close()


def test_a_folder_is_free_only_when_all_who_inherited_the_lock_are_gone(tmp_path, runtime):
    first = EngineFolder.open(tmp_path, runtime)
    child = os.dup(first.descriptor)
    first.close()
    with pytest.raises(EngineRunning):
        EngineFolder.open(tmp_path, runtime, wait_s=1.0)
    os.close(child)
    EngineFolder.open(tmp_path, runtime, wait_s=0.0).close()


BELONGS = {"model": "abc", "shards": "1", "sequence": "s1", "published": "q/a,q/b"}


@pytest.mark.parametrize(
    ("name", "other"), [("model", "def"), ("shards", "2"), ("sequence", "s2"), ("published", "q/a")]
)
def test_state_of_something_else_is_refused_and_left_as_it_is(tmp_path, runtime, name, other):
    folder = EngineFolder.open(tmp_path, runtime)
    folder.bind(BELONGS)
    (tmp_path / "spool" / "old").mkdir(parents=True)
    with pytest.raises(ModelMismatch, match=f"made for {name} {BELONGS[name]}, this is {name} {other}"):
        folder.bind({**BELONGS, name: other})
    assert json.loads((tmp_path / "belongs.json").read_text()) == BELONGS
    assert (tmp_path / "spool" / "old").exists()
    folder.close()


def test_the_same_engine_again_finds_its_folder_without_old_spools(tmp_path, runtime):
    for _ in range(2):
        folder = EngineFolder.open(tmp_path, runtime)
        folder.bind(BELONGS)
        assert not (tmp_path / "spool").exists()
        (tmp_path / "spool" / "left").mkdir(parents=True)
        folder.close()


# What travels


def test_a_setup_comes_back_from_json(tmp_path):
    setup = LocalEngine(recent_graph(), frozenset({"q/sums", "q/in"}), tmp_path).setup
    changed = replace(setup, shards=3, is_history=True, snapshot_every_s=0.5)
    for each in (setup, changed):
        assert EngineSetup.of(each.text()) == each
        assert "\n" not in each.text()
    assert setup.graph().fingerprint == recent_graph().fingerprint
    assert setup.spool(0) != setup.spool(1) != replace(setup, incarnation="other").spool(1)


def test_streams_are_named_by_cluster_project_query_and_window():
    graph = two_sources_graph()
    streams = ProjectStreams(cluster="c", project="p")
    assert [streams.input(node) for node in sources(graph)] == ["c.p.q.left.I", "c.p.q.right.I"]
    assert streams.output(graph.nodes[0]) == "c.p.q.left.O"
    assert (streams.sequence, streams.control, streams.bad, streams.notices) == ("c.p.S", "c.p.C", "c.p.B", "c.p.N")


def test_streams_are_made_once_for_what_is_wanted(tmp_path):
    engine = LocalEngine(two_sources_graph(), frozenset({"q/left"}), tmp_path)
    made = engine.bus.names()
    root = f"{engine.streams.cluster}.p"
    ends = ("B", "C", "M", "N", "S", "T", "q.left.I", "q.left.O", "q.right.I")
    assert sorted(made) == [f"{root}.{end}" for end in ends]
    engine.streams.create(engine.bus, engine.graph, frozenset({"q/left"}))
    assert engine.bus.names() == made
