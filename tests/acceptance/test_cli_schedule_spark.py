"""lockstep schedule load, ingest, report and forecast, as a user runs them; one Spark for all."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from cli_command import InProcess

from lockstep.schedule.assembly import open_scheduler
from lockstep.schedule.spark import session
from lockstep.streams.client import connect

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def spark():
    with session.spark_session() as made:
        yield made


@pytest.fixture
def lockstep(spark, tmp_path, monkeypatch):
    @contextmanager
    def shared(**_):
        yield spark

    monkeypatch.setattr(session, "spark_session", shared)
    return InProcess(tmp_path)


@pytest.mark.soak
def test_files_are_loaded_reported_and_forecast(lockstep, tmp_path):
    lines = [{"id": f"e{n}", "tenant": "t", "eventTime": f"2097-01-01T00:0{n % 3}:00Z"} for n in range(30)]
    lines += [{"id": "past", "tenant": "t", "eventTime": "2020-01-01T00:00Z"}, {"id": "bad", "tenant": "t"}]
    (tmp_path / "r.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert "There is no store" in lockstep("schedule", "load", "r.jsonl", code=3).err
    with connect(f"lmdb:{tmp_path}/.lockstep") as bus, open_scheduler(bus) as scheduler:
        scheduler.register("t", "MESSAGING", {"topic": "out"})
        dry = lockstep("schedule", "load", "r.jsonl", "--dry-run", "--top", "1", code=1)
        assert dry.lines == [
            "MINUTE             EVENTS", "2097-01-01T00:00Z      10", "r.jsonl:32 event time not present",
        ]  # fmt: skip
        assert dry.err.startswith("31 requests would be taken in, 0 replaced by later ones, 1 rejected")
        for _ in range(2):
            done = lockstep("schedule", "load", "r.jsonl", "--json", code=1)
            assert done.out, done.err
            told = done.object
            assert (told["accepted"], told["rejected"], told["applied"]) == (31, 1, True)
            assert told["faults"] == [{"file": "r.jsonl", "line": 32, "reason": "event time not present"}]
        assert len(scheduler.events(tenant="t", limit=100).events) == 31
        assert scheduler.find("past", tenant="t").status == "DONE"
        [hour] = lockstep("schedule", "report", "--json").objects
        assert (hour["tenant"], hour["fired"], hour["retries"]) == ("t", 1, 0)
        assert "LATE P99" in lockstep("schedule", "report", "--plot", "late.png", "--parquet", "out").lines[0]
        assert (tmp_path / "late.png").exists()
        assert "name a new folder" in lockstep("schedule", "report", "--parquet", "out", code=2).err
        scheduler.every("0 * * * *", id="hourly", tenant="t")
        counted = lockstep("schedule", "forecast", "--days", "1", "--json").object
        assert (counted["events"], counted["ticks"]) == (0, 24)
        assert lockstep("schedule", "forecast", "--days", "1").lines[0].split() == [
            "MINUTE",
            "FIRES",
            "EVENTS",
            "TICKS",
        ]
        (tmp_path / "in").mkdir()
        (tmp_path / "r.jsonl").rename(tmp_path / "in" / "r.jsonl")
        taken = ("schedule", "ingest", "--format", "text", "--option", f"path={tmp_path}/in", "--checkpoint", "c")
        assert lockstep(*taken, "--available-now", "--json").object == {
            "accepted": 31, "replaced": 0, "rejected": 1, "batches": 1, "rejected_stream": "default.rejected",
        }  # fmt: skip
    waiting = lockstep("schedule", "load", "in", "--json", "--no-wait", code=1).object
    assert waiting["applied"] is None


def test_what_can_not_work_is_said_before_spark_starts(tmp_path):
    lockstep = InProcess(tmp_path)
    lockstep("schedule", "load", "missing.jsonl", code=3)
    (tmp_path / "x.txt").write_text("")
    assert "must end in" in lockstep("schedule", "load", "x.txt", code=2).err
