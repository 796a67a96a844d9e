"""The same bytes from Spark, and in one process, as from the plain interpreter, whatever the cut and the shards."""

from __future__ import annotations

import pytest
from cli_command import Command
from cli_models import put_trades

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(600)]
WINDOWS = ("Copy5MinRet", "Aggregate5min", "Aggregate24HR")


@pytest.fixture(scope="module")
def lockstep(tmp_path_factory) -> Command:
    folder = tmp_path_factory.mktemp("models")
    put_trades(folder)
    command = Command(folder)
    command("data", "trades", "--events", "3000", "--seed", "5", "-o", "trades.csv")
    lines = (folder / "trades.csv").read_text().splitlines()
    lines[1500:1503] = ["I,N,oops", lines[1501].replace(",N,1502,", ",N,99999999999,"), lines[3]]
    (folder / "trades.csv").write_text("\n".join(lines) + "\n")
    return command


def run(lockstep, name, *how):
    """The counts and bad lines of a run, and the bytes that it wrote."""
    outputs = [part for window in WINDOWS for part in ("--out", f"{window}={name}-{window}.csv")]
    feed = ("--in", "TradesSource=trades.csv", "--json")
    done = lockstep("model", "run", "trades.yaml", *feed, *outputs, *how, timeout=500).object
    told = {key: done[key] for key in ("events", "blocks", "windows", "lines", "bad_lines", "refused")}
    return told, [(lockstep.folder / f"{name}-{window}.csv").read_bytes() for window in WINDOWS]


@pytest.fixture(scope="module")
def wanted(lockstep):
    return run(lockstep, "reference", "--runner", "reference")


def test_the_reference_counts_what_is_bad(wanted) -> None:
    told, _ = wanted
    assert (told["events"], told["bad_lines"]["total"]) == (2998, 2)
    assert told["windows"][0]["bad"] == {"duplicate-key": 1}
    assert [(item["window"], item["reason"]) for item in told["refused"]] == [("trades/TradesSource", "duplicate-key")]


@pytest.mark.parametrize(("cut", "shards"), [("999", "2"), pytest.param("all", "1", marks=pytest.mark.soak)])
def test_spark_gives_the_same_bytes_and_counts(lockstep, wanted, tmp_path, cut, shards) -> None:
    lockstep.environ["TMPDIR"] = str(tmp_path)
    assert run(lockstep, f"spark-{cut}", "--cut", cut, "--shards", shards) == wanted
    assert list(tmp_path.glob("lockstep-run-*")) == [], "the run's state is gone"


@pytest.mark.parametrize(("cut", "shards"), [("50", "1"), ("999", "2"), ("all", "1")])
def test_batches_in_one_process_give_the_same_bytes_and_counts(lockstep, wanted, cut, shards) -> None:
    assert run(lockstep, f"local-{cut}", "--runner", "local", "--cut", cut, "--shards", shards) == wanted


def test_settings_of_spark_are_refused_where_spark_does_not_run(lockstep) -> None:
    words = ("model", "run", "trades.yaml", "--in", "TradesSource=trades.csv", "--runner", "local")
    done = lockstep(*words, "--conf", "spark.driver.memory=2g", code=2)
    assert "--master and --conf are for Spark: leave them out with --runner local" in done.err
