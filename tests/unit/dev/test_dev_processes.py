"""Processes by pid, ports, probes, and what is written down about a server."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.dev import probes, processes
from lockstep.dev.errors import ServerDidNotStart
from lockstep.dev.node import Node, tail
from lockstep.dev.processes import Pid, Server, free_ports, identify, is_alive, is_free, send
from lockstep.dev.recipe import Process
from lockstep.errors import DataError, Unavailable
from lockstep.runtime import ThreadRuntime


def node(folder: Path, *command: str, probe=lambda _port: 1) -> Node:
    process = Process(name="thing", command=command, port=1, probe=probe)
    return Node(process, folder, ThreadRuntime(), dict(os.environ))


@pytest.fixture
def sleeper(tmp_path):
    made = node(tmp_path, "sleep", "600")
    made.start()
    yield made
    made.kill()


def test_a_process_is_known_by_when_it_started(sleeper):
    assert identify(sleeper.pid) == sleeper.running
    later = replace(sleeper.running, started=sleeper.running.started + 1)
    assert not is_alive(later)
    send(later, signal.SIGKILL)
    assert sleeper.is_alive


def test_a_process_has_a_session_of_its_own(sleeper):
    assert os.getsid(sleeper.pid) == sleeper.pid


def test_a_killed_process_is_gone_and_stopping_it_again_does_nothing(sleeper):
    sleeper.kill()
    assert not sleeper.is_alive
    assert identify(sleeper.pid) is None
    sleeper.stop()


def test_a_process_that_does_not_listen_is_killed(tmp_path):
    deaf = node(tmp_path, "sh", "-c", "trap '' TERM; touch ready; while :; do sleep 600 & wait; done",
                probe=lambda _port: int((tmp_path / "ready").exists()))  # fmt: skip
    deaf.start()
    deaf.wait_ready(30)
    deaf.stop(within_s=0.1)
    assert not deaf.is_alive


def test_a_paused_process_can_be_stopped(sleeper):
    sleeper.pause()
    sleeper.stop()
    assert not sleeper.is_alive


def test_a_process_with_busy_threads_stands_still_when_its_pause_returns(tmp_path):
    script = (
        "import hashlib, pathlib, threading\n"
        "def work():\n    while True: hashlib.sha256(bytes(1 << 20)).digest()\n"  # without Python's lock
        "for _ in range(8): threading.Thread(target=work).start()\n"
        "pathlib.Path('ready').touch()\n"
    )
    busy = node(tmp_path, sys.executable, "-c", script, probe=lambda _port: int((tmp_path / "ready").exists()))
    busy.start()
    busy.wait_ready(30)
    stats = list(Path(f"/proc/{busy.pid}/task").glob("*/stat"))
    for _ in range(20):
        busy.pause()
        assert {stat.read_text().rpartition(")")[2].split()[0] for stat in stats} == {"T"}
        busy.resume()
    busy.kill()
    assert len(stats) == 9


@pytest.fixture
def parent(tmp_path):
    """A process with a child in another session; the child's number is in the file `child`."""
    script = "setsid sh -c 'echo $$ > .child; mv .child child; exec sleep 600' & wait"
    made = node(tmp_path, "sh", "-c", script, probe=lambda _port: int((tmp_path / "child").exists()))
    made.start()
    made.wait_ready(30)
    yield made
    made.kill()


def test_children_in_sessions_of_their_own_are_paused_and_killed_too(parent):
    child = identify(int((parent.folder / "child").read_text()))
    stat = Path(f"/proc/{child.pid}/stat")
    parent.pause()
    assert stat.read_text().rpartition(")")[2].split()[0] == "T"
    parent.resume()
    assert parent._wait(lambda: stat.read_text().rpartition(")")[2].split()[0] != "T", 30)
    parent.kill()
    assert parent._wait(lambda: not is_alive(child), 30)


def test_a_process_is_asked_to_stop_in_its_own_way(tmp_path):
    command = ("sh", "-c", "trap 'touch asked; exit' INT; touch ready; while :; do sleep 600 & wait; done")
    process = Process(
        name="thing", command=command, port=1, probe=lambda _port: int((tmp_path / "ready").exists()),
        stop_signal=signal.SIGINT,
    )  # fmt: skip
    made = Node(process, tmp_path, ThreadRuntime(), dict(os.environ))
    made.start()
    made.wait_ready(30)
    made.stop()
    assert (tmp_path / "asked").exists()


def test_a_server_that_ends_at_once_is_reported_with_its_log(tmp_path):
    broken = node(tmp_path, "sh", "-c", "echo no room on the disk; exit 3", probe=lambda _port: 0)
    broken.start()
    with pytest.raises(ServerDidNotStart, match=r"thing did not start: it ended\.(.|\n)*no room on the disk"):
        broken.wait_ready(30)


def test_a_server_that_does_not_answer_is_reported_in_time(tmp_path):
    silent = node(tmp_path, "sleep", "600", probe=lambda _port: 0)
    silent.start()
    with pytest.raises(ServerDidNotStart, match=r"did not answer on 127\.0\.0\.1:1 within 0\.05 s"):
        silent.wait_ready(0.05)
    silent.kill()


def test_only_the_end_of_a_long_log_is_shown(tmp_path):
    log = tmp_path / "long.log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert tail(log).splitlines() == [f"line {number}" for number in range(9_985, 10_000)]
    assert tail(tmp_path / "none.log") == "(it printed nothing)"


def test_free_ports_are_different_and_below_those_of_outgoing_connections():
    found = free_ports(20, random.Random(1).random)
    assert len(set(found)) == 20
    assert all(is_free(port) and 10_000 <= port < 32_000 for port in found)


def test_a_port_in_use_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not is_free(taken.getsockname()[1])


def test_looking_for_ports_ends(monkeypatch):
    with pytest.raises(Unavailable, match="No 2 free ports"):
        free_ports(2, lambda: 0.5)


@contextlib.contextmanager
def answering(text: bytes):
    """A port that reads something, answers, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):  # the listener is shut when the test ends
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1_000)
                        connection.sendall(text)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


PROBES = [probes.redis, probes.kafka, probes.rabbitmq_stream, probes.hazelcast, probes.zookeeper]


@pytest.mark.parametrize("probe", PROBES)
def test_a_port_that_is_closed_or_speaks_otherwise_is_not_ready(probe):
    (port,) = free_ports(1, random.random)
    assert probe(port) == 0
    with answering(b"-LOADING the file, and a few bytes more\r\n") as other:
        assert probe(other) == 0


def test_a_server_is_written_down_and_found_again(tmp_path):
    server = Server(name="redis", url="redis://x", folder=tmp_path, ports=(1, 2), pids={"a": Pid(pid=3, started=4)})
    processes.write(server)
    assert processes.read(tmp_path) == server
    assert processes.read(tmp_path / "none") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "x", "pids": []}'])
def test_a_damaged_file_is_said_to_be_damaged(tmp_path, text):
    (tmp_path / "server.json").write_text(text)
    with pytest.raises(DataError, match=r"server\.json does not say which server is there"):
        processes.read(tmp_path)
