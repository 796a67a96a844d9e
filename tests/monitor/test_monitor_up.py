"""`lockstep monitor up`: what it writes, says and runs, and that nothing of it is left when it is stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from lockstep.cli.monitor_server import closed_sockets
from lockstep.cli.monitor_settings import loaded
from lockstep.cli.output import Output
from lockstep.monitor.client import MonitorClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def until(condition, seconds=180.0):
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come in time"
        pause.wait(0.05)
    return found


def children(pid):
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [int(each) for each in listed] + [below for each in listed for below in children(int(each))]


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_agent_whose_ports_are_taken_runs_without_those_sockets(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = closed_sockets(tmp_path, {"socket": port, "http_socket": 0}, Output())
    client = loaded([asked[1]], is_client=True).client
    assert (client["socket"], "http_socket" in client) == ({"enabled": False}, False)
    assert str(port) in capsys.readouterr().err
    assert closed_sockets(tmp_path, {"socket": 0, "http_socket": 0}, Output()) == []  # any port that is free


def test_a_first_run(tmp_path):
    command = [sys.executable, "-m", "lockstep.cli.main", "monitor", "up", "first", "--http", "0", "--bus", "lmdb:./m"]
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
    try:
        until(lambda: "Sensu's API" in said.read_text() or process.poll() is not None)
        url = said.read_text().partition("curl -s ")[2].split("/events")[0]
        fleet = MonitorClient(url)
        (event,) = until(fleet.events)
        assert event["check"]["name"] == "welcome"
        log = tmp_path / "first" / "events.log"
        until(log.exists)
        (tmp_path / "welcome.txt").touch()
        until(lambda: not fleet.events())
        until(lambda: log.read_text().endswith("it is there\n"))
        below = children(process.pid)
        assert below
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code == 143
    assert said.read_text().splitlines()[-1] == f"Stopped {url}."
    until(lambda: not any(map(is_running, below)))
