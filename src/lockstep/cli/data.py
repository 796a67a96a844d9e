"""Making data to try models with."""

from __future__ import annotations

import argparse
import time
from io import BytesIO
from pathlib import Path

from lockstep.cli.model_files import STANDARD, check_writable
from lockstep.cli.model_report import per_second
from lockstep.cli.output import Output, plural


def trades(options: argparse.Namespace, output: Output) -> None:
    """Write trades as CSV lines."""
    from lockstep.engine.data.trades import write_trades
    from lockstep.errors import UsageError

    if options.out == STANDARD:
        if output.json:
            raise UsageError(reason="--json and -o - do not go together: name a file.")
        _print(options, output)
        return
    path = Path(options.out)
    check_writable(path)
    progress, began = output.progress("trades", options.events), time.monotonic()
    try:
        write_trades(path, options.events, options.seed, lambda done, _: progress.add(done - progress.count))
    finally:
        progress.end()
    seconds, size = time.monotonic() - began, path.stat().st_size
    if output.json:
        output.json_line(
            {
                "file": options.out,
                "events": options.events,
                "seed": options.seed,
                "bytes": size,
                "seconds": round(seconds, 3),
            }
        )
        return
    rate = per_second(options.events, seconds)
    output.line(f"Wrote {plural(options.events, 'trade')} to {options.out}: {seconds:,.1f} s ({rate:,} events/s).")


def _print(options: argparse.Namespace, output: Output) -> None:
    import numpy as np

    from lockstep.engine.data.trades import chunks
    from lockstep.engine.events.csvform import write_csv

    for batch in chunks(options.events, np.random.Generator(np.random.PCG64(options.seed))):
        lines = BytesIO()
        write_csv(batch, lines)
        output.raw(lines.getvalue())
