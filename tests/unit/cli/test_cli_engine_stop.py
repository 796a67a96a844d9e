"""A stop is a stop, even if the same signal ends Spark's JVM."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.cli import engine_run
from lockstep.engine.errors import SparkFailed, SparkUnavailable
from lockstep.engine.run.streams import ProjectStreams

MODEL = """
name: small
queries:
  - name: q
    windows:
      - {kind: source, name: S, schema: "id*:int32"}
      - {kind: copy, name: C}
    edges: [S -> C]
"""


class FakeEngine:
    """An engine whose Spark fails; `before` happens just before that."""

    role, http, name = "active", "", "fake"
    before: int | None = None
    fails_in = "run"

    def __init__(self, graph, wanted, *_: object) -> None:
        self.graph, self.wanted = graph, wanted
        self.streams = ProjectStreams(cluster="local", project=graph.project.name)

    def __enter__(self):
        if self.fails_in == "start":
            self._fail(SparkUnavailable(reason="its JVM ended at once"))
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to let go of."""

    def status(self):
        return SimpleNamespace(election="", published_events=0, published=0, lag=0, bad={}, counts={})

    def run_until(self, _done, progress=None, **_: object):
        self._fail(SparkFailed(project="small", reason="its JVM is gone"))

    def _fail(self, error: Exception) -> None:
        if self.before is not None:
            os.kill(os.getpid(), self.before)
        raise error


@pytest.fixture
def engine(cli, monkeypatch):
    Path("m.yaml").write_text(MODEL)
    monkeypatch.setattr("lockstep.engine.spark.engine.Engine", FakeEngine)
    monkeypatch.setattr("lockstep.engine.spark.session.check_java", lambda: "java")
    monkeypatch.setattr(FakeEngine, "before", None)
    monkeypatch.setattr(FakeEngine, "fails_in", "run")
    started: list[object] = []
    monkeypatch.setattr(os, "execv", lambda *words: started.append(words) or pytest.fail("it started again"))
    return FakeEngine


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("fails_in", ["run", "start"])
def test_a_jvm_that_dies_of_the_signal_that_stops_the_engine_is_no_failure(
    cli, engine, monkeypatch, number, code, fails_in
) -> None:
    monkeypatch.setattr(engine, "before", number)
    monkeypatch.setattr(engine, "fails_in", fails_in)
    stopped = cli("engine", "run", "m.yaml", code=code)
    assert "Starting again" not in stopped.err
    assert "Stopped. Spark was stopped by the same request" in stopped.err


def test_a_jvm_that_dies_by_itself_is_a_failure(cli, engine) -> None:
    assert "[SPARK_FAILED]" in cli("engine", "run", "m.yaml", "--restarts", "0", code=6).err


def test_the_jvm_is_in_a_session_of_its_own(tmp_path, monkeypatch) -> None:
    from lockstep.engine.spark import session

    given: dict[str, object] = {}

    def launch(_conf, popen):
        given.update(popen)
        raise session.PySparkRuntimeError("ended")

    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(session, "check_java", lambda: "/usr/bin/java")
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    with pytest.raises(SparkUnavailable):
        session.start_session(tmp_path)
    assert given["start_new_session"] is True


def test_words_of_sparks_client_about_a_call_that_was_cut_are_not_shown(capfd) -> None:
    import logging

    from lockstep.cli.main import _log_lines

    for verbose in (False, True):
        with _log_lines(verbose):
            for path in ("/x/py4j/clientserver.py", "/x/other.py"):
                logging.getLogger().handle(logging.LogRecord("root", 40, path, 1, f"of {path}", (), None))
        shown = capfd.readouterr().err
        assert ("py4j" in shown, "other" in shown) == (verbose, True)


def test_restarts_are_counted_over_ten_minutes() -> None:
    counted = engine_run.Restarts.of("2:100.0", 200.0)
    assert counted.next(2, 200.0) is None
    assert counted.next(2, 800.0) == engine_run.Restarts(1, 800.0)
