"""Done once after installing, so that the first run is quick: compiled loops, and an archive of Spark's classes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from lockstep.engine.columns.warm import warm_up
from lockstep.engine.data.trades import TRADES_SCHEMA, write_trades
from lockstep.engine.events.csv_format import CsvOutput
from lockstep.engine.model.builder import ProjectBuilder, sliding
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.control.options import EngineOptions
from lockstep.engine.runtime.file_run import run_engine
from lockstep.engine.runtime.files import BadLines, FileInputs
from lockstep.engine.spark.session import archive_path
from lockstep.runtime import ThreadRuntime

_EVENTS, _CUT = 2_000, 100


def prepare(*, again: bool = False) -> Path:
    """Compile the loops, and run a small model once to see which classes Spark loads. The archive it made."""
    warm_up()
    archive = archive_path()
    if archive.exists() and not again:
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trades(folder / "trades.csv", _EVENTS, 1)
        graph = compile_project(_small_model().build())
        inputs = FileInputs(files=(("TradesSource", folder / "trades.csv"),))
        options = EngineOptions(spark={"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"})
        run_engine(
            graph, inputs, {"Vwap": folder / "out.csv"}, CsvOutput(), BadLines(), folder, ThreadRuntime(), options,
            _CUT, lambda _: None,
        )  # fmt: skip
    return archive


def _small_model() -> ProjectBuilder:
    project = ProjectBuilder("prepare")
    trades = project.query("trades").source("TradesSource", str(TRADES_SCHEMA), insert_only=True)
    trades.copy("Recent", retain=sliding("5 minutes", field="time")).aggregate(
        "Vwap", by="symbol", vwap="ESP_aWAve(quantity,price)"
    )
    return project


if __name__ == "__main__":
    sys.stderr.write("Compiling loops and archiving Spark's classes (once, about half a minute) ...\n")
    sys.stderr.write(f"Ready: {prepare(again='--again' in sys.argv)}\n")
