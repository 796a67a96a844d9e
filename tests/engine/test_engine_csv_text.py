from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_frames_cases import VALUES

from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import FieldType
from lockstep.engine.events.text import BadText, formatter, parse_flags, parse_opcode, parser

F = FieldType


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(FieldType))
def test_every_value_reads_back_from_its_text(data, kind):
    value = data.draw(VALUES[kind])
    assert repr(parser(kind)(formatter(kind)(value))) == repr(value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (F.INT32, " +7\t", 7),
        (F.INT64, "-9223372036854775808", -(2**63)),
        (F.DOUBLE, ".5", 0.5),
        (F.DOUBLE, "-Infinity", float("-inf")),
        (F.MONEY, "12.3400", 123_400),
        (F.MONEY, "-.5", -5000),
        (F.MONEY, "1.00000", 10_000),
        (F.BLOB, "AAE=", b"\0\x01"),
        (F.ARRAY_INT32, "[1; 2;;3]", (1, 2, None, 3)),
        (F.ARRAY_DOUBLE, "[]", ()),
        (F.ARRAY_DOUBLE, "[;]", (None,)),
        (F.STRING, " as it is ", " as it is "),
    ],
)
def test_texts_that_are_values(kind, text, value):
    assert parser(kind)(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (F.INT32, "2147483648", "overflow"),
        (F.INT32, "1.0", "unparsable"),
        (F.INT32, "", "unparsable"),
        (F.INT32, "٣", "unparsable"),
        (F.INT64, "9" * 10_000, "overflow"),
        (F.INT64, "0x1F", "unparsable"),
        (F.INT64, "1_000", "unparsable"),
        (F.DOUBLE, "1e999", "overflow"),
        (F.DOUBLE, "1_0.0", "unparsable"),
        (F.DOUBLE, "nan(1)", "unparsable"),
        (F.MONEY, "0.00001", "overflow"),
        (F.MONEY, "922337203685477.5808", "overflow"),
        (F.MONEY, ".", "unparsable"),
        (F.MONEY, "1e5", "unparsable"),
        (F.BLOB, "A", "unparsable"),
        (F.ARRAY_INT32, "1;2", "unparsable"),
        (F.ARRAY_INT32, "[1;x]", "unparsable"),
        (F.ARRAY_INT32, "[3000000000]", "overflow"),
    ],
)
def test_texts_that_are_none_have_a_reason(kind, text, reason):
    with pytest.raises(BadText) as caught:
        parser(kind)(text)
    assert caught.value.reason == reason


def test_times_in_a_format_are_utc_unless_they_name_a_zone():
    assert parser(F.DATE, "%Y-%m-%d")("1970-01-02") == 86_400
    assert parser(F.STAMP, "%Y-%m-%dT%H:%M%z")("1970-01-01T02:00+0200") == 0
    assert formatter(F.STAMP, "%H:%M:%S.%f")(1_000_001) == "00:00:01.000001"


def test_opcodes_and_flags_by_letter_and_name():
    assert parse_opcode(" upsert ") is Opcode.UPSERT
    assert parse_opcode("ub") is Opcode.UPDATE_BLOCK
    assert parse_opcode("") is Opcode.INSERT
    assert parse_flags("rp") == Flag.PARTIAL | Flag.RETENTION
    for parse, text, reason in (
        (parse_opcode, "x", "bad-opcode"),
        (parse_flags, "NN", "unparsable"),
    ):
        with pytest.raises(BadText) as caught:
            parse(text)
        assert caught.value.reason == reason
