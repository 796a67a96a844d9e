"""Every fault once, one line for each: python -m lockstep.drill.matrix [--events N] [--only FAULT...] [--engines N].

Ends with 1 if anything was not as it must be.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.report import Silence, Telling, difference_lines, summary
from lockstep.drill.run import run_drill
from lockstep.errors import LockstepError

_RATE, _SECONDS = 5_000.0, 45.0
_TERMINATED = 143
_FAULTS = [str(fault) for fault in Fault if fault not in (Fault.SERVER, Fault.SPARK_WORKER)]
"""All that need nothing but engines."""


class Lines:
    """What happens, as lines on stderr."""

    def say(self, text: str) -> None:
        """Write the text as a line on stderr."""
        sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()

    def show(self, text: str) -> None:
        """Ignore progress."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do all of them, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m lockstep.drill.matrix", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--events", type=int, default=round(_RATE * _SECONDS), help="of each (%(default)s)")
    parser.add_argument("--rate", type=float, default=_RATE, help="events a second (%(default)s)")
    parser.add_argument("--engines", type=int, default=2, help="how many (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=_FAULTS, default=_FAULTS)
    parser.add_argument("--quiet", action="store_true", help="only the summary")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminate)
    telling: Telling = Silence() if given.quiet else Lines()
    with tempfile.TemporaryDirectory(prefix="lockstep-matrix-") as cache:
        failed = [name for name in given.only if not _drill(Fault(name), given, telling, Path(cache))]
    sys.stdout.write(
        f"{len(given.only)} faults, {len(failed)} with anomalies{': ' if failed else ''}{', '.join(failed)}\n"
    )
    return 1 if failed else 0


def _terminate(_number: int, _frame: object) -> NoReturn:
    """A request to end is treated as Ctrl-C is: everything that was started is ended."""
    raise SystemExit(_TERMINATED)


def _drill(fault: Fault, given: argparse.Namespace, telling: Telling, cache: Path) -> bool:
    """One fault; whether all was well."""
    options = DrillOptions(events=given.events, rate=given.rate, engines=given.engines, fault=fault)
    began = time.monotonic()
    try:
        result = run_drill(options, telling, cache=cache)
    except LockstepError as error:
        _line(f"{fault}: anomalies: {error} {' '.join(getattr(error, '__notes__', []))}")
        return False
    _line(f"{summary(str(fault), result)} ({time.monotonic() - began:.0f} s)")
    for line in difference_lines(result):
        _line(f"  {line}")
    return result.ok


def _line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
