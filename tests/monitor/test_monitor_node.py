"""Servers of a monitor in this process: settings that are put in force, and what is left when a server stops."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from lockstep.monitor import node as module
from lockstep.monitor.node import MonitorNode, NodeOptions
from lockstep.monitor.settings.settings import Host, load
from lockstep.streams.client import connect
from lockstep.streams.deliveries import Deliveries

pytestmark = pytest.mark.slow
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def until(condition, seconds=20.0):
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come in time"
        pause.wait(0.02)
    return found


@pytest.fixture
def bus(tmp_path):
    with connect(f"lmdb:{tmp_path / 'bus'}", create=True) as made:
        yield made


class Server:
    """The settings of a server in a file, and a node that reads them."""

    def __init__(self, bus, folder, name, handlers):
        self.folder, self.bus, self.name = folder, bus, name
        self.file = folder / f"{name}.json"
        self.write(handlers)
        self.node = MonitorNode(
            bus, self.read(), ENVIRONMENT,
            NodeOptions(folder=folder / name, runner="local", engine_name=name), reread=self.read,
        )  # fmt: skip

    def write(self, handlers, **more):
        self.file.write_text(json.dumps({"handlers": handlers, **more}))

    def read(self):
        return load([self.file], {}, host=Host("h", "127.0.0.1"), is_client=False)

    def put_in_force(self):
        assert self.node.orders.wait(self.node.orders.send("settings", self.read().order("ann")), 10)
        until(lambda: (self.node.check(), self.node.settings.document == self.read().document)[1])

    def fail(self, output, handler="log"):
        check = {"name": "disk", "status": 2, "output": output, "issued": 1, "executed": 1, "handlers": [handler]}
        self.node.orders.send("result", {"client": "web-1", "check": check})


def writes(path):
    return {"type": "pipe", "command": f"cat >> {path}", "mutator": "only_check_output"}


def lines(path):
    return path.read_text() if path.exists() else ""


def test_commands_of_handlers_are_read_again_when_settings_are_put_in_force(bus, tmp_path, caplog):
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    server = Server(bus, tmp_path, "one", {"log": writes(first)})
    with server.node as node:
        server.fail("a")
        until(lambda: lines(first) == "a")
        before = node.status()["settings"]
        server.write({"log": writes(second), "more": writes(second)})
        server.put_in_force()
        assert node.status()["settings"] != before
        server.fail("b")
        server.fail("c", "more")
        until(lambda: sorted(lines(second)) == ["b", "c"])
        assert lines(first) == "a"

        server.write({"log": writes(first), "more": writes(second)})  # only a command: the digest stays
        digest = node.status()["settings"]
        until(lambda: node.view.row("counters")["time"] > node.view.row("settings")["time"])
        server.put_in_force()
        assert node.status()["settings"] == digest
        server.fail("d")
        until(lambda: lines(first) == "ad")

        server.file.write_text('{"handlers": {"log": {"type": "none"}}}')
        node.orders.wait(node.orders.send("settings", {"settings": {}, "digest": "other", "by": "ann"}), 10)
        until(lambda: (node.check(), "are not valid, and stay as they were" in caplog.text)[1])
        until(lambda: "Settings in force differ" in caplog.text)
        assert node.settings.document["handlers"]["log"]["command"] == f"cat >> {first}"


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_one_that_stops_hands_the_lead_over_first_and_leaves_no_command(bus, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HANDLERS_END_S", 0.3)
    pids = tmp_path / "pids"
    handler = {"log": {"type": "pipe", "command": f"cat > /dev/null; echo $$ >> {pids}; sleep 600"}}
    first, second = (Server(bus, tmp_path, name, handler) for name in ("one", "two"))
    with ExitStack() as closing:
        closing.enter_context(first.node)
        closing.enter_context(second.node)
        until(lambda: len(second.node.servers()) == 2)
        roles = {each["name"]: each["role"] for each in second.node.servers()}
        assert roles == {"one": "active", "two": "standby"}
        first.fail("a")
        until(lambda: lines(pids).strip())
        closing.pop_all()
        first.node.close()
        assert second.node.engine.role == "active"
        started = until(lambda: found if len(found := lines(pids).split()) == 2 else None)
        assert not is_running(int(started[0]))
        doubts = Deliveries(bus, second.node.project.notices, "monitor.handlers").doubts()
        second.node.close()
    assert not any(is_running(int(pid)) for pid in lines(pids).split())
    assert len(doubts) == 1
