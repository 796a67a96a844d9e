"""The volume-weighted price of each symbol over its last five minutes, with Bytewax: a program of its own.

python engine_peer_bytewax.py TRADES.tsv      # lines of symbol, time in seconds, price, quantity

It needs Bytewax and nothing of Lockstep, so that any Python can run it. The trades are read into memory first; measured
is the flow alone: no bus, no recovery, nothing is written. A symbol's rows leave only when it trades again.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

SPAN_S = 300
_BATCH = 50_000
"""The larger the quicker, up to about here."""

Trade = tuple[int, float, int]
"""Second, price, quantity."""


class Vwap:
    """The last five minutes of one symbol."""

    __slots__ = ("money", "rows", "volume")

    def __init__(self) -> None:
        self.rows: deque[Trade] = deque()
        self.money, self.volume = 0.0, 0

    def add(self, trade: Trade) -> float:
        """Take a trade, let go of what is too old, and return the price."""
        second, price, quantity = trade
        rows = self.rows
        rows.append(trade)
        self.money += price * quantity
        self.volume += quantity
        while second - rows[0][0] >= SPAN_S:
            _, old, count = rows.popleft()
            self.money -= old * count
            self.volume -= count
        return self.money / self.volume


def read_trades(path: str) -> list[tuple[str, Trade]]:
    """Pairs of a symbol and a trade."""
    trades = []
    for line in Path(path).read_text().splitlines():
        symbol, second, price, quantity = line.split("\t")
        trades.append((symbol, (int(second), float(price), int(quantity))))
    return trades


def run(trades: list[tuple[str, Trade]]) -> dict[str, Any]:
    """Run the flow; prices are counted and added up where they come out."""
    from bytewax import operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.operators import StatefulBatchLogic
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import TestingSource, run_main

    class Logic(StatefulBatchLogic):  # type: ignore[misc]
        def __init__(self) -> None:
            self.vwap = Vwap()

        def on_batch(self, values: list[Trade]) -> tuple[list[float], bool]:
            return [self.vwap.add(value) for value in values], False

        def snapshot(self) -> None:
            return None

    found = {"outputs": 0, "sum": 0.0}

    class Part(StatelessSinkPartition):  # type: ignore[misc]
        def write_batch(self, items: list[tuple[str, float]]) -> None:
            found["outputs"] += len(items)
            found["sum"] += sum(price for _, price in items)

    class Sink(DynamicSink):  # type: ignore[misc]
        def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> Part:
            return Part()

    flow = Dataflow("vwap")
    stream = op.input("trades", flow, TestingSource(trades, batch_size=_BATCH))
    prices = op.stateful_batch("vwap", stream, lambda _: Logic())
    op.output("out", prices, Sink())
    began = time.monotonic()
    run_main(flow)
    spent = time.monotonic() - began
    return {**found, "events": len(trades), "seconds": round(spent, 3), "events_per_s": round(len(trades) / spent)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(read_trades(sys.argv[1]))) + "\n")
