"""Finding what is not as it must be."""

from __future__ import annotations

from itertools import zip_longest

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.drill import check
from lockstep.drill.arrivals import Arrival
from lockstep.drill.check import Account, Difference, account, first_difference, wrong_counts

texts = st.text("ab\n", max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(texts, texts, st.integers(1, 7))
def test_the_first_difference_is_the_one_that_comparing_line_by_line_finds(tmp_path, monkeypatch, left, right, piece):
    monkeypatch.setattr(check, "_PIECE", piece)
    expected, found = tmp_path / "expected", tmp_path / "found"
    expected.write_text(left)
    found.write_text(right)
    pairs = zip_longest(left.splitlines(keepends=True), right.splitlines(keepends=True))
    slow = next(((number, a, b) for number, (a, b) in enumerate(pairs, 1) if a != b), None)
    differs = first_difference(expected, found)
    if slow is None:
        assert differs is None
    else:
        number, a, b = slow
        assert differs == Difference(number, a and a.rstrip("\n"), b and b.rstrip("\n"))


def test_a_line_that_is_too_long_is_cut(tmp_path):
    for name, text in (("a", "x" * 5000), ("b", "y" * 5000)):
        (tmp_path / name).write_text(text)
    differs = first_difference(tmp_path / "a", tmp_path / "b")
    assert differs is not None
    assert differs.found is not None
    assert len(differs.found) == 200


def pieces(*ranges: tuple[int, int]) -> list[Arrival]:
    return [Arrival(0.0, first, last, last - first + 1, last, 0, 0) for first, last in ranges]


@pytest.mark.parametrize(
    ("ranges", "wanted"),
    [
        ([(1, 5), (6, 10)], (0, 0, 0)),
        ([(1, 5), (7, 10)], (1, 0, 0)),
        ([(1, 5)], (5, 0, 0)),
        ([(1, 5), (4, 10)], (0, 2, 0)),
        ([(1, 5), (1, 5), (6, 10)], (0, 5, 0)),
        ([(1, 3), (6, 10), (4, 5)], (0, 0, 2)),
        ([], (10, 0, 0)),
    ],
)
def test_blocks_are_accounted_for(ranges, wanted):
    assert account(pieces(*ranges), 10) == Account(10, *wanted)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 6)), max_size=12))
def test_accounting_is_that_of_a_list_of_all_blocks(ranges):
    spans = [(first, first + more) for first, more in ranges]
    seen: set[int] = set()
    doubled = disordered = highest = 0
    for first, last in spans:
        for block in range(first, last + 1):
            doubled += block in seen
            disordered += block not in seen and block <= highest
        seen |= set(range(first, last + 1))
        highest = max(highest, last)
    found = account(pieces(*spans), 26)
    assert (found.lost, found.doubled, found.out_of_order) == (26 - len(seen), doubled, disordered)


def test_a_wrong_count_is_named_with_engine_and_window():
    expected = {"q/A": 1_000, "q/B": 2}
    assert wrong_counts(expected, {"e1": expected, "e2": {"q/A": 1_000, "q/B": 2}}) == []
    assert wrong_counts(expected, {"e1": expected, "e2": {"q/A": 999}}) == [
        "e2 has 999 rows in q/A, not 1,000",
        "e2 has 0 rows in q/B, not 2",
    ]


def test_a_block_in_several_pieces_is_one_block():
    notes = [
        Arrival(0.0, 1, 2, 2, 2, 0, 0, part=1),
        Arrival(0.0, 2, 2, 1, 2, 0, 0, part=2),
        Arrival(0.0, 2, 3, 2, 3, 0, 0),
    ]
    assert account(notes, 3) == Account(3, 0, 0, 0)


def test_a_range_that_holds_less_than_it_spans_has_lost_something():
    assert account([Arrival(0.0, 1, 10, 8, 10, 0, 0)], 10) == Account(10, 2, 0, 0)
