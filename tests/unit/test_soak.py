"""The runner of the soak run: a line for each part, a JUnit file, an exit code."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree

import pytest

import soak

JUNIT = """<testsuites><testsuite name="pytest" tests="5" failures="{failures}" errors="0" skipped="1">
<testcase classname="a" name="b"/></testsuite></testsuites>"""


def says(*lines, code=0):
    """A part that prints lines and ends with a code."""
    program = f"import sys; print({chr(10).join(lines)!r}); sys.exit({code})"
    return lambda _scale, _junit: [sys.executable, "-S", "-c", program]


def leaves_a_report(failures):
    """A part that leaves a JUnit file."""
    program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2]); sys.exit(int(sys.argv[3]))"
    text = JUNIT.format(failures=failures)
    return lambda _scale, junit: [sys.executable, "-S", "-c", program, str(junit), text, str(int(failures > 0))]


@pytest.fixture
def parts(monkeypatch, tmp_path):
    monkeypatch.setattr(soak, "BUILD", tmp_path)
    made = (
        soak.Part("seeds", "", says("seeds   1,000 (a 5)", "No anomaly."), count="seeds"),
        soak.Part("broken", "", says("2 faults, 1 with anomalies", code=1)),
        soak.Part("tests", "", leaves_a_report(0)),
        soak.Part("failing", "", leaves_a_report(2)),
    )
    monkeypatch.setattr(soak, "PARTS", made)
    return tmp_path


def test_each_part_has_a_line_and_a_failed_one_fails_the_run(parts, capsys):
    assert soak.main([]) == 1
    lines = [" ".join(line.split()[:-2]) for line in capsys.readouterr().out.splitlines()[:4]]
    assert lines == [
        "seeds ok 1,000 seeds: No anomaly.",
        "broken FAILED 2 faults, 1 with anomalies",
        "tests ok 4 passed, 0 failed, 1 skipped",
        "failing FAILED 2 passed, 2 failed, 1 skipped",
    ]
    suites = {suite.get("name"): suite for suite in ElementTree.parse(parts / "soak.xml").iter("testsuite")}
    assert {name: suite.get("failures") for name, suite in suites.items()} == {
        "seeds": "0", "broken": "1", "tests": "0", "failing": "2",
    }  # fmt: skip
    assert "2 faults" in suites["broken"].find("testcase/failure").text


def test_parts_are_chosen_by_name(parts, capsys):
    assert soak.main(["--parts", "tests, seeds"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 parts, 0 failed; see build/soak.xml"
    with pytest.raises(SystemExit, match=r"There is no part 'test'\. The parts are: seeds, broken, tests, failing"):
        soak.main(["--parts", "test"])


@pytest.mark.parametrize(
    ("scale", "examples", "step"), [(1.0, "50", "1"), (0.1, "5", "10"), (0.001, "1", "1000"), (3, "150", "1")]
)
def test_a_scale_means_fewer_examples_and_tests(scale, examples, step):
    given = soak.environment(scale)
    assert (given[soak.EXAMPLES_VARIABLE], given[soak.STEP_VARIABLE], given["CI"]) == (examples, step, "true")


def test_the_runner_is_a_plugin_that_pytest_takes():
    manager = pytest.PytestPluginManager()
    manager.register(soak)
    manager.check_pending()
