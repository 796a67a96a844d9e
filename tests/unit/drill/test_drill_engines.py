"""What is known of an engine from the lines it prints and the reports it writes."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.drill.arrivals import Reports
from lockstep.drill.engines import EngineSeat, engine_command, leader
from lockstep.engine.runtime.control.reports import Report, write_report
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.streams.client import connect

REPORT = Report(
    engine="e1", incarnation="i", member="m", pid=1, host="h", role="standby", epoch=4, state="running", number=9,
    block=70, events=70, sequenced=70, published=60, buffer_blocks=10, buffer_bytes=1, buffer_blocks_max=1,
    buffer_bytes_max=1, buffer_peak_blocks=33, snapshot_block=0, snapshot_ns=0, model="f", counts={},
)  # fmt: skip
READY = '{"event": "ready", "engine": "e1", "role": "standby"}'
LEADS = '{"event": "role", "role": "active", "epoch": %d, "last": 5, "current": 9, "drained_s": 0.5}'


@pytest.fixture
def seat(tmp_path):
    """An engine that prints what it is told and then waits."""
    seats = []

    def make(name: str, *lines: str) -> EngineSeat:
        code = f"import sys\nprint({chr(10).join(lines)!r}, flush=True)\nsys.stdin.read()"
        made = EngineSeat(name, [sys.executable, "-c", code], tmp_path / f"{name}.log")
        made.start()
        seats.append(made)
        return made

    yield make
    for made in seats:
        made.child.kill()


def heard(seat: EngineSeat, what) -> EngineSeat:
    end = time.monotonic() + 20
    while not what(seat):
        assert time.monotonic() < end, "it said nothing"
        seat.listen()
    return seat


@pytest.mark.slow
def test_an_engine_is_ready_and_then_leads(seat):
    engine = heard(seat("e1", READY, "no JSON", "[1]", LEADS % 3), lambda engine: engine.leads)
    assert engine.is_ready
    (taken,) = engine.takeovers
    assert (taken.engine, taken.epoch, taken.last, taken.current, taken.drained_s) == ("e1", 3, 5, 9, 0.5)


@pytest.mark.slow
def test_the_newest_epoch_leads_and_the_dead_never(seat):
    one = heard(seat("e1", READY, LEADS % 3), lambda engine: engine.leads)
    other = heard(seat("e2", READY, LEADS % 4), lambda engine: engine.leads)
    standby = heard(seat("e3", READY), lambda engine: engine.is_ready)
    assert leader([one, other, standby]) is other
    other.child.kill()
    assert leader([one, other, standby]) is one
    one.child.kill()
    assert leader([one, other, standby]) is None


@pytest.mark.slow
def test_a_report_of_an_earlier_process_says_nothing_of_this_one(seat):
    engine = seat("e1", READY)
    engine.hear(REPORT)
    assert engine.report is None
    assert engine.buffer_peak == 33
    mine = replace(REPORT, pid=engine.child.pid, block=80, buffer_peak_blocks=2)
    engine.hear(mine)
    assert (engine.report, engine.block, engine.buffer_peak) == (mine, 80, 33)
    engine.child.kill()
    engine.start()
    assert (engine.report, engine.is_ready, engine.role, engine.block) == (None, False, "", 0)


def test_an_engine_is_started_as_anybody_would_start_it():
    words = engine_command(
        "e7", model=Path("m.yaml"), url="lmdb:b", state=Path("s"), cluster="c", window="q/w", lease_s=0.5
    )
    line = " ".join(words)
    assert " engine run m.yaml --bus lmdb:b --state s --name e7 --cluster c --publish q/w --lease 0.5 --json" in line


def test_reports_are_followed_past_what_was_trimmed_and_what_is_none():
    with connect("memory:") as client:
        log = client.bus.create("T", StreamConfig(capacity=2))
        reports = Reports(log)
        assert reports.new() == []
        write_report(log, REPORT)
        assert reports.new() == [REPORT]
        for block in range(5):
            write_report(log, replace(REPORT, block=block))
        log.append([pack([b"{}"], producer=NO_PRODUCER, sequence=0, created_ns=0)])
        assert [report.block for report in reports.new()] == [4]
        assert reports.new() == []
