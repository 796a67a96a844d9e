from __future__ import annotations

import pytest

from lockstep.engine.errors import BadEventText, WindowNotFound
from lockstep.engine.events.event import Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.script import read_script

SCHEMAS = {"Trades": Schema.parse("ID*:int32,price:double"), "Rates": Schema.parse("code*:string,rate:double")}


def schema_of(name: str) -> Schema:
    if name not in SCHEMAS:
        raise WindowNotFound(model="m", what="source window", name=name, known=", ".join(SCHEMAS))
    return SCHEMAS[name]


def read(text: str, **more):
    return list(read_script(text.splitlines(keepends=True), schema_of, **more))


def test_a_script_says_the_order_of_blocks_and_ticks():
    found = read(
        '# begin\nTrades,I,N,1,1.5\nTrades,i,n,2,\n\n\nRates,P,N,"a,b",2\n\ntick,5000000\ntransactional\nTrades,D,N,1\n'
        "tick,1970-01-01T00:00:07\nTick,1970-01-01T01:00:08+01:00\n"
    )
    assert [(one.window, len(one.events), one.transactional, one.tick_us) for one in found] == [
        ("Trades", 2, False, None),
        ("Rates", 1, False, None),
        ("", 0, False, 5_000_000),
        ("Trades", 1, True, None),
        ("", 0, False, 7_000_000),
        ("", 0, False, 8_000_000),
    ]
    assert [event.values for event in found[0].events] == [(1, 1.5), (2, None)]
    assert found[1].events[0].values == ("a,b", 2.0)
    assert found[3].events[0].opcode is Opcode.DELETE
    assert [one.line for one in found] == [2, 6, 8, 10, 11, 12]


def test_a_tick_may_be_a_lagging_one():
    found = read("tick,1\ntick,2,lagging\ntick,1970-01-01T00:00:07, Lagging\n")
    assert [(one.tick_us, one.lagging) for one in found] == [(1, False), (2, True), (7_000_000, True)]
    for words in ("late", "", "lagging,lagging"):
        with pytest.raises(BadEventText, match="write lagging"):
            read(f"tick,1,{words}\n")


def test_another_window_begins_another_block():
    assert [one.window for one in read("Trades,I,N,1,1\nRates,I,N,a,1\nTrades,I,N,2,1\n")] == [
        "Trades",
        "Rates",
        "Trades",
    ]


def test_transactional_is_for_the_next_block_only():
    found = read("transactional\n# note\nTrades,I,N,1,1\n\nTrades,I,N,2,1\n")
    assert [one.transactional for one in found] == [True, False]


def test_a_broken_line_is_a_bad_record_or_an_error():
    text = "Trades,I,N,x,1\nTrades,I,N,2,1\ntick,soon\n"
    bad = []
    found = read(text, on_bad=bad.append)
    assert [one.events[0].values for one in found] == [(2, 1.0)]
    assert [(one.line, one.reason) for one in bad] == [(1, "unparsable"), (3, "unparsable")]
    with pytest.raises(BadEventText, match=r"my\.txt, line 1: field ID"):
        read(text, source="my.txt")


def test_a_block_whose_only_line_is_broken_is_still_a_block():
    assert [len(one.events) for one in read("Trades,I,N,x,1\n\n", on_bad=lambda _: None)] == [0]


def test_a_window_that_is_none_is_an_error():
    with pytest.raises(WindowNotFound, match="Tradse"):
        read("Tradse,I,N,1,1\n")
