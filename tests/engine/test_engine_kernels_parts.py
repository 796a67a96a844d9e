"""The parts of the fast path by themselves: loops, sets of keys, pages, places, shards."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.columns import flow, loops, pages
from lockstep.engine.columns.flow import Part, as_numbers
from lockstep.engine.columns.sharding import Share, merge_shards, shard_of
from lockstep.engine.columns.source import WordSet, folded
from lockstep.engine.columns.warm import warm_up
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import Schema

FEW = settings(max_examples=60, deadline=None)
WORDS = st.integers(-(2**63), 2**63 - 1)


def halves(value: int) -> tuple[np.int64, np.int64]:
    low = value & (2**64 - 1)
    return np.int64(value >> 64), np.int64(low - 2**64 if low >= 2**63 else low)


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), WORDS), max_size=30))
@FEW
def test_whole_sums_are_exact_and_rounded_once(steps):
    # Given numbers added and taken out in any order
    exact, high, low = 0, np.int64(0), np.int64(0)
    for adds, value in steps:
        step = loops.wide_add if adds else loops.wide_subtract
        high, low = step(high, low, np.int64(value))
        exact += value if adds else -value
        # Then the two words are the exact sum, and its double is the nearest one
        assert (high, low) == halves(exact)
        assert loops.wide_float(high, low) == float(exact)


@pytest.mark.slow
@given(st.integers(-(2**126), 2**126))
@FEW
def test_wide_numbers_round_to_the_nearest_double(value):
    assert loops.wide_float(*halves(value)) == float(value)


@pytest.mark.slow
@given(st.lists(st.lists(st.one_of(WORDS, st.integers(-200, 200)), max_size=40), max_size=5))
@FEW
def test_a_word_set_is_a_set(batches):
    words, plain = WordSet(), set()
    for batch in batches:
        keys = np.array(batch, np.int64)
        known = words.add(keys, np.ones(len(keys), np.bool_))
        expected = []
        for key in batch:
            expected.append(key in plain)
            plain.add(key)
        assert known.tolist() == expected
    # And its folded keys make the same set again
    again = WordSet()
    again.add_folded(*folded(np.array(sorted(plain), np.int64)))
    asked = np.array([*sorted(plain)[:50], 5, 77, -3], np.int64)
    assert again.holds(asked).tolist() == [int(key) in plain for key in asked]


def test_a_word_set_grows():
    words = WordSet()
    keys = np.arange(0, 700_000, 7, dtype=np.int64)
    assert not words.add(keys, np.ones(len(keys), np.bool_)).any()
    assert words.holds(keys).all()
    assert not words.holds(keys + 1).any()


def test_counted_keys_take_few_bytes():
    tags, bits = folded(np.arange(65_536, dtype=np.int64))
    assert len(tags) == len(bits) == 1024


def test_pages_hold_what_trees_hold():
    tree = [None, True, 2**80, -(2**70), 1.5, "text", b"bytes", {"a": [1, 2]}, 2**63]
    assert pages.unpack(pages.pack(tree)) == tree
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    assert (pages.unpack(pages.pack([array]))[0] == array).all()


def test_what_no_page_can_hold_is_refused():
    with pytest.raises(TypeError, match="may not hold a set"):
        pages.pack([{1}])


def test_codes_of_several_columns_tell_rows_apart():
    part = Part({"a": pa.array(["x", "y", "x", None]), "b": pa.array([1, 1, 1, 2])}, 4)
    codes, distinct = part.codes(("a", "b"))
    assert [distinct[code] for code in codes] == [("x", 1), ("y", 1), ("x", 1), (None, 2)]


def test_codes_of_many_columns_do_not_run_over(monkeypatch):
    # Given so little room that combined codes must be made dense again
    monkeypatch.setattr(flow, "_MANY", 8)
    columns = {name: pa.array([row // step % 3 for row in range(27)]) for name, step in (("a", 1), ("b", 3), ("c", 9))}
    codes, distinct = Part(columns, 27).codes(("a", "b", "c"))
    assert len(set(codes.tolist())) == len(distinct) == 27
    assert [distinct[code] for code in codes] == [(row % 3, row // 3 % 3, row // 9) for row in range(27)]


def test_a_slice_shares_what_was_worked_out():
    part = Part({"n": pa.array([1, None, 3, 4], pa.int32())}, 4)
    values, valid = part.slice(1, 3).numbers("n")
    assert valid.tolist() == [False, True]
    assert values[1] == 3
    assert np.shares_memory(values, part.numbers("n")[0])


def test_numbers_of_nulls_are_masked():
    values, valid = as_numbers(pa.array([None, 2.5]))
    assert valid.tolist() == [False, True]
    assert values[1] == 2.5


def test_shards_do_not_depend_on_hash_seeds():
    # Given keys of all kinds, their shards are what they always were
    assert [shard_of(key, 4) for key in ("AAPL", 7, None, b"x", ("a", 1))] == [3, 3, 3, 2, 1]


def test_every_row_belongs_to_one_shard():
    part = Part({"s": pa.array([f"S{number}" for number in range(1000)])}, 1000)
    masks = [Share(("s",), shard, 3).mask([part]) for shard in range(3)]
    assert (np.sum(masks, axis=0) == 1).all()
    assert all(200 < mask.sum() < 470 for mask in masks)


def test_shards_are_merged_by_block_place_and_order():
    schema = Schema.parse("k*:int64")

    def batch(*rows):
        blocks = [(block, [Event(Opcode.INSERT, Flag.NORMAL, (key,))]) for block, key in rows]
        return EventBatch.of(schema, blocks)

    left = batch((1, 10), (2, 20), (2, 22)), (np.array([0, 0, 1]), np.array([0, 0, 5]))
    right = batch((2, 21), (2, 23)), (np.array([0, 1]), np.array([1, 7]))
    merged = merge_shards([left, right])
    assert [event.values[0] for event in merged.events()] == [10, 20, 21, 22, 23]


@pytest.mark.slow
def test_warming_up_runs_every_accumulator():
    assert warm_up() == 10
