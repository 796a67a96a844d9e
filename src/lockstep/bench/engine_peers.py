"""The five-minute price with other means, side by side with the engine, on the same trades in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lockstep.bench import engine_peer_bytewax, engine_peer_spark
from lockstep.bench.engine_jobs import Job, Say, alone, run_job
from lockstep.bench.engine_models import VWAP, trades
from lockstep.bench.scratch import scratch_folder

PYTHON_VARIABLE = "LOCKSTEP_BYTEWAX_PYTHON"
INSTALL = (
    "Bytewax is not installed: python -m venv ENV && ENV/bin/pip install --require-hashes -r requirements/bench.txt, "
    f"then --bytewax-python ENV/bin/python (or set {PYTHON_VARIABLE})"
)
WHAT = {
    "lockstep": "reads a durable log, exact sliding window on the clock of all events, every change of every symbol "
    "goes to an ordered out stream, recovers from kill -9",
    "bytewax": "trades in memory, a symbol's rows leave when it trades again, prices are counted and dropped; "
    "no bus, no recovery",
    "spark": "files, state in Spark's store, a symbol's rows leave when it trades again, prices are dropped; "
    "no order of the output, no bus",
}
_TIMEOUT_S = 1800.0


def side_by_side(
    events: int, batch_events: int, bytewax_python: str | None, say: Say, lockstep: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Events a second of each, and how many times as fast the engine is."""
    found = lockstep or run_job(Job(case="five", wanted=(VWAP,), events=events, batch_events=batch_events), say)
    ours = {"events_per_s": found["steady_events_per_s"], "outputs": found["events_out"][VWAP]}
    say("Bytewax")
    bytewax = run_bytewax(events, bytewax_python)
    say("a hand-written Structured Streaming job")
    spark = run_spark(events, batch_events, say)
    return {
        "events": events,
        "lockstep": {**ours, "what": WHAT["lockstep"]},
        "bytewax": {**bytewax, "what": WHAT["bytewax"]},
        "spark": {"events_per_s": spark["steady_events_per_s"], **spark, "what": WHAT["spark"]},
        "ratio_to_bytewax": _ratio(ours["events_per_s"], bytewax.get("events_per_s")),
        "ratio_to_spark": _ratio(ours["events_per_s"], spark["steady_events_per_s"]),
    }


def _ratio(ours: int | None, theirs: int | None) -> float | None:
    return round(ours / theirs, 2) if ours and theirs else None


def run_bytewax(events: int, python: str | None) -> dict[str, Any]:
    """Run the program with a Python that has Bytewax; without one, say how to get it."""
    chosen = python or os.environ.get(PYTHON_VARIABLE) or sys.executable
    if not _has_bytewax(chosen):
        return {"missing": INSTALL}
    with scratch_folder() as folder:
        write_lines(folder / "trades.tsv", events)
        done = subprocess.run(  # noqa: S603 - the program is ours, the Python the user's own choice
            [chosen, "-I", engine_peer_bytewax.__file__, str(folder / "trades.tsv")],
            capture_output=True, text=True, timeout=_TIMEOUT_S, check=True,
        )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _has_bytewax(python: str) -> bool:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own choice
            [python, "-I", "-c", "import bytewax.dataflow"], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0


def write_lines(path: Path, events: int) -> None:
    """The trades as lines of symbol, second, price, quantity."""
    with path.open("w") as file:
        for batch in trades(events):
            columns = (batch.column(name).to_pylist() for name in ("symbol", "udate", "price", "quantity"))
            file.writelines(f"{a}\t{b}\t{c!r}\t{d}\n" for a, b, c, d in zip(*columns, strict=True))


def run_spark(events: int, batch_events: int, say: Say) -> dict[str, Any]:
    """Run the job in a process of its own."""
    with scratch_folder() as folder:
        found: dict[str, Any] = alone(engine_peer_spark.run, str(folder), events, batch_events, say=say)
    return found
