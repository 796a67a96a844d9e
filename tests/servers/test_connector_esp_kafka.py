"""dfesp_fs_adapter -l kafka with a real Kafka: kafka.cfg, the cluster's streams, and publishers that stand in."""

from __future__ import annotations

import selectors
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[1] / "connectors"))
from connector_worlds import World, csv, model, until

from lockstep.esp import fs_adapter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CONFIG = """kafka
{{
hostport = "{servers}"
globalconfig = "enable.sparse.connections=false"
}}
sas
{{
hotfailover = true
failovergroup = "feed"
numbufferedmsgs = "100"
}}
"""


@pytest.fixture
def cluster(kafka_server, tmp_path, monkeypatch):
    """A project of a cluster on Kafka, and a client's file beside the data."""
    name = f"esp{uuid4().hex[:8]}"
    servers = kafka_server.url.removeprefix("kafka://").partition("?")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kafka.cfg").write_text(CONFIG.format(servers=servers))
    world = World(f"kafka://{servers}", model(), f"{name}_5555")
    world.state()
    yield name, world
    world.close()


def words(name: str) -> list[str]:
    return ["-k", "pub", "-h", f"dfESP://{name}:5555/desk/q/Trades", "-f", "in.csv", "-t", "csv", "-l", "kafka"]


def test_a_file_that_is_published_twice_is_there_once(cluster, tmp_path):
    name, world = cluster
    (tmp_path / "in.csv").write_text(csv(*range(1, 51)))
    for _ in range(2):
        assert fs_adapter.main(words(name)) == 0
    assert world.taken() == list(range(1, 51))
    assert f"{name}_5555.desk.q.Trades.I" in world.bus.names()


def test_publishers_at_the_same_time_stand_in_for_each_other(cluster, tmp_path):
    # Given two that publish the same growing file, of which one has sent its first part
    name, world = cluster
    file = tmp_path / "in.csv"
    file.write_text(csv(*range(1, 21)))
    command = [sys.executable, "-m", "lockstep.esp.fs_adapter", *words(name), "-C", "growinginputfile=true"]
    both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, bufsize=0) for _ in range(2)]
    try:
        active = both.index(_said(both, b"switched to active"))
        until(lambda: world.taken() == list(range(1, 21)))
        # When that one is killed and the file grows
        both[active].kill()
        with file.open("a") as more:
            more.write(csv(*range(21, 41)))
        # Then the other one sends the rest, and nothing twice
        assert _said([both[1 - active]], b"switched to active") is both[1 - active]
        until(lambda: world.taken() == list(range(1, 41)))
    finally:
        for process in both:
            process.kill()
            process.communicate()


def _said(processes: list[subprocess.Popen[bytes]], text: bytes) -> subprocess.Popen[bytes]:
    """The first of them that says something."""
    with selectors.DefaultSelector() as waiting:
        for process in processes:
            waiting.register(process.stderr, selectors.EVENT_READ, process)
        while found := waiting.select(60):
            for key, _ in found:
                line = key.fileobj.readline()
                assert line, "it ended"
                if text in line:
                    return key.data
    raise AssertionError("nobody said it")
