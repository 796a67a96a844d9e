"""The soak run: named parts that need minutes to hours each; `make soak`, `make soak PARTS=simulator,streams SOAK=0.1`.

Prints one line for each part (name, outcome, counts, time), writes all of it to build/soak.xml, and ends with 1 if a
part failed. What a part prints goes to build/soak-NAME.txt.

SOAK scales the run: seeds, events and examples are multiplied by it, and below 1 only every n-th test of the parts that
are made of tests runs. It is also a pytest plugin, which does that choosing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
BUILD = ROOT / "build"
TRADES = "tests/acceptance/test_document_trades.py"
SCHEDULE = (
    "tests/schedule",
    "tests/acceptance/test_schedule_kills.py",
    "tests/acceptance/test_cli_schedule_spark.py",
)
"""Tests of the scheduler: simulated seeds, kills of real processes, and loads with Spark."""
EXAMPLES, SEEDS, EVENTS = 50, 20_000, 225_000
"""By how much properties look at more examples than in make test; simulated seeds; events of a drill in the matrix."""
STEP_VARIABLE = "LOCKSTEP_SOAK_STEP"
EXAMPLES_VARIABLE = "LOCKSTEP_EXAMPLES"
_NO_TESTS = 5
_SIZES = ("tests", "failures", "errors", "skipped")


@dataclass(frozen=True)
class Part:
    """One part of the run: what it is for, and its command for a scale and a place for its JUnit file."""

    name: str
    purpose: str
    command: Callable[[float, Path], Sequence[str]]
    count: str = ""
    """In what a command prints: the words before the number of things it looked at."""


@dataclass(frozen=True)
class Outcome:
    """How a part ended."""

    part: str
    ok: bool
    counts: str
    seconds: float
    suite: ElementTree.Element

    def line(self) -> str:
        """For the summary."""
        return f"{self.part:<12} {'ok' if self.ok else 'FAILED':<7} {self.counts:<58} {self.seconds:8.0f} s"


def suite_run(*words: str, workers: int) -> Callable[[float, Path], Sequence[str]]:
    """The command of a part that is made of tests."""

    def command(_scale: float, junit: Path) -> Sequence[str]:
        several = ("-n", str(workers), "--dist", "loadgroup") if workers > 1 else ()
        return [sys.executable, "-m", "pytest", "-p", "soak", *several, f"--junitxml={junit}", *words]

    return command


def properties(scale: float, junit: Path) -> Sequence[str]:
    """Every property, with the counts of the profile soak."""
    return suite_run("--hypothesis-profile", "soak", "-m", "hypothesis", "tests", workers=2)(scale, junit)


def simulator(scale: float, _junit: Path) -> Sequence[str]:
    """Seeds of the simulator."""
    return [sys.executable, "-m", "lockstep.simulation", "--seeds", str(at_least(50, SEEDS * scale)), "--jobs", "2"]


def matrix(scale: float, _junit: Path) -> Sequence[str]:
    """Every fault on real engines."""
    return [sys.executable, "-m", "lockstep.drill.matrix", "--quiet", "--events", str(at_least(5_000, EVENTS * scale))]


PARTS = (
    Part("simulator", "the core under random faults, seed by seed", simulator, count="seeds"),
    Part("properties", "every property and the engine clusters, many examples", properties),
    Part("streams", "the streams suite on every real server", suite_run("tests/streams", "-m", "soak", workers=2)),
    Part("servers", "servers killed, paused and cut off", suite_run("tests/servers", "-m", "soak", workers=2)),
    Part("matrix", "every fault on real engines", matrix),
    Part("drills", "the drill on every bus", suite_run("tests/acceptance", "-m", "soak", "-k", "drill", workers=1)),
    Part("schedule", "the scheduler: seeds, kills, a million requests", suite_run(*SCHEDULE, "-m", "soak", workers=1)),
    Part("trades", "a million trades, however they are run", suite_run(TRADES, "-m", "", workers=1)),
    Part(
        "others",
        "everything else that is marked soak",
        suite_run(
            "tests", "-m", "soak and not hypothesis", "--ignore=tests/streams", "--ignore=tests/servers",
            *(f"--ignore={path}" for path in SCHEDULE), f"--deselect={TRADES}", "-k", "not drill", workers=2,
        ),
    ),
)  # fmt: skip


def at_least(least: int, wanted: float) -> int:
    """A scaled number that still does something."""
    return max(least, round(wanted))


def run(part: Part, scale: float) -> Outcome:
    """Run one part to its end; what it prints goes into a file."""
    junit, said = BUILD / f"soak-{part.name}.xml", BUILD / f"soak-{part.name}.txt"
    junit.unlink(missing_ok=True)
    began = time.monotonic()
    with said.open("w") as output:
        done = subprocess.run(
            part.command(scale, junit), cwd=ROOT, env=environment(scale), stdout=output, stderr=output, check=False
        )
    seconds = time.monotonic() - began
    found = suite_of(junit) if junit.exists() else suite_of_command(part, done.returncode == 0, seconds, said)
    return Outcome(part.name, done.returncode == 0, counts_of(part, found, done.returncode, said), seconds, found)


def environment(scale: float) -> dict[str, str]:
    """A missing server is a failure; fewer examples and tests in a smaller run."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    numbers = {EXAMPLES_VARIABLE: at_least(1, EXAMPLES * scale), STEP_VARIABLE: at_least(1, 1 / min(scale, 1.0))}
    return {
        **os.environ,
        "CI": "true",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        **{name: str(number) for name, number in numbers.items()},
    }


def suite_of(junit: Path) -> ElementTree.Element:
    """What pytest wrote about a part."""
    return next(ElementTree.parse(junit).iter("testsuite"))


def suite_of_command(part: Part, ok: bool, seconds: float, said: Path) -> ElementTree.Element:
    """A command as a suite of one case."""
    found = ElementTree.Element("testsuite", tests="1", failures=str(int(not ok)), errors="0", skipped="0")
    case = ElementTree.SubElement(found, "testcase", classname="soak", name=part.name, time=f"{seconds:.3f}")
    if not ok:
        ElementTree.SubElement(case, "failure", message=last_line(said)).text = said.read_text()
    return found


def counts_of(part: Part, suite: ElementTree.Element, code: int, said: Path) -> str:
    """Passed, failed and skipped tests; of a command its last line."""
    tests, failures, errors, skipped = (int(suite.get(name, "0")) for name in _SIZES)
    if suite.find("testcase[@classname='soak']") is not None:
        counted = re.search(rf"^{part.count} +([\d,]+)", said.read_text(errors="replace"), re.MULTILINE)
        return f"{counted[1]} {part.count}: {last_line(said)}" if part.count and counted else last_line(said)
    if code == _NO_TESTS:
        return "no tests were found"
    failed = failures + errors
    return f"{tests - failed - skipped} passed, {failed} failed, {skipped} skipped"


def last_line(said: Path) -> str:
    """The last line that says something, cut to fit."""
    lines = [line.strip() for line in said.read_text(errors="replace").splitlines() if line.strip()]
    return re.sub(r"\s+", " ", lines[-1])[:58] if lines else "nothing was printed"


def write_report(outcomes: Sequence[Outcome], path: Path) -> None:
    """All parts in one JUnit file."""
    suites = ElementTree.Element("testsuites")
    for outcome in outcomes:
        outcome.suite.set("name", outcome.part)
        outcome.suite.set("time", f"{outcome.seconds:.3f}")
        suites.append(outcome.suite)
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def chosen(names: str) -> list[Part]:
    """The parts with these names, all without any; SystemExit names the one that does not exist."""
    known = {part.name: part for part in PARTS}
    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(known)
    for name in wanted:
        if name not in known:
            sys.exit(f"There is no part {name!r}. The parts are: {', '.join(known)}.")
    return [known[name] for name in wanted]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts one after the other."""
    listed = "\n".join(f"  {part.name:<12} {part.purpose}" for part in PARTS)
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog=f"parts:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--parts", default="", metavar="A,B", help="only these; see below")
    parser.add_argument("--scale", type=_scale, default=1.0, metavar="X", help="do X times as much (1)")
    given = parser.parse_args(arguments)
    BUILD.mkdir(exist_ok=True)
    outcomes = []
    for part in chosen(given.parts):
        outcomes.append(run(part, given.scale))
        print(outcomes[-1].line(), flush=True)
        write_report(outcomes, BUILD / "soak.xml")
    failed = [outcome.part for outcome in outcomes if not outcome.ok]
    for name in failed:
        print(f"{name} failed; what it printed is in build/soak-{name}.txt")
    print(f"{len(outcomes)} parts, {len(failed)} failed; see build/soak.xml")
    return 1 if failed else 0


def _scale(text: str) -> float:
    value = float(text)
    if value <= 0:
        message = "a positive number is needed"
        raise argparse.ArgumentTypeError(message)
    return value


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep every n-th test in a run that is scaled down; properties are scaled by their examples instead."""
    step = int(os.environ.get(STEP_VARIABLE, "1"))
    if step > 1 and config.getoption("markexpr") != "hypothesis":
        config.hook.pytest_deselected(items=[item for number, item in enumerate(items) if number % step])
        items[:] = items[::step]


if __name__ == "__main__":
    sys.exit(main())
