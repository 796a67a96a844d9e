"""Measuring this machine."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Mapping
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
