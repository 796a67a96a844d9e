"""kill -9 of the engine at any moment: the output streams are byte for byte those of a run without a kill."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sparkless_engine
from cli_command import Command

from lockstep.engine.events.columns import concat
from lockstep.engine.events.csv_format import CsvOptions, read_csv
from lockstep.engine.model.loading import load_model
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.output.event_streams import EventPublisher
from lockstep.engine.runtime.sequence.beats import last_beat
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import StreamNotFound
from lockstep.streams.client import Lockstep, connect

FRAME, BATCH, AHEAD = 150, 450, 900
TRADES = Path(__file__).parents[2] / "examples" / "trades" / "trades.yaml"
WINDOWS = ("Aggregate24HR", "Aggregate5min")
TIMEOUT_S = 240.0


@pytest.fixture
def lockstep(tmp_path, request):
    command = (Sparkless if getattr(request, "param", None) == "sparkless" else Command)(tmp_path)
    yield command
    command.close()


class Feed:
    """The trades in small frames, never far ahead of what is published: an engine that is killed is at work."""

    def __init__(self, folder: Path, client: Lockstep, events: int) -> None:
        graph = compile_project(load_model(TRADES))
        streams = ProjectStreams(cluster="local", project=graph.project.name)
        node = graph.find("TradesSource")
        streams.create(client.bus, graph, frozenset(graph.find(name).path for name in WINDOWS))
        self._publisher = EventPublisher(client, streams.input(node), node.schema)
        self._trades = concat(list(read_csv(folder / "trades.csv", node.schema, CsvOptions(), on_bad=pytest.fail)))
        self._sent, self._events = 0, events

    def up_to(self, events: int) -> None:
        until = min(events, self._events)
        if until > self._sent:
            self._publisher.publish_batch(self._trades.slice(self._sent, until), frame_events=FRAME)
            self._publisher.flush()
            self._sent = until


def published(url: str) -> int:
    try:
        with connect(url, create=False) as bus:
            return last_beat(bus.bus.open("local.trades.C")).published
    except StreamNotFound:
        return 0


def fed(feed: Feed, url: str) -> int:
    """What is published; the input is a little ahead of it."""
    found = published(url)
    feed.up_to(found + AHEAD)
    return found


def run_engine(lockstep: Command, url: str, *more: str) -> subprocess.Popen[bytes]:
    windows = ("--publish", ",".join(WINDOWS))
    return lockstep.start("engine", "run", str(TRADES), "--url", url, *windows, "--batch", str(BATCH), *more)


class Sparkless(Command):
    """Engines that run in the background have a stand-in for Spark."""

    program = (sys.executable, sparkless_engine.__file__)


def wait_for(condition, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "the engine makes no progress"
        time.sleep(0.1)  # polling another process, not timing one


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("lockstep", "kills", "events"),
    [("sparkless", 2, 3_000), pytest.param("spark", 5, 6_000, marks=pytest.mark.soak)],
    indirect=["lockstep"],
)
def test_killed_at_random_moments_it_publishes_what_it_would_have(lockstep, tmp_path, kills, events):
    # Given trades on the input stream, and what the plain interpreter makes of them
    lockstep("data", "trades", "--events", str(events), "--seed", "4", "-o", "trades.csv")
    wanted = [part for name in WINDOWS for part in ("--out", f"{name}={name}.expected.csv")]
    lockstep("model", "run", str(TRADES), "--runner", "reference", "--in", "TradesSource=trades.csv", *wanted)
    url = f"lmdb:{tmp_path / 'bus'}"
    with connect(url) as client:
        feed = Feed(tmp_path, client, events)
        # When the engine is killed again and again in the middle of its work
        chance = random.Random(20)
        for _ in range(kills):
            engine, before = run_engine(lockstep, url), published(url)
            target = before + chance.randint(1, events // (kills + 2))
            wait_for(lambda target=target: fed(feed, url) >= target, engine)
            engine.send_signal(signal.SIGKILL)
            engine.communicate()
        assert 0 < published(url) < events
        feed.up_to(events)
    # Then a last run finishes it, and both streams hold exactly the expected lines
    last = run_engine(lockstep, url, "--until-idle")
    _, errors = last.communicate(timeout=TIMEOUT_S)
    assert last.returncode == 0, errors
    for name in WINDOWS:
        lockstep("engine", "subscribe", str(TRADES), "--url", url, "--window", name, "-o", f"{name}.csv")
        assert (tmp_path / f"{name}.csv").read_bytes() == (tmp_path / f"{name}.expected.csv").read_bytes()


HANDLER = """
import pathlib

def check(event, state):
    if event.values[0] == 700 and pathlib.Path(__file__).with_name("broken").exists():
        raise RuntimeError("no such symbol")
    yield event
"""
MODEL = """
name: handled
queries:
- name: q
  windows:
  - {kind: source, name: Trades, schema: "ID*:int32,symbol:string,price:double", insert_only: true}
  - {kind: procedural, name: Checked, schema: "ID*:int32,symbol:string,price:double", module: handling, handler: check}
  edges: [Trades -> Checked]
"""


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(600)
@pytest.mark.parametrize("lockstep", ["sparkless", pytest.param("spark", marks=pytest.mark.soak)], indirect=True)
def test_a_handler_that_fails_stops_the_project_and_nothing_is_lost(lockstep, tmp_path):
    # Given a handler that fails on one event
    (tmp_path / "handling.py").write_text(HANDLER)
    (tmp_path / "broken").touch()
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "in.csv").write_text("".join(f"i,n,{n},S{n % 7},{n / 4}\n" for n in range(1, 1001)))
    lockstep.environ["PYTHONPATH"] = str(tmp_path)
    url = f"lmdb:{tmp_path / 'bus'}"
    lockstep("engine", "publish", "model.yaml", "--url", url, "--window", "Trades", "in.csv", "--block", "10")
    # When the engine meets it
    failed = lockstep.start("engine", "run", "model.yaml", "--url", url, "--until-idle", "--batch", "50")
    _, errors = failed.communicate(timeout=TIMEOUT_S)
    # Then it says window, block and event, and ends
    assert failed.returncode == 1, errors
    for word in (b"USER_CODE_FAILED", b"q/Checked", b"block 70", b"no such symbol", b"700"):
        assert word in errors, errors
    # And when the handler is fixed, it goes on as if nothing had been
    (tmp_path / "broken").unlink()
    sparkless = Sparkless(tmp_path)
    sparkless.environ = lockstep.environ
    fixed = sparkless.start("engine", "run", "model.yaml", "--url", url, "--until-idle", "--batch", "50")
    _, errors = fixed.communicate(timeout=TIMEOUT_S)
    assert fixed.returncode == 0, errors
    lockstep("engine", "subscribe", "model.yaml", "--url", url, "--window", "Checked", "-o", "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert [line.split(",")[2] for line in lines] == [str(n) for n in range(1, 1001)]
