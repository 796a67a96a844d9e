"""Bad events reach the project's bad-record stream whole, once, and the engine goes on."""

from __future__ import annotations

import json

from local_engine import LocalEngine

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, SourceWindow
from lockstep.engine.run.reading import values_between

TRADES = Schema.parse("ID*:int32,symbol:string,price:double,venue:string")
SUMS = Schema.parse("symbol*:string,total:double")


def graph():
    windows = (
        SourceWindow(name="in", schema=TRADES, insert_only=True),
        AggregateWindow(name="sums", schema=SUMS, fields=("ESP_aSum(price)",)),
    )
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="in", target="sums"),))
    return compile_project(Project(name="p", queries=(query,)))


def insert(*values) -> Event:
    return Event(Opcode.INSERT, Flag.NORMAL, values)


def test_a_duplicate_is_counted_and_shown_with_fields_that_no_window_reads(tmp_path):
    # Given a model that never looks at the venue
    engine = LocalEngine(graph(), frozenset({"q/sums"}), tmp_path)
    # When a key comes twice
    events = [insert(1, "A", 2.0, "north"), insert(1, "A", 3.0, "south"), insert(2, "A", 4.0, "west")]
    for event in events:
        engine.publishers["q/in"].publish([event])
    engine.settle()
    engine.run_batch(engine.sequencer.position.number)
    # Then it is on the bad-record stream with its venue, and the others were summed
    log = engine.bus.open(engine.streams.bad)
    records = [json.loads(value) for _, value in values_between(log, 0, log.bounds().next)]
    assert [(one["block"], one["reason"], one["values"]) for one in records] == [
        (2, "duplicate-key", [1, "A", 3.0, "south"])
    ]
    assert [event.values[1] for _, events in engine.out("q/sums") for event in events] == [2.0, 6.0, 2.0]
    assert engine.publisher.counts["q/in"].bad == {"duplicate-key": 1}
