"""What is run once more after a failed run, and what is not."""

from __future__ import annotations

import json

import pytest

import run_again


@pytest.fixture
def executed(monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(run_again, "FAILED", tmp_path / "lastfailed")
    monkeypatch.setattr("os.execv", lambda _program, words: found.append(words))
    return found


def fail(*names):
    run_again.FAILED.write_text(json.dumps(dict.fromkeys(names, True)))


def test_what_failed_beside_real_processes_is_named_and_run_again(executed, capsys):
    fail("tests/servers/test_a.py::test_x", "tests/acceptance/test_b.py::test_y")
    run_again.main()
    assert [words[1:] for words in executed] == [["-m", "pytest", "--last-failed"]]
    assert "tests/servers/test_a.py::test_x" in capsys.readouterr().out


@pytest.mark.parametrize("names", [(), ("tests/unit/test_a.py::test_x",), ("tests/servers/a", "tests/simulation/b")])
def test_a_fault_that_needs_no_other_process_fails_the_run(names, executed):
    fail(*names)
    assert run_again.main() == 1
    assert executed == []
