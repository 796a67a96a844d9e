"""The reference of the monitor's API says what the app has, and every deviation from Sensu has its test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fleet_world import FleetWorld, served

from lockstep.runtime import ThreadRuntime
from lockstep.server.monitor import MonitorServer
from lockstep.server.monitor.own import _HISTORY_MAX
from lockstep.server.monitor.site import ANSWER_S, MonitorSite, TransportFigures

sys.path.append(str(Path(__file__).parents[1] / "server"))
from test_server_docs import rows, section

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs" / "reference" / "monitor-http.md").read_text()
ROUTES = rows(section(TEXT, "Routes of Sensu"))[1:]


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    with served(FleetWorld(tmp_path_factory.mktemp("view"))) as made:
        yield made


def test_every_route_is_in_a_table(tmp_path):
    world = FleetWorld(tmp_path)
    site = MonitorSite(world.view, world, ThreadRuntime(), TransportFigures)
    with MonitorServer(site) as server:
        there = [(route.method, route.path, route.tag) for route in server.app.router.routes]
    own = [(*cells[:2], "monitor") for cells in rows(section(TEXT, "Our own routes"))[1:]]
    written = [(*cells[:2], "sensu") for cells in ROUTES] + own
    assert sorted((method, path.strip("`"), tag) for method, path, tag in written) == sorted(there)


@pytest.mark.parametrize(
    "cells", [cells for cells in ROUTES if "404" in cells[2]], ids=lambda cells: f"{cells[0]} {cells[1]}"
)
def test_what_is_not_there_is_404(ask, cells):
    method, path = cells[0], cells[1].strip("`")
    for name in ("client", "check", "name", "id", "path*"):
        path = path.replace(f"{{{name}}}", "none")
    body = {"client": "none", "check": "none", "id": "none"} if method == "POST" else None
    assert ask(method, path.replace("{severity}", "ok"), body)[0] == 404


@pytest.mark.parametrize("cells", [cells for cells in ROUTES if cells[0] == "POST"], ids=lambda cells: cells[1])
@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff", b"{}", b"[" * 100_000])
def test_a_body_that_says_nothing_is_400(ask, cells, body):
    path = cells[1].strip("`").replace("{path*}", "stored")
    wanted = 201 if "stored" in path and body == b"{}" else 400
    assert ask("POST", path, body)[0] == wanted


def test_every_deviation_has_a_test():
    tests = "".join(path.read_text() for path in TESTS.rglob("test_monitor_*.py"))
    for cells in rows(section(TEXT, "Deviations from Sensu"))[1:]:
        assert f"def {cells[2].strip('`')}(" in tests, cells


def test_bounds_are_those_of_the_code():
    assert (_HISTORY_MAX, ANSWER_S) == (1_000, 2.0)
