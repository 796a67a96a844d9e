"""The scheduler's benchmark in small: real nodes, a reader and a receiver; nothing is lost, duplicated or early."""

from __future__ import annotations

import json

import pytest

from lockstep.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]


def bench(capfdbinary, *words):
    assert main(["bench", "schedule", "--json", *words]) == 0
    return json.loads(capfdbinary.readouterr().out)


def test_events_in_one_instant_and_over_http_are_all_counted(capfdbinary):
    found = bench(capfdbinary, "--only", "instant", "http", "--events", "600")
    names = [row["name"] for row in found["rows"]]
    assert names[0] == "300 in one instant, 3 nodes: late, p50"
    assert names[-1] == "150 HTTP callbacks, one node: lost, duplicated, early"
    wrong = [row["value"] for row in found["rows"] if row["unit"] == "records"]
    assert wrong == [0, 0]
    assert sum(found["rows"][0]["details"]["shares"].values()) == pytest.approx(1, abs=0.001)
    assert "--peers" in found["peers"]


def test_a_row_that_does_not_exist_is_named(capfdbinary):
    assert main(["bench", "schedule", "--only", "what"]) == 2
    assert b"There is no row what" in capfdbinary.readouterr().err
