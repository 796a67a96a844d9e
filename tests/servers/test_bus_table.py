"""The table in docs/reference/buses.md is what the buses say of themselves, each over a real server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "buses.md"
BUSES = ("memory", "lmdb", "kafka", "rabbitmq", "redis", "hazelcast")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def column_of(name: str) -> list[tuple[str, str]]:
    """The rows of the table on the page, as far as they speak of one bus."""
    lines = PAGE.read_text().splitlines()
    [start] = [number for number, line in enumerate(lines) if line.startswith("|  |") and "`memory`" in line]
    assert cells(lines[start])[1:] == [f"`{bus}`" for bus in BUSES]
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return [(row[0], row[1 + BUSES.index(name)]) for row in map(cells, lines[start + 2 : end])]


@pytest.mark.parametrize("name", BUSES)
def test_the_table_says_what_buses_say(name, request, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from bus_table import capabilities  # the script that writes the table

    url = {"memory": "memory:", "lmdb": f"lmdb:{tmp_path / 'bus'}"}.get(name)
    if url is None:
        server = request.getfixturevalue(f"{name}_server").url
        url = f"{server}{'&' if '?' in server else '?'}prefix=t{uuid.uuid4().hex[:12]}."
    bus = open_bus(url, ThreadRuntime())
    try:
        said = [(row[0], row[1]) for row in map(cells, capabilities({name: bus}).splitlines()[2:])]
    finally:
        bus.close()
    assert column_of(name) == said
