"""Records as they are printed, and read back."""

from __future__ import annotations

import io
import json

import pytest

from lockstep.cli.formats import as_json, compile_format
from lockstep.cli.stream_write import NewRecord, Shape, from_json, pieces, repeated
from lockstep.errors import UsageError
from lockstep.streams.record import Record

RECORD = Record(
    "orders", 7, b"caf\xc3\xa9", b"k", (("a", b"1"), ("b", b"2")), 1_767_225_600_000_000_001, 1_767_225_601_000_000_000
)
BINARY = Record("orders/2", 8, b"\xff\x00", None, (("h", b"\xfe"),), 0, 0)


@pytest.mark.parametrize(
    ("format_text", "printed"),
    [
        (r"%o %k %v\n", b"7 k caf\xc3\xa9\n"),
        ("%s", b"orders"),
        ("%x|%b", b"636166c3a9|Y2Fmw6k="),
        ("%h", b"a=1,b=2"),
        ("%t %T", b"2026-01-01T00:00:00.000000001Z 2026-01-01T00:00:01.000000000Z"),
        (r"100%% \\ \t\r\0\x41", b"100% \\ \t\r\x00A"),
        ("", b""),
        ("plain é", "plain é".encode()),
    ],
)
def test_a_format_is_filled_in(format_text, printed) -> None:
    assert compile_format(format_text)(RECORD) == printed


def test_a_missing_key_is_printed_as_nothing_and_a_shard_as_its_stream() -> None:
    assert compile_format("[%k]%s")(BINARY) == b"[]orders"


@pytest.mark.parametrize("format_text", ["%q", "%", "\\q", "\\", "a%", "\\x4"])
def test_an_unknown_part_of_a_format_is_named(format_text) -> None:
    with pytest.raises(ValueError, match="means nothing in a format"):
        compile_format(format_text)


def test_json_has_a_stable_shape() -> None:
    assert as_json(RECORD) == {
        "stream": "orders",
        "shard": None,
        "offset": 7,
        "key": "k",
        "value": "café",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}],
        "created": "2026-01-01T00:00:00.000000001Z",
        "appended": "2026-01-01T00:00:01.000000000Z",
    }


def test_json_of_bytes_that_are_no_text_is_base64_under_another_name() -> None:
    shown = as_json(BINARY)
    assert (shown["stream"], shown["shard"], shown["key"], shown["value_base64"]) == ("orders", 2, None, "/wA=")
    assert shown["headers"] == [{"name": "h", "value_base64": "/g=="}]
    assert "value" not in shown


@pytest.mark.parametrize("record", [RECORD, BINARY])
def test_what_json_shows_can_be_published_again(record) -> None:
    made = from_json(json.dumps(as_json(record)).encode())
    assert made == NewRecord(record.value, record.key, record.headers, record.created_ns)


def test_headers_may_be_given_as_an_object() -> None:
    assert from_json(b'{"value": "v", "headers": {"a": "1"}}').headers == (("a", b"1"),)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"{}", "no value"),
        (b'{"value": 1}', "value is not a text"),
        (b'{"value": "v", "kye": "k"}', "'kye'"),
        (b'{"value_base64": "%"}', "not base64"),
        (b'{"value": "v", "headers": [1]}', "headers"),
        (b'{"value": "v", "headers": {"a": 1}}', "value is not a text"),
        (b'{"value": "v", "created": "soon"}', "not a time"),
    ],
)
def test_json_that_is_no_record_is_refused_with_the_reason(line, reason) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        list(Shape(is_json=True).records([b'{"value": "fine"}', line], "Line"))
    assert "Line 2" in str(refused.value)


def test_lines_become_records_with_keys_and_headers() -> None:
    shape = Shape(separator=b"::", headers=(("h", b"1"),))
    assert list(shape.records([b"k::v::w", b"::"])) == [
        NewRecord(b"v::w", b"k", (("h", b"1"),)),
        NewRecord(b"", b"", (("h", b"1"),)),
    ]
    with pytest.raises(UsageError, match=r"Record 1 is not a record: it has no key separator '::'"):
        list(shape.records([b"k:v"]))


def test_input_is_cut_at_line_ends_or_nul_bytes() -> None:
    assert list(pieces(io.BytesIO(b"a\n\nb\r\nc"), b"\n")) == [b"a", b"", b"b\r", b"c"]
    assert list(pieces(io.BytesIO(b"a\nb\0\0c"), b"\0")) == [b"a\nb", b"", b"c"]
    assert list(pieces(io.BytesIO(b""), b"\0")) == []


def test_nul_bytes_far_apart_are_found() -> None:
    long = b"x" * 200_000
    assert list(pieces(io.BytesIO(long + b"\0" + long), b"\0")) == [long, long]


def test_a_template_counts_from_one() -> None:
    assert list(repeated("order {n} of {x}", 2)) == [b"order 1 of {x}", b"order 2 of {x}"]


def test_the_size_is_what_the_stream_counts() -> None:
    assert NewRecord(b"abc", b"k", (("h", b"12"),)).size == 3 + 1 + 1 + 2 + 6
