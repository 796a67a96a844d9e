"""Streams of records as sources: how fast they are sequenced, and how fast they become events, without Spark."""

from __future__ import annotations

import time
from typing import Any

from lockstep.bench.engine_jobs import CLUSTER, ENTRY_EVENTS, Say, alone
from lockstep.bench.processes import Link
from lockstep.bench.scratch import scratch_folder
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import RECORDS, SourceWindow
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.engine.runtime.sequence.model_statement import inputs_of
from lockstep.engine.runtime.sequence.reader import RangeReader
from lockstep.engine.runtime.sequence.sequencer import Sequencer, SequencerOptions
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep

_BATCH_EVENTS = 300_000
_STREAM = "orders"
FORMS: dict[str, tuple[str | None, str]] = {
    "as they are": (None, "offset*:int64,key:string,value:string,time:stamp"),
    "csv": ("csv", "ID*:int64,symbol:string,quantity:int32,price:double"),
    "json": ("json", "ID*:int64,symbol:string,quantity:int32,price:double"),
}


def sequenced(events: int, say: Say) -> dict[str, Any]:
    """Records a second, for each form, and what the stream holds for each record."""
    found = {}
    for form in FORMS:
        say(f"{events:,} records, {form}")
        with scratch_folder() as folder:
            found[form] = alone(_measure, f"lmdb:{folder / 'bus'}?durability=relaxed", form, events, say=say)
    return found


def _graph(form: str) -> Graph:
    decode, schema = FORMS[form]
    window = SourceWindow(
        name="Orders", schema=Schema.parse(schema), insert_only=True, form=RECORDS, stream=_STREAM, decode=decode
    )
    return compile_project(Project(name="records", queries=(ContinuousQuery(name="q", windows=(window,), edges=()),)))


def _value(form: str, number: int) -> bytes:
    if form == "json":
        return b'{"ID":%d,"symbol":"S%d","quantity":%d,"price":%.2f}' % (number, number % 64, number % 9, number / 4)
    return b"%d,S%d,%d,%.2f" % (number, number % 64, number % 9, number / 4)


def _measure(link: Link, url: str, form: str, events: int) -> dict[str, Any]:
    link.ready()
    return measure(url, form, events)


def measure(url: str, form: str, events: int) -> dict[str, Any]:
    """Publish, sequence and read records in this process."""
    runtime, graph = ThreadRuntime(), _graph(form)
    streams = ProjectStreams(cluster=CLUSTER, project=graph.project.name)
    with Lockstep(open_bus(url, runtime), runtime) as connection:
        connection.create(_STREAM, StreamConfig(capacity=None))
        with connection.publisher(_STREAM) as publisher:
            for number in range(events):
                publisher.publish(_value(form, number), key=b"S%d" % (number % 64))
        bus = connection.bus
        streams.create(bus, graph, frozenset())
        inputs = inputs_of(bus, streams, graph)
        options, start = SequencerOptions(entry_events=ENTRY_EVENTS), SequencePosition(ends=inputs.begin())
        sequencer = Sequencer(bus.open(streams.sequence), inputs, runtime, options, start)
        sequencer.lead()
        began = time.perf_counter()
        while not sequencer.is_caught_up():
            sequencer.step()
        deciding = time.perf_counter() - began
        reading = _read(RangeReader(bus, graph, streams), Evaluator(graph, wanted=frozenset()), sequencer.position)
        stored = getattr(inputs.inputs[0].log, "stored_bytes", lambda: 0)()
    return {
        "events": events,
        "entries": sequencer.position.number,
        "sequenced_per_s": round(events / deciding),
        "read_per_s": round(events / reading),
        "stored_bytes_per_record": round(stored / events, 1),
    }


def _read(reader: RangeReader, evaluator: Evaluator, end: SequencePosition) -> float:
    """Seconds for reading, decoding and checking everything, as a worker does."""
    began, position = time.perf_counter(), reader.start()
    while position.number < end.number:
        taken = reader.read(position, end.number, _BATCH_EVENTS)
        evaluator.evaluate(taken.span)
        position = taken.end
    return time.perf_counter() - began
