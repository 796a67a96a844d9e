"""Measuring this machine."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lockstep.cli.output import Output
from lockstep.errors import UsageError


def streams(options: argparse.Namespace, output: Output) -> None:
    """Run the fan-out benchmark on a bus of its own."""
    from lockstep.log import codecs

    codecs.by_name(options.codec)
    bench: Any = importlib.import_module("lockstep.bench.streams")
    try:
        wanted = bench.BenchOptions(
            publishers=options.publishers,
            subscribers=options.subscribers,
            size=options.size,
            seconds=options.seconds,
            durability=options.durability,
            objects=options.objects,
            codec=options.codec,
            folder=options.folder,
        )
    except ValueError as error:
        raise UsageError(reason=f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    progress = output.progress("")
    try:
        figures = bench.run(wanted, progress=lambda text: progress.say(f"{text} ..."))
    finally:
        progress.end()
    if output.json:
        output.json_line(figures)
    else:
        output.facts(dict(flat(figures)))


def engine(options: argparse.Namespace, output: Output) -> None:
    """Measure the engine, row by row."""
    _rows("lockstep.bench.engine", "EngineBench", output, {
        "events": options.events, "only": tuple(options.only), "peers": options.peers, "large": options.large,
        "seconds": options.seconds, "rate": options.rate, "batch_events": options.batch,
        "bytewax_python": options.bytewax_python,
    })  # fmt: skip


def failover(options: argparse.Namespace, output: Output) -> None:
    """Measure takeovers, row by row."""
    _rows("lockstep.drill.figures", "FailoverBench", output, {
        "only": tuple(options.only), "takeovers": options.takeovers, "handovers": options.handovers,
        "events": options.events, "soak_events": options.soak_events,
    })  # fmt: skip


def _rows(module: str, kind: str, output: Output, wanted: Mapping[str, Any]) -> None:
    """Run one table on Spark, and show it."""
    from lockstep.engine.spark.session import check_java

    bench: Any = importlib.import_module(module)
    try:
        options = getattr(bench, kind)(**wanted)
    except ValueError as error:
        raise UsageError(reason=f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    check_java()
    if output.json:
        output.json_line(bench.run(options, progress=_tell(output)))
        return
    headings, rows = ("", "target", "measured", "", "others' cores"), []
    for row in bench.all_rows(options, _tell(output)):
        output.note(f"{row.name}: {row.measured} ({row.verdict})")
        rows.append((row.name, row.target, row.measured, row.verdict, str(row.others_cores)))
    output.table(headings, rows)


def _tell(output: Output) -> Callable[[str], None]:
    """Progress as lines on stderr, for a person also beside JSON: a run takes minutes."""
    wanted = not output.quiet and (not output.json or sys.stderr.isatty())

    def tell(text: str) -> None:
        if wanted:
            sys.stderr.write(f"{text} ...\n")
            sys.stderr.flush()

    return tell


def flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested figures as names with dots and values for people."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool) or value is None:
            yield f"{prefix}{name}", {True: "yes", False: "no", None: "-"}[value]
        elif isinstance(value, (int, float)):
            yield f"{prefix}{name}", f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
        else:
            yield f"{prefix}{name}", str(value)
