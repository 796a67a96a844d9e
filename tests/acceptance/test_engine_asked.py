"""Two real engines are asked for everything that can be asked, over the bus and over REST, and go on meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import sparkless_engine
from cli_command import PROGRAM, InProcess
from cli_models import put_trades

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(900)]
PATIENCE_S, LEASE_S = 240.0, 3.0
"""A lease so long that the lead does not change by itself on a busy machine."""


class Pair:
    """Two engines of the trades model on one bus, as processes."""

    def __init__(self, folder: Path, program: Sequence[str]) -> None:
        self.folder, self.lockstep, self._program = folder, InProcess(folder), program
        self.model = "trades.yaml"
        """The file of the model in force."""
        put_trades(folder)
        self.lockstep("data", "trades", "--events", "2000", "--seed", "1", "-o", "trades.csv")
        self.processes = [self._start(name) for name in ("e1", "e2")]
        self.until(lambda: self._is_whole(), "one active and one standby in step")

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        command = [*self._program, "engine", "run", "trades.yaml", "--name", name, "--state", f"state-{name}", "--json",
                   "--publish", "Aggregate24HR", "--persist-to", "snapshots", "--http", "0",
                   "--lease", str(LEASE_S)]  # fmt: skip
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _is_whole(self) -> bool:
        found = self.status()
        return {row["role"] for row in found["engines"]} == {"active", "standby"} and found["problems"] == []

    def status(self) -> dict:
        command = [PROGRAM, "status", "--project", "trades", "--json"]
        said = subprocess.run(command, cwd=self.folder, capture_output=True, timeout=60, check=False).stdout
        return json.loads(said) if said else {"engines": [], "problems": ["nothing yet"]}

    def ask(self, verb: str, *more: str) -> dict:
        return self.lockstep("engine", verb, "--project", "trades", "--json", *more).object

    def until(self, done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, (what, self.status(), (self.folder / "e1.log").read_text()[-2000:])
            for process in self.processes:
                with pytest.raises(subprocess.TimeoutExpired):  # it lives
                    process.wait(0.5)

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(60)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((sys.executable, sparkless_engine.__file__), id="sparkless"),
        pytest.param((PROGRAM,), id="spark", marks=pytest.mark.soak),
    ],
)
def pair(request, tmp_path_factory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"), request.param)
    try:
        yield pair
    finally:
        pair.stop()


def test_everything_that_is_asked_is_answered_and_the_engines_go_on(pair):
    # Everything that was published before is out when it returns
    pair.lockstep("engine", "publish", "trades.yaml", "trades.csv")
    assert pair.ask("quiesce") == {"block": 2000, "events": 2000}
    # One of them writes a snapshot, and it is the standby, if that is heard
    pair.until(pair._is_whole, "the standby is in step")
    written = pair.ask("persist")
    standby = next(row["engine"] for row in pair.status()["engines"] if row["role"] == "standby")
    assert (written["engine"], written["block"]) == (standby, 2000)
    assert len(list((pair.folder / "snapshots").iterdir())) == 1
    # The lead changes hands when it is asked for
    assert pair.ask("handover")["standbys"] == [standby]
    pair.until(lambda: _role(pair, standby) == "active", "the standby leads")
    pair.until(lambda: pair.status()["problems"] == [], "both are in step")
    # A stopped project takes nothing, and goes on with it later
    assert pair.ask("state", "stopped") == {"state": "stopped"}
    pair.lockstep("engine", "publish", "trades.yaml", _more(pair, 2001))
    assert pair.status()["published"] == 2000
    assert pair.ask("state", "running") == {"state": "running"}
    assert pair.ask("quiesce")["block"] == 2001


def test_another_model_takes_over_at_one_block_or_is_refused_with_every_reason(pair):
    model = (pair.folder / "trades.yaml").read_text()
    changed = model.replace("ESP_aMin(price)", "ESP_aMax(price)", 1)
    assert changed != model
    (pair.folder / "changed.yaml").write_text(changed)
    assert pair.lockstep("engine", "replace", "changed.yaml", "--yes", "--json").object["changed"]
    pair.model = "changed.yaml"
    pair.until(lambda: len({row["model"] for row in pair.status()["engines"]}) == 1, "both have the new model")
    # An engine with a model that never was in force is refused, those that run go on
    (pair.folder / "never.yaml").write_text(model.replace("ESP_aMin(price)", "ESP_aSum(price)", 1))
    refused = pair.lockstep("engine", "run", "never.yaml", "--state", "other", "--until-idle", code=4)
    assert "MODEL_MISMATCH" in refused.err
    (pair.folder / "bad.yaml").write_text(changed.replace("quantity: int32", "quantity: int64", 1))
    assert (pair.folder / "bad.yaml").read_text() != changed
    said = pair.lockstep("engine", "replace", "bad.yaml", "--yes", code=4)
    assert "MODEL_NOT_REPLACEABLE" in said.err
    assert "TradesSource" in said.err


def test_rest_says_the_same_as_the_status(pair):
    pair.until(lambda: all(_is_primary(row) == (row["role"] == "active") for row in pair.status()["engines"]), "alike")
    for row in pair.status()["engines"]:
        with urllib.request.urlopen(f"{row['http']}/eventStreamProcessing/v1/windows", timeout=20) as answer:
            assert b'<window-source contquery="trades"' in answer.read()


def test_bad_requests_change_nothing(pair):
    before = pair.ask("quiesce")["block"]
    unknown = pair.lockstep("engine", "quiesce", "--project", "trade", code=3)
    assert "Did you mean 'trades'" in unknown.err
    (pair.folder / "a-file").write_text("")
    assert "SNAPSHOT_FOLDER_UNUSABLE" in pair.lockstep("engine", "persist", "--to", "a-file", code=6).err
    assert pair.ask("quiesce")["block"] == before


def test_a_day_begins_with_empty_windows_and_the_numbers_go_on(pair):
    before = pair.ask("quiesce")["block"]
    assert pair.ask("reset", "--yes")["block"] == before
    pair.lockstep("engine", "publish", pair.model, _more(pair, 2002))
    assert pair.ask("quiesce")["block"] == before + 1


def _is_primary(row: dict) -> bool:
    with urllib.request.urlopen(f"{row['http']}/eventStreamProcessing/v1/server", timeout=20) as answer:
        return b'primary-server="true"' in answer.read()


def test_an_engine_is_stopped_by_its_folder_and_the_other_leads(pair):
    assert pair.lockstep("engine", "stop", "state-e1", "--json").object["stopped"]
    assert pair.processes[0].wait(60) == 143
    pair.until(lambda: _role(pair, "e2") == "active", "the other leads")


def _role(pair: Pair, name: str) -> str:
    return next((row["role"] for row in pair.status()["engines"] if row["engine"] == name), "")


def _more(pair: Pair, number: int) -> str:
    first = (pair.folder / "trades.csv").read_text().splitlines()[-1]
    fields = first.split(",")
    (pair.folder / "more.csv").write_text(",".join([*fields[:2], str(number), *fields[3:]]) + "\n")
    return "more.csv"
