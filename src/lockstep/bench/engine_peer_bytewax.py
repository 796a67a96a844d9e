"""Two flows with Bytewax: a program of its own.

python engine_peer_bytewax.py TRADES.tsv                 # lines of symbol, time in seconds, price, quantity
python engine_peer_bytewax.py TRADES.tsv TRADERS.tsv     # of ID, symbol, price, quantity, buyer; and of the table

The first is the volume-weighted price of each symbol over its last five minutes, the second joins each trade with its
buyer's row of a table. It needs Bytewax and nothing of Lockstep, so that any Python can run it. All lines are read into
memory first; measured is the flow alone: no bus, no recovery, nothing is written. A symbol's rows leave only when it
trades again. Both keep their state by key in logic written for it.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
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
        """Add a trade, drop those that are too old, and return the price."""
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


class Met:
    """The table's row for one key, and what trades make with it."""

    __slots__ = ("row",)

    def __init__(self) -> None:
        self.row: tuple[Any, ...] = (None, None, None)

    def add(self, event: tuple[bool, tuple[Any, ...]]) -> tuple[Any, ...] | None:
        """Take a row of the table, or join a trade with the one that is there."""
        is_row, values = event
        if is_row:
            self.row = values
            return None
        return values + self.row


def read_events(trades: str, traders: str) -> list[tuple[str, tuple[bool, tuple[Any, ...]]]]:
    """Pairs of a buyer and what there is of it: the rows of the table first, then the trades."""
    events: list[tuple[str, tuple[bool, tuple[Any, ...]]]] = []
    for line in Path(traders).read_text().splitlines():
        key, name, country, fee = line.split("\t")
        events.append((key, (True, (name, country, float(fee)))))
    for line in Path(trades).read_text().splitlines():
        number, symbol, price, quantity, buyer = line.split("\t")
        events.append((buyer, (False, (int(number), symbol, float(price), int(quantity), int(buyer)))))
    return events


def price(trades: list[tuple[str, Trade]]) -> dict[str, Any]:
    """Run the flow of prices, which are counted and added up where they come out."""
    return run(trades, Vwap, lambda vwap, values: [vwap.add(value) for value in values], float)


def join(events: list[tuple[str, tuple[bool, tuple[Any, ...]]]]) -> dict[str, Any]:
    """Run the flow of the join, whose rows are counted; the IDs of the trades are added up."""

    def joined(met: Met, values: list[tuple[bool, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        return [row for row in map(met.add, values) if row is not None]

    return run(events, Met, joined, lambda row: row[0])


def run(
    events: list[tuple[str, Any]],
    state: Callable[[], Any],
    take: Callable[[Any, list[Any]], list[Any]],
    figure: Callable[[Any], float],
) -> dict[str, Any]:
    """Run a flow of one step with state by key; what comes out is counted, and a figure of it added up."""
    from bytewax import operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.operators import StatefulBatchLogic
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.testing import TestingSource, run_main

    class Logic(StatefulBatchLogic):  # type: ignore[misc]
        def __init__(self) -> None:
            self.state = state()

        def on_batch(self, values: list[Any]) -> tuple[list[Any], bool]:
            return take(self.state, values), False

        def snapshot(self) -> None:
            return None

    found = {"outputs": 0, "sum": 0.0}

    class Part(StatelessSinkPartition):  # type: ignore[misc]
        def write_batch(self, items: list[tuple[str, Any]]) -> None:
            found["outputs"] += len(items)
            found["sum"] += sum(figure(item) for _, item in items)

    class Sink(DynamicSink):  # type: ignore[misc]
        def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> Part:
            return Part()

    flow = Dataflow("flow")
    stream = op.input("events", flow, TestingSource(events, batch_size=_BATCH))
    made = op.stateful_batch("state", stream, lambda _: Logic())
    op.output("out", made, Sink())
    began, worked = time.monotonic(), time.process_time()
    run_main(flow)
    spent, worked = time.monotonic() - began, time.process_time() - worked
    return {
        **found,
        "events": len(events),
        "seconds": round(spent, 3),
        "cpu_s": round(worked, 3),
        "events_per_s": round(len(events) / spent),
        "events_per_cpu_s": round(len(events) / worked),
    }


def main(paths: list[str]) -> dict[str, Any]:
    """The flow of prices over one file, that of the join over two."""
    return price(read_trades(paths[0])) if len(paths) == 1 else join(read_events(paths[0], paths[1]))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
