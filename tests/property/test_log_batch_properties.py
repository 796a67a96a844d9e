"""Whatever is packed comes back as it was, whichever codec and columns it has; whatever is damaged says so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import BatchDamaged, FormatTooNew
from lockstep.log.batch import CODECS, BatchView, pack

U64, I64 = st.integers(0, 2**63), st.integers(-(2**63), 2**63 - 1)
VALUES = st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=20)), max_size=4).map(tuple)
CODECS = st.sampled_from(CODECS)


@st.composite
def columns(draw):
    count = draw(st.integers(1, 20))

    def column(items):
        return st.lists(items, min_size=count, max_size=count)

    same_size = st.binary(min_size=7, max_size=7)
    return {
        "values": draw(st.one_of(column(VALUES), column(same_size))),
        "keys": draw(st.none() | column(st.none() | VALUES)),
        "headers": draw(st.none() | column(HEADERS)),
        "created_ns": draw(st.one_of(I64, column(I64))),
        "producer": draw(st.binary(min_size=16, max_size=16)),
        "sequence": draw(U64),
        "codec": draw(CODECS),
    }


@given(columns(), U64, I64)
@settings(deadline=None, max_examples=150)
def test_there_and_back(given_columns, base, append_ns):
    count = len(given_columns["values"])
    batch = pack(**given_columns)
    data = batch.seal(append_ns)
    assert batch.size == len(data)
    view = BatchView(base, data, "orders")
    created = given_columns["created_ns"]
    assert (view.base, view.count, view.end) == (base, count, base + count)
    assert (view.producer, view.sequence, view.append_ns) == (batch.producer, batch.sequence, append_ns)
    assert list(view.values()) == given_columns["values"]
    assert list(view.keys()) == (given_columns["keys"] or [None] * count)
    assert list(view.headers()) == (given_columns["headers"] or [()] * count)
    assert list(view.created()) == ([created] * count if isinstance(created, int) else created)


@given(columns(), st.data())
@settings(deadline=None, max_examples=150)
def test_damage_never_reads_as_something_else(given_columns, data):
    stored = bytearray(pack(**given_columns).seal(1))
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    if bytes(stored) != pack(**given_columns).seal(1):
        with pytest.raises((BatchDamaged, FormatTooNew)):
            BatchView(0, bytes(stored), "orders")


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_no_bytes_at_all_bring_the_reader_down(garbage):
    with pytest.raises((BatchDamaged, FormatTooNew)):
        BatchView(0, garbage, "orders")
    with pytest.raises((BatchDamaged, FormatTooNew)):
        BatchView(0, b"LS\x01\x00" + garbage, "orders")
