"""The engine: a model of windows on Spark. Trades come in on a stream, prices of each symbol go out on another.

The model is built in Python. An engine runs it on a bus in a folder; what comes out is compared, event by event, with
the plain interpreter, which needs no Spark and defines what an answer is.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import lockstep
from lockstep.engines import Engine, EventPublisher, out_batches
from lockstep.models import (
    Event,
    Flag,
    Graph,
    InputBlock,
    Interpreter,
    Opcode,
    ProjectBuilder,
    compile_project,
    sliding,
)
from lockstep.runtime import ThreadRuntime

SECOND = 1_000_000
TRADES = [("ACME", 10.0, 0), ("ACME", 12.0, 20), ("IDEA", 55.5, 50), ("ACME", 14.0, 70), ("IDEA", 54.0, 130)]
"""Symbol, price, second."""


def build_model() -> Graph:
    project = ProjectBuilder("prices")
    query = project.query("q")
    trades = query.source("Trades", "id*:int64,symbol:string,price:double,time:stamp", insert_only=True)
    minute = trades.copy("LastMinute", retain=sliding("1 minute", field="time"))
    minute.aggregate("Prices", by="symbol", high="ESP_aMax(price)", trades="ESP_aCount()")
    return compile_project(project.build())


def make_events() -> list[Event]:
    rows = [(number, symbol, price, at * SECOND) for number, (symbol, price, at) in enumerate(TRADES, 1)]
    return [Event(Opcode.INSERT, Flag.NORMAL, row) for row in rows]


def main() -> None:
    graph = build_model()
    source, prices = graph.nodes[0], graph.nodes[2]
    with tempfile.TemporaryDirectory() as folder, lockstep.connect(f"lmdb:{folder}/bus") as connection:
        engine = Engine(graph, frozenset({prices.path}), connection.bus, Path(folder) / "state", ThreadRuntime())
        with engine:
            publisher = EventPublisher(connection, engine.streams.input(source), source.schema)
            for event in make_events():
                publisher.publish([event])  # a block of one event each
            publisher.close()
            engine.drain(timeout=120)
            counts = engine.status().counts
        out = connection.bus.open(engine.streams.output(prices))
        answer = [block for batch in out_batches(out, prices.schema) for block in batch.blocks()]

    interpreter = Interpreter(graph)
    expected = []
    for number, event in enumerate(make_events(), 1):
        expected.append((number, interpreter.evaluate(InputBlock(number, "Trades", (event,)))[prices.path]))

    for number, events in answer:
        print(f"block {number}: " + "; ".join(f"{event.opcode.letter} {event.values}" for event in events))
    assert answer == expected
    assert counts == interpreter.counts
    print(f"{len(TRADES)} trades, {counts[prices.path].events_out} events out: the same as without Spark.")


if __name__ == "__main__":
    main()
