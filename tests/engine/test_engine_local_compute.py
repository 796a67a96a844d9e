"""Batches in the engine's own process: what is kept on disk, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import threading

import lmdb
import pytest
from local_engine import LocalEngine
from run_worlds import sums_graph

from lockstep.engine.compute import local
from lockstep.engine.compute.local import FileCheckpoint, LocalCompute
from lockstep.engine.compute.port import STATE_FILE, check_runner
from lockstep.engine.errors import ComputeFailed, SnapshotDamaged
from lockstep.engine.runtime.engine import Engine, EngineOptions
from lockstep.engine.runtime.snapshots.format import HEAD
from lockstep.errors import BadArgument, IllegalState, LockstepError, TimedOut
from lockstep.runtime import ThreadRuntime

AT_3 = {"number": 3, "start": "one"}


@pytest.fixture
def checkpoint(tmp_path):
    made = FileCheckpoint(tmp_path / "0")
    yield made
    made.close()


def test_a_new_checkpoint_is_empty(checkpoint):
    assert (checkpoint.planned, checkpoint.committed, checkpoint.pages(), checkpoint.head()) == (None, None, {}, None)


def test_what_is_committed_is_there_in_the_next_process_and_what_is_only_planned_is_not(checkpoint, tmp_path):
    checkpoint.plan(AT_3)
    checkpoint.commit({HEAD: b"head", "rows/1": b"1", "rows/2": b"2"})
    checkpoint.commit({"rows/1": None, "rows/2": b"22"})
    checkpoint.plan({**AT_3, "number": 9})
    checkpoint.close()
    again = FileCheckpoint(tmp_path / "0")
    assert (again.planned, again.committed) == (AT_3, AT_3)
    assert again.pages() == {HEAD: b"head", "rows/2": b"22"}
    assert again.head() == b"head"
    again.close()


def test_a_damaged_file_is_an_error_that_names_it(tmp_path):
    (tmp_path / "0").mkdir()
    file = tmp_path / "0" / STATE_FILE
    file.write_bytes(b"not a store" * 1000)
    with pytest.raises(SnapshotDamaged, match=str(file)):
        FileCheckpoint(tmp_path / "0")


def stored(checkpoint):
    with checkpoint._environment.begin() as transaction:
        return {bytes(key): bytes(value) for key, value in transaction.cursor()}


def test_any_byte_that_changed_in_what_is_stored_is_noticed(checkpoint, tmp_path):
    checkpoint.plan(AT_3)
    checkpoint.commit({HEAD: b"head", "rows/1": b"1", "rows/2": b"2"})
    kept = stored(checkpoint)
    changed = [(key, key, value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :])
               for key, value in kept.items() for at in range(len(value))]  # fmt: skip
    changed += [(key, key[:-1] + bytes([key[-1] ^ 4]), value) for key, value in kept.items()]
    changed += [(key, key, None) for key in kept]
    for key, other, value in changed:
        with checkpoint._environment.begin(write=True) as transaction:
            transaction.delete(key)
            if value is not None:
                transaction.put(other, value)
        checkpoint.close()
        with pytest.raises(SnapshotDamaged, match="checksum"):
            FileCheckpoint(tmp_path / "0")
        checkpoint._environment = lmdb.open(str(tmp_path / "0" / STATE_FILE), subdir=False, map_size=1 << 30)
        with checkpoint._environment.begin(write=True) as transaction:
            transaction.delete(other)
            transaction.put(key, kept[key])


def test_a_file_that_was_cut_off_is_noticed_before_it_is_read(checkpoint, tmp_path):
    checkpoint.plan(AT_3)
    checkpoint.commit({f"rows/{number}": bytes(5000) for number in range(20)})
    checkpoint.close()
    file = tmp_path / "0" / STATE_FILE
    with file.open("r+b") as opened:
        opened.truncate(4 * 4096)
    with pytest.raises(SnapshotDamaged, match=str(file)):
        FileCheckpoint(tmp_path / "0")


@pytest.mark.parametrize(("runner", "written"), [("local", "offsets"), ("spark", STATE_FILE)])
def test_a_folder_with_the_state_of_the_other_runner_is_refused(tmp_path, runner, written):
    check_runner(tmp_path, runner)
    (tmp_path / "checkpoint" / "0" / written).mkdir(parents=True)
    other = "spark" if runner == "local" else "local"
    with pytest.raises(IllegalState, match=f"ran with --runner {other}; name another --state folder"):
        check_runner(tmp_path, runner)
    check_runner(tmp_path, other)


@pytest.fixture
def compute(tmp_path):
    engine = LocalEngine(sums_graph(), frozenset({"q/in"}), tmp_path)
    made = LocalCompute(engine.setup, "p", frozenset(), engine.bus, ThreadRuntime())
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (LockstepError(reason="broken"), LockstepError),
        (OSError(28, "No space left on device"), ComputeFailed),
        (lmdb.MapFullError("full"), ComputeFailed),
    ],
)
def test_an_error_of_a_batch_is_raised_by_the_next_look(compute, monkeypatch, raised, told):
    failed = threading.Event()

    def fail(*_):
        failed.set()
        raise raised

    monkeypatch.setattr(compute._workers, "run", fail)
    compute.open(())
    compute.check()
    compute.start()
    assert failed.wait(30)
    compute.stop()
    with pytest.raises(told):
        compute.check()


def test_a_batch_that_takes_long_keeps_no_engine_from_stopping(compute, monkeypatch):
    begun, may_end = threading.Event(), threading.Event()

    def wait(*_):
        begun.set()
        assert may_end.wait(30)
        return {}

    monkeypatch.setattr(compute._workers, "run", wait)
    monkeypatch.setattr(local, "_BATCH_S_MAX", 0.05)
    monkeypatch.setattr(local, "_OLD_BATCH_S_MAX", 0.05)
    compute.start()
    assert begun.wait(30)
    compute.stop()
    with pytest.raises(TimedOut):  # two must not write one checkpoint
        compute.start()
    may_end.set()
    monkeypatch.setattr(local, "_OLD_BATCH_S_MAX", 30)
    compute.start()


def test_another_runner_is_refused(tmp_path):
    engine = LocalEngine(sums_graph(), frozenset({"q/in"}), tmp_path)
    with pytest.raises(BadArgument, match="it must be one of spark, local"):
        Engine(sums_graph(), frozenset(), engine.bus, tmp_path, ThreadRuntime(), EngineOptions(runner="Local"))


def test_an_engine_without_spark_does_not_load_pyspark():
    program = (
        "import lockstep.engine.runtime.file_run, lockstep.cli.engine_run, sys; sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
