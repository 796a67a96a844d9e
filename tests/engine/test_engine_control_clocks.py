"""Wall clocks that are off and that jump: they decide nothing, and move a model's time by little."""

from __future__ import annotations

import json

import pytest
from failover_worlds import WANTED, finish, send
from local_cluster import LocalCluster, LocalNode
from run_worlds import TRADES, sums_graph
from test_engine_control_outages import WRITES, outage

from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import CopyWindow, Retention, SourceWindow
from lockstep.engine.runtime.control.reports import ReportBoard
from lockstep.engine.runtime.control.status import SILENT_S, project_status
from lockstep.engine.runtime.sequence.sequencer import MARGIN_US, ModelClock

SECOND_NS = 1_000_000_000
SECOND = 1_000_000


def set_clock(node: LocalNode, off_s: float) -> None:
    """From now on the wall clock of an engine's machine is off by so much."""
    node.machine.wall_ns = lambda: node.cluster.clock.wall_ns() + int(off_s * SECOND_NS)  # type: ignore[method-assign]


def skewed(folder, off_s: float) -> LocalCluster:
    """An engine that leads, and a standby whose clock is off."""
    cluster = LocalCluster(sums_graph(), WANTED, folder)
    cluster.start("a")
    cluster.until_active("a")
    set_clock(cluster.start("b"), off_s)
    finish(cluster, 1, 2, 3)
    cluster.advance(4.0)
    return cluster


def reset_under_a_slow_standby(cluster: LocalCluster) -> LocalNode:
    """A start of day while a standby, whose clock is off, has not computed everything yet."""
    b = cluster.nodes["b"]
    b.slow(2.0)
    send(cluster, *range(4, 9))
    cluster.advance(0.5)
    cluster.ask("reset", {"force": True})
    cluster.advance(20.0)
    return b


@pytest.mark.parametrize("off_s", [-4.0, 4.0, -7200.0, 7200.0])
def test_input_is_not_purged_under_a_live_standby_whose_clock_is_off(tmp_path, off_s):
    cluster = skewed(tmp_path, off_s)
    b = reset_under_a_slow_standby(cluster)
    assert b.is_alive, b.failure
    b.slow(0.0)
    cluster.settle()


@pytest.mark.parametrize("off_s", [-7200.0, 7200.0])
def test_the_lead_is_handed_over_whatever_the_clocks_say(tmp_path, off_s):
    cluster = skewed(tmp_path, off_s)
    assert cluster.ask("handover").result["standbys"] == ["b"]
    cluster.until_active("b")
    finish(cluster, 4, 5)


@pytest.mark.parametrize("off_s", [-7200.0, 7200.0])
def test_an_engine_tells_who_is_silent_by_its_own_clock(tmp_path, off_s):
    cluster = skewed(tmp_path, off_s)
    a, b = cluster.nodes["a"], cluster.nodes["b"]
    now_ns = cluster.clock.wall_ns
    assert max(a.engine.heard(SILENT_S).values()) < 2.0
    for role, kill in (("standby", b.kill), ("silent", lambda: None)):
        found = project_status(cluster.bus, "local", "p", now_ns(), heard=a.engine.heard(SILENT_S))
        assert [row.role for row in found.engines] == ["active", role]
        kill()
        cluster.advance(SILENT_S + 1.0)


def test_comparing_wall_clocks_would_be_noticed(tmp_path, monkeypatch):
    def by_wall_clock(self: ReportBoard, engine: str) -> float:
        return (self._runtime.wall_ns() - self._newest[engine].at_ns) / SECOND_NS

    monkeypatch.setattr(ReportBoard, "silence_s", by_wall_clock)
    b = reset_under_a_slow_standby(skewed(tmp_path, -4.0))
    assert not b.is_alive


def test_reports_that_were_there_before_say_nothing_about_who_is_alive(tmp_path):
    cluster = skewed(tmp_path, 0.0)
    cluster.nodes["b"].kill()
    board = ReportBoard(cluster.bus.open(cluster.streams.reports), cluster.clock)
    assert set(board.look()) == {"a", "b"}
    cluster.advance(1.6)
    board.look()
    assert board.silence_s("a") < 1.6
    assert board.silence_s("b") == float("inf")
    assert board.watched_s() == pytest.approx(1.6)


# The model's time


def test_a_wall_clock_that_keeps_step_is_taken_as_it_is():
    clock = ModelClock()
    assert clock.next(77 * SECOND, 5.0) == 77 * SECOND
    clock.saw(77 * SECOND, 5.0)
    assert clock.next(78 * SECOND + MARGIN_US, 6.0) == 79 * SECOND
    assert clock.next(77 * SECOND - 1, 5.5) == 77 * SECOND


@pytest.mark.parametrize(("jump_s", "rate"), [(7200, 1.1), (-7200, 0.9)])
def test_a_wall_clock_that_jumps_is_slewed(jump_s, rate, caplog):
    clock = ModelClock(100 * SECOND, 0.0)
    for now in range(1, 11):
        clock.saw(clock.next((100 + now + jump_s) * SECOND, float(now)), float(now))
    assert clock.time_us == pytest.approx((100 + 10 * rate) * SECOND, abs=20)
    assert len(caplog.records) == 1


def test_a_slewed_clock_comes_back_to_the_wall_clock():
    clock, now = ModelClock(0, 0.0), 0.0
    while abs(clock.time_us - (now + 5) * SECOND) > 1:
        now += 1.0
        clock.saw(clock.next(int((now + 5) * SECOND), now), now)
        assert now < 100


def test_a_leader_whose_clock_jumps_does_not_take_the_model_along_nor_does_the_next(tmp_path):
    cluster = ticking(tmp_path)
    cluster.advance(5.0)
    before = last_tick(cluster)
    set_clock(cluster.nodes["a"], 7200.0)
    cluster.advance(10.0)
    assert last_tick(cluster) - before < 12 * SECOND
    # When an engine takes over whose clock is off as well
    set_clock(cluster.nodes["b"], -3600.0)
    cluster.nodes["a"].kill()
    cluster.until_active("b")
    taken = last_tick(cluster)
    cluster.advance(10.0)
    assert 8 * SECOND < last_tick(cluster) - taken < 12 * SECOND


def test_a_tick_that_was_made_before_a_long_pause_is_no_reason_to_doubt_a_wall_clock():
    clock = ModelClock()
    clock.saw(100 * SECOND, 60.0, since_s=0.0)
    assert clock.next(130 * SECOND, 60.0) == 130 * SECOND
    assert clock.next(170 * SECOND, 61.0) == int(101.1 * SECOND)
    assert clock.next(90 * SECOND, 61.0) == int(100.9 * SECOND)


def test_an_engine_that_slept_while_the_leader_died_keeps_the_models_time(tmp_path, caplog):
    cluster = ticking(tmp_path)
    a, b = cluster.nodes["a"], cluster.nodes["b"]
    cluster.advance(2.0)
    b.pause()
    cluster.advance(2.0)
    a.kill()
    cluster.advance(30.0)
    b.wake()
    cluster.until_active("b")
    cluster.advance(3.0)
    assert lag(cluster) < 2 * SECOND
    assert "wall clock" not in caplog.text


def test_a_tick_that_lands_late_does_not_hold_the_models_time_back(tmp_path, caplog):
    cluster = ticking(tmp_path, lease_s=10.0)
    a = cluster.nodes["a"]
    cluster.advance(2.0)
    back = outage(a, WRITES, ".S")
    cluster.advance(6.0)
    back()
    cluster.advance(3.0)
    assert a.is_active
    assert lag(cluster) < 2 * SECOND
    assert "wall clock" not in caplog.text


def lag(cluster: LocalCluster) -> int:
    """How far the model's time is after the wall clock."""
    return cluster.clock.wall_ns() // 1000 - last_tick(cluster)


def ticking(folder, **options) -> LocalCluster:
    """Two engines of a model that follows the clock."""
    keep = Retention(kind="bytime_sliding", limit=3 * SECOND)
    windows = (SourceWindow(name="in", schema=TRADES, insert_only=True), CopyWindow(name="recent", retention=keep))
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="in", target="recent"),))
    graph = compile_project(Project(name="p", queries=(query,)))
    cluster = LocalCluster(graph, frozenset({"q/recent"}), folder, ticks=True, **options)
    cluster.start("a")
    cluster.until_active("a")
    cluster.start("b")
    return cluster


def last_tick(cluster: LocalCluster) -> int:
    bodies = [json.loads(told["body"]) for told in cluster.told(cluster.streams.sequence) if told["kind"] == "entry"]
    return max(body["tick_us"] for body in bodies if "tick_us" in body)
