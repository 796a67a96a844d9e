"""Records as events: as they are, and with their values decoded; what is none is told, whatever is around it."""

from __future__ import annotations

import json
import struct
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.events import json_format
from lockstep.engine.events.avro_format import AvroForm, BadAvroSchema
from lockstep.engine.events.event import Opcode
from lockstep.engine.events.json_format import ObjectColumns, ObjectReader
from lockstep.engine.events.record_format import BadRecord, RecordForm, RecordOptions, Records
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BadText

PLAIN = Schema.parse("shard*:int32,offset*:int64,key:string,value:string,time:stamp")
ROWS = Schema.parse("ID*:int64,name:string,price:double")


def records(*values: bytes, keys: list[bytes | None] | None = None, first: int = 0) -> Records:
    count = len(values)
    offset = np.arange(first, first + count, dtype=np.int64)
    return Records(np.full(count, 2, np.int64), offset, keys or [None] * count, values, [7_999] * count)


def made(schema: Schema, found: Records, **options: object) -> tuple[list, list[BadRecord]]:
    form = RecordForm(schema, RecordOptions(**options))  # type: ignore[arg-type]
    batch, bad = form.events(found, found.offset + 100, None)
    return [(number, [tuple(each) for each in events]) for number, events in batch.blocks()], bad


def test_a_record_as_it_is_and_one_that_is_no_text():
    found = records(b"a", b"\xff", "é".encode(), keys=[b"k", None, None], first=5)
    blocks, bad = made(PLAIN, found)
    assert blocks == [(105, [(1, 1, (2, 5, "k", "a", 7))]), (107, [(1, 1, (2, 7, None, "é", 7))])]
    assert bad == [BadRecord(1, "unparsable", "field value: not UTF-8 at byte 0")]
    # And what is bad does not depend on the columns that somebody needs
    batch, same = RecordForm(PLAIN, RecordOptions()).events(found, found.offset, frozenset({"offset"}))
    assert (batch.columns[3], batch.column("offset").to_pylist(), same) == (None, [5, 7], bad)


def test_bytes_need_not_be_text_and_upserts_are_wanted():
    schema = Schema.parse("key*:blob,value:blob,time:date")
    blocks, bad = made(schema, records(b"\xff", keys=[b"\xfe"]), upsert=True)
    assert (blocks, bad) == ([(100, [(Opcode.UPSERT, 1, (b"\xfe", b"\xff", 0))])], [])


def test_json_of_somebody_else():
    good = [b'{"ID":1,"name":"a","price":0.5,"more":[1]}', b'{"ID":2,"opcode":"delete"}', b'{"ID":3,"price":2}']
    bad = [
        b"",
        b"[]",
        b"{",
        b'{"ID":1.5}',
        b'{"ID":1,"ID":2}',
        b'{"ID":99999999999999999999}',
        b"\xff",
        b'{"opcode":1}',
    ]
    blocks, found = made(ROWS, records(*good, *bad), decode="json")
    assert [row for _, [row] in blocks] == [(1, 1, (1, "a", 0.5)), (4, 1, (2, None, None)), (1, 1, (3, None, 2.0))]
    reasons = ["unparsable"] * 3 + ["wrong-type", "unparsable", "overflow", "unparsable", "wrong-type"]
    assert [(each.at, each.reason) for each in found] == list(enumerate(reasons, 3))


ALL_TYPES = (
    "ID*:int64,n:int32,p:double,s:string,t:stamp,d:date,b:blob,a:array(dbl),i:array(i32),l:array(i64)",
    "ID*:int64,opcode:string,p:double",
    "ID*:int64,m:money",
)
KEYS = ["ID", "n", "p", "s", "t", "d", "b", "a", "i", "l", "m", "opcode", "flags", "@opcode", "more", "é", ""]
KEYS += [r"\u0049D", r"\u006fpcode"]
JSON_VALUES = st.sampled_from([
    "0", "-0", "-0.0", "0.1", "1e2", "1E-2", "7", "-3", "1e400", "1e-400", "01", "1.", ".5", "+1", "0x1", "1" * 30,
    "1" * 500, "2147483647", "2147483648", "-9223372036854775808", "9223372036854775808", "NaN", "Infinity",
    '""', '"x"', '"nan"', '"inf"', '"aGk="', '"1"', '"2026-01-05 09:30:00"', r'"\ud800"', r'"\u00e9\n"', r'"\u0000"',
    '"é😀"', '"\ufeff"', '"a\nb"', '"insert"', '"delete"', '"P"', '"N"', '"opcode"', '"no', r'"\x"', '"}\n{"', "null",
    "true", "[]", "{}", "[1,null]", "[1.5,-0]", '["nan"]', '[{"a":1},{"a":2,"b":[]}]', '{"a":1,"a":2}', "[1,[2]]",
    "]", "[" * 300 + "]" * 300,
])  # fmt: skip
PAIRS = st.tuples(st.sampled_from(KEYS), JSON_VALUES).map(lambda pair: f'"{pair[0]}":{pair[1]}')
OBJECTS = st.lists(PAIRS, max_size=4).map(lambda pairs: "{" + ",".join(pairs) + "}")
ODD_ENDS = [
    (" ", "\r\n"),
    ("\ufeff", ""),
    ("", "{}"),
    ("", ",{}"),
    ("\v", ""),
    ("[", "]"),
    ("{", ""),
    ("", "\0}"),
    ("", "}"),
]
AROUND = st.sampled_from([("", "")] * 6 + ODD_ENDS)
ODD_JSON = [b"", b" ", b"{", b"}", b"[]", b"3", b"{}{}", b'{"ID":\n1}', b'{"s":"\xff"}', b'{"x":{}', b'{"x":"']
JSON_RECORDS = st.one_of(
    st.tuples(AROUND, OBJECTS).map(lambda parts: (parts[0][0] + parts[1] + parts[0][1]).encode()),
    st.sampled_from(ODD_JSON),
)
FORMATS = st.sampled_from([None, "%Y-%m-%d %H:%M:%S"])


@settings(max_examples=400)
@given(
    st.sampled_from(ALL_TYPES),
    st.sampled_from([None, "%Y-%m-%d %H:%M:%S"]),
    st.lists(JSON_RECORDS, min_size=1, max_size=3),
)
def test_json_by_columns_says_what_each_value_says_alone(schema, date_format, values):
    schema = Schema.parse(schema)
    rows = ObjectReader(schema, date_format, Opcode.UPSERT)
    for first in (1, 256):  # as if there were many
        with patch.object(json_format, "_FIRST", first):
            batch = ObjectColumns(schema, date_format, Opcode.UPSERT).read(values)
        if batch is None:  # which is always right
            continue
        assert repr(batch.events()) == repr([rows.event(value) for value in values])
        assert [column.type for column in batch.columns] == [field.type.arrow for field in schema]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"ID": st.integers(-(2**63), 2**63 - 1)},
            optional={
                "n": st.none() | st.integers(-(2**31), 2**31 - 1), "p": st.none() | st.floats(1e-300, 1e300),
                "s": st.none() | st.text(max_size=5), "t": st.just("2026-01-05 09:30:00"), "b": st.just("aGk="),
                "a": st.lists(st.none() | st.floats(0.5, 9), max_size=3), "opcode": st.just("delete"),
                "other": st.integers(), "others": st.lists(st.integers(0, 9), max_size=2),
            },
        ),
        min_size=1, max_size=5,
    ),
    st.booleans(),
)  # fmt: skip
def test_usual_json_is_read_by_columns(objects, is_indented):
    schema, date_format = Schema.parse(ALL_TYPES[0]), "%Y-%m-%d %H:%M:%S"
    values = [json.dumps(each, indent=1 if is_indented else None, ensure_ascii=False).encode() for each in objects]
    if any("\ufeff" in each.get("s", "") for each in objects if each.get("s")):
        return
    batch = ObjectColumns(schema, date_format, Opcode.INSERT).read(values)
    assert batch is not None
    rows = ObjectReader(schema, date_format, Opcode.INSERT)
    assert repr(batch.events()) == repr([rows.event(value) for value in values])


@pytest.mark.parametrize(
    "values",
    [
        [b'{"more":NaN}'],
        [b'{"more":[1,-Infinity]}'],
        [b'{"p":-0}'],
        [b'{"p":1e400}'],
        [b'{"more":1,"more":2}'],
        [b'{"more":{"a":1,"a":1}}'],
        [b'{"ID":1', b',"n":2} {"ID":3}'],
        [b'{"ID":1}{"ID":2}', b" "],
        [b'{"opcode":null}'],
        [rb'{"\u006fpcode":null}', b'{"more":"opcode"}'],
        [b'{"ID":1}\0}'],
        [b'{"more":"\xff"}'],
        [b'\xef\xbb\xbf{"ID":1}'],
        [b'{"i":[2147483648]}'],
        [b'{"more":' + b"[" * 201 + b"]" * 201 + b"}"],
    ],
)
def test_objects_that_arrow_would_read_in_another_way_are_left_to_the_rows(values):
    assert ObjectColumns(Schema.parse(ALL_TYPES[0]), None, Opcode.INSERT).read(values) is None


@pytest.mark.parametrize("name", [b'"u%d":%d', b'"users":{"u%d":%d}', b'"users":[{"u%d":%d}]'])
def test_objects_that_all_have_other_names_are_read_in_small_parts(name):
    """Arrow keeps a cell of each name for each object: 16,384 objects would take gigabytes."""
    values = [b'{"ID":%d,' % number + name % (number, number) + b"}" for number in range(2_000)]
    columns = ObjectColumns(ROWS, None, Opcode.INSERT)
    assert columns.read(values) is None
    assert columns.read(values[:200]) is not None
    blocks, bad = made(ROWS, records(*values), decode="json")
    assert (len(blocks), blocks[-1], bad) == (2_000, (2_099, [(1, 1, (1_999, None, None))]), [])
    # And of an object that has very many names, there are few in a part
    many = b"{" + b",".join(b'"n%d":1' % number for number in range(4_000)) + b"}"
    assert columns.read([many] * 64) is not None
    assert columns.read([many] * 128) is None


def test_many_objects_are_read_at_once_but_for_those_that_are_bad(monkeypatch):
    values = [b'{"ID":%d,"name":"n%d","price":%d.25}' % (number, number, number) for number in range(1, 3_000)]
    values[700], values[2_500] = b'{"ID":1,"x":1,"x":2}', b'{"ID":4,"price":"nan"}'
    one_by_one = []
    read = ObjectReader.event
    monkeypatch.setattr(ObjectReader, "event", lambda self, data: one_by_one.append(data) or read(self, data))
    blocks, bad = made(ROWS, records(*values), decode="json")
    assert (len(blocks), blocks[-1]) == (2_998, (3_098, [(1, 1, (2_999, "n2999", 2_999.25))]))
    assert [(each.at, each.detail) for each in bad] == [(700, "field 'x' occurs twice")]
    assert len(one_by_one) < 150


def test_how_deep_an_object_may_be_does_not_depend_on_the_stack():
    deep = [b'{"ID":1,"x":' + b"[" * depth + b"]" * depth + b"}" for depth in (199, 200, 100_000)]
    text = b'{"ID":1,"name":"' + b"[" * 300 + b'"}'
    blocks, bad = made(ROWS, records(*deep, text), decode="json")
    assert [number for number, _ in blocks] == [100, 103]
    assert [(each.at, each.detail) for each in bad] == [(1, "nested deeper than 200"), (2, "nested deeper than 200")]


def test_many_values_are_taken_piece_by_piece():
    values = [b'{"ID":%d}' % number for number in range(9_000)]
    values[4_100] = values[8_999] = b"no"
    blocks, bad = made(ROWS, records(*values), decode="json")
    assert [each.at for each in bad] == [4_100, 8_999]
    assert [number - 100 for number, _ in blocks] == [at for at in range(8_999) if at != 4_100]


def test_fields_of_the_record_beside_those_of_its_value():
    schema = Schema.parse("record_shard*:int32,record_offset*:int64,record_key:string,ID:int64,record_time:stamp")
    blocks, bad = made(schema, records(b'{"ID":1,"record_key":"x"}', b"{}", keys=[b"k", b"\xff"]), decode="json")
    assert blocks == [(100, [(1, 1, (2, 0, "k", 1, 7))])]
    assert [each.detail for each in bad] == ["field record_key: not UTF-8 at byte 0"]


NAMES = st.sampled_from(["a", '"b"', '"c,d"', "", '"', "é"])
ODD = [b"", b"\n", b"1,a,1\n", b"1,a,1\r\n", b"1,a", b"1,a,1\n2,b,2", b"\xff,a,1", b'1,"a\nb",2', b"1,a\rb,2"]
LINES = st.lists(
    st.one_of(
        st.tuples(st.integers(-9, 9), NAMES, st.sampled_from(["0", "1.5", "x"])).map(
            lambda row: ",".join(map(str, row)).encode()
        ),
        st.sampled_from(ODD),
    ),
    min_size=1,
    max_size=90,
)


@settings(max_examples=40)
@given(LINES)
def test_csv_by_columns_says_what_each_line_says_alone(lines):
    together, bad = made(ROWS, records(*lines), decode="csv")
    alone = [made(ROWS, records(line), decode="csv") for line in lines]
    rows = [(100 + at, blocks[0][1]) for at, (blocks, _) in enumerate(alone) if blocks]
    assert repr(together) == repr(rows)
    assert bad == [BadRecord(at, each.reason, each.detail) for at, (_, found) in enumerate(alone) for each in found]


def test_many_lines_of_csv_are_read_at_once_but_for_those_that_are_bad():
    lines = [f"{number},name{number},{number / 4}".encode() for number in range(1_000)]
    lines[700] = b"x,y,z"
    blocks, bad = made(ROWS, records(*lines), decode="csv")
    assert (len(blocks), blocks[-1]) == (999, (1_099, [(1, 1, (999, "name999", 249.75))]))
    assert [(each.at, each.reason) for each in bad] == [(700, "unparsable")]


# Avro

ORDER = {
    "type": "record", "name": "Order", "namespace": "a.b", "fields": [
        {"name": "ID", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "price", "type": "float"},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "sizes", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "next", "type": ["null", "Order"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "on", "type": "boolean"},
    ],
}  # fmt: skip
AVRO = Schema.parse(
    "ID*:int64,note:string,price:double,side:string,at:stamp,amount:money,sizes:array(i32),hash:blob,on:int32"
)


def number(value: int) -> bytes:
    """As the specification has it: zig-zag, then seven bits a byte, the lowest first."""
    value = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while value > 127:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def sized(data: bytes) -> bytes:
    return number(len(data)) + data


def order(id_: int, note: str | None, inner: bytes = b"") -> bytes:
    has_note = number(0) if note is None else number(1) + sized(note.encode())
    items = number(-2) + number(3) + number(1) + number(7) + number(0) + number(0)
    tags = number(1) + sized(b"x") + struct.pack("<d", 1.0) + number(0)
    after = number(1) + inner if inner else number(0)
    amount = sized((-1234).to_bytes(2, "big", signed=True))
    begin = number(id_) + has_note + struct.pack("<f", 0.5) + number(1) + number(1_500) + amount
    return begin + items + tags + after + b"\x01\x02\x03\x04" + b"\x01"


@settings(max_examples=30)
@given(st.integers(-(2**63), 2**63 - 1), st.none() | st.text(), st.booleans())
def test_avro_as_the_specification_writes_it(id_, note, has_next):
    form = AvroForm(json.dumps(ORDER), AVRO)
    data = order(id_, note, order(1, "inner") if has_next else b"")
    values = (id_, note, 0.5, "SELL", 1_500_000, -123_400, (7, None), b"\x01\x02\x03\x04", 1)
    assert form.values(data) == values
    for cut in (data[:-1], data + b"\x00", data[:3]):
        with pytest.raises(BadText):
            form.values(cut)


@settings(max_examples=50)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_row_or_a_bad_text(data):
    found, reason = (), ""
    try:
        found = AvroForm(json.dumps(ORDER), AVRO).values(data)
    except BadText as fault:
        reason = fault.reason
    assert len(found) == len(AVRO) or reason in ("unparsable", "overflow")


def test_an_array_that_takes_no_bytes_has_an_end():
    nulls = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "ID", "type": "int"}, {"name": "n", "type": {"type": "array", "items": "null"}}],
    }
    with pytest.raises(BadText, match="items"):
        AvroForm(json.dumps(nulls), Schema.parse("ID*:int32")).values(number(1) + number(2**40))


@pytest.mark.parametrize(
    ("schema", "fields", "reason"),
    [
        ("{", "ID*:int64", "JSON"),
        ('"long"', "ID*:int64", "must be a record"),
        ('{"type":"record","name":"R","fields":[]}', "ID*:int64", "no field 'ID'"),
        ('{"type":"record","name":"R","fields":[{"name":"ID","type":"string"}]}', "ID*:int64", "no int64"),
        ('{"type":"record","name":"R","fields":[{"name":"ID","type":["string","long"]}]}', "ID*:int64", "no int64"),
        ('{"type":"record","name":"R","fields":[{"name":"ID","type":"Other"}]}', "ID*:int64", "no type 'Other'"),
        ('{"type":"record","fields":[]}', "ID*:int64", "no name"),
        ('{"type":"record","name":"R","fields":[3]}', "ID*:int64", "is no field"),
        ("[" * 200 + "]" * 200, "ID*:int64", "nested deeper"),
    ],
)
def test_avro_schemas_that_do_not_fit(schema, fields, reason):
    with pytest.raises(BadAvroSchema, match=reason):
        AvroForm(schema, Schema.parse(fields))
