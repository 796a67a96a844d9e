"""The document's own test: a million trades in blocks of one, its seven counts, the same bytes however it is run.

In `make test` the windows' fast path alone takes the million trades, and its answer is compared with the digest of the
interpreter's; in `make soak` the interpreter and Spark take them. That Spark gives the same bytes for small files,
whatever the cut and the shards, is in test_cli_model_spark.py.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from lockstep.cli.model_files import load_graph
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.columns.runner import Span
from lockstep.engine.events.csv_format import CsvOptions, read_csv, write_csv

PROGRAM = str(Path(sys.executable).with_name("lockstep"))
TRADES = Path(__file__).parents[2] / "examples" / "trades"
EVENTS = 1_000_000
COUNTS = {
    "TradesSource": 1_000_000,
    "Copy24HRRet": 1_000_000,
    "Copy1HRRet": 359_951,
    "Copy5MinRet": 29_951,
    "Aggregate24HR": 3_608,
    "Aggregate1HR": 3_068,
    "Aggregate5min": 1_941,
}
LINES = 1_996_392


DIGEST = "d5d02b751b742c44fd0695fbb20c9ce0b5d3904b5efa80d134d9ef3d98b51fe9"
"""SHA-256 of the lines of Aggregate24HR, as the interpreter writes them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("document")
    lockstep(made, "data", "trades", "--events", str(EVENTS), "--seed", "2016", "-o", "trades.csv")
    return made


def lockstep(folder: Path, *arguments: str) -> str:
    done = subprocess.run([PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(folder: Path, model: str, *how: str) -> tuple[dict[str, int], int, str]:
    """The rows of every window, the lines of Aggregate24HR, and a digest of them."""
    out = folder / "out.csv"
    told = lockstep(folder, "model", "run", str(TRADES / model), "--in", "TradesSource=trades.csv",
                    "--out", f"Aggregate24HR={out}", *how, "--json")  # fmt: skip
    windows = json.loads(told)["windows"]
    rows = {window["window"].split("/")[-1]: window["rows"] for window in windows}
    with out.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        lines = sum(1 for _ in file)
    return rows, lines, digest


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_windows_give_the_documents_counts_and_the_interpreters_bytes(folder):
    graph = load_graph(TRADES / "trades.xml")
    source, day = graph.find("TradesSource"), graph.find("Aggregate24HR")
    assert source is not None
    assert day is not None
    evaluator, digest, lines = Evaluator(graph, wanted=frozenset({day.path})), hashlib.sha256(), 0
    for batch in read_csv(folder / "trades.csv", source.schema, CsvOptions(), pytest.fail, chunk=9_999):
        span = Span(int(batch.block[0]), int(batch.block[-1]), {source.path: batch})
        out = io.BytesIO()
        lines += write_csv(evaluator.evaluate(span).outputs[day.path], out)
        digest.update(out.getvalue())
    assert {path.split("/")[-1]: counts.rows for path, counts in evaluator.counts().items()} == COUNTS
    assert (lines, digest.hexdigest()) == (LINES, DIGEST)


@pytest.mark.soak
@pytest.mark.acceptance
@pytest.mark.timeout(3600)
def test_spark_and_the_interpreter_give_the_documents_counts_for_every_cut(folder):
    expected = run(folder, "trades.xml", "--runner", "reference")
    assert expected == (COUNTS, LINES, DIGEST)
    for model, how in {"trades.py": ("--cut", "9999"), "trades.xml": ("--cut", "all")}.items():
        assert run(folder, model, *how) == expected, how


@pytest.mark.soak
@pytest.mark.acceptance
@pytest.mark.timeout(1200)
def test_many_small_cuts_change_nothing(folder, tmp_path):
    with (folder / "trades.csv").open() as trades, (tmp_path / "trades.csv").open("w") as some:
        some.writelines(islice(trades, 200_000))
    assert run(tmp_path, "trades.yaml", "--cut", "1000") == run(tmp_path, "trades.xml", "--runner", "reference")
