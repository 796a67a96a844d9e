"""Events as XML: what is written is read again, what is no event is told, and nothing hostile is followed."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.xml_format import format_xml, read_xml_events

SCHEMA = Schema.parse("ID*:int32,symbol:string,price:double,time:date,paid:money,data:blob")
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co")), max_size=20)


def read(text: str | bytes, schema: Schema = SCHEMA, form: str | None = None):
    bad: list = []
    data = text.encode() if isinstance(text, str) else text
    return list(read_xml_events(BytesIO(data), schema, bad.append, form)), bad


@given(
    st.lists(
        st.tuples(
            st.sampled_from([Opcode.INSERT, Opcode.UPDATE, Opcode.UPSERT, Opcode.DELETE]),
            st.tuples(
                st.integers(-(2**31), 2**31 - 1), st.none() | TEXTS, st.none() | st.floats(allow_nan=False),
                st.none() | st.integers(0, 2**40), st.none() | st.integers(-(10**12), 10**12),
                st.none() | st.binary(min_size=1),
            ),
        )
    )
)  # fmt: skip
def test_what_is_written_is_read_again(rows):
    events = [Event(opcode, Flag.NORMAL, values) for opcode, values in rows]
    found, bad = read(format_xml(events, SCHEMA) + format_xml(events, SCHEMA))
    assert (found, bad) == (events * 2, [])


def test_transactions_attributes_and_dates_of_public_files():
    text = """<?xml version="1.0"?><events><transaction><event><opcode>i</opcode><ID key="true">1</ID>
     <symbol>A &amp; B</symbol><time>2010-08-04 13:30:00</time></event></transaction>
     <event><ID>2</ID></event></events>"""
    found, bad = read(text, form="%Y-%m-%d %H:%M:%S")
    assert [event.values for event in found] == [(1, "A & B", None, 1_280_928_600, None, None), (2, *[None] * 5)]
    assert bad == []


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ("<ID>x</ID>", "field ID"),
        ("<ID>1</ID><other>1</other>", "no field 'other'"),
        ("<ID>1</ID><ID>2</ID>", "occurs twice"),
        ("<ID><deep>1</deep></ID>", "stands inside"),
        ("<opcode>zap</opcode><ID>1</ID>", "not an opcode"),
    ],
)
def test_an_event_that_is_none_is_told_with_its_line_and_the_others_are_read(inside, why):
    found, bad = read(f"<events><event><ID>1</ID></event>\n<event>{inside}</event><event><ID>3</ID></event></events>")
    assert [event.values[0] for event in found] == [1, 3]
    assert [(line.line, why in line.detail) for line in bad] == [(2, True)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<events><event><ID>1</ID></event><eve", "not well-formed"),
        ("<events><event><ID>1</ID></event></wrong>", "mismatched tag"),
        ("<events><event><ID>1</ID></event><row/></events>", "'row' is no event"),
        ("<events><event><ID>1</ID></event>&bomb;</events>", "undefined entity"),
        (b"<events><event><ID>1</ID></event>\xff</events>", "not well-formed"),
    ],
)
def test_after_what_is_no_xml_nothing_is_read_and_that_is_told(text, why):
    found, bad = read(text)
    assert [event.values[0] for event in found] == [1]
    assert why in bad[0].detail
    assert "nothing after it is read" in bad[0].detail


def test_document_types_are_not_taken():
    _, bad = read('<!DOCTYPE a [<!ENTITY b "c">]><events><event><ID>1</ID></event></events>')
    assert len(bad) == 1
