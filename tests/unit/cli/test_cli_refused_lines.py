"""A file of which not one line is an event is a failure, whoever reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

MODEL = """
name: small
queries:
  - name: q
    windows:
      - {kind: source, name: S, schema: "id*:int32, day:date, time:stamp"}
      - {kind: copy, name: C}
    edges: [S -> C]
"""
REFUSED = "i,n,1,2011-10-13,11\ni,n,2,x,y,z\n"
FORMAT = ("--date-format", "%Y-%m-%d %H:%M:%S")
COMMANDS = {
    "model run": ("model", "run", "m.yaml", "--runner", "reference", "--in", "S=lines.csv"),
    "engine publish": ("engine", "publish", "m.yaml", "lines.csv"),
    "adapter publish": ("adapter", "publish", "lines.csv", "--model", "m.yaml"),
    "adapter, errors ignored": ("adapter", "publish", "lines.csv", "--model", "m.yaml", "--ignore-parse-errors"),
}


@pytest.fixture(autouse=True)
def _model(cli) -> None:
    Path("m.yaml").write_text(MODEL)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_run_whose_every_line_was_refused_fails_and_says_so(cli, command) -> None:
    Path("lines.csv").write_text(REFUSED)
    failed = cli(*command, *FORMAT, code=1)
    assert "[NO_LINE_TAKEN] Not one of 2 lines of lines.csv is an event: 2 unparsable." in failed.err
    assert cli(*command, *FORMAT, "--json", code=1).error["code"] == "NO_LINE_TAKEN"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_one_line_that_is_an_event_is_enough_and_so_is_no_line_at_all(cli, command) -> None:
    Path("lines.csv").write_text(REFUSED + "i,n,1,2011-10-13 11:23:07,2011-10-13 11:23:07.156\n")
    cli(*command, *FORMAT)
    Path("lines.csv").write_text("")
    cli(*command, *FORMAT)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_date_format_that_is_none_is_wrong_usage(cli, command) -> None:
    Path("lines.csv").write_text(REFUSED)
    assert "%Q" in cli(*command, "--date-format", "%Q", code=2).err


@pytest.mark.parametrize("more", [(), ("--final",), ("--runner", "spark")])
def test_a_run_that_failed_leaves_the_files_of_the_run_before(cli, more) -> None:
    run = (*COMMANDS["model run"], *FORMAT, "--out", "S=s.csv", "--out", "C=c.csv")
    Path("lines.csv").write_text("i,n,1,2011-10-13 11:23:07,2011-10-13 11:23:07.156\n")
    cli(*run)
    before = {name: Path(name).read_bytes() for name in ("s.csv", "c.csv")}
    Path("lines.csv").write_text(REFUSED)
    failed = cli(*run, *more, code=1)
    assert "lines.csv, line 1: unparsable" in failed.err
    assert {name: Path(name).read_bytes() for name in before} == before
    for name in before:
        Path(name).unlink()
    cli(*run, *more, code=1)
    assert sorted(path.name for path in Path().glob("*.csv*")) == ["lines.csv"]


@pytest.mark.parametrize("name", ["engine publish", "adapter publish"])
def test_publishing_to_a_project_that_no_engine_has_run_warns(cli, name) -> None:
    Path("lines.csv").write_text("i,n,1,0,0\n")
    warned = cli(*COMMANDS[name])
    assert "Warning: No engine has run project small of cluster local on lmdb:.lockstep yet." in warned.err
