"""Publishing by the public face: what is written, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from event_worlds import Desk, blocks_in
from hypothesis import given
from hypothesis import strategies as st

from lockstep.engine.errors import WindowNotFound
from lockstep.engine.events.frames import read_head
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.errors import BadArgument, BadRecord, NotFound
from lockstep.events import Event, Flag, Opcode, connect
from lockstep.events.clients import client_id
from lockstep.events.rows import event_of, row_of


@pytest.fixture
def desk(tmp_path):
    desk = Desk(f"memory:{tmp_path.name}")
    yield desk
    desk.close()


def insert(*values) -> Event:
    return Event(Opcode.INSERT, Flag.NORMAL, values)


def sent(desk: Desk) -> list[list[Event]]:
    return [events for _, events in blocks_in(desk.input)]


def heads(desk: Desk) -> list:
    bounds = desk.input.bounds()
    return [read_head(value) for _, value in values_between(desk.input, bounds.first, bounds.next)]


def test_rows_tuples_and_events_are_collected_to_blocks(desk):
    with desk.project.publisher("Trades", block=2) as publisher:
        publisher.publish({"ID": 1, "symbol": "a", "price": 2}, (2, "b", None))
        publisher.publish(Event(Opcode.DELETE, Flag.NORMAL, (1, None, None)))
    assert sent(desk) == [
        [insert(1, "a", 2.0), insert(2, "b", None)],
        [Event(Opcode.DELETE, Flag.NORMAL, (1, None, None))],
    ]
    assert (publisher.events, publisher.blocks) == (3, 2)


def test_a_block_is_sent_behind_what_was_collected(desk):
    publisher = desk.project.publisher("q/Trades", block=5, transactional=True)
    publisher.publish({"ID": 1, "opcode": "upsert"})
    receipt = publisher.publish_block([(2, "b", 1.0), {"ID": 3, "opcode": "D", "flags": "NP", "block": 17}])
    assert receipt.result() == 1
    publisher.close()
    publisher.close()
    assert sent(desk) == [
        [Event(Opcode.UPSERT, Flag.NORMAL, (1, None, None))],
        [insert(2, "b", 1.0), Event(Opcode.DELETE, Flag.NORMAL | Flag.PARTIAL, (3, None, None))],
    ]


def test_csv_json_and_arrow_say_the_same(desk):
    table = pa.table({"ID": pa.chunked_array([[1], [2]]), "symbol": ["a", None], "price": pa.array([1.5, 2.0])})
    with desk.project.publisher("Trades", block=2) as publisher:
        csv = publisher.publish_csv("I,N,1,a,1.5\nI,N,2,,2.0\nI,N,oops\n")
        json = publisher.publish_json(['{"ID":1,"symbol":"a","price":1.5}', '{"ID":2,"price":2.0}', "nonsense"])
        arrow = publisher.publish_arrow(table)
        publisher.publish_arrow(pa.RecordBatch.from_pydict({"ID": [9], "opcode": ["delete"]}))
    assert sent(desk)[:3] == [[insert(1, "a", 1.5), insert(2, None, 2.0)]] * 3
    assert sent(desk)[3] == [Event(Opcode.DELETE, Flag.NORMAL, (9, None, None))]
    assert [(one.events, one.blocks, one.bad.total) for one in (csv, json, arrow)] == [(2, 1, 1), (2, 1, 1), (2, 1, 0)]


def test_a_transactional_block_of_json_is_refused_whole(desk):
    lines = ['{"ID":1}', "nonsense", '{"ID":3}', '{"ID":4}', "x", "x"]
    with desk.project.publisher("Trades", block=2, transactional=True) as publisher:
        told = publisher.publish_json(lines)
    assert sent(desk) == [[insert(3, None, None), insert(4, None, None)]]
    assert told.bad.counts["json"] == {"unparsable": 3, "transaction": 1}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"ID": 1, "Symbol": "a"}, "no field 'Symbol'"),
        ({"ID": "1"}, "field ID: '1' is no int64"),
        ({"ID": True}, "is no int64"),
        ({"ID": 2**63}, "is no int64"),
        ({"ID": 1, "price": "x"}, "field price: 'x' is no double"),
        ({"ID": 1, "symbol": "\ud800"}, "surrogate"),
        ({"ID": 1, "opcode": "X"}, "X"),
        ((1, "a"), "it has 2 values, not 3"),
        ("I,N,1", "not text"),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(desk, item, words):
    with desk.project.publisher("Trades") as publisher, pytest.raises(BadRecord, match=words):
        publisher.publish({"ID": 1}, item)
    assert sent(desk) == []


def test_tables_with_strange_columns_are_refused(desk):
    with desk.project.publisher("Trades") as publisher:
        with pytest.raises(BadRecord, match="no field 'id'"):
            publisher.publish_arrow(pa.table({"id": [1]}))
        with pytest.raises(BadRecord, match="parse"):
            publisher.publish_arrow(pa.table({"ID": ["x"]}))
        with pytest.raises(BadRecord):
            publisher.publish_arrow(pa.table({"ID": [1], "opcode": ["Q"]}))


KINDS = Schema.parse("k*:int32,when:date,at:stamp,cost:money,raw:blob,many:array(i64),x:double")


def test_values_of_other_libraries_are_taken():
    at = datetime(2024, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
    given = (np.int32(7), at, at, Decimal("1.25"), bytearray(b"ab"), [1, None], 3)
    made = event_of(given, KINDS, "s")
    assert made.values == (7, 1704164645, 1704164645000678, 12_500, b"ab", (1, None), 3.0)
    assert all(type(value) in (int, bytes, tuple, float) for value in made.values)
    for bad in (Decimal("0.00001"), Decimal("NaN"), 1.5):
        with pytest.raises(BadRecord, match="cost"):
            event_of({"k": 1, "cost": bad}, KINDS, "s")
    with pytest.raises(BadRecord, match="when"):
        event_of({"k": 1, "when": at.replace(tzinfo=None)}, KINDS, "s")


@given(st.data())
def test_a_row_read_can_be_published_again(data):
    named = Schema.parse("block*:int32,opcode:string,x:double")
    schema = data.draw(st.sampled_from([named, Schema.parse("k*:int32,name:string,x:double")]))
    values = (
        data.draw(st.integers(-5, 5)),
        data.draw(st.none() | st.text(st.characters(codec="utf-8"), max_size=3)),
        1.5,
    )
    given = Event(data.draw(st.sampled_from(Opcode)), data.draw(st.sampled_from([Flag(1), Flag(5)])), values)
    assert event_of(row_of(given, 12, schema), schema, "s") == given


def test_a_client_with_a_name_goes_on_behind_its_last_block(desk):
    with desk.project.publisher("Trades", client="feed") as publisher:
        publisher.publish((1, "a", 1.0), (2, "b", 1.0))
    with desk.project.publisher("Trades", client="other") as publisher:
        publisher.publish((5, "x", 1.0))
    with desk.project.publisher("Trades", client="feed") as publisher:
        assert publisher.next_id == 3
        publisher.publish((3, "c", 1.0))
    with desk.project.publisher("Trades", client=client_id("feed"), next_id=1) as publisher:
        publisher.publish((1, "a", 1.0))
    with desk.project.publisher("Trades", client="feed") as publisher:
        assert publisher.next_id == 4
    feed = [head for head in heads(desk) if head.client == client_id("feed")]
    assert [head.first for head in feed] == [1, 2, 3, 1]


def test_names_that_are_not_there_are_refused(desk, tmp_path):
    with pytest.raises(WindowNotFound, match="no source window 'Copy'"):
        desk.project.publisher("Copy")
    with pytest.raises(BadArgument):
        desk.project.publisher("Trades", client=b"short")
    with pytest.raises(BadArgument):
        desk.project.publisher("Trades", block=0)
    with connect(f"memory:{tmp_path.name}") as events:
        assert events.projects() == ["desk"]
        with pytest.raises(NotFound, match="Nothing says yet"):
            events.project("desk")
        with pytest.raises(NotFound, match="'dusk' does not exist"):
            events.project("dusk")
        desk.state()
        assert events.project("desk").sources() == ["q/Trades"]
        with pytest.raises(BadArgument, match="not the model of"):
            events.project("dusk", model=desk.graph)


def test_windows_that_can_be_used_are_listed(desk):
    assert desk.project.sources() == ["q/Trades"]
    assert desk.project.windows() == ["q/Copy"]
