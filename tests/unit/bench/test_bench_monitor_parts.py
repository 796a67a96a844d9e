"""The arithmetic of the monitor's benchmark."""

from __future__ import annotations

import pytest

from lockstep.bench.monitor.amqp_in import amqp_url
from lockstep.bench.monitor.loads import fleet_plan, rate_of
from lockstep.bench.monitor.table import PARTS, MonitorBench
from lockstep.bench.monitor.takeovers import INTERVAL_S, Arrival, due_between, judged, last_due, settings

CHECKS = list(settings()["checks"])
AT = 1_800_000_000


def arrivals(since, until, late=0.5):
    return [Arrival(check, due, due + late) for check, due in due_between(CHECKS, since, until)]


def test_each_check_is_due_once_in_each_interval():
    found = due_between(CHECKS, AT, AT + 2 * INTERVAL_S)
    assert sorted(check for check, _ in found) == sorted(2 * CHECKS)
    assert all(AT <= due < AT + 2 * INTERVAL_S for _, due in found)
    assert all(last_due(check, due + 0.5) == due for check, due in found)


def test_requests_that_come_once_are_neither_missed_nor_doubled():
    found = judged(arrivals(AT, AT + 24), [AT + 8.0], AT, AT + 24)
    assert (found["missed"], found["duplicated"], found["requests"]) == (0, 0, 3 * len(CHECKS))
    assert found["late_max_s"] == 0.5


def test_requests_that_are_missing_doubled_or_late_after_a_kill_are_counted():
    came = arrivals(AT, AT + 8) + arrivals(AT + 8, AT + 16, late=2.5)
    found = judged([*came[3:], came[-1]], [AT + 8.0], AT, AT + 16)
    assert (found["missed"], found["duplicated"]) == (3, 1)
    assert found["late_s"] == [2.5]


def test_a_fleet_sends_as_many_as_its_plan_says():
    plan = fleet_plan(4000, 40, 5.0, 0.03)
    assert rate_of(plan) == 32_000
    assert plan.members == ',"occurrences":3,"refresh":1800'


def test_amqp_is_at_another_port_of_the_same_host():
    assert amqp_url("rabbitmq://guest:guest@127.0.0.1:1234?amqp_port=99") == "amqp://guest:guest@127.0.0.1:99"


def test_rows_are_chosen_by_name_and_keep_their_order():
    assert MonitorBench(only=("kill", "load")).parts == ["load", "kill"]
    assert MonitorBench(peers=True).parts == list(PARTS)
    assert MonitorBench().parts == list(PARTS)[:-1]
    with pytest.raises(ValueError, match="there is no row what; there are load, standby"):
        MonitorBench(only=("what",))
    with pytest.raises(ValueError, match="clients=3"):
        MonitorBench(clients=3)
    with pytest.raises(ValueError, match="runner='fast'"):
        MonitorBench(runner="fast")
