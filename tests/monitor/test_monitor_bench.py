"""Each row of the monitor's benchmark with a small fleet: it runs, and nothing is lost or told twice."""

from __future__ import annotations

from lockstep.bench.monitor import amqp_in
from lockstep.bench.monitor.table import MonitorBench, all_rows


def quiet(_text):
    pass


def rows_of(name):
    wanted = MonitorBench(clients=8, seconds=4.0, kills=1, only=(name,))
    return {row.name.rpartition(": ")[2]: row for row in all_rows(wanted, quiet)}


def test_a_fleet_is_taken_and_shown():
    rows = rows_of("load")
    assert rows["results"].value > 0
    assert rows["lag, p99"].value > 0
    assert rows["not counted"].value == 0


def test_handlers_are_started_once():
    rows = rows_of("handler")
    assert rows["p50"].value > 0
    assert rows["lost, repeated"].value == 0


def test_requests_come_once_though_the_leader_is_killed():
    rows = rows_of("kill")
    assert rows["requests missed"].value == rows["requests duplicated"].value == 0
    assert rows["next request late, worst"].value > 0


def test_events_are_listed():
    rows = rows_of("list")
    details = rows["list of events, p50"].details
    assert (details["clients"], details["events"]) == (20, 10)


def test_results_are_taken_from_rabbitmq(rabbitmq_server):
    found = amqp_in.take_from_rabbitmq("local", 400, quiet, rabbitmq_server.url)
    assert (found["results"], found["lost"]) == (400, 0)
    assert found["per_s"] > 0
