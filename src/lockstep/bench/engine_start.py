"""From the command to the first result: `lockstep model run` on a small file, as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lockstep.bench.engine_jobs import Say
from lockstep.bench.engine_models import seven_windows
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.data.trades import write_trades
from lockstep.engine.model.loading import to_yaml

EVENTS = 1_000
_TIMEOUT_S = 600.0


def first_result(say: Say) -> dict[str, Any]:
    """Seconds of the whole command without and with an archive of Spark's classes, which is made here."""
    with scratch_folder() as folder:
        write_trades(folder / "trades.csv", EVENTS, 1)
        (folder / "trades.yaml").write_text(to_yaml(seven_windows()))
        say("a small file without an archive of classes")
        cold = _command(folder)
        say("making an archive of Spark's classes")
        began = time.monotonic()
        _python(folder, "-m", "lockstep.engine.spark.prepare")
        prepared = time.monotonic() - began
        archives = list((folder / "cache").rglob("*.jsa"))
        say("the same with the archive")
        return {
            "events": EVENTS,
            "cold": cold,
            "with_archive": _command(folder),
            "prepare_s": round(prepared, 2),
            "archive_bytes": sum(path.stat().st_size for path in archives),
        }


def _command(folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    done = _python(
        folder, "-m", "lockstep.cli.main", "model", "run", "trades.yaml", "--in", "TradesSource=trades.csv",
        "--out", "Aggregate24HR=out.csv", "--json",
    )  # fmt: skip
    spent = time.monotonic() - began
    told = json.loads(done.stdout)
    return {
        "seconds": round(spent, 2),
        "spark_ready_s": round(told["spark_ready_s"], 2),
        "first_batch_s": round(told["seconds"], 2),
        "rest_s": round(spent - told["spark_ready_s"] - told["seconds"], 2),
        "lines": told["lines"],
    }


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a cache folder of its own, so that an archive made before is not seen."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.run(  # noqa: S603 - our own commands
        [sys.executable, *arguments],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True,
    )  # fmt: skip
