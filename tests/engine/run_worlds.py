"""Small models, raw frames and raw logs for the tests of the run layer."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from local_engine import LocalEngine

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, CopyWindow, Retention, SourceWindow
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.port import Log

TRADES = Schema.parse("ID*:int32,symbol:string,price:double")
SUMS = Schema.parse("symbol*:string,total:double")
HEAD_DAMAGED = b"this is no frame, and never was one of ours"


def sums_graph(name: str = "p") -> Graph:
    """One source, and an aggregate with a row for each symbol."""
    windows = (
        SourceWindow(name="in", schema=TRADES, insert_only=True),
        AggregateWindow(name="sums", schema=SUMS, fields=("ESP_aSum(price)",)),
    )
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="in", target="sums"),))
    return compile_project(Project(name=name, queries=(query,)))


def recent_graph(seconds: int = 3) -> Graph:
    """A window over the last seconds of the event's own time: its rows are read from the log again when they leave."""
    schema = Schema.parse("ID*:int32,symbol:string,price:double,time:date")
    keep = Retention(kind="bytime_sliding", limit=seconds * 1_000_000, field="time")
    windows = (
        SourceWindow(name="in", schema=schema, insert_only=True),
        CopyWindow(name="recent", retention=keep),
        AggregateWindow(name="sums", schema=SUMS, fields=("ESP_aSum(price)",)),
    )
    edges = (Edge(source="in", target="recent"), Edge(source="recent", target="sums"))
    return compile_project(Project(name="p", queries=(ContinuousQuery(name="q", windows=windows, edges=edges),)))


def two_sources_graph() -> Graph:
    """Two sources that do not know each other."""
    windows = tuple(SourceWindow(name=name, schema=TRADES, insert_only=True) for name in ("left", "right"))
    return compile_project(Project(name="p", queries=(ContinuousQuery(name="q", windows=windows, edges=()),)))


def trade(number: int, symbol: str = "A", price: float = 1.0) -> Event:
    return Event(Opcode.INSERT, Flag.NORMAL, (number, symbol, price))


def frame(ids: Sequence[int], *, client: bytes | None = None, first_id: int = 1, schema: Schema = TRADES) -> bytes:
    """One block for each id, with one event."""
    numbers = np.arange(first_id, first_id + len(ids), dtype=np.int64)
    events = [Event(Opcode.INSERT, Flag.NORMAL, (one, "A", 1.0)[: len(schema)]) for one in ids]
    batch = EventBatch.of(schema, [(int(number), [event]) for number, event in zip(numbers, events, strict=True)])
    return encode_frame(batch, numbers=numbers, client=client, first_id=first_id)


def body_damaged(ids: Sequence[int], **more: object) -> bytes:
    """A frame whose head can be read, and nothing else."""
    whole = bytearray(frame(ids, **more))  # type: ignore[arg-type]
    whole[-6] ^= 0xFF
    return bytes(whole)


def put(log: Log, *values: bytes) -> None:
    """Append raw records, one batch each."""
    log.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0) for value in values])


def input_log(engine: LocalEngine, path: str) -> Log:
    node = engine.graph.find(path)
    assert node is not None
    return engine.bus.open(engine.streams.input(node))


def output_log(engine: LocalEngine, path: str) -> Log:
    node = engine.graph.find(path)
    assert node is not None
    return engine.bus.open(engine.streams.output(node))


def told(engine: LocalEngine, stream: str) -> list[dict[str, object]]:
    """The JSON records of a stream."""
    log = engine.bus.open(stream)
    return [json.loads(value) for _, value in values_between(log, log.bounds().first, log.bounds().next)]


def run_all(engine: LocalEngine) -> None:
    """Sequence, evaluate and publish everything."""
    engine.settle()
    engine.run_batch(engine.sequencer.position.number)
