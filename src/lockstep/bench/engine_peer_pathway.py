"""A stream joined with a table, with Pathway: a program of its own.

python engine_peer_pathway.py TRADES.tsv TRADERS.tsv     # of ID, symbol, price, quantity, buyer; and of the table

It needs Pathway and nothing of Lockstep, so that any Python can run it. All rows are in memory first; measured is the
run of the flow: no bus, no recovery, joined rows are counted and dropped.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def read_rows(path: str, kinds: tuple[type, ...]) -> list[tuple[Any, ...]]:
    """The lines of a file as tuples."""
    lines = Path(path).read_text().splitlines()
    return [tuple(kind(text) for kind, text in zip(kinds, line.split("\t"), strict=True)) for line in lines]


def main(paths: list[str]) -> dict[str, Any]:
    """Join, and count what comes out."""
    import pathway as pw

    class Trade(pw.Schema):  # type: ignore[misc]
        ID: int
        symbol: str
        price: float
        quantity: int
        buyer: int

    class Trader(pw.Schema):  # type: ignore[misc]
        trader: int
        name: str
        country: str
        fee: float

    rows = read_rows(paths[0], (int, str, float, int, int))
    trades = pw.debug.table_from_rows(Trade, rows)
    traders = pw.debug.table_from_rows(Trader, read_rows(paths[1], (int, str, str, float)))
    joined = trades.join_left(traders, trades.buyer == traders.trader).select(
        trades.ID, trades.symbol, trades.price, trades.quantity, trades.buyer,
        traders.name, traders.country, traders.fee,
    )  # fmt: skip
    counted = joined.reduce(outputs=pw.reducers.count(), sum=pw.reducers.sum(pw.this.ID))
    found: dict[str, Any] = {}
    pw.io.subscribe(counted, on_change=lambda key, row, time, is_addition: found.update(row))  # noqa: ARG005
    pw.io.null.write(joined)
    began, worked = time.monotonic(), time.process_time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    spent, worked = time.monotonic() - began, time.process_time() - worked
    return {
        **found,
        "events": len(rows),
        "seconds": round(spent, 3),
        "cpu_s": round(worked, 3),
        "events_per_s": round(len(rows) / spent),
        "events_per_cpu_s": round(len(rows) / worked),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
