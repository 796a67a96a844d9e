"""The first page and the pages for learners work as they stand: their Python beside the commands that they show."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstep.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]

ROOT = Path(__file__).parents[2]
README, MODEL, FLEET = (ROOT / name for name in ("README.md", "docs/learn/first-model.md", "docs/learn/first-fleet.md"))
SAID = "What is wrong"


def section(page: Path, heading: str) -> str:
    return page.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def codes(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    lines = [line for block in codes(text, "console") for line in block.splitlines() if line.startswith("lockstep ")]
    return [[word for word in shlex.split(line, comments=True)[1:] if word != "&"] for line in lines]


@contextmanager
def running(folder: Path, words: list[str], until: str):
    """Have a command run in the background; it is ready when it has said `until`."""
    log = folder / "said"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "lockstep.cli.main", *words]
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    try:
        end, pause = time.monotonic() + 60, threading.Event()
        while until not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            pause.wait(0.05)
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def run(code: str) -> None:
    exec(compile(code, "page", "exec"), {"__name__": "page"})


def test_the_window_model_of_the_first_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = section(README, "Window models")
    model, feed = codes(text, "python")
    Path("desk.py").write_text(model)
    (engine,) = commands(text)
    with running(tmp_path, engine, until="switched to active"):
        run(feed)
    assert capsys.readouterr().out.splitlines() == ["insert ACME 10.0", "update_block ACME 10.375", "delete ACME 10.0"]


@pytest.mark.parametrize("page", [README, FLEET], ids=lambda page: page.name)
def test_the_fleet_of_the_first_page_and_of_the_page_for_learners(page, tmp_path, capsys):
    (code,) = [code for code in codes(page.read_text(), "python") if "MonitorClient" in code]
    words = ["monitor", "up", "--bus", "lmdb:./m", "--http", "0"]
    assert "lockstep monitor up --bus lmdb:./m" in page.read_text()
    with running(tmp_path, words, until=SAID) as log:
        url = re.findall(r"http://[\d.:]+", log.read_text())[0]
        run(code.replace("http://127.0.0.1:4567", url))
    assert "db-1 backup no backup for two days" in capsys.readouterr().out


def test_the_first_model_on_streams(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = section(MODEL, "Run it on streams")
    for name, kind in (("desk.yaml", "yaml"), ("trades.csv", "csv")):
        Path(name).write_text(codes(MODEL.read_text(), kind)[0])
    engine, publish, subscribe = commands(text)
    with running(tmp_path, engine, until="switched to active"):
        assert main(publish) == 0
        capfd.readouterr()
        assert main(subscribe) == 0
    assert [line.split(",")[2:] for line in capfd.readouterr().out.splitlines()] == [
        ["ACME", "10.0"],
        ["ACME", "10.375"],
        ["ACME", "10.0"],
        ["EMCA", "20.0"],
    ]
