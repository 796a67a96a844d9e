"""Batches in the engine's own process: what is kept on disk, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from local_engine import LocalEngine
from run_worlds import sums_graph

from lockstep.engine.compute.local import FileCheckpoint, LocalCompute
from lockstep.engine.compute.port import STATE_FILE, check_runner
from lockstep.engine.run.snapshot import HEAD
from lockstep.errors import IllegalState, LockstepError, StoreBroken
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
    with pytest.raises(StoreBroken, match=str(file)):
        FileCheckpoint(tmp_path / "0")


@pytest.mark.parametrize(("runner", "written"), [("local", "offsets"), ("spark", STATE_FILE)])
def test_a_folder_with_the_state_of_the_other_runner_is_refused(tmp_path, runner, written):
    check_runner(tmp_path, runner)
    (tmp_path / "checkpoint" / "0" / written).mkdir(parents=True)
    other = "spark" if runner == "local" else "local"
    with pytest.raises(IllegalState, match=f"ran with --runner {other}; name another --state folder"):
        check_runner(tmp_path, runner)
    check_runner(tmp_path, other)


def test_an_error_of_a_batch_is_raised_by_the_next_look(tmp_path, monkeypatch):
    engine = LocalEngine(sums_graph(), frozenset({"q/in"}), tmp_path)
    compute = LocalCompute(engine.setup, "p", frozenset(), engine.bus, ThreadRuntime())
    waits = ThreadRuntime().waiter()

    def fail(*_):
        waits.wake()
        raise LockstepError(reason="broken")

    monkeypatch.setattr(compute._workers, "run", fail)
    compute.open(())
    compute.check()
    compute.start()
    waits.wait(30)
    compute.stop()
    with pytest.raises(LockstepError, match="broken"):
        compute.check()


def test_an_engine_without_spark_does_not_load_pyspark():
    program = "import lockstep.engine.spark.filerun, lockstep.cli.engine_run, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
