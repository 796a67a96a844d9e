"""The shapes in docs/reference/json.md are the shapes that are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_command import InProcess

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
STEPS = [
    ("stream create", "orders"),
    ("stream alter", "orders --retain-age 30d"),
    ("stream publish", "orders a b"),
    ("stream ls", ""),
    ("stream show", "orders"),
    ("stream tail", "orders --from-start --exit"),
    ("stream tail", "orders --group readers --exit --max 1"),
    ("group ls", ""),
    ("group show", "readers"),
    ("group reset", "readers orders --to earliest --yes"),
    ("stream trim", "orders --before 1 --yes"),
    ("stream copy", "orders copied"),
    ("stream verify", ""),
    ("group delete", "readers --yes"),
    ("stream delete", "copied --yes"),
    ("bus show", ""),
    ("bus check", ""),
    ("bus backup", "./copy-of-bus"),
    ("bench streams", "--publishers 1 --subscribers 1 --seconds 0.2"),
]


def documented():
    """Command -> the fields its row names at the top level."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            top_level = re.sub(r"\([^()]*\)", "", re.sub(r";.*", "", cells[2]))
            found[cells[0].strip("`")] = set(re.findall(r"`([a-z_]+)`", top_level))
    return found


@pytest.mark.slow
def test_every_command_prints_the_fields_that_its_row_names(tmp_path):
    rows, lockstep = documented(), InProcess(tmp_path)
    for command, arguments in STEPS:
        printed = lockstep(*command.split(), *arguments.split(), "--json").objects
        assert printed, command
        for item in printed:
            missing = rows[command] - item.keys()
            extra = item.keys() - rows[command] if command != "bench streams" else set()
            assert (missing, extra) == (set(), set()), command
