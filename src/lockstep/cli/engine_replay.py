"""A model over the history of a project's streams."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from lockstep.cli import model_report as report
from lockstep.cli.connection import bus_url, opened
from lockstep.cli.model_files import check_writable, find_window, load_graph
from lockstep.cli.output import Output
from lockstep.errors import UsageError


def replay(options: argparse.Namespace, output: Output) -> None:
    """Evaluate every block again, from the first one on; the streams stay as they are."""
    from lockstep.engine.events.csv_reader import CsvOutput
    from lockstep.engine.runtime.engine import EngineOptions
    from lockstep.engine.spark.history_job import run_history
    from lockstep.runtime import ThreadRuntime

    graph = load_graph(options.model)
    outputs = {find_window(graph, window).path: Path(file) for window, file in options.outputs}
    if not outputs:
        raise UsageError(reason="Say what to write: --out WINDOW=FILE for each window.")
    for file in outputs.values():
        check_writable(file)
    wanted = EngineOptions(
        cluster=options.cluster,
        shards=options.shards,
        master=options.master,
        spark=dict(options.conf),
        verbose=options.verbose or options.verbose_spark,
    )
    csv = CsvOutput(collapse=options.collapse, date_format=options.date_format)
    with opened(bus_url(options)) as client, TemporaryDirectory(prefix="lockstep-replay-") as folder:
        outcome = run_history(graph, client.bus, outputs, csv, Path(folder), ThreadRuntime(), wanted)
    if output.json:
        lines = {path: {"file": str(outputs[path]), "lines": number} for path, number in outcome.lines.items()}
        output.json_line({
            "project": graph.project.name, "events": outcome.events, "blocks": outcome.blocks,
            "seconds": round(outcome.seconds, 3), "outputs": lines,
        })  # fmt: skip
        return
    rate = report.per_second(outcome.events, outcome.seconds)
    output.line(f"{outcome.events:,} events in {outcome.seconds:.1f} s ({rate:,}/s).")
    for path, number in outcome.lines.items():
        output.line(f"Wrote {number:,} lines of {path} to {outputs[path]}.")
