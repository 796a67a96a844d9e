"""The command line: `python -m lockstep.simulation --seeds 10000 --jobs 2`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from lockstep.simulation.report import as_json, as_text
from lockstep.simulation.run import Summary, run_many, run_seed
from lockstep.simulation.variants import VARIANTS, Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROGRESS_EVERY = 25


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 1 if anything was found, 0 if not."""
    options = _parser().parse_args(argv)
    if options.seed is not None:
        return _one(options)
    seeds = range(options.start, options.start + options.seeds)
    progress = _progress_bar(options.seeds) if sys.stderr.isatty() else _no_progress
    summary = run_many(seeds, options.variant, jobs=options.jobs, progress=progress)
    _print(summary, options.json)
    return 1 if summary.failed else 0


def _one(options: argparse.Namespace) -> int:
    if not options.trace:
        summary = run_many(range(options.seed, options.seed + 1), options.variant)
        _print(summary, options.json)
        return 1 if summary.failed else 0
    result = run_seed(options.seed, options.variant, trace=True)
    sys.stdout.write(result.trace)
    found = ", ".join(sorted({anomaly.name for anomaly in result.anomalies})) or "no anomaly"
    sys.stdout.write(f"# seed {options.seed}, variant {options.variant}: {found}\n")
    return 1 if result.anomalies else 0


def _print(summary: Summary, json: bool) -> None:
    sys.stdout.write(as_json(summary) + "\n" if json else as_text(summary))


def _no_progress(_done: int) -> None:
    """Report no progress."""


def _progress_bar(total: int) -> Callable[[int], None]:
    def show(done: int) -> None:
        if done % PROGRESS_EVERY == 0 or done == total:
            bar = "#" * (done * 40 // total)
            sys.stderr.write(f"\r[{bar:<40}] {done:,}/{total:,}" + ("\n" if done == total else ""))
            sys.stderr.flush()

    return show


def _parser() -> argparse.ArgumentParser:
    variants = "\n".join(f"  {variant.name:<33}{variant.summary}" for variant in VARIANTS.values())
    parser = argparse.ArgumentParser(
        prog="python -m lockstep.simulation",
        description="Simulate processes, logs and clocks that fail, and look for broken promises.",
        epilog=f"variants:\n{variants}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=_positive, default=1000, metavar="N", help="how many seeds to run (1000)")
    parser.add_argument("--start", type=_not_negative, default=0, metavar="N", help="the first seed (0)")
    parser.add_argument("--seed", type=_not_negative, metavar="S", help="run this one seed only")
    parser.add_argument("--trace", action="store_true", help="with --seed: show everything that happens")
    parser.add_argument("--variant", choices=tuple(VARIANTS), default=Variant.name, metavar="NAME", help="see below")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="processes to run on (1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        message = f"{value} is not at least 1"
        raise argparse.ArgumentTypeError(message)
    return value


def _not_negative(text: str) -> int:
    value = int(text)
    if value < 0:
        message = f"{value} is below 0"
        raise argparse.ArgumentTypeError(message)
    return value


if __name__ == "__main__":
    sys.exit(main())
