"""`lockstep drill` for people and for programs; stand-ins play the engines, so that it is quick."""

from __future__ import annotations

import io
import json
from functools import partial

import pytest
from drill_engine import stand_in_command

from lockstep.cli.drill import DRILL, run
from lockstep.cli.output import Output
from lockstep.cli.parser import build, parse
from lockstep.drill import run as drill_run
from lockstep.errors import BadArgument, PathMissing, UnsupportedByBackend, UsageError

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.setattr(drill_run, "run_drill", partial(drill_run.run_drill, command=stand_in_command))
    monkeypatch.chdir(tmp_path)

    def do(line: str) -> tuple[int, str]:
        options = parse(build((DRILL,), "1"), ["drill", *line.split()])
        out = io.BytesIO()
        code = run(options, Output(json=options.json, quiet=options.quiet, out=out))
        return code, out.getvalue().decode()

    return do


@pytest.mark.soak
def test_one_object_for_programs(command, tmp_path, capsys):
    code, shown = command("--events 6000 --rate 800 --repeat 1 --json --keep kept")
    tree = json.loads(shown)
    assert code == 0
    assert {"identical", "silence_s", "drain_s", "lost", "doubled", "takeovers", "counts", "events", "blocks", "rate",
            "faults", "seconds", "anomalies", "plot"} <= set(tree)  # fmt: skip
    assert set(tree["silence_s"]) == {"p50", "p99", "max"}
    assert {"kind", "at", "engine", "last", "current", "silence_s", "drained_s"} <= set(tree["faults"][0])
    assert tree["plot"] == "kept/drill.png"
    assert (tmp_path / "kept" / "drill.png").stat().st_size > 10_000
    assert capsys.readouterr().err == ""


def test_tables_and_what_happens_for_people(command, capsys):
    code, shown = command("--events 4000 --fault none")
    assert code == 0
    for words in (
        "WINDOW",
        "UNDISTURBED",
        "Aggregate24HR",
        "identical    yes",
        "nothing lost, duplicated or out of order",
    ):
        assert words in shown
    told = capsys.readouterr().err
    assert "Starting 2 engines" in told
    assert "is active; the events begin." in told
    assert "\r" not in told


@pytest.mark.soak
def test_a_difference_is_shown_and_the_code_is_one(command, monkeypatch):
    monkeypatch.setenv("STAND_IN", "wrong")
    code, shown = command("--events 6000 --rate 800 --repeat 1")
    assert code == 1
    assert "The first difference is in line" in shown
    assert "  expected  " in shown
    assert "FAILED: the file differs from that of an undisturbed run in line" in shown


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--fault meteor", UsageError),
        ("--events 0", UsageError),
        ("--rate 0", UsageError),
        ("--engines 1 --fault standby", BadArgument),
        ("--plot no/such/folder/x.png", PathMissing),
        ("--bus memory:x", UnsupportedByBackend),
        ("--keep .", BadArgument),
    ],
)
def test_what_can_not_be_is_refused_before_anything_is_started(command, tmp_path, line, error):
    (tmp_path / "there").touch()
    with pytest.raises(error):
        command(line)
