"""`lockstep dev up`, `ls` and `down`, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from lockstep.dev import probes, processes
from lockstep.dev.processes import identify, is_alive
from servers.clients import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]

PROBES = {"redis": probes.redis, "hazelcast": probes.hazelcast}


@pytest.fixture
def lockstep(tmp_path):
    """Runs `lockstep dev ...` on a folder of its own; everything that runs there is ended."""

    def run(*words):
        command = [sys.executable, "-m", "lockstep.cli.main", "dev", *words, "--folder", str(tmp_path / "dev")]
        return subprocess.run(command, capture_output=True, text=True, timeout=250)

    yield run
    run("down", "all")


def lines(ended):
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize("name", ["redis", "hazelcast"])
def test_a_server_outlives_its_command_until_it_is_ended(name, lockstep):
    (up,) = lines(lockstep("up", name, "--json"))
    (pid,) = (identify(number) for number in up["pids"].values())
    assert up["running"]
    assert PROBES[name](up["ports"][0]) == 1

    (listed,) = lines(lockstep("ls", "--json"))
    assert listed == up

    assert lines(lockstep("down", name, "--json")) == [{"name": name, "ended": True}]
    assert not is_alive(pid)
    (listed,) = lines(lockstep("ls", "--json"))
    assert (listed["running"], listed["pids"]) == (False, {})


def test_up_twice_says_that_it_runs_and_keeps_it(lockstep):
    first, second = lockstep("up", "redis"), lockstep("up", "redis")
    assert "Starting redis in " in first.stderr
    assert "redis runs already" in second.stderr
    assert first.stdout == second.stdout
    assert first.stdout.split()[:4] == ["SERVER", "URL", "PID", "FOLDER"]
    assert "lockstep stream publish orders hello --bus redis://127.0.0.1:" in first.stderr


def test_data_and_ports_stay_over_down_and_up(lockstep):
    (first,) = lines(lockstep("up", "redis", "--json"))
    lines(lockstep("down", "--json"))
    (second,) = lines(lockstep("up", "redis", "--json"))
    assert second["url"] == first["url"]
    assert second["pids"] != first["pids"]


def test_a_killed_server_is_shown_as_down_and_comes_up_again(lockstep):
    (up,) = lines(lockstep("up", "redis", "--json"))
    pid = identify(up["pids"]["redis"])
    os.kill(pid.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(pid), "the server is gone")
    assert "down" in lockstep("ls").stdout
    (again,) = lines(lockstep("up", "redis", "--json"))
    assert again["running"]


def test_a_process_that_only_has_the_same_number_is_left_alone(lockstep, tmp_path):
    (up,) = lines(lockstep("up", "redis", "--json"))
    folder = tmp_path / "dev" / "redis"
    real = processes.read(folder)
    text = (folder / "server.json").read_text()
    started = real.pids["redis"].started
    (folder / "server.json").write_text(text.replace(str(started), str(started - 1)))

    ended = lockstep("down", "redis")
    assert "Nothing to end" in ended.stderr
    assert is_alive(real.pids["redis"])
    assert probes.redis(up["ports"][0]) == 1
    (folder / "server.json").write_text(text)


def test_nothing_is_there_at_first(lockstep):
    ended = lockstep("ls")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "'lockstep dev up redis' starts one" in ended.stderr
    assert lines(lockstep("ls", "--json")) == []
    assert lockstep("down").returncode == 0


def test_a_misspelt_server_is_answered_with_what_was_meant(lockstep):
    ended = lockstep("up", "kafak")
    assert ended.returncode == 2
    assert "Did you mean 'kafka'?" in ended.stderr
