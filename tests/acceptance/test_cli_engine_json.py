"""The shapes of the engine's commands in docs/reference/json.md are the shapes that are printed."""

from __future__ import annotations

import pytest
from cli_command import Command
from cli_models import put_trades, trade
from test_cli_json import documented

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
STEPS = [
    ("model check", "trades.yaml", 0),
    ("model check", "clocked.yaml", 1),
    ("model explain", "trades.yaml", 0),
    ("model graph", "trades.yaml -o x.svg", 0),
    ("model graph", "trades.yaml -o -", 0),
    ("model convert", "trades.yaml -o x.xml", 0),
    ("model convert", "trades.yaml --to py", 0),
    ("model run", "trades.yaml --in TradesSource=trades.csv --runner reference", 0),
    ("engine publish", "trades.yaml trades.csv", 0),
    ("data trades", "--events 3 -o more.csv", 0),
]


def test_every_command_prints_the_fields_that_its_row_names(tmp_path) -> None:
    put_trades(tmp_path)
    (tmp_path / "clocked.yaml").write_text("name: x\nqueries: [{name: q, windows: [{kind: copy, name: C}]}]\n")
    (tmp_path / "trades.csv").write_text(trade(1) + "oops\n")
    lockstep, rows = Command(tmp_path), documented()
    for command, arguments, code in STEPS:
        found = lockstep(*command.split(), *arguments.split(), "--json", code=code).object
        assert found.keys() == rows[command], command
