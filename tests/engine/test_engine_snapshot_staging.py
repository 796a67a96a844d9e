"""What hands snapshots out: asked for more meanwhile, or told that the engine begins anew."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest
from snapshot_worlds import OURS, head, numbers
from snapshot_worlds import PAGES as STATE

from lockstep.core.sequence import SequenceState
from lockstep.engine.runtime.sequence.entries import PersistPoint, SequencePosition
from lockstep.engine.runtime.setup import EngineSetup
from lockstep.engine.runtime.snapshots.staging import SnapshotStaging, failure_note
from lockstep.engine.runtime.snapshots.store import SnapshotStore, snapshot_name
from lockstep.runtime import ThreadRuntime

ME = "me"


@pytest.fixture
def setup(tmp_path) -> EngineSetup:
    return EngineSetup(
        url="memory:", cluster="local", model="", wanted=(), folder=str(tmp_path / "engine"), host="here",
        incarnation=ME, shards=1, batch_events=1, snapshot_every_s=0.0, buffer_blocks=1, buffer_bytes=1, belongs=OURS,
    )  # fmt: skip


def expect(persister: SnapshotStaging, number: int, folder: Path) -> str:
    persister.expect(PersistPoint(f"p{number}", ME, str(folder)), SequencePosition(SequenceState(number=number)))
    return snapshot_name(number, f"p{number}")


def stage(setup: EngineSetup, name: str, number: int) -> None:
    setup.staging.mkdir(parents=True, exist_ok=True)
    SnapshotStore(setup.staging, OURS).write(name=name, shard=0, shards=1, head=head(number), pages=STATE)


def test_a_snapshot_may_be_asked_for_while_others_are_looked_at(setup, tmp_path, monkeypatch):
    persister, kept = SnapshotStaging(setup, ThreadRuntime()), tmp_path / "kept"
    expect(persister, 1, kept)
    is_staged = SnapshotStaging._is_staged

    def slow_look(self: SnapshotStaging, name: str) -> bool:
        expect(self, 2, kept)  # another thread reads the entry meanwhile
        return is_staged(self, name)

    monkeypatch.setattr(SnapshotStaging, "_is_staged", slow_look)
    assert persister.step(100) is None


def test_an_engine_that_begins_anew_waits_for_the_snapshot_that_is_being_copied(setup, tmp_path, monkeypatch):
    persister, kept = SnapshotStaging(setup, ThreadRuntime()), tmp_path / "kept"
    stage(setup, expect(persister, 1, kept), 1)
    anew = Thread(target=lambda: persister.go_on(setup))
    load = SnapshotStore.load

    def slow_load(self: SnapshotStore, *given: object) -> dict[str, bytes]:
        if anew.ident is None:
            anew.start()
            anew.join(0.05)
        return load(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(SnapshotStore, "load", slow_load)
    assert persister.step(100) is not None
    anew.join()
    assert numbers(SnapshotStore(kept, OURS)) == [1]
    assert persister.outcomes == {"p1": {"block": 10}}


@pytest.mark.parametrize("reason", ["no room", ""])
def test_a_snapshot_that_a_worker_could_not_stage_is_not_waited_for(setup, tmp_path, reason):
    persister, kept = SnapshotStaging(setup, ThreadRuntime()), tmp_path / "kept"
    failed, good = expect(persister, 1, kept), expect(persister, 2, kept)
    stage(setup, good, 2)
    failure_note(setup, failed).write_text(reason)
    assert persister.step(100) is not None
    assert persister.outcomes["p1"] == {"failed": reason or "the disk of the state folder did not take it"}
    assert list(setup.staging.iterdir()) == []


def test_snapshots_that_are_never_staged_are_not_waited_for_without_bound(setup, tmp_path):
    persister = SnapshotStaging(setup, ThreadRuntime())
    for number in range(1, 12):
        expect(persister, number, tmp_path / "kept")
    assert persister.step(100) is None
    assert list(persister.outcomes) == ["p1", "p2", "p3"]
