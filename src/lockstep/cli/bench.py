"""Measuring this machine."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lockstep.cli import values as kinds
from lockstep.cli.output import Output
from lockstep.cli.parser import Verb
from lockstep.errors import UsageError


def _compare_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=kinds.positive, default=1_500_000, metavar="N",
                        help="most records that each side publishes (1500000)")  # fmt: skip
    parser.add_argument("--seconds", type=kinds.duration, default=6.0, metavar="S",
                        help="longest time that each side publishes (6)")  # fmt: skip
    parser.add_argument("--publishers", type=kinds.positive, default=4, metavar="N", help="publishing processes (4)")
    parser.add_argument("--subscribers", type=kinds.positive, default=16, metavar="N", help="reading processes (16)")
    parser.add_argument("--size", type=kinds.positive, default=100, metavar="BYTES", help="bytes of a record (100)")
    parser.add_argument("--wakes", type=kinds.positive, default=200, metavar="N",
                        help="single records for the latency (200)")  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", help="where to draw the picture")


COMPARE = Verb(
    bus_help="servers to measure: names or URLs (all kinds; LOCKSTEP_BUS does not count)",
    name="compare",
    purpose="Do the same work embedded, and on real servers with their own client and with Lockstep, side by side; "
    "--bus names the servers to start (kafka,rabbitmq,redis,hazelcast), or gives URLs of yours.",
    run="lockstep.cli.bench:compare",
    arguments=_compare_arguments,
    examples=(
        "lockstep bench compare --json",
        "lockstep bench compare --bus kafka,redis --plot buses.png",
        "lockstep bench compare --bus redis://127.0.0.1:6379 --records 100000",
    ),
)


def compare(options: argparse.Namespace, output: Output) -> None:
    """Measure the buses beside the plain clients."""
    from lockstep.bench import compare as bench
    from lockstep.bench.compare_fanout import Work
    from lockstep.bench.compare_servers import parse
    from lockstep.cli.model_files import check_writable

    if options.plot:
        check_writable(Path(options.plot))
    given: str | None = getattr(options, "bus", None)
    try:
        work = Work(
            publishers=options.publishers, subscribers=options.subscribers, size=options.size,
            records=options.records, seconds=options.seconds,
        )  # fmt: skip
        buses = {"buses": parse(given)} if given else {}
        wanted = bench.CompareOptions(work=work, wakes=options.wakes, **buses)
    except ValueError as error:
        raise UsageError(reason=f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    found = bench.run(wanted, progress=_tell(output))
    if options.plot:
        _draw(found, Path(options.plot), output)
    if output.json:
        output.json_line(found)
    else:
        output.table(bench.HEADINGS, bench.table(found))
        for line in bench.embedded_ratios(found):
            output.line(line)


def _draw(found: dict[str, Any], path: Path, output: Output) -> None:
    from lockstep.bench.compare import draw
    from lockstep.drill.plot import can_draw

    if can_draw():
        draw(found, path)
    else:
        output.note("There is no picture: matplotlib is not installed (pip install matplotlib).")


def streams(options: argparse.Namespace, output: Output) -> None:
    """Run the fan-out benchmark on a bus of its own, or in a stream of its own on the bus that --bus names."""
    from lockstep.log.batch import codec_by_name

    codec_by_name(options.codec)
    bench: Any = importlib.import_module("lockstep.bench.streams")
    bus: str | None = getattr(options, "bus", None)
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
            bus=bus,
            **(bench.ON_SERVERS if bus else {}),
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
    """Measure takeovers, row by row; --bus names the servers of the row `buses`."""
    from lockstep.bench.compare_servers import parse

    given: str | None = getattr(options, "bus", None)
    _rows("lockstep.bench.failover", "FailoverBench", output, {
        **({"buses": parse(given)} if given else {}), "bus_takeovers": options.bus_takeovers,
        "only": tuple(options.only), "takeovers": options.takeovers, "handovers": options.handovers,
        "events": options.events, "soak_events": options.soak_events,
    })  # fmt: skip


def schedule(options: argparse.Namespace, output: Output) -> None:
    """Measure the scheduler, row by row."""
    bench: Any = importlib.import_module("lockstep.bench.schedule.table")
    try:
        wanted = bench.ScheduleBench(
            events=options.events, only=tuple(options.only), peers=options.peers, store=options.store,
            kills=options.kills, seconds=options.seconds,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(reason=f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    if output.json:
        output.json_line(bench.run(wanted, progress=_tell(output)))
        return
    _table(bench.all_rows(wanted, _tell(output)), output)
    if not wanted.peers:
        output.note(bench.NO_PEERS)


def monitor(options: argparse.Namespace, output: Output) -> None:
    """Measure the monitor, row by row."""
    bench: Any = importlib.import_module("lockstep.bench.monitor.table")
    if options.runner == "spark":
        from lockstep.engine.spark.session import check_java

        check_java()
    try:
        wanted = bench.MonitorBench(
            clients=options.clients, seconds=options.seconds, kills=options.kills, only=tuple(options.only),
            runner=options.runner, peers=options.peers or "peers" in options.only,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(reason=f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    if output.json:
        output.json_line(bench.run(wanted, progress=_tell(output)))
        return
    _table(bench.all_rows(wanted, _tell(output)), output)
    if not wanted.peers:
        output.note(bench.NO_PEERS)


def console(options: argparse.Namespace, output: Output) -> None:
    """Measure the console, row by row."""
    bench: Any = importlib.import_module("lockstep.bench.console.table")
    try:
        wanted = bench.ConsoleBench(
            viewers=options.viewers, every_s=options.every, seconds=options.seconds, size=options.size,
            only=tuple(options.only),
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(reason=f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    if output.json:
        output.json_line(bench.run(wanted, progress=_tell(output)))
        return
    _table(bench.all_rows(wanted, _tell(output)), output)


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
    _table(bench.all_rows(options, _tell(output)), output)


def _table(found: Iterable[Any], output: Output) -> None:
    headings, rows = ("", "target", "measured", "", "others' cores"), []
    for row in found:
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
    """Return nested figures as dotted names with readable values."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool) or value is None:
            yield f"{prefix}{name}", {True: "yes", False: "no", None: "-"}[value]
        elif isinstance(value, (int, float)):
            yield f"{prefix}{name}", f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
        else:
            yield f"{prefix}{name}", str(value)
