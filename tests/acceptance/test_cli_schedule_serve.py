"""lockstep schedule serve: real processes, HTTP, kills and clean ends."""

from __future__ import annotations

import json
import os
import signal
import urllib.request

import pytest
from cli_command import Command, InProcess, read_line, until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def lockstep(tmp_path):
    command = Command(tmp_path)
    yield command
    command.close()


def started(lockstep, *arguments, nodes=1):
    """The process, and what its nodes told when they were up."""
    process = lockstep.start("schedule", "serve", "--bus", "lmdb:./s", "--http", "0", "--json", *arguments)
    return process, [json.loads(read_line(process)) for _ in range(nodes)]


def ask(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return json.load(answer)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_node_serves_and_ends_in_order(lockstep, tmp_path, number, code):
    process, [told] = started(lockstep)
    assert ask(f"{told['url']}/ping") == {"status": "OK"}
    until(lambda: list(ask(f"{told['url']}/events/cluster").values()) == ["Master"])
    here = InProcess(tmp_path)
    until(lambda: here("schedule", "add", "x", "--after", "1h", "--bus", "lmdb:./s", "--json").object["id"] == "x")
    if number == signal.SIGTERM:
        check_a_node_that_can_not_start(lockstep, here, told["url"].rpartition(":")[2])
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, b"")
    assert json.loads(out)["event"] == "stopped"


def check_a_node_that_can_not_start(lockstep, here, port):
    """It ends the command with its code: here one whose port is in use, alone and as the second of two."""
    refused = here("schedule", "serve", "--bus", "lmdb:./s", "--http", port, "--json", code=6)
    assert refused.error["code"] == "PORT_UNUSABLE"
    lockstep("schedule", "serve", "--bus", "lmdb:./s", "--http", str(int(port) - 1), "--nodes", "2", code=6)


def test_nodes_are_processes_that_are_started_again_and_end_together(lockstep):
    process, told = started(lockstep, "--nodes", "2", nodes=2)
    urls = {one["number"]: one["url"] for one in told}
    until(lambda: len(ask(f"{urls[0]}/events/cluster")) == 2)
    victim = next(one for one in told if one["number"] == 1)
    os.kill(victim["pid"], signal.SIGKILL)
    died, again = (json.loads(read_line(process)) for _ in range(2))
    assert (died["event"], died["node"], died["code"]) == ("died", 1, -9)
    assert (again["event"], again["number"]) == ("started", 1)
    assert ask(f"{again['url']}/ping") == {"status": "OK"}
    pids = [told[0]["pid"] if told[0]["number"] == 0 else told[1]["pid"], again["pid"]]
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (143, b"")
    assert json.loads(out.splitlines()[-1]) == {"event": "stopped"}
    assert [is_alive(pid) for pid in pids] == [False, False]


def test_nodes_end_when_the_process_that_watches_them_is_killed(lockstep):
    process, told = started(lockstep, "--nodes", "2", nodes=2)
    process.kill()
    process.wait(10)
    until(lambda: not any(is_alive(one["pid"]) for one in told))


def test_settings_of_bigben_are_taken_and_others_named(tmp_path):
    lockstep = InProcess(tmp_path)
    (tmp_path / "bigben.yaml").write_text("app.server.port: 70000\nevents: {receiver: {shard.size: 10}}\nnobody: 1\n")
    refused = lockstep("schedule", "serve", "--bus", "lmdb:./s", "--config", "bigben.yaml", code=2)
    assert "Accepted for compatibility, ignored: events.receiver.shard.size." in refused.err
    assert "Unknown settings, ignored: nobody." in refused.err
    assert "app.server.port = 70000 is not valid" in refused.err
    assert "no ports" in lockstep("schedule", "serve", "--http", "65535", NUM_INSTANCES="2", code=2).err
    assert "2 nodes" in lockstep("schedule", "serve", "--bus", "memory:", "--nodes", "2", code=6).err
    assert "KEY=VALUE" in lockstep("schedule", "serve", "--set", "x", code=2).err
    lockstep("schedule", "serve", "--config", "missing.yaml", code=3)
