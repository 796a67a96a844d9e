"""How a project stands, told from reports and beats."""

from __future__ import annotations

import json
import logging

import pytest
from cluster_worlds import COUNTS, NOW, SECOND, World
from run_worlds import put

from lockstep.engine.runtime.control.reports import all_reports, latest_reports, parse_report
from lockstep.engine.runtime.control.status import (
    IN_STEP_S,
    SILENT_S,
    ClusterWatcher,
    first_published_ns,
    project_status,
)
from lockstep.engine.runtime.sequence.streams import REPORTS
from lockstep.errors import DataError
from lockstep.log.port import Bounds, Entry
from lockstep.runtime import ThreadRuntime
from lockstep.testing import VirtualRuntime


@pytest.fixture
def world() -> World:
    return World()


def status(world: World):
    return project_status(world.bus, "local", "p", NOW)


def row(world: World, engine: str):
    return next(row for row in status(world).engines if row.engine == engine)


# --- reports -----------------------------------------------------------------------------------------------------


def test_the_newest_report_of_each_engine(world):
    world.report("b", block=1)
    world.report("a", block=2)
    newest = world.report("b", block=3)
    found = latest_reports(world.bus.open(world.streams.reports))
    assert list(found) == ["a", "b"]
    assert found["b"] == newest
    assert [report.block for report in all_reports(world.bus.open(world.streams.reports))] == [1, 2, 3]


def test_a_report_that_can_not_be_read_is_passed_over(world, caplog):
    good = world.report("a")
    log = world.bus.open(world.streams.reports)
    tree = {"kind": "report", "engine": "a"}
    put(
        log,
        b"no JSON",
        b"[]",
        b'{"kind": "other"}',
        json.dumps(tree).encode(),
        json.dumps({**tree, "pid": "1"}).encode(),
    )
    with caplog.at_level(logging.WARNING, "lockstep"):
        assert latest_reports(log) == {"a": good}
    assert len(caplog.records) == 5


def test_what_a_newer_version_adds_to_a_report_is_left_out(world):
    world.report("a")
    log = world.bus.open(world.streams.reports)
    tree = json.loads(json.dumps({"kind": "report"}))
    stored = next(iter(all_reports(log)))
    tree |= {name: getattr(stored, name) for name in type(stored).__dataclass_fields__} | {"mood": "good"}
    assert parse_report(json.dumps(tree).encode()) == stored


def test_a_flag_is_no_number():
    with pytest.raises(DataError, match="Its pid is True"):
        parse_report(b'{"kind": "report", "pid": true}')


def test_reports_are_bounded(world):
    for number in range(REPORTS.capacity + 10):
        world.report("a", block=number)
    log = world.bus.open(world.streams.reports)
    assert log.bounds().count <= REPORTS.capacity
    assert latest_reports(log)["a"].block == REPORTS.capacity + 9


class Odd:
    """A log of reports that is trimmed, or damaged, while it is read."""

    def __init__(self, log, *, first: int | None = None, damaged: int | None = None) -> None:
        self._log, self._first, self._damaged, self.name = log, first, damaged, log.name

    def bounds(self) -> Bounds:
        found = self._log.bounds()
        first, self._first = self._first, None
        return found if first is None else Bounds(first, found.next)

    def read(self, offset: int) -> list[Entry]:
        found = self._log.read(offset)
        return [Entry(one.base, one.data[:-1] + b"?") if one.base == self._damaged else one for one in found]


def test_reports_that_are_trimmed_while_they_are_read(world):
    for number in range(5):
        world.report("a", block=number)
    log = world.bus.open(world.streams.reports)
    log.trim(3)
    assert [report.block for report in all_reports(Odd(log, first=1))] == [3, 4]


def test_a_damaged_batch_is_passed_over(world, caplog):
    for number in range(3):
        world.report("a", block=number)
    log = world.bus.open(world.streams.reports)
    assert latest_reports(Odd(log, damaged=2))["a"].block == 1
    assert [report.block for report in all_reports(Odd(log, damaged=1))] == [0, 2]
    assert "A report can't be read" in caplog.text


# --- who is what -------------------------------------------------------------------------------------------------


def test_an_active_engine_and_a_standby_in_step(world):
    world.report("a", role="active", takeovers=2)
    world.report("b")
    world.beat(7)
    found = status(world)
    assert (found.active, found.epoch, found.published, found.events, found.takeovers) == ("a", 1, 7, 7, 2)
    assert [(row.engine, row.role, row.lag_blocks, row.lag_s) for row in found.engines] == [
        ("a", "active", 0, 0.0),
        ("b", "standby", 0, 0.0),
    ]
    assert found.counts == COUNTS
    assert found.counts_equal is True
    assert found.is_well


def test_a_fenced_engine_that_does_not_know_it_is_shown_as_standby(world):
    world.report("a", role="active", epoch=1)
    world.report("b", role="active", epoch=2)
    found = status(world)
    assert found.active == "b"
    assert found.problems == ("Engine a says that it leads in epoch 1; epoch 2 is in force.",)


@pytest.mark.parametrize("writer", ["a", "b"])
def test_of_two_in_one_epoch_the_writer_of_the_beat_is_active(world, writer):
    world.report("a", role="active")
    world.report("b", role="active")
    world.beat(7, incarnation=f"{writer}1")
    assert status(world).active == writer


def test_an_engine_that_tells_nothing_is_silent(world):
    world.report("a", role="active", ago_s=SILENT_S + 1)
    world.report("b", ago_s=SILENT_S)
    found = status(world)
    assert [row.role for row in found.engines] == ["silent", "standby"]
    assert found.active is None
    assert found.problems == ("No engine is active.", "Engine a was last heard of 6 s ago.")


@pytest.mark.parametrize("ago_s", [0.1, 60.0])
def test_an_engine_that_said_it_ends_is_stopped_and_no_problem(world, ago_s):
    world.report("a", role="active")
    world.report("b", state="stopping", ago_s=ago_s)
    assert row(world, "b").role == "stopped"
    assert status(world).is_well


def test_an_engine_on_its_way_out_leads_until_it_is_gone(world):
    world.report("a", role="active", state="stopping")
    assert status(world).active == "a"


def test_a_project_without_reports(world):
    world.bus.delete(world.streams.reports)
    world.beat(3)
    found = status(world)
    assert (found.active, found.published, found.sequenced, found.engines) == (None, 3, 3, ())
    assert found.problems == ("No engine is active.",)


def test_all_projects_of_a_cluster(world):
    assert [found.project for found in ClusterWatcher(world.bus, "local", ThreadRuntime()).status()] == ["p"]
    assert ClusterWatcher(world.bus, "other", ThreadRuntime()).status() == []


def test_an_engine_that_is_heard_is_not_silent_whatever_its_clock_says(world):
    # Given engines whose clocks are a minute slow, one of which was killed
    runtime = VirtualRuntime(wall_ns=NOW)
    listening = ClusterWatcher(world.bus, "local", runtime)
    world.report("a", role="active", ago_s=60.0)
    world.report("b", ago_s=60.0)
    world.beat(7)
    [before] = listening.status()
    assert before.has_silent, "by the clocks, before anything was heard"
    # When one reports while somebody listens
    runtime.advance(1.0)
    world.report("a", role="active", ago_s=60.0)
    listening.status()
    runtime.advance(0.5)
    # Then it is alive, and its report is as old as the listener's clock says
    [after] = listening.status()
    assert [(row.engine, row.role, row.report_age_s) for row in after.engines] == [
        ("a", "active", 0.5),
        ("b", "silent", 61.5),
    ]
    # And it is silent when nothing more is heard of it
    runtime.advance(SILENT_S + 0.1)
    [later] = listening.status("p")
    assert [row.role for row in later.engines] == ["silent", "silent"]


def test_an_engine_that_is_not_heard_for_long_is_silent_though_its_clock_is_ahead(world):
    # Given an engine that was killed, and whose clock was a day ahead
    runtime = VirtualRuntime(wall_ns=NOW)
    listening = ClusterWatcher(world.bus, "local", runtime)
    world.report("a", role="active", ago_s=-86_400.0)
    [before] = listening.status()
    assert not before.has_silent, "by the clocks, before anybody listened"
    # When somebody listens for as long as a live engine would never be silent
    runtime.advance(SILENT_S + 0.1)
    [after] = listening.status()
    # Then it is silent
    assert [row.role for row in after.engines] == ["silent"]


def test_an_engine_that_was_killed_while_nobody_looked_is_not_shown_as_alive(world):
    # Given somebody who heard an engine, and then looked away for ten minutes
    runtime = VirtualRuntime(wall_ns=NOW)
    listening = ClusterWatcher(world.bus, "local", runtime)
    listening.status("p")
    runtime.advance(1.0)
    world.report("a", role="active", ago_s=-1.0)
    listening.status("p")
    # When it was killed a minute later, and the other one went on
    runtime.advance(600.0)
    world.report("a", role="active", ago_s=-60.0)
    world.report("b", ago_s=-600.5)
    [found] = listening.status("p")
    # Then the reports that came meanwhile are as old as they say
    assert [(row.engine, row.role) for row in found.engines] == [("a", "silent"), ("b", "standby")]
    # And five seconds later that is known for sure, whatever the clocks say
    world.report("a", role="active", ago_s=-86_400.0)
    runtime.advance(3.0)
    assert listening.status("p")[0].active == "a"
    for _ in range(6):
        runtime.advance(1.0)
        listening.listen("p")
    assert listening.status("p")[0].active is None


def test_an_engine_whose_reports_are_no_longer_kept_is_forgotten_by_who_listens(world):
    runtime = VirtualRuntime(wall_ns=NOW)
    listening = ClusterWatcher(world.bus, "local", runtime)
    world.report("gone", state="stopping")
    listening.listen("p")
    runtime.advance(1.0)
    world.report("a", role="active")
    assert list(listening.listen("p")) == ["a", "gone"]
    world.bus.open(world.streams.reports).trim(1)
    assert list(listening.listen("p")) == ["a"]
    listening.forget(["p", "other"])
    assert [row.engine for row in listening.status("p")[0].engines] == ["a"]


# --- lag ---------------------------------------------------------------------------------------------------------


def test_lag_counts_from_the_first_published_block_that_is_missing(world):
    for published, ago_s in ((2, 9.0), (4, 8.0), (6, 7.0)):
        world.beat(published, ago_s=ago_s)
    world.report("b", block=4, sequenced=10, published=6, ago_s=1.0)
    found = row(world, "b")
    assert (found.lag_blocks, found.lag_s) == (6, 6.0)


def test_what_is_decided_and_not_published_yet_is_lag_in_blocks_only(world):
    world.beat(4)
    world.report("b", block=4, sequenced=10, published=4)
    assert (row(world, "b").lag_blocks, row(world, "b").lag_s) == (6, 0.0)


def test_a_standby_ahead_of_the_leader_has_no_lag(world):
    world.beat(4)
    world.report("b", block=9, sequenced=9, published=4)
    assert row(world, "b").lag_blocks == 0


def test_a_silent_engine_lags_more_and_more(world):
    world.report("b", block=4, sequenced=4, published=4, ago_s=30.0)
    world.beat(4, ago_s=30.0)
    world.beat(8, ago_s=20.0)
    assert (row(world, "b").lag_blocks, row(world, "b").lag_s) == (4, 20.0)


def test_a_standby_that_is_too_far_behind_is_a_problem(world):
    world.report("a", role="active")
    world.beat(4, ago_s=IN_STEP_S + 0.5)
    world.report("b", block=2, sequenced=4, published=4, ago_s=0.5)
    assert status(world).is_well
    world.report("b", block=2, sequenced=4, published=4, ago_s=0.4)
    assert status(world).problems == ("Engine b is 2 blocks, 5.1 s behind.",)


def test_a_standby_that_is_starting_is_a_problem_as_the_lead_can_not_be_handed_to_it(world):
    world.report("a", role="active")
    world.beat(4)
    world.report("b", state="starting")
    assert status(world).problems == ("Engine b is starting, and can't take over yet.",)
    world.report("b", state="running")
    assert status(world).is_well


@pytest.mark.parametrize("block", range(-1, 12))
def test_when_a_block_was_published_is_what_a_walk_over_all_beats_says(world, block):
    beats = [(1, 9), (1, 8), (3, 7), (6, 6), (6, 5), (7, 4), (10, 3)]
    for published, ago_s in beats:
        world.beat(published, ago_s=ago_s)
    slow = next((NOW - ago_s * SECOND for published, ago_s in beats if published > block), None)
    assert first_published_ns(world.bus, world.streams, block) == slow


def test_where_beats_do_not_reach_back_reports_do(world):
    world.report("a", published=5, ago_s=40)
    world.report("a", published=6, ago_s=30)
    world.beat(9, ago_s=2)
    assert first_published_ns(world.bus, world.streams, 5) == NOW - 30 * SECOND
    assert first_published_ns(world.bus, world.streams, 8) == NOW - 2 * SECOND


def test_beats_that_were_trimmed(world):
    for published in range(1, 9):
        world.beat(published, ago_s=20 - published)
    world.bus.open(world.streams.control).trim(4)
    assert first_published_ns(world.bus, world.streams, 6) == NOW - 13 * SECOND
    assert first_published_ns(world.bus, world.streams, 0) == NOW - 15 * SECOND


# --- buffers, snapshots, counts ----------------------------------------------------------------------------------


def test_a_buffer_is_as_full_as_its_fuller_measure(world):
    world.report("a", buffer_blocks=10, buffer_bytes=255)
    world.report("b", buffer_blocks=50, buffer_bytes=10)
    world.report("c", buffer_blocks=50, buffer_blocks_max=0, buffer_bytes_max=0)
    assert [row.buffer_percent for row in status(world).engines] == [25.5, 50.0, 0.0]


def test_the_age_of_the_last_snapshot(world):
    world.report("a", role="active")
    assert status(world).snapshot_age_s is None
    world.report("b", snapshot_block=5, snapshot_ns=NOW - 90 * SECOND)
    world.report("a", role="active", snapshot_block=6, snapshot_ns=NOW - 30 * SECOND)
    found = status(world)
    assert (found.snapshot_block, found.snapshot_age_s) == (6, 30.0)
    assert row(world, "b").snapshot_age_s == 90.0


def test_counts_are_compared_at_the_same_block_only(world):
    other = {**COUNTS, "q/in": [8, 8, 8, {}]}
    world.report("a", role="active", counts=COUNTS)
    world.report("b", block=8, sequenced=8, counts=other)
    assert status(world).counts_equal is None
    world.report("b", counts=other)
    found = status(world)
    assert found.counts_equal is False
    assert found.problems == ("Engines at the same block have different counts.",)


def test_counts_are_compared_with_the_beat_too(world):
    world.report("a", role="active")
    world.beat(7, counts={"q/in": [1, 1, 1, {}]})
    assert status(world).counts_equal is False


def test_counts_of_before_a_reset_are_neither_shown_nor_compared(world):
    none = {"q/in": [0, 0, 0, {}], "q/sums": [0, 0, 0, {}]}
    world.beat(7)
    world.report("a", role="active", counts=none)
    world.report("b", counts=none)
    found = status(world)
    assert (found.counts, found.counts_equal, found.problems) == (none, True, ())
    world.report("b", counts=COUNTS)
    assert status(world).counts_equal is False


def test_as_plain_values(world):
    world.report("a", role="active")
    tree = status(world).tree()
    assert json.loads(json.dumps(tree))["engines"][0]["engine"] == "a"
    assert tree["ok"] is True
    world.beat(7)
    assert status(world).tree()["windows"][1] == {"window": "q/sums", "rows": 2, "in": 7, "out": 12, "bad": {}}
