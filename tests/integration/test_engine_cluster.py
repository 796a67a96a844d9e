"""On a standalone Spark cluster, a master and two workers, the answer is the interpreter's, with one shard and two."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

PROGRAM = str(Path(sys.executable).with_name("lockstep"))
HOME = Path(pyspark.__file__).parent
TRADES = str(Path(__file__).parents[2] / "examples" / "trades" / "trades.yaml")
WAIT_S = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Cluster:
    """Server processes of this test alone, on loopback, ended by their pids."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._processes = folder, []
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._start("master", "deploy.master.Master", "--port", str(port), "--webui-port", str(free_port()))
        self._wait_for("master", r"I have been elected leader")
        for name in ("worker1", "worker2"):
            at = ("--cores", "1", "--memory", "1g", "--webui-port", str(free_port()), "--work-dir", str(folder / name))
            self._start(name, "deploy.worker.Worker", *at, self.url)
            self._wait_for(name, r"Successfully registered with master")

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.{kind}", "--host", "127.0.0.1", *arguments]
        environ = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
        }
        with (self.folder / f"{name}.log").open("wb") as words:
            self._processes.append(subprocess.Popen(command, stdout=words, stderr=words, env=environ))

    def _wait_for(self, name: str, words: str) -> None:
        log, end = self.folder / f"{name}.log", time.monotonic() + WAIT_S
        while not re.search(words, log.read_text()):
            assert self._processes[-1].poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)  # polling a server's log

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(30)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def trades(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trades")
    run("data", "trades", "--events", "4000", "--seed", "9", "-o", str(folder / "trades.csv"))
    run("model", "run", TRADES, "--runner", "reference", "--in", f"TradesSource={folder / 'trades.csv'}",
        "--out", f"Aggregate5min={folder / 'expected.csv'}")  # fmt: skip
    return folder


def run(*arguments: str) -> None:
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shards", [1, 2])
def test_two_workers_give_the_same_bytes(cluster, trades, tmp_path, shards):
    out = tmp_path / "out.csv"
    run("model", "run", TRADES, "--in", f"TradesSource={trades / 'trades.csv'}", "--out", f"Aggregate5min={out}",
        "--master", cluster.url, "--shards", str(shards), "--cut", "1000",
        "--conf", "spark.executor.memory=512m", "--conf", "spark.cores.max=2")  # fmt: skip
    assert out.read_bytes() == (trades / "expected.csv").read_bytes()
