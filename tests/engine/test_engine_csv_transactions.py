"""Transactional blocks out of files: a broken line keeps its place, and its block is refused whole."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.events.csv_format import CsvOptions, read_csv
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.script import read_script

SCHEMA = Schema.parse("ID*:int32,name:string")
LINES = st.lists(
    st.sampled_from(["I,N,{n},a", 'I,N,{n},"b\nc"', "I,N,x,a", "I,N,{n}", 'I,N,{n},"open', ""]), max_size=40
).map(lambda lines: [line.format(n=number) for number, line in enumerate(lines)])


def read(lines, *, size, chunk=50_000, by_columns=True, **more):
    bad = []
    options = CsvOptions(block_size=size, transactional=True, **more)
    data = BytesIO("".join(f"{line}\n" for line in lines).encode())
    batches = list(read_csv(data, SCHEMA, options, bad.append, chunk=chunk, by_columns=by_columns))
    assert all(len(batch) for batch in batches)
    found = {number: [event.values[0] for event in events] for batch in batches for number, events in batch.blocks()}
    return found, bad


def is_good(line):
    return line.endswith((",a", '"')) and not line.startswith("I,N,x")


def test_the_block_of_a_broken_line_is_refused_and_the_others_keep_their_borders():
    lines = ["I,N,1,a", "I,N,2,a", "", "I,N,3,a", "oops", "I,N,5,a", "I,N,6,a", "I,N,7,a"]
    found, bad = read(lines, size=2)
    assert found == {1: [1, 2], 2: [5, 6], 3: [7]}
    assert [(one.line, one.reason, one.text) for one in bad] == [
        (5, "bad-opcode", "oops"),
        (4, "transaction", "I,N,3,a"),
    ]


@settings(max_examples=60, deadline=None)
@given(LINES, st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_every_block_is_whole_or_refused(lines, size, chunk, by_columns):
    # Given the records that are there, an open quote being one of its own
    records = [(number, line) for number, line in enumerate(lines) if line]
    if any(line.endswith('"open') for line in lines) and any('"b' in line for line in lines):
        return  # what an open quote takes with it is said elsewhere
    # When they are read in blocks
    found, bad = read(lines, size=size, chunk=chunk, by_columns=by_columns)
    # Then those without a broken record are there, numbered, and the rest is told
    blocks = [records[start : start + size] for start in range(0, len(records), size)]
    sound = [block for block in blocks if all(is_good(line) for _, line in block)]
    assert found == {at: [number for number, _ in block] for at, block in enumerate(sound, 1)}
    spoiled = sum(is_good(line) for block in blocks if block not in sound for _, line in block)
    assert sum(one.reason == "transaction" for one in bad) == spoiled
    assert len(bad) == sum(map(len, blocks)) - sum(map(len, sound))


def test_many_lines_read_by_columns_lose_only_the_spoiled_block():
    lines = [f"I,N,{number},a" for number in range(1000)]
    lines[500] = "oops"
    found, bad = read(lines, size=10, chunk=100)
    assert [values[0] for values in found.values()] == [start for start in range(0, 1000, 10) if start != 500]
    assert list(found) == list(range(1, 100))
    assert [one.line for one in bad if one.reason == "transaction"] == list(range(502, 511))
    assert bad[1].text == "I,N,501,a"


def test_errors_that_are_to_be_ignored_spoil_nothing():
    found, bad = read(["I,N,1,a", "oops", "I,N,2,a"], size=2, ignore_errors=True)
    assert (found, bad) == ({1: [1, 2]}, [])


def script(data: bytes):
    bad = []
    blocks = list(read_script(BytesIO(data), lambda _: SCHEMA, bad.append))
    return [(one.line, [event.values[0] for event in one.events]) for one in blocks], bad


@pytest.mark.parametrize("broken", [b"S,I,N,x,a", b"S,I,N,2,\xff", b"\xff"])
def test_a_block_of_a_script_is_refused_with_a_broken_line(broken):
    data = b"transactional\nS,I,N,1,a\n" + broken + b"\nS,I,N,3,a\n\nS,I,N,4,a\n" + broken + b"\nS,I,N,5,a\n"
    found, bad = script(data)
    assert found == [(6, [4, 5])]
    assert [(one.line, one.reason) for one in bad] == [
        (3, "unparsable"),
        (2, "transaction"),
        (4, "transaction"),
        (7, "unparsable"),
    ]


def test_a_line_of_a_script_that_is_not_utf8_is_a_bad_record():
    found, bad = script(b"S,I,N,1,a\nS,I,N,2,\xe4\nS,I,N,3,\xc3\xa4\n# \xff\n")
    assert found == [(1, [1, 3])]
    assert [(one.line, one.reason, one.detail) for one in bad] == [(2, "unparsable", "not UTF-8 at byte 8")]
