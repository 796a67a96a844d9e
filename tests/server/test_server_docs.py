"""The reference of REST says what the app has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from server_worlds import View, served

from lockstep.engine.runtime.control.status import SILENT_S, EngineRow, ProjectStatus
from lockstep.server import errors
from lockstep.server.answers import status_of
from lockstep.server.guard import Limits
from lockstep.server.routes_events import PAGE_DEFAULT, PAGE_MAX
from lockstep.server.rows import RowLimits
from lockstep.server.site import ASK_S

DOCS = Path(__file__).parents[2] / "docs"
REST = (DOCS / "reference" / "rest.md").read_text()


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def section(text: str, heading: str) -> str:
    return re.split(r"^## ", text.partition(f"## {heading}\n")[2], flags=re.MULTILINE)[0]


def test_every_route_is_in_the_table():
    with served(View()) as ask:
        paths = ask("GET", "/openapi.json").json["paths"]
    written = [(method, path.strip("`")) for method, path, _ in rows(section(REST, "Routes"))[1:]]
    assert len(written) == len(set(written))
    assert set(written) == {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_every_status_is_in_the_table():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    used = {status_of(kind.__new__(kind)) for kind in kinds} | {500, 504}
    assert {int(status) for status, _ in rows(section(REST, "Errors"))[1:]} == used


def test_bounds_are_those_of_the_code():
    limits, kept = Limits(), RowLimits()
    assert f"{limits.body_bytes >> 20} MiB" in section(REST, "Errors")
    assert f"{kept.rows:,} rows or {kept.bytes >> 20} MiB" in section(REST, "Rows of a window")
    assert (kept.windows, kept.seconds, limits.requests, ASK_S) == (8, 5.0, 16, 30.0)
    assert f"| {PAGE_DEFAULT} | rows of a page, 1 to {PAGE_MAX} |" in REST


def test_fields_of_a_status():
    text = section((DOCS / "reference" / "json.md").read_text(), "status")
    written = [name for cells in rows(text) for name in re.findall(r"`(\w+)`", cells[0])]
    project = [field.name for field in fields(ProjectStatus) if field.name != "counts"] + ["ok", "windows"]
    engine = [field.name for field in fields(EngineRow)]
    assert sorted(written) == sorted(project + engine)
    assert f"no report for {SILENT_S:g} s" in text
