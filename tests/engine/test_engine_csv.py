from __future__ import annotations

import io

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_engine_frames_cases import events, schemas

from lockstep.engine.errors import FileMissing
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.csv_format import BadLine, CsvOptions, CsvOutput, header_line, lines_of, read_csv, write_csv
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.errors import BadArgument

SCHEMA = Schema.parse("ID*:int32,symbol:string,price:double")
MANY = settings(max_examples=150, deadline=None)


def read(data: bytes, schema: Schema = SCHEMA, options: CsvOptions | None = None, **more):
    bad: list[BadLine] = []
    batches = list(read_csv(io.BytesIO(data), schema, options or CsvOptions(), bad.append, **more))
    return (concat(batches) if batches else EventBatch.empty(schema)), bad


def values(data: bytes, **options) -> list[tuple]:
    batch, bad = read(data, options=CsvOptions(**options))
    assert bad == []
    return [event.values for event in batch.events()]


def write(batch: EventBatch, **output) -> bytes:
    file = io.BytesIO()
    write_csv(batch, file, CsvOutput(**output))
    return file.getvalue()


def event(opcode: Opcode, *row, flags: Flag = Flag.NORMAL) -> Event:
    return Event(opcode, flags, row)


def batch_of(*made: Event) -> EventBatch:
    return EventBatch.of(SCHEMA, [(1, list(made))])


@MANY
@given(st.data(), schemas(), st.sampled_from([",", ";", "|", "\t"]))
def test_what_is_written_is_read_again(data, schema, delimiter):
    made = data.draw(st.lists(events(schema), max_size=8))
    text = write(EventBatch.of(schema, [(1, made)]), delimiter=delimiter)
    for by_columns in (True, False):
        batch, bad = read(text, schema, CsvOptions(delimiter=delimiter), by_columns=by_columns)
        assert bad == []
        assert repr(batch.events()) == repr(made)


@MANY
@given(st.data(), schemas(), st.booleans(), st.booleans(), st.sampled_from([",", "|"]))
def test_lines_by_columns_are_the_bytes_of_lines_by_rows(data, schema, collapse, no_deletes, delimiter):
    made = data.draw(st.lists(events(schema), max_size=8))
    output = CsvOutput(collapse=collapse, no_retention_deletes=no_deletes, delimiter=delimiter)
    file = io.BytesIO()
    count = write_csv(EventBatch.of(schema, [(1, made)]), file, output)
    lines = list(lines_of(made, schema, output))
    assert file.getvalue().decode() == "".join(lines)
    assert count == len(lines)


ODD = ["", " ", "5", "-7", "+1", "1.5", "1e999", "1e-999", "nan", "-inf", "NaN(x)", "0x1F", "1_0", "99999999999", "abc"]
ODD += [
    "é",
    "\ufeff",
    "[1;2]",
    "\0",
    '""',
    '"5"',
    '" 5 "',
    '"a,b"',
    '"a\nb"',
    '"a\r\nb"',
    '"a""b"',
    'a"b',
    '"a"b',
    '"a',
    "a\rb",
    '"',
]
FIELDS = st.sampled_from(["1", "2.5"]) | st.sampled_from(ODD)
CODES = st.sampled_from(["I", "i", "UB", "d", "p"]) | st.sampled_from(["x", "", " I ", '"I"'])
LINES = st.builds(
    lambda code, flag, fields, end: ",".join([code, flag, *fields]) + end,
    CODES,
    st.sampled_from(["N", "N", "n", "PR", "", "Q", '"N"']),
    st.lists(FIELDS, min_size=3, max_size=3) | st.lists(FIELDS, max_size=4),
    st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\r", ""]),
)


@settings(max_examples=250, deadline=None)
@given(st.lists(LINES, max_size=8).map("".join).map(str.encode), st.booleans())
@example(b'I,N,1,"a\nI,N,2,b,1\n', False)
@example(b'I,N,1,"a"b,1\nI,N,2,"c",1\n', False)
@example(b"\xef\xbb\xbfI,N,1,a,1\n\xff\n", False)
def test_columns_and_rows_understand_the_same(data, added):
    options = CsvOptions(add_opcode=added, add_flags=added)
    schema = Schema.parse("a:string,b:string,c:int32,d:money,e:double") if added else SCHEMA
    by_columns, bad = read(data, schema, options)
    by_rows, bad_rows = read(data, schema, options, by_columns=False)
    assert repr(by_columns.events()) == repr(by_rows.events())
    assert bad == bad_rows


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([b"I,N,1,a,1.5\n", b'U,N,2,"b,\nc",\n', b"D,N,3\n", b"broken\n", b'I,N,4,"x\n', b"\n"]),
        max_size=30,
    )
)
def test_mixtures_of_good_and_broken_lines_lose_nothing(lines):
    batch, bad = read(b"".join(lines))
    rows, bad_rows = read(b"".join(lines), by_columns=False)
    assert (repr(batch.events()), bad) == (repr(rows.events()), bad_rows)
    assert {b"broken"} >= {one.text.encode() for one in bad if not one.text.startswith("I")}
    assert len([one for one in bad if one.text == "broken"]) == lines.count(b"broken\n")


@pytest.mark.parametrize("odd", ODD)
def test_columns_and_rows_understand_the_same_odd_field(odd):
    for place in range(5):
        fields = ["I", "N", "2", "a", "2.5"]
        fields[place] = odd
        data = f"I,N,1,a,1\n{','.join(fields)}\nI,N,3,c,3\n".encode()
        by_columns, bad = read(data)
        by_rows, bad_rows = read(data, by_columns=False)
        assert repr(by_columns.events()) == repr(by_rows.events())
        assert bad == bad_rows
        assert {1, 3} <= set(by_columns.column("ID").to_pylist())


def test_opcodes_and_flags_may_be_upper_or_lower_case():
    batch, bad = read(b"i,n,1,a,1\nU,N,2,b,2\np,N,3,c,3\nD,r,4,d,4\ns,N,5,e,5\nUB,pr,6,f,6\n")
    assert bad == []
    assert [(one.opcode.letter, one.flags.letters) for one in batch.events()] == [
        ("I", "N"), ("U", "N"), ("P", "N"), ("D", "R"), ("S", "N"), ("UB", "PR")
    ]  # fmt: skip


def test_an_empty_field_is_null_and_a_quoted_empty_one_a_string():
    assert values(b'I,N,1,,\nI,N,2,"",2\n') == [(1, None, None), (2, "", 2.0)]


def test_quoted_fields_hold_delimiters_quotes_and_line_ends():
    assert values(b'I,N,1,"a,""b""\nc",1\r\nI,N,2,plain,2\r\n') == [(1, 'a,"b"\nc', 1.0), (2, "plain", 2.0)]


def test_a_broken_line_in_the_middle_takes_nothing_with_it():
    lines = [b"I,N,%d,sym,1.5\n" % number for number in range(5000)]
    lines[1000] = b"I,N,x,sym,1.5\n"
    lines[2000] = b"I,N,99999999999,sym,1.5\n"
    lines[3000] = b"Q,N,1,sym,1.5\n"
    lines[3500] = b"I,N,1,\xff,1.5\n"
    lines[4000] = b"I,N,1\n"
    lines[4500] = b'I,N,1,"never closed,1\n'
    batch, bad = read(b"".join(lines))
    assert [(one.line, one.reason) for one in bad] == [
        (1001, "unparsable"), (2001, "overflow"), (3001, "bad-opcode"), (3501, "unparsable"), (4001, "unparsable"),
        (4501, "unparsable"),
    ]  # fmt: skip
    assert "ID" in bad[0].detail
    assert len(batch) == 4994
    assert batch.block.tolist() == list(range(1, 4995))


def test_a_broken_record_over_many_lines_is_one_bad_record():
    batch, bad = read(b'I,N,1,a,1\nI,N,x,"' + b"\n" * 300 + b'",1\nI,N,2,b,2\nI,N,y,b,2\n')
    assert [one.line for one in bad] == [2, 304]
    assert batch.column("ID").to_pylist() == [1, 2]


def test_a_long_line_is_shown_shortened():
    _, bad = read(b"I,N,x," + b"y" * 100_000 + b",1\n")
    assert len(bad[0].text) < 300


def test_a_file_is_read_over_the_ends_of_what_is_read_at_once(monkeypatch):
    monkeypatch.setattr("lockstep.engine.events.csv_format._READ", 7)
    rows = b"".join(b'I,N,%d,"a\n""%d""",1.5\n' % (at, at) if at % 3 else b"I,N,%d,b,2\n" % at for at in range(50))
    assert values(rows.removesuffix(b"\n")) == [
        (at, f'a\n"{at}"', 1.5) if at % 3 else (at, "b", 2.0) for at in range(50)
    ]


def test_lines_without_opcode_or_flag():
    assert [one[:2] for one in read(b"1,a,1\n", options=CsvOptions(add_opcode=True, add_flags=True))[0].events()] == [
        (Opcode.INSERT, Flag.NORMAL)
    ]
    assert read(b"D,1,a,1\n", options=CsvOptions(add_flags=True))[0].opcode.tolist() == [Opcode.DELETE]
    assert read(b"R,1,a,1\n", options=CsvOptions(add_opcode=True))[0].flags.tolist() == [Flag.RETENTION]


def test_options_of_input():
    header = b"opcode,flags,ID\nsecond line\n"
    assert values(header + b"I,N,1,a,1\n", header=2) == [(1, "a", 1.0)]
    assert read(b"I,N,1,a,1\nD,N,1,,\n", options=CsvOptions(upsert=True))[0].opcode.tolist() == [3, 4]
    assert values(b"I;N;1;a,b;1\n", delimiter=";") == [(1, "a,b", 1.0)]
    assert values(b"I,N,a,1\n", no_autogen_field=True) == [(None, "a", 1.0)]
    assert len(values(b"I,N,1,a,1\n" * 10, max_events=4)) == 4
    assert read(b"I,N,1,a,1\n" * 5, options=CsvOptions(block_size=2))[0].block.tolist() == [1, 1, 2, 2, 3]
    assert read(b"nonsense\n", options=CsvOptions(ignore_errors=True))[1] == []


def test_blocks_are_never_cut_by_batches():
    sizes = [
        len(batch)
        for batch in read_csv(io.BytesIO(b"I,N,1,a,1\n" * 100), SCHEMA, CsvOptions(block_size=7), print, chunk=10)
    ]
    assert sizes == [14] * 7 + [2]


def test_without_a_chunk_each_read_gives_its_whole_blocks_at_once():
    class Pipe(io.BytesIO):
        """Gives 30 lines at a time, as a pipe gives what is there."""

        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 300))

    batches = list(
        read_csv(Pipe(b"I,N,1,a,1\n" * 100), SCHEMA, CsvOptions(block_size=7), print, chunk=None, by_columns=False)
    )
    assert [len(batch) for batch in batches] == [28, 28, 28, 14, 2]
    assert [number for batch in batches for number in batch.block] == [at // 7 + 1 for at in range(100)]


def test_dates_are_numbers_or_as_the_format_says():
    schema = Schema.parse("ID*:date,at:stamp")
    plain, _ = read(b"I,N,86400,1500000\n", schema)
    assert plain.events()[0].values == (86400, 1_500_000)
    options = CsvOptions(date_format="%Y-%m-%d %H:%M:%S.%f")
    spelled, bad = read(b"I,N,1970-01-02 00:00:00.0,1970-01-01 00:00:01.5\nI,N,tomorrow,\n", schema, options)
    assert spelled.events()[0].values == (86400, 1_500_000)
    assert [one.reason for one in bad] == ["unparsable"]
    assert write(spelled, date_format="%Y-%m-%d %H:%M:%S.%f") == (
        b"I,N,1970-01-02 00:00:00.000000,1970-01-01 00:00:01.500000\n"
    )


def test_a_delete_needs_no_more_than_its_key():
    assert values(b"D,N,1\n") == [(1, None, None)]


def test_connector_properties_set_the_options():
    properties = {"fsname": "x.csv", "addcsvopcode": "true", "header": "1", "csvfielddelimiter": ";", "blocksize": "64"}
    assert CsvOptions.of(properties) == CsvOptions(add_opcode=True, header=1, delimiter=";", block_size=64)
    with pytest.raises(BadArgument):
        CsvOptions.of({"blocksize": "many"})
    for delimiter in ("", ",,", "1", ".", '"', "é"):
        with pytest.raises(BadArgument):
            CsvOptions(delimiter=delimiter)


def test_a_missing_file_is_an_error_before_anything_is_read(tmp_path):
    with pytest.raises(FileMissing, match="No such file"):
        read_csv(tmp_path / "none.csv", SCHEMA, CsvOptions(), print)


def test_an_update_is_two_lines_or_one_that_can_be_published_again():
    update = [event(Opcode.UPDATE_BLOCK, 1, "a", 2.0), event(Opcode.DELETE, 1, "a", 1.0)]
    gone = event(Opcode.DELETE, 2, "b", 1.0, flags=Flag.RETENTION)
    assert write(batch_of(*update, gone)) == b"UB,N,1,a,2.0\nD,N,1,a,1.0\nD,R,2,b,1.0\n"
    assert write(batch_of(*update, gone), collapse=True) == b"U,N,1,a,2.0\nD,R,2,b,1.0\n"
    assert write(batch_of(*update, gone), no_retention_deletes=True) == b"UB,N,1,a,2.0\nD,N,1,a,1.0\n"


def test_the_old_half_of_an_update_by_retention_stays_with_it():
    pair = [event(code, 1, "a", 1.0, flags=Flag.RETENTION) for code in (Opcode.UPDATE_BLOCK, Opcode.DELETE)]
    assert write(batch_of(*pair), no_retention_deletes=True) == b"UB,R,1,a,1.0\nD,R,1,a,1.0\n"


def test_headers():
    assert header_line(SCHEMA, CsvOutput()) == b""
    assert header_line(SCHEMA, CsvOutput(header="names")) == b"opcode,flags,ID,symbol,price\n"
    assert header_line(SCHEMA, CsvOutput(header="full")) == b"opcode,flags,ID*:int32,symbol:string,price:double\n"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=200))
def test_doubles_are_written_as_python_writes_them(numbers):
    schema = Schema.parse("x*:double")
    batch = EventBatch.of(schema, [(1, [event(Opcode.INSERT, number) for number in numbers])])
    assert write(batch).decode() == "".join(f"I,N,{number!r}\n" for number in numbers)
