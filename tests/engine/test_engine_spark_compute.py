"""How an engine ends Spark, and what it says of a JVM that is gone; a stand-in plays the query."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from local_cluster import LocalCluster
from local_engine import LocalEngine
from pyspark.errors import PySparkException
from run_worlds import sums_graph

from lockstep.engine.errors import SparkFailed, SparkNotStarted
from lockstep.engine.spark import compute
from lockstep.engine.spark.compute import SparkCompute
from lockstep.engine.spark.session import java_options
from lockstep.errors import TimedOut


class QueryInABatch:
    """A query in the middle of a batch, which ends when it was looked at so often; None: never."""

    def __init__(self, computing: SparkCompute, looks: int | None) -> None:
        self._computing, self._looks = computing, looks
        self.isActive, self.was_in_batch = True, False
        self.orders_ended_first = False

    @property
    def status(self) -> dict[str, bool]:
        self.orders_ended_first = self._computing.setup.orders_ended()
        if self._looks is not None:
            self._looks -= 1
        return {"isTriggerActive": self._looks is None or self._looks > 0}

    def exception(self) -> None:
        raise ConnectionError

    def stop(self) -> None:
        self.was_in_batch = self._looks is None or self._looks > 0


@pytest.fixture
def computing(tmp_path) -> SparkCompute:
    return SparkCompute(LocalEngine(sums_graph(), frozenset({"q/in"}), tmp_path).setup, "p", frozenset())


def test_a_query_is_stopped_between_two_batches(computing):
    query = QueryInABatch(computing, looks=3)
    computing._queries = [query]
    computing.stop_queries()
    assert query.orders_ended_first
    assert not query.was_in_batch


def test_a_batch_that_does_not_end_is_not_waited_for_for_ever(computing, monkeypatch):
    monkeypatch.setattr(compute, "_BATCH_S_MAX", 0.05)
    query = QueryInABatch(computing, looks=None)
    computing._queries = [query]
    computing.stop_queries()
    assert query.was_in_batch


def test_a_jvm_that_crashed_is_told_with_the_file_that_it_left_in_the_state_folder(computing):
    folder = Path(computing.setup.folder)
    computing._queries = [QueryInABatch(computing, looks=0)]
    with pytest.raises(SparkFailed, match="its JVM is gone"):
        computing.check()
    left = folder / "hs_err_pid77.log"
    left.write_text("SIGSEGV")
    with pytest.raises(SparkFailed, match=f"its JVM crashed and left {left}"):
        computing.check()


@pytest.mark.parametrize("name", ["state", "a state"])
def test_what_a_crashed_jvm_leaves_goes_into_the_state_folder(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    words = java_options(folder, None, verbose=True)
    assert f"-XX:ErrorFile={folder}/hs_err_pid%p.log" in words
    assert f"-XX:HeapDumpPath={folder}" in words
    assert ("'" in words) == (" " in name)  # Spark takes quoted options apart as a shell does


class EndedQuery:
    """A query that ended with an error."""

    isActive = False

    def __init__(self, words: str) -> None:
        self._words = words

    def exception(self) -> Exception:
        return PySparkException(self._words)


class RunningQuery:
    """One that runs."""

    isActive = True

    def exception(self) -> None:
        return None


@pytest.fixture
def starts(computing, monkeypatch) -> list[object]:
    """What starting a query gives, one after the other: a query, or an error."""
    given: list[object] = []

    def start(*_: object) -> object:
        found = given.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(compute, "start_query", start)
    computing._spark = SimpleNamespace(sparkContext=SimpleNamespace(master="local[7]"))
    return given


def test_a_python_process_that_does_not_start_in_time_is_started_again(computing, starts):
    late = "XXKST terminated with exception: Python worker failed to connect back."
    starts += [PySparkException(late), EndedQuery(late), RunningQuery()]
    computing.start()
    computing.check()
    assert isinstance(computing._queries[0], RunningQuery)
    assert starts == []


def test_one_that_never_starts_and_other_errors_are_told(computing, starts):
    late = "Python worker failed to connect back."
    starts += [EndedQuery(late) for _ in range(6)]
    computing.start()
    for _ in range(5):
        computing.check()
    with pytest.raises(SparkFailed, match="Python worker failed to connect back"):
        computing.check()
    assert starts == []
    computing._queries = [EndedQuery("ValueError: no")]
    with pytest.raises(SparkFailed, match="ValueError: no"):
        computing.check()


def test_a_first_query_that_fails_is_told_with_the_master_of_its_session_and_the_error_of_python(computing, starts):
    words = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):"
    )
    starts += [PySparkException(f'{words}\n  File "main.py"\nModuleNotFoundError: No module named "cramjam"\n')]
    told = r"local\[7\]: its first query failed: ModuleNotFoundError: No module named"
    with pytest.raises(SparkNotStarted, match=told):
        computing.start()


class TaskThatHangs:
    """A thread that waits for a bus that does not answer."""

    def wake(self) -> None:
        pass

    def stop(self, timeout: float = 10.0) -> None:
        raise TimedOut(what="Stopping it", seconds=timeout)


def test_a_thread_that_hangs_does_not_keep_an_engine_from_ending(tmp_path, caplog):
    cluster = LocalCluster(sums_graph(), frozenset({"q/sums"}), tmp_path)
    node = cluster.start("a")
    node.engine._tasks["mailer"] = TaskThatHangs()
    node.stop()
    assert "mailer still waits" in caplog.text
    # Then its folder is free, and the next one leads at once
    cluster.start("b")
    assert node.start()


def test_a_query_that_can_not_start_is_told_in_one_line(computing, monkeypatch):
    def start(*_: object) -> None:
        raise PySparkException(
            "An error occurred while calling o77.load.\n: java.io.IOException: denied\n\tat java.base"
        )

    monkeypatch.setattr(compute, "start_query", start)
    computing._spark = SimpleNamespace(sparkContext=SimpleNamespace(master="yarn"))
    with pytest.raises(SparkNotStarted, match=r"calling o77\.load\. java\.io\.IOException: denied\. Check that"):
        computing.start()
