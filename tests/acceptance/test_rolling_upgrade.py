"""Engines of two installed versions are at work at once while a project is upgraded, one engine after the other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sparkless_engine
from cli_command import InProcess, run_here

import lockstep

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]
PATIENCE_S, LEASE_S = 120.0, 3.0
"""A lease so long that the lead does not change by itself on a busy machine."""
MODEL = """
name: small
queries:
  - name: q
    windows:
      - {kind: source, name: S, insert_only: true, schema: "id*:int64,group:string,x:double"}
      - {kind: aggregate, name: T, schema: "group*:string,s:double", fields: {s: ESP_aSum(x)}}
    edges: [S -> T]
"""
PART = 50
OURS, NEWER = Path(lockstep.__file__).parent, "99.0.0"
REPORTED = "    trims: int = 0\n"


@pytest.fixture(scope="module")
def newer(tmp_path_factory) -> Path:
    """Another installation, of a version that tells more of itself in its reports."""
    folder = tmp_path_factory.mktemp("newer")
    shutil.copytree(OURS, folder / "lockstep")
    for name, old, new in (
        ("__init__.py", f'__version__ = "{lockstep.__version__}"', f'__version__ = "{NEWER}"'),
        ("engine/runtime/control/reports.py", REPORTED, f"{REPORTED}    temperature: int = 7\n"),
    ):
        path = folder / "lockstep" / name
        text = path.read_text()
        assert old in text, name
        path.write_text(text.replace(old, new))
    return folder


class Project:
    """Engines of the small model on one bus, each of one of the two installations."""

    def __init__(self, folder: Path, newer: Path) -> None:
        self.folder, self._newer, self.lockstep = folder, newer, InProcess(folder)
        self.engines: dict[str, subprocess.Popen[bytes]] = {}
        self.lines: list[str] = []
        (folder / "m.yaml").write_text(MODEL)

    def start(self, name: str, *, is_newer: bool) -> None:
        given = {"PYTHONPATH": str(self._newer)} if is_newer else {}
        command = [sys.executable, sparkless_engine.__file__, "engine", "run", "m.yaml", "--name", name,
                   "--state", f"state-{name}", "--lease", str(LEASE_S), "--json"]  # fmt: skip
        with (self.folder / f"{name}.log").open("ab") as log:
            self.engines[name] = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **given}
            )

    def stop(self, name: str) -> None:
        process = self.engines.pop(name)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM, self.said(name)

    def publish(self) -> None:
        first = len(self.lines)
        part = [f"i,n,{number},{'ABC'[number % 3]},{number / 4}\n" for number in range(first, first + PART)]
        self.lines += part
        (self.folder / "part.csv").write_text("".join(part))
        self.lockstep("engine", "publish", "m.yaml", "part.csv")

    def until_in_step(self, *names: str, active: str | None = None) -> None:
        def is_so() -> bool:
            found = self.status()
            roles = {row["engine"]: row["role"] for row in found["engines"] if row["role"] in ("active", "standby")}
            is_led = active is None or roles.get(active) == "active"
            return (
                set(roles) == set(names) and is_led and found["problems"] == [] and found["events"] == len(self.lines)
            )

        self.until(is_so)

    def until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end, (self.status(), [self.said(name) for name in self.engines])
            for process in self.engines.values():
                with pytest.raises(subprocess.TimeoutExpired):  # it lives
                    process.wait(0.2)

    def status(self) -> dict:
        _, done = run_here(self.folder, self.lockstep.environ, ["status", "--project", "small", "--json"])
        return done.object if done.raw else {"engines": [], "problems": ["nothing yet"], "events": 0}

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-2000:]

    def close(self) -> None:
        for process in self.engines.values():
            process.kill()
            process.wait()


@pytest.fixture
def project(tmp_path, newer) -> Iterator[Project]:
    found = Project(tmp_path, newer)
    yield found
    found.close()


@pytest.mark.soak
def test_one_engine_after_the_other_is_upgraded_and_subscribers_see_nothing_of_it(project):
    # Given two engines of one version
    for name in ("a", "b"):
        project.start(name, is_newer=False)
    project.publish()
    project.until_in_step("a", "b")
    standby = next(row["engine"] for row in project.status()["engines"] if row["role"] == "standby")
    first = "a" if standby == "b" else "b"
    # When the standby is upgraded, leads, and the other one follows it and is upgraded too
    project.stop(standby)
    project.start(standby, is_newer=True)
    project.publish()
    project.until_in_step("a", "b", active=first)
    project.lockstep("engine", "handover", "--project", "small")
    project.publish()
    project.until_in_step("a", "b", active=standby)
    project.stop(first)
    project.start(first, is_newer=True)
    project.publish()
    project.until_in_step("a", "b", active=standby)
    # Then what comes out is what the interpreter says of all input
    (project.folder / "all.csv").write_text("".join(project.lines))
    run = project.lockstep("model", "run", "m.yaml", "--in", "S=all.csv", "--out", "T=-", "--runner", "reference")
    got = project.lockstep("engine", "subscribe", "m.yaml", "--window", "T", "--all", "--exit")
    assert got.out == run.out
    assert len(run.lines) > 3 * PART
