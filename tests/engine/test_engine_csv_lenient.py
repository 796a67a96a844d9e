"""What ESP's own data files have in their lines: blanks around fields, more fields than the schema, safe deletes."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.csv_format import CsvOptions, lines_of, read_csv, write_csv
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema

SCHEMA = Schema.parse("id*:int64,name:string,price:double,time:stamp")
FORMAT = CsvOptions(date_format="%Y-%m-%d %H:%M:%S")


def read(text: str, options: CsvOptions = FORMAT, *, by_columns: bool, schema: Schema = SCHEMA):
    bad = []
    source = BytesIO(text.encode())
    found = concat(
        [EventBatch.empty(schema), *read_csv(source, schema, options, bad.append, by_columns=by_columns)]
    ).events()
    return found, [line.line for line in bad]


def both(text: str, **options):
    by_rows, by_columns = (read(text, by_columns=each, **options) for each in (False, True))
    assert by_rows == by_columns
    return by_rows


def test_blanks_around_a_field_do_not_belong_to_it():
    events, bad = both("i, n, 1 , turboprop #1\t, 1.5 , 2017-08-30 15:21:00\ni,n,2,  ,2.5,\n")
    assert bad == []
    assert [event.values[:3] for event in events] == [(1, "turboprop #1", 1.5), (2, None, 2.5)]


def test_blanks_in_quotes_do():
    events, bad = both('i,n,1," a ",1.0,\ni,n,2, b ,1.0,\ni,n,3,"",1.0,\n')
    assert bad == []
    assert [event.values[1] for event in events] == [" a ", "b", ""]


def test_what_stands_behind_the_last_field_is_left_out_and_too_few_are_a_bad_record():
    events, bad = both("i,n,1,a,1.0,,more,and more\ni,n,2,b,2.0,\ni,n,3,c\n")
    assert ([event.values[0] for event in events], bad) == ([1, 2], [3])


def test_a_safe_delete_has_two_letters_too():
    events, bad = both("sd,n,1\nSD,n,2\ns,n,3\n")
    assert bad == []
    assert [event.opcode for event in events] == [Opcode.SAFEDELETE] * 3


def test_an_empty_opcode_is_an_insert():
    events, bad = both(",n,1,a,1.0,\n")
    assert ([event.opcode for event in events], bad) == ([Opcode.INSERT], [])


def test_numbers_behind_the_seconds_do_not_count():
    events, bad = both("i,n,1,a,1.0,1970-01-01 00:00:10:07\ni,n,2,a,1.0,1970-01-01 00:00:10:07.25\n")
    assert ([event.values[3] for event in events], bad) == ([10_000_000, 10_250_000], [])
    assert both("i,n,1,a,1.0,1970-01-01 00:00:10:x\n")[1] == [1]


TEXTS = st.text(st.sampled_from(' \tab",\n'), max_size=6)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=6))
def test_texts_come_back_as_they_were_written(pairs):
    schema = Schema.parse("id*:int64,a:string,b:string")
    events = [Event(Opcode.INSERT, Flag.NORMAL, (place, *pair)) for place, pair in enumerate(pairs)]
    out = BytesIO()
    write_csv(EventBatch.of(schema, [(1, events)]), out)
    assert out.getvalue().decode() == "".join(lines_of(events, schema))
    for by_columns in (False, True):
        assert read(out.getvalue().decode(), CsvOptions(), by_columns=by_columns, schema=schema) == (events, [])


@pytest.mark.parametrize("word", ["upsert", "UPSERT"])
def test_a_connector_s_lines_without_opcodes_may_be_upserts(word):
    from lockstep.connectors.forms import ReadForm
    from lockstep.connectors.properties import PUBLISH, read_properties

    given = {"fsname": "f.csv", "addcsvopcode": word, "addcsvflags": "normal"}
    form = ReadForm.of(read_properties("q/w/c", "fs", PUBLISH, given), Schema.parse("id*:int64"), "q/w/c")
    bad = []
    [batch] = form.blocks(BytesIO(b"1\n"), bad.append, 1)
    assert [event.opcode for event in batch.events()] == [Opcode.UPSERT]


@pytest.mark.parametrize(("makes_keys", "line"), [(True, b"2.5\n"), (False, b"7,2.5\n")])
def test_lines_have_no_key_only_if_the_window_makes_it(makes_keys, line):
    from lockstep.connectors.forms import ReadForm
    from lockstep.connectors.properties import PUBLISH, read_properties

    given = {"fsname": "f.csv", "addcsvopcode": "true", "addcsvflags": "normal", "noautogenfield": "true"}
    properties = read_properties("q/w/c", "fs", PUBLISH, given)
    form = ReadForm.of(properties, Schema.parse("id*:int64,x:double"), "q/w/c", makes_keys=makes_keys)
    bad = []
    [batch] = form.blocks(BytesIO(line), bad.append, 1)
    assert [event.values for event in batch.events()] == [(None if makes_keys else 7, 2.5)]
    assert bad == []
