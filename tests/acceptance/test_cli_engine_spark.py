"""An engine at work: it is fed while it runs, stopped, looked at, and started again."""

from __future__ import annotations

import json
import os
import signal

import pytest
from cli_command import Command, read_line
from cli_models import put_trades, trade

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(900)]
LONG = 300.0
SUBSCRIBE = ("engine", "subscribe", "trades.yaml", "--window", "Aggregate5min")


@pytest.fixture
def lockstep(tmp_path):
    put_trades(tmp_path)
    command = Command(tmp_path)
    yield command
    command.close()


def reference(lockstep, lines) -> bytes:
    (lockstep.folder / "all.csv").write_text(lines)
    run = ("model", "run", "trades.yaml", "--in", "TradesSource=all.csv", "--runner", "reference")
    return lockstep(*run, "--out", "Aggregate5min=-").raw


def next_event(process, event):
    """The next line of JSON of one kind."""
    while True:
        line = json.loads(read_line(process, LONG))
        if line["event"] == event:
            return line


@pytest.mark.soak
def test_an_engine_is_fed_stopped_and_goes_on(lockstep, tmp_path) -> None:
    first = "".join(trade(number, symbol=f"S{number % 7}", second=number) for number in range(1, 201))
    second = "".join(trade(number, symbol=f"S{number % 7}", second=number * 2) for number in range(201, 401))
    # Given an engine that waits for events
    process = lockstep.start("engine", "run", "trades.yaml", "--publish", "Aggregate5min", "--json")
    ready = next_event(process, "ready")
    assert ready["outputs"] == {"trades/Aggregate5min": "local.trades.trades.Aggregate5min.O"}
    # When events are published, then a subscriber gets what the interpreter says, while it runs
    lockstep("engine", "publish", "trades.yaml", "-", given=first)
    follower = lockstep.start(*SUBSCRIBE, "--follow")
    wanted = reference(lockstep, first).splitlines(keepends=True)
    assert [read_line(follower, LONG) for _ in wanted] == wanted
    # When it and everything of its process group are told to end, as timeout does it, then it says how far it was
    os.killpg(process.pid, signal.SIGTERM)
    stopped = next_event(process, "stopped")
    assert process.wait(LONG) == 143
    assert (stopped["reason"], stopped["events"], stopped["lag"]) == ("signal", 200, 0)
    assert stopped["windows"][0]["rows"] == 200
    # Then the state is refused to another model
    other = (tmp_path / "trades.yaml").read_text().replace("5 minutes", "6 minutes")
    (tmp_path / "other.yaml").write_text(other)
    assert "[MODEL_MISMATCH]" in lockstep("engine", "run", "other.yaml", "--publish", "Aggregate5min", code=4).err
    # When more is published, and it is started again until nothing is left
    lockstep("engine", "publish", "trades.yaml", "-", given=second)
    go_on = ("engine", "run", "trades.yaml", "--publish", "Aggregate5min", "--until-idle")
    shown = lockstep(*go_on, timeout=LONG)
    assert ["trades/TradesSource", "source", "400", "400", "400", "0"] in [line.split() for line in shown.lines]
    assert "Stopped after block 400, 400 events." in shown.err
    # Then all of it is there, once, and the status says so
    assert lockstep(*SUBSCRIBE).raw == reference(lockstep, first + second)
    assert "Wrote" in lockstep(*SUBSCRIBE, "-o", "out.csv").out
    assert (tmp_path / "out.csv").read_bytes() == reference(lockstep, first + second)
    status = lockstep("engine", "status", "--project", "trades", "--json", code=1).object  # it was stopped
    assert (status["published"], status["events"], status["sequenced"]) == (400, 400, 400)
    assert "trades/Aggregate5min" in lockstep("engine", "status", "--project", "trades", code=1).out
    events = [json.loads(line) for line in lockstep(*SUBSCRIBE, "--json").lines]
    assert events[0]["opcode"] == "insert"
    assert len(events) == len(lockstep(*SUBSCRIBE).lines)
