"""A stop is a stop, even if the same signal ends Spark's JVM."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from lockstep.cli import engine_run
from lockstep.engine.errors import LogTooShort, SparkFailed, SparkNotStarted, SparkUnavailable
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import ServerUnreachable, Trimmed

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
    failure: Exception | None = None

    def __init__(self, graph, wanted, *_: object) -> None:
        self.graph, self.wanted = graph, wanted
        self.streams = ProjectStreams(cluster="local", project=graph.project.name)

    def __enter__(self):
        if self.fails_in == "start":
            self._fail(SparkUnavailable(reason="its JVM ended at once"))
        return self

    def __exit__(self, *_: object) -> None:
        if self.fails_in == "end" and self.failure is not None:
            raise self.failure

    def status(self):
        return SimpleNamespace(election="", published_events=0, published=0, lag=0, bad={}, counts={})

    def run_until(self, _done, progress=None, **_: object):
        if self.fails_in == "end":
            os.kill(os.getpid(), self.before)
            progress(self.status())
        self._fail(self.failure or SparkFailed(project="small", reason="its JVM is gone"))

    def _fail(self, error: Exception) -> None:
        if self.before is not None:
            os.kill(os.getpid(), self.before)
        raise error


@pytest.fixture
def engine(cli, monkeypatch):
    Path("m.yaml").write_text(MODEL)
    monkeypatch.setattr("lockstep.engine.runtime.engine.Engine", FakeEngine)
    monkeypatch.setattr("lockstep.engine.spark.session.check_java", lambda: "java")
    monkeypatch.setattr(FakeEngine, "before", None)
    monkeypatch.setattr(FakeEngine, "fails_in", "run")
    monkeypatch.setattr(FakeEngine, "failure", None)
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


LATE = (
    Trimmed(stream="local.small.S", offset=3, first=7),
    ServerUnreachable(server="127.0.0.1:1", reason="nobody answers"),
    OSError(28, "No space left on device"),
)


@pytest.mark.parametrize("failure", LATE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("fails_in", ["run", "end"])
def test_whatever_fails_after_a_stop_was_asked_for_it_is_a_stop(
    cli, engine, monkeypatch, caplog, failure, fails_in
) -> None:
    monkeypatch.setattr(engine, "before", signal.SIGTERM)
    monkeypatch.setattr(engine, "fails_in", fails_in)
    monkeypatch.setattr(engine, "failure", failure)
    stopped = cli("engine", "run", "m.yaml", code=143)
    assert "Starting again" not in stopped.err
    assert "Stopped. An error came after the request to stop: [" in stopped.err
    [logged] = [record for record in caplog.records if getattr(record, "action", "") == "stop_error"]
    assert logged.exc_info[1] is failure
    last = cli("engine", "run", "m.yaml", "--json", code=143).out.splitlines()[-1]
    assert (json.loads(last)["event"], json.loads(last)["reason"]) == ("stopped", "signal")


def test_a_jvm_that_dies_by_itself_is_a_failure(cli, engine) -> None:
    assert "[SPARK_FAILED]" in cli("engine", "run", "m.yaml", "--restarts", "0", code=6).err


def test_an_engine_whose_state_logs_were_trimmed_past_begins_with_a_snapshot_if_there_may_be_one(
    cli, engine, monkeypatch, tmp_path
) -> None:
    short = LogTooShort(window="q/in", stream="local.small.q.in.I", needed=5, first=11)
    monkeypatch.setattr(engine, "fails_in", "run")
    monkeypatch.setattr(engine, "failure", short)
    started = []
    monkeypatch.setattr(engine_run.os, "execv", lambda *given: started.append(given))
    monkeypatch.delenv(engine_run._RESTARTS, raising=False)
    assert "[LOG_TOO_SHORT]" in cli("engine", "run", "m.yaml", code=6).err
    assert not started
    cli("engine", "run", "m.yaml", "--persist-to", str(tmp_path / "kept"))
    assert len(started) == 1


def test_the_jvm_is_in_a_session_of_its_own(tmp_path, monkeypatch) -> None:
    from lockstep.engine.spark import session

    given: dict[str, object] = {}

    def launch(_conf, popen):
        given.update(popen)
        raise session.PySparkRuntimeError("ended")

    monkeypatch.setattr(session, "launch_gateway", launch)
    with pytest.raises(SparkNotStarted):
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
