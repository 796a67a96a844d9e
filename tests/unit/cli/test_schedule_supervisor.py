"""The process that watches the nodes of `lockstep schedule serve --nodes N`."""

from __future__ import annotations

import argparse
import io
import json
import sys
import threading

import pytest

from lockstep.cli.output import Output
from lockstep.cli.schedule_serve import Stopping, Supervisor

UP = {"event": "started", "url": "http://h:1", "scheduler": "s", "bus": "b", "node": "n"}
TELLS = f"print({json.dumps(UP)!r}, flush=True)"


class Told(io.BytesIO):
    """What was printed, and an event for whoever waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_there = threading.Event()

    def flush(self) -> None:
        self.is_there.set()


class Scripted(Supervisor):
    """Watches a script in place of a node."""

    script = ""

    def _command(self, child):
        return [sys.executable, "-c", f"import sys\n{self.script}"]


@pytest.fixture
def supervised(monkeypatch):
    """Run a script as the only node; what was told, and the exit code, once it has told something."""
    monkeypatch.setenv("LOCKSTEP_BUS", "memory:")

    def run(script):
        out, stopping, codes = Told(), Stopping(), []
        options = argparse.Namespace(bus=None, store=None, settings={})
        made = Scripted(options, Output(json=True, out=out), stopping, 0, 1)
        made.script = script
        thread = threading.Thread(target=lambda: codes.append(made.run()))
        thread.start()
        assert out.is_there.wait(30)
        stopping.ask(143)
        thread.join(30)
        return [json.loads(line) for line in out.getvalue().splitlines()], codes

    return run


PRINTED = [
    "hello", "[1, 2]", "7", "null", '{"event": "started"}', '{"event": ["started"]}', "\xff",
]  # fmt: skip
LONG = {"x": 200_000, "[": 50_000}


def test_what_processors_print_is_passed_on_and_stops_no_node(supervised, capsys):
    # Given a node whose processors print all kinds of lines before it is up
    lines = [repr(text) for text in PRINTED] + [f"{text!r} * {count}" for text, count in LONG.items()]
    script = "".join(f"print({line}, flush=True)\n" for line in lines) + TELLS + "\nsys.stdin.read()"
    # When it tells that it is up
    told, codes = supervised(script)
    # Then that is what the command tells
    assert [(one["event"], one.get("url")) for one in told] == [("started", "http://h:1"), ("stopped", None)]
    assert codes == [143]
    # And the rest is on standard error
    printed = capsys.readouterr().err
    assert all(text in printed for text in [*PRINTED, *(text * count for text, count in LONG.items())])


def test_a_node_that_never_was_up_ends_the_command_with_its_code(supervised):
    told, codes = supervised("sys.exit(6)")
    assert (told, codes) == ([{"event": "stopped"}], [6])
