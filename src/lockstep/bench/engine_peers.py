"""The five-minute price and a join with other means, beside the engine, on the same trades in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.bench import engine_peer_bytewax, engine_peer_flink, engine_peer_pathway, engine_peer_spark
from lockstep.bench.engine_jobs import Job, Say, alone, run_job
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.data.models import NAMED, VWAP, traders, trades

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
    "lockstep_join": "reads a durable log, the table is state, every joined row goes to an ordered out stream, "
    "recovers from kill -9",
    "bytewax_join": "table and trades in memory, joined rows are counted and dropped; no bus, no recovery",
    "pathway_join": "table and trades in memory, joined as two tables at once, rows are counted and dropped; no bus, "
    "no recovery",
    "flink_join": "SQL over files read by Flink, one slot, both sides are state, rows are dropped; no checkpoints",
    "flink": "SQL over a file read by Flink, one slot, rows of a symbol leave when it trades again, prices are "
    "dropped; no checkpoints",
    "spark": "files, state in Spark's store, a symbol's rows leave when it trades again, prices are dropped; "
    "no order of the output, no bus",
}
_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Other:
    """A program with another means, for a Python that has it, which an environment variable names."""

    name: str
    module: str
    program: str
    variable: str


OTHERS = {
    "pathway": Other("Pathway", "pathway", engine_peer_pathway.__file__, "LOCKSTEP_PATHWAY_PYTHON"),
    "flink": Other("PyFlink", "pyflink.table", engine_peer_flink.__file__, "LOCKSTEP_FLINK_PYTHON"),
}
"""Means that are compared where they are installed."""


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
    say("PyFlink")
    flink = run_other("flink", events, write_price)
    return {
        "events": events,
        "lockstep": {**ours, "what": WHAT["lockstep"]},
        "bytewax": {**bytewax, "what": WHAT["bytewax"]},
        "spark": {"events_per_s": spark["steady_events_per_s"], **spark, "what": WHAT["spark"]},
        "ratio_to_bytewax": _ratio(ours["events_per_s"], bytewax.get("events_per_s")),
        "flink": {**flink, "what": WHAT["flink"]},
        "ratio_to_spark": _ratio(ours["events_per_s"], spark["steady_events_per_s"]),
        "ratio_to_flink": _ratio(ours["events_per_s"], flink.get("events_per_s")),
    }


def join_side_by_side(events: int, bytewax_python: str | None, say: Say, lockstep: dict[str, Any]) -> dict[str, Any]:
    """The join of a stream to a table: events a second of each, and how many times as fast the engine is."""
    ours = {"events_per_s": lockstep["steady_events_per_s"], "outputs": lockstep["events_out"][NAMED]}
    say("Bytewax")
    theirs = {"bytewax": run_bytewax(events, bytewax_python, write_join)}
    for key, other in OTHERS.items():
        say(other.name)
        theirs[key] = run_other(key, events, write_join)
    return {
        "events": events,
        "lockstep": {**ours, "what": WHAT["lockstep_join"]},
        **{key: {**found, "what": WHAT[f"{key}_join"]} for key, found in theirs.items()},
        **{f"ratio_to_{key}": _ratio(ours["events_per_s"], each.get("events_per_s")) for key, each in theirs.items()},
    }


def _ratio(ours: int | None, theirs: int | None) -> float | None:
    return round(ours / theirs, 2) if ours and theirs else None


def write_price(folder: Path, events: int) -> list[Path]:
    """The input of the price."""
    write_lines(folder / "trades.tsv", events)
    return [folder / "trades.tsv"]


def write_join(folder: Path, events: int) -> list[Path]:
    """The input of the join: trades, and the table."""
    write_lines(folder / "trades.tsv", events, ("ID", "symbol", "price", "quantity", "buyer"))
    table = traders()
    with (folder / "traders.tsv").open("w") as file:
        columns = (table.column(name).to_pylist() for name in table.schema.names)
        file.writelines("\t".join(map(str, row)) + "\n" for row in zip(*columns, strict=True))
    return [folder / "trades.tsv", folder / "traders.tsv"]


def run_bytewax(
    events: int, python: str | None, write: Callable[[Path, int], list[Path]] = write_price
) -> dict[str, Any]:
    """Run the program with a Python that has Bytewax; without one, say how to get it."""
    chosen = python or os.environ.get(PYTHON_VARIABLE) or sys.executable
    if not _has(chosen, "bytewax.dataflow"):
        return {"missing": INSTALL}
    return _run(chosen, engine_peer_bytewax.__file__, events, write)


def run_other(key: str, events: int, write: Callable[[Path, int], list[Path]]) -> dict[str, Any]:
    """Run a program with the Python that is named as one that has what it needs."""
    other = OTHERS[key]
    chosen = os.environ.get(other.variable, "")
    if not _has(chosen, other.module):
        return {"missing": f"{other.name} is not installed: set {other.variable} to a Python that has it"}
    return _run(chosen, other.program, events, write)


def _run(python: str, program: str, events: int, write: Callable[[Path, int], list[Path]]) -> dict[str, Any]:
    with scratch_folder() as folder:
        paths = write(folder, events)
        done = subprocess.run(  # noqa: S603 - the program is ours, the Python the user's own choice
            [python, "-I", program, *map(str, paths)],
            capture_output=True, text=True, timeout=_TIMEOUT_S, check=True,
        )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _has(python: str, module: str) -> bool:
    if not python:
        return False
    try:
        done = subprocess.run(  # noqa: S603 - the user's own choice
            [python, "-I", "-c", f"import {module}"], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0


def write_lines(path: Path, events: int, names: Sequence[str] = ("symbol", "udate", "price", "quantity")) -> None:
    """The trades as lines of some of their fields."""
    with path.open("w") as file:
        for batch in trades(events):
            columns = (batch.column(name).to_pylist() for name in names)
            file.writelines("\t".join(map(str, row)) + "\n" for row in zip(*columns, strict=True))


def run_spark(events: int, batch_events: int, say: Say) -> dict[str, Any]:
    """Run the job in a process of its own."""
    with scratch_folder() as folder:
        found: dict[str, Any] = alone(engine_peer_spark.run, str(folder), events, batch_events, say=say)
    return found
