"""The engine's benchmark in small: real processes, Spark, a publisher and a reader; what is counted is right."""

from __future__ import annotations

import pytest

from lockstep.bench import engine_groups, engine_jobs, engine_live, engine_peers, engine_profile
from lockstep.bench.engine import EngineBench, run
from lockstep.engine.data.models import DAY, VWAP, expected_rows

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(600)]

EVENTS, BATCH = 120_000, 50_000


def silent(_: str) -> None:
    """Say nothing."""


@pytest.mark.soak
def test_a_run_on_spark_counts_right_and_reports_rate_memory_and_where_the_time_went():
    said: list[str] = []
    options = EngineBench(events=EVENTS, batch_events=BATCH, only=("one",))

    found = run(options, said.append)

    rates, _, counts = found["rows"]
    assert counts["value"] == 0, counts["details"]
    details = rates["details"]
    assert details["rows"] == expected_rows(EVENTS)
    assert details["publications"] >= 2
    assert 0 < details["steady_events"] < EVENTS
    assert details["memory_mb"] > 100
    assert set(details["memory_parts_mb"]) >= {"driver", "java"}
    assert details["spark_ms"]["triggerExecution"] >= details["busy_s"] * 1e3 > 0
    assert said


@pytest.mark.soak
def test_live_every_event_has_a_latency():
    found = engine_live.live("seven", DAY, silent, rate=500, seconds=2.0)
    assert found["events"] == 1_000
    latency = found["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert found["batches"] > 0


@pytest.mark.soak
def test_the_hand_written_job_takes_every_trade_and_the_engine_gives_the_window():
    job = engine_jobs.Job(case="five", wanted=(VWAP,), events=EVENTS, batch_events=BATCH)
    ours = engine_jobs.run_job(job, silent)
    assert ours["rows"][VWAP] == 1_941
    theirs = engine_peers.run_spark(EVENTS, BATCH, silent)
    assert (theirs["taken"], theirs["batches"]) == (EVENTS, 3)
    assert theirs["steady_events_per_s"] > 0


def test_the_profile_names_every_stage_and_window():
    found = engine_profile.profile("seven", (DAY,), EVENTS, BATCH, silent)
    assert set(found["stages_s"]) >= {
        engine_profile.READING, engine_profile.ENCODING, engine_profile.SPOOLING, engine_profile.PUBLISHING,
        "window trades/TradesSource", "window trades/Copy5MinRet", f"window {DAY}",
    }  # fmt: skip
    assert 0 < found["events"] < EVENTS


@pytest.mark.soak
def test_snapshots_of_many_groups_are_weighed():
    found = engine_groups.many_groups(220_000, silent)
    assert found["spark"]["rows"]["items/Aggregate5min"] == found["groups"]
    whole = found["snapshot_of_everything"]
    assert whole["bytes"] > 0
    assert len(found["snapshots_of_changes"]) == 2
