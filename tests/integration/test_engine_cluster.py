"""On a standalone Spark cluster, a master and two workers, the answer is the interpreter's, with one shard and two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("lockstep"))
TRADES = str(Path(__file__).parents[2] / "examples" / "trades" / "trades.yaml")


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
@pytest.mark.soak
@pytest.mark.parametrize("shards", [1, 2])
def test_two_workers_give_the_same_bytes(spark_cluster, trades, tmp_path, shards):
    out = tmp_path / "out.csv"
    run("model", "run", TRADES, "--in", f"TradesSource={trades / 'trades.csv'}", "--out", f"Aggregate5min={out}",
        "--master", spark_cluster.url, "--shards", str(shards), "--cut", "1000",
        "--conf", "spark.executor.memory=512m", "--conf", "spark.cores.max=2")  # fmt: skip
    assert out.read_bytes() == (trades / "expected.csv").read_bytes()
