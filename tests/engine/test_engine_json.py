from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_frames_cases import events, schemas

from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.json_format import format_event, parse_event, read_json, write_json
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BadText

SCHEMA = Schema.parse("ID*:int32,name:string,x:double,cash:money,raw:blob,many:array(dbl),at:stamp")


@settings(max_examples=150, deadline=None)
@given(st.data(), schemas())
def test_what_is_written_is_read_again_and_is_json(data, schema):
    made = data.draw(st.lists(events(schema), max_size=5))
    file = io.BytesIO()
    assert write_json(made, schema, file) == len(made)
    bad = []
    assert repr(list(read_json(io.BytesIO(file.getvalue()), schema, bad.append))) == repr(made)
    assert bad == []
    for line in file.getvalue().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_how_it_looks():
    event = Event(Opcode.UPDATE_BLOCK, Flag.RETENTION, (1, "é", float("inf"), 12_500, b"\0", (1.0, None), 5))
    assert format_event(event, SCHEMA) == (
        '{"opcode":"update_block","flags":"R","ID":1,"name":"é","x":"inf","cash":1.25,"raw":"AA==","many":[1.0,null],"at":5}'
    )


def test_money_and_large_numbers_are_exact():
    schema = Schema.parse("ID*:int64,cash:money")
    event = parse_event('{"ID":9007199254740993,"cash":922337203685477.5807}', schema)
    assert event == Event(Opcode.INSERT, Flag.NORMAL, (9007199254740993, 2**63 - 1))


def test_missing_fields_are_null_and_opcodes_have_letters_or_names():
    event = parse_event('{"opcode":"p","ID":1}', SCHEMA)
    assert (event.opcode, event.values[1:]) == (Opcode.UPSERT, (None,) * 6)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"ID":1,"ID":2}', "unparsable"),
        ('{"ID":1,"other":2}', "unparsable"),
        ('{"x":NaN}', "unparsable"),
        ("{", "unparsable"),
        ("[" * 100_000, "unparsable"),
        ("5", "unparsable"),
        ('{"name":"\\ud800"}', "unparsable"),
        ('{"ID":"1"}', "wrong-type"),
        ('{"ID":1.0}', "wrong-type"),
        ('{"ID":true}', "wrong-type"),
        ('{"x":true}', "wrong-type"),
        ('{"x":"1"}', "wrong-type"),
        ('{"name":5}', "wrong-type"),
        ('{"many":5}', "wrong-type"),
        ('{"opcode":5}', "wrong-type"),
        ('{"opcode":"x"}', "bad-opcode"),
        ('{"ID":2147483648}', "overflow"),
        ('{"x":1e999}', "overflow"),
        ('{"cash":0.00001}', "overflow"),
        ('{"raw":"A"}', "unparsable"),
    ],
)
def test_what_is_refused(text, reason):
    with pytest.raises(BadText) as caught:
        parse_event(text, SCHEMA)
    assert caught.value.reason == reason


def test_bad_lines_take_nothing_with_them():
    bad = []
    data = b'{"ID":1}\nnonsense\n\n[{"ID":2},{"ID":"x"},{"ID":3}]\n\xff\n{"ID":4}'
    found = list(read_json(io.BytesIO(data), SCHEMA, bad.append))
    assert [event.values[0] for event in found] == [1, 2, 3, 4]
    assert [(one.line, one.reason) for one in bad] == [(2, "unparsable"), (4, "wrong-type"), (5, "unparsable")]


def test_one_array_over_several_lines():
    found = list(read_json(io.BytesIO(b'[\n {"ID":1},\n {"ID":2}\n]\n'), SCHEMA, pytest.fail))
    assert [event.values[0] for event in found] == [1, 2]


def test_a_field_called_opcode_is_a_field():
    schema = Schema.parse("opcode*:string")
    event = Event(Opcode.DELETE, Flag.NORMAL, ("insert",))
    assert format_event(event, schema) == '{"@opcode":"delete","@flags":"N","opcode":"insert"}'
    assert parse_event(format_event(event, schema), schema) == event


def test_times_in_a_format():
    event = parse_event('{"ID":1,"at":"1970-01-02"}', SCHEMA, "%Y-%m-%d")
    assert event.values[-1] == 86_400_000_000
    assert '"at":"1970-01-02"' in format_event(event, SCHEMA, "%Y-%m-%d")
