"""When faults come, and how far the publisher may go before them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.drill.options import HEAD_S, SPACING_S, DrillOptions, Fault
from lockstep.drill.plan import allowed, plan
from lockstep.errors import BadArgument


def test_by_default_a_million_trades_are_killed_there_and_back():
    options = DrillOptions()
    assert (options.total, options.blocks, options.faults, options.pace) == (1_000_000, 1_000_000, 2, None)
    assert [(fault.kind, fault.at) for fault in plan(options)] == [(Fault.KILL, 300_000), (Fault.KILL, 650_000)]


def test_repeated_faults_come_live_and_leave_time_to_be_back_in_step():
    options = DrillOptions(repeat=20)
    places = [fault.at for fault in plan(options)]
    assert options.pace == 5_000
    assert places[0] == 5_000 * HEAD_S
    assert {after - before for before, after in pairwise(places)} == {5_000 * SPACING_S}
    assert options.total - places[-1] == 5_000 * SPACING_S


def test_several_kinds_of_faults_take_turns():
    once = DrillOptions(fault=Fault.SERVER, then=(Fault.SPARK_WORKER, Fault.KILL))
    assert [fault.kind for fault in plan(once)] == [Fault.SERVER, Fault.SPARK_WORKER, Fault.KILL]
    more = DrillOptions(fault=Fault.SERVER, then=(Fault.KILL,), repeat=3)
    assert [fault.kind for fault in plan(more)] == [Fault.SERVER, Fault.KILL, Fault.SERVER]


def test_without_a_fault_nothing_is_planned_and_everything_allowed():
    assert plan(DrillOptions(fault=Fault.NONE)) == []
    assert DrillOptions(events=7, block=3).blocks == 3


@settings(deadline=None)
@given(st.integers(1, 3_000_000), st.integers(1, 40), st.none() | st.floats(1.0, 1e6))
def test_faults_are_in_order_within_the_run_and_can_be_reached(events, repeat, rate):
    options = DrillOptions(events=events, repeat=repeat, rate=rate)
    planned = plan(options)
    assert [fault.number for fault in planned] == list(range(1, repeat + 1))
    assert all(1 <= fault.at <= events for fault in planned)
    assert all(before.at <= after.at for before, after in pairwise(planned))
    assert all(fault.at <= fault.hold <= events for fault in planned)
    for settled, fault in enumerate(planned):
        # what may be published leads to the fault, and the publisher waits before the one after it
        permitted = allowed(planned, settled, events)
        assert permitted <= events
        if settled + 1 == len(planned):
            assert permitted == events
        else:
            assert fault.at - 1 <= permitted
            assert permitted == planned[settled + 1].gate


@settings(deadline=None)
@given(st.integers(2_000, 3_000_000), st.integers(1, 40), st.floats(1.0, 1e6), st.floats(0, 1))
def test_at_a_pace_a_fault_can_be_reached_however_late_the_engines_are_in_step(events, repeat, rate, late):
    planned = plan(DrillOptions(events=events, repeat=repeat, rate=rate))
    for settled, fault in enumerate(planned[1:], 1):
        before = planned[settled - 1].at
        seen = round(before + late * (allowed(planned, settled - 1, events) - before))
        assert seen < fault.due(seen) <= fault.hold <= allowed(planned, settled, events)


def test_at_a_pace_events_flow_until_little_is_left_and_without_one_they_wait_before_the_next_fault():
    options = DrillOptions(events=1_000_000, rate=20_000)
    planned = plan(options)
    assert [fault.at for fault in planned] == [300_000, 650_000]
    assert allowed(planned, 0, options.total) == 1_000_000 - 8 * 20_000  # 27 s after the first fault
    assert planned[1].due(400_000) == 650_000
    assert [fault.hold for fault in planned] == [800_000, 960_000]
    assert planned[1].due(840_000) == 840_000 + 40_000  # a slow machine: later, and events come again before it
    fast = plan(DrillOptions(events=1_000_000))
    assert allowed(fast, 0, 1_000_000) == 650_000 - 350_000 // 8


@settings(deadline=None)
@given(st.integers(10_000, 3_000_000), st.integers(1, 40))
def test_between_two_faults_there_is_room_for_whole_pieces(events, repeat):
    planned = plan(DrillOptions(events=events, repeat=repeat))
    for settled, fault in enumerate(planned[:-1]):
        gap = planned[settled + 1].at - fault.at
        assert allowed(planned, settled, events) - fault.at >= gap * 3 // 4


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"events": 0}, "events = 0"),
        ({"engines": 0}, "engines = 0"),
        ({"repeat": 0}, "repeat = 0"),
        ({"block": 0}, "block = 0"),
        ({"fault": Fault.STANDBY, "engines": 1}, "needs two engines"),
        ({"fault": Fault.HANDOVER, "engines": 1}, "needs two engines"),
        ({"fault": Fault.NONE, "repeat": 2}, "nothing to repeat"),
        ({"fault": Fault.KILL, "then": (Fault.STANDBY,), "engines": 1}, "needs two engines"),
        ({"fault": Fault.KILL, "then": (Fault.NONE,)}, "none stands alone"),
    ],
)
def test_what_can_not_be_is_refused(wrong, words):
    with pytest.raises(BadArgument, match=words):
        DrillOptions(**wrong)


def test_a_leader_on_a_server_may_be_silent_for_longer():
    assert (DrillOptions().lease, DrillOptions(bus="lmdb:x").lease) == (0.5, 0.5)
    assert (DrillOptions(bus="kafka://h:1").lease, DrillOptions(bus="kafka://h:1", lease_s=0.3).lease) == (1.0, 0.3)
