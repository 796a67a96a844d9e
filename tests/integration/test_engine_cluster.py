"""On a standalone Spark cluster, a master and two workers, the answer is the interpreter's, with one shard and two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.bench import engine_kernel
from lockstep.bench.engine_jobs import Job
from lockstep.bench.engine_shards_spark import on_spark

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


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.soak
def test_work_divides_over_the_shards_of_a_cluster(spark_cluster):
    # Given trades enough that what each Python process does once does not count much
    settings = {"spark.executor.memory": "768m", "spark.cores.max": "4"}
    job = Job(case="seven", wanted=engine_kernel.ALL_THREE, events=2_300_000, master=spark_cluster.url, spark=settings,
              warm_batches=5, snapshot_every_s=1e6)  # fmt: skip
    # When they are evaluated with one shard, two and four, on two workers
    found = on_spark(job, (1, 2, 4), print)["shards"]
    # Then the windows hold the same rows, and the work of the busiest shard gets less
    assert found["1"]["rows"] == found["2"]["rows"] == found["4"]["rows"]
    assert found["4"]["longest_s"] < found["2"]["longest_s"] < found["1"]["longest_s"]
