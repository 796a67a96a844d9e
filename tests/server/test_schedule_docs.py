"""The reference of the scheduler's API says what the app has, and every deviation from BigBen has its test."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from schedule_server_worlds import World, scheduling
from test_server_docs import rows, section

from lockstep.schedule.client import ANSWER_S
from lockstep.schedule.cron_ticks import BACKFILL_MAX
from lockstep.schedule.inflow import OFFSET_HEADER, PARTITION_HEADER, REASON_HEADER, TOPIC_HEADER
from lockstep.schedule.node import BACKLOG_COUNTED
from lockstep.schedule.validation import CRON_FIELDS, ID_BYTES_MAX, PAYLOAD_BYTES_MAX
from lockstep.server.schedule import LIMITS, ScheduleServer
from lockstep.server.schedule.cron_routes import NEXT_DEFAULT, RUNS_DEFAULT
from lockstep.server.schedule.events import PAGE_DEFAULT
from lockstep.server.schedule.site import EVENTS_MAX
from lockstep.server.serving import bind

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs" / "reference" / "schedule-http.md").read_text()


@pytest.fixture(scope="module")
def world():
    with scheduling("memory:") as scheduler, ScheduleServer(scheduler) as server:
        yield World(server, scheduler, None)


def test_every_route_is_in_a_table(world):
    tables = rows(section(TEXT, "Routes of BigBen"))[1:] + rows(section(TEXT, "Our own routes"))[1:]
    written = [(method, path.strip("`")) for method, path, _ in tables]
    assert len(written) == len(set(written))
    assert set(written) == {(route.method, route.path) for route in world.server.app.router.routes}


def test_every_metric_is_in_the_table(world):
    found = re.findall(r"^# TYPE (\S+) (\w+)", world.get("/metrics").text, re.MULTILINE)
    assert {name.strip("`") for name, _ in rows(section(TEXT, "Metrics"))[1:]} == {name for name, _ in found}


def test_every_deviation_has_a_test():
    tests = "".join(path.read_text() for path in TESTS.rglob("test_schedule_*.py"))
    for cells in rows(section(TEXT, "Deviations from BigBen"))[1:]:
        assert f"def {cells[2].strip('`')}(" in tests, cells


def test_bounds_are_those_of_the_code():
    assert (EVENTS_MAX, LIMITS.body_bytes, PAYLOAD_BYTES_MAX, ID_BYTES_MAX) == (10_000, 16 << 20, 4 << 20, 1024)
    assert (PAGE_DEFAULT, NEXT_DEFAULT, RUNS_DEFAULT, BACKFILL_MAX, ANSWER_S) == (100, 5, 100, 10_000, 10.0)
    assert f"{BACKLOG_COUNTED:,}" in section(TEXT, "Metrics")
    for name in (REASON_HEADER, TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER):
        assert f"`{name}`" in TEXT
    assert set(re.findall(r"`([a-zA-Z]+)`", section(TEXT, "Crons"))) >= CRON_FIELDS


def test_answers_do_not_wait_for_acknowledgements():
    """asyncio sets TCP_NODELAY only on sockets that say that they are TCP: without it an answer takes 40 ms more."""
    with bind("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP
