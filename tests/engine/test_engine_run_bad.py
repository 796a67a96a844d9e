"""Bad events reach the project's bad-record stream whole, once, and the engine goes on."""

from __future__ import annotations

import json

import pytest
from google_crc32c import value as crc32c
from local_engine import LocalEngine
from run_worlds import input_log, put, run_all, told

from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, SourceWindow
from lockstep.engine.runtime.sequence.reader import values_between

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


def with_other_venue(event: Event, venue: bytes) -> bytes:
    """A frame of one event with its checksum right, whatever its venue is."""
    body = encode_frame(EventBatch.of(TRADES, [(1, [event])]))[:-4].replace(b"north", venue)
    return body + crc32c(body).to_bytes(4, "little")


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("wanted", [{"q/sums"}, {"q/in", "q/sums"}], ids=["venue left out", "venue published"])
@pytest.mark.parametrize("company", [0, 9], ids=["alone", "in a run of frames"])
def test_a_frame_with_text_that_is_not_utf_8_is_bad_for_every_shard_whatever_it_reads(
    tmp_path, shards, wanted, company
):
    # Given one window that reads the venue, if it is published, and one that never does
    engine = LocalEngine(graph(), frozenset(wanted), tmp_path, shards=shards, entry_events=100)
    # When a frame comes whose venue is not UTF-8 and whose checksum is right
    good = [with_other_venue(insert(at, "ABC"[at % 3], 1.0, "north"), b"north") for at in range(2, 2 + company)]
    put(input_log(engine, "q/in"), with_other_venue(insert(1, "A", 2.0, "north"), b"n\xffrth"), *good)
    run_all(engine)
    # Then it is told once, as a frame, and not one of its events counts in any window
    (record,) = told(engine, engine.streams.bad)
    assert (record["block"], record["reason"]) == (1, "unparsable")
    assert "field venue" in record["detail"]
    assert [block for block, _ in engine.out("q/sums")] == list(range(2, 2 + company))


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
