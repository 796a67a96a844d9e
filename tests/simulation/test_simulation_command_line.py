"""What the simulator prints, and how it exits."""

from __future__ import annotations

import json

import pytest

from lockstep.simulation.__main__ import main
from lockstep.simulation.checks import NAMES
from lockstep.simulation.faults import KINDS
from lockstep.simulation.run import run_seed

pytestmark = [pytest.mark.sim, pytest.mark.slow]
BROKEN = "retry-without-producer-sequence"


@pytest.fixture(scope="module")
def failing_seed() -> int:
    return next(seed for seed in range(200) if run_seed(seed, BROKEN).anomalies)


def test_a_clean_run_shows_every_kind_with_its_count_and_exits_zero(capsys) -> None:
    # When a few seeds are run
    code = main(["--seeds", "4"])
    out = capsys.readouterr().out
    # Then each fault and each anomaly has a row, zero or not
    assert code == 0
    assert all(name in out for name in (*KINDS, *NAMES))
    assert "seeds/s" in out
    assert out.endswith("No anomaly.\n")


def test_a_failing_seed_is_printed_with_the_command_that_replays_it(capsys, failing_seed) -> None:
    # Given a seed that fails in a broken variant
    # When it is run among others
    code = main(["--seeds", "2", "--start", str(failing_seed), "--variant", BROKEN])
    out = capsys.readouterr().out
    command = next(line.strip() for line in out.splitlines() if "--trace" in line)
    # Then the exit code says so, and the command shows it again, event by event
    assert code == 1
    assert command == f"python -m lockstep.simulation --seed {failing_seed} --variant {BROKEN} --trace"
    assert main(command.split()[3:]) == 1
    assert "ANOMALY" in capsys.readouterr().out


def test_json_has_everything(capsys, failing_seed) -> None:
    code = main(["--seeds", "1", "--start", str(failing_seed), "--variant", BROKEN, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert set(report["faults"]) == set(KINDS)
    assert set(report["anomalies"]) == set(NAMES)
    assert report["failed"][0]["seed"] == failing_seed
    assert report["failed"][0]["anomalies"]


def test_one_seed_without_a_trace_is_a_run_of_one(capsys) -> None:
    assert main(["--seed", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == 1


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--start", "-1"], ["--variant", "none"], ["--jobs", "x"]])
def test_a_bad_argument_is_refused(arguments, capsys) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_progress_is_shown_to_a_person(capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    main(["--seeds", "2"])
    assert "2/2" in capsys.readouterr().err
