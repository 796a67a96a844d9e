"""`lockstep drill`: engines are killed, and nobody downstream notices."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.cli import values as kinds
from lockstep.cli.output import Output
from lockstep.cli.parser import Verb, alone
from lockstep.cli.values import add_spark

if TYPE_CHECKING:
    from lockstep.drill.options import DrillOptions
    from lockstep.drill.result import Result

FAULTS = (
    "kill", "stop", "jvm", "worker", "publisher", "subscriber", "handover", "standby", "both", "takeover",
    "persist", "slow", "disk", "server", "spark-worker", "none",
)  # fmt: skip
_SHOW_S, _LINE_S = 0.2, 5.0
_PLOT = "drill.png"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=kinds.positive, metavar="N",
                        help="trades (1000000; with --repeat as many as it takes)")  # fmt: skip
    parser.add_argument(
        "--engines", type=kinds.positive, default=2, metavar="N", help="one active, the others standby (2)"
    )
    parser.add_argument("--fault", type=_faults, default=("kill",), metavar="KIND[,KIND...]",
                        help=f"what is done in mid-run, several in turn (kill): {', '.join(FAULTS)}")  # fmt: skip
    parser.add_argument("--repeat", type=kinds.positive, metavar="N",
                        help="so many faults, live at --rate (2: there and back, as fast as it goes)")  # fmt: skip
    parser.add_argument("--block", type=kinds.positive, default=1, metavar="N", help="events in a block (1)")
    parser.add_argument("--rate", type=kinds.above_zero, metavar="R",
                        help="events a second (as fast as it goes; with --repeat 5000)")  # fmt: skip
    parser.add_argument("--lease", type=kinds.duration, metavar="TIME",
                        help="silence after which a standby takes over (0.5; 1 on servers)")  # fmt: skip
    parser.add_argument("--seed", type=kinds.not_negative, default=1, metavar="S", help="other trades (1)")
    add_spark(parser)
    parser.add_argument("--servers", type=Path, metavar="FOLDER",
                        help="where 'lockstep dev' keeps the servers of a fault (~/.cache/lockstep/dev)")  # fmt: skip
    parser.add_argument("--keep", metavar="FOLDER", help="keep everything in a new folder: bus, logs, files, picture")
    parser.add_argument("--plot", metavar="FILE", help="where to draw the picture (with --keep, drill.png in it)")


def _faults(text: str) -> tuple[str, ...]:
    """One kind of fault, or several."""
    kinds = tuple(text.split(","))
    for kind in kinds:
        if kind not in FAULTS:
            message = f"{kind!r} is none of {', '.join(FAULTS)}"
            raise argparse.ArgumentTypeError(message)
    return kinds


def run(options: argparse.Namespace, output: Output) -> int:
    """Do the drill, show what came of it; 1 if anything is off."""
    from lockstep.drill.run import run_drill
    from lockstep.engine.spark.session import check_java

    wanted = _options(options)
    check_java()
    telling = Narrator(output)
    try:
        result = run_drill(wanted, telling)
    finally:
        telling.end()
    picture = _draw(wanted, result, output)
    if output.json:
        output.json_line({**result.tree(), "plot": picture})
    else:
        show(result, output, picture)
    return 0 if result.ok else 1


def _options(options: argparse.Namespace) -> DrillOptions:
    from lockstep.cli.model_files import check_writable
    from lockstep.drill.options import DrillOptions, Fault

    if options.plot is not None:
        check_writable(Path(options.plot))
    return DrillOptions(
        events=options.events,
        engines=options.engines,
        fault=Fault(options.fault[0]),
        then=tuple(map(Fault, options.fault[1:])),
        repeat=options.repeat,
        bus=getattr(options, "bus", None),
        block=options.block,
        rate=options.rate,
        keep=Path(options.keep) if options.keep else None,
        plot=Path(options.plot) if options.plot else None,
        seed=options.seed,
        lease_s=options.lease,
        master=options.master,
        conf=tuple(options.conf),
        servers=options.servers,
    )


class Narrator:
    """Says what happens now: lines that stay, and one that changes; on no terminal a line now and then."""

    def __init__(self, output: Output) -> None:
        self._output, self._progress = output, output.progress("events")
        self._is_terminal = sys.stderr.isatty()
        self._began = self._told_at = time.monotonic()

    def say(self, text: str) -> None:
        """Something happened."""
        self._progress.end()
        self._output.note(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def show(self, text: str) -> None:
        """How far it is."""
        if time.monotonic() - self._told_at < (_SHOW_S if self._is_terminal else _LINE_S):
            return
        self._told_at = time.monotonic()
        if self._is_terminal:
            self._progress.say(text)
        else:
            self.say(text)

    def end(self) -> None:
        """Leave the line."""
        self._progress.end()


def _draw(wanted: DrillOptions, result: Result, output: Output) -> str | None:
    from lockstep.drill.plot import can_draw, draw

    path = wanted.plot or (wanted.keep / _PLOT if wanted.keep else None)
    if path is None:
        return None
    if not can_draw():
        output.note("There is no picture: matplotlib is not installed (pip install matplotlib).")
        return None
    draw(result, path)
    return str(path)


def show(result: Result, output: Output, picture: str | None) -> None:
    """Print the result as tables."""
    from lockstep.drill import report

    if result.faults:
        output.table(report.FAULT_HEADINGS, report.fault_rows(result.faults))
        output.line("")
    output.table(report.count_headings(result), report.count_rows(result))
    output.line("")
    output.facts({**report.facts(result), **({"picture": picture} if picture else {})})
    for line in report.difference_lines(result):
        output.line(line)
    output.line("")
    output.line(report.verdict(result))


DRILL = alone(
    Verb(
        bus_help="the bus to use (one of its own in a new folder; LOCKSTEP_BUS does not count)",
        name="drill",
        purpose="Kill engines in mid-run, and show that the subscriber's file is the same, byte for byte.",
        run="lockstep.cli.drill:run",
        arguments=_arguments,
        examples=(
            "lockstep drill",
            "lockstep drill --events 100000 --engines 3 --fault stop --keep drill --plot drill.png",
            "lockstep drill --bus kafka://127.0.0.1:9092 --fault server,kill --repeat 20 --json",
        ),
    )
)
