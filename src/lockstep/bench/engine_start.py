"""From the command to the first result: `lockstep model run` on a small file, as a user starts it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lockstep.bench.engine_jobs import Say
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.data.models import seven_windows
from lockstep.engine.data.trades import write_trades
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.spark.session import archive_path, check_java

EVENTS = 1_000
PREPARE = "there is no archive of Spark's classes yet: python -m lockstep.engine.spark.prepare makes it"
_TIMEOUT_S = 600.0


def first_result(say: Say) -> dict[str, Any]:
    """Seconds of the whole command with no archive of Spark's classes, and with it if there is one."""
    archive = archive_path()
    with scratch_folder() as folder:
        write_trades(folder / "trades.csv", EVENTS, 1)
        (folder / "trades.yaml").write_text(to_yaml(seven_windows()))
        say("a small file without an archive of classes")
        found: dict[str, Any] = {"events": EVENTS, "cold": _command(folder, *_without_archive())}
        if not archive.exists():
            say(PREPARE)
            return found
        say("the same with the archive")
        return {**found, "with_archive": _command(folder), "archive_bytes": archive.stat().st_size}


def _without_archive() -> list[str]:
    """Have the JVM use the archive it came with; the last setting counts."""
    plain = Path(check_java()).resolve().parent.parent / "lib" / "server" / "classes.jsa"
    option = f"-XX:SharedArchiveFile={plain}" if plain.exists() else "-Xshare:off"
    return ["--conf", f"spark.driver.extraJavaOptions={option}"]


def _command(folder: Path, *more: str) -> dict[str, Any]:
    began = time.monotonic()
    files = ("--in", "TradesSource=trades.csv", "--out", "Aggregate24HR=out.csv")
    told = json.loads(_lockstep(folder, "model", "run", "trades.yaml", *files, "--json", *more))
    spent = time.monotonic() - began
    return {
        "seconds": round(spent, 2),
        "spark_ready_s": round(told["spark_ready_s"], 2),
        "parts_s": {name: round(spent, 2) for name, spent in told["start_parts_s"].items()},
        "first_batch_s": round(told["seconds"], 2),
        "rest_s": round(spent - told["spark_ready_s"] - told["seconds"], 2),
        "lines": told["lines"],
    }


def _lockstep(folder: Path, *arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "lockstep.cli.main", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        message = f"lockstep {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}"
        raise RuntimeError(message)
    return done.stdout
