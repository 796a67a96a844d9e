from __future__ import annotations

import pytest

from lockstep.bench.numbered import HEAD, Checker, Numbered, Track, stamp

SIZE, RUN = 20, 8


def runs(publisher: int, count: int, *, size: int = SIZE) -> list[bytes]:
    numbered = Numbered(publisher, size, RUN)
    return [value for _ in range(count) for value in numbered.next_run()]


def checked(values: list[bytes], sent: list[int], *, at_once: int = 5) -> dict[str, int]:
    checker = Checker(len(sent), SIZE, RUN)
    for start in range(0, len(values), at_once):
        checker.check(values[start : start + at_once])
    return checker.result(sent)


def test_every_record_is_different_and_has_the_wanted_size():
    values = runs(0, 3, size=100)

    assert len(set(values)) == 3 * RUN
    assert {len(value) for value in values} == {100}


@pytest.mark.parametrize("at_once", [1, 3, 8, 100])
def test_what_arrives_whole_and_in_order_is_clean_however_it_is_cut(at_once):
    assert checked(runs(0, 4), [4 * RUN], at_once=at_once) == {"lost": 0, "doubled": 0, "reordered": 0}


@pytest.mark.parametrize("at", range(4 * RUN))
def test_a_record_that_is_left_out_anywhere_is_lost(at):
    values = runs(0, 4)
    del values[at]

    assert checked(values, [4 * RUN]) == {"lost": 1, "doubled": 0, "reordered": 0}


@pytest.mark.parametrize("at", range(4 * RUN))
def test_a_record_that_comes_again_anywhere_is_doubled(at):
    values = runs(0, 4)
    values.insert(at, values[at])

    assert checked(values, [4 * RUN]) == {"lost": 0, "doubled": 1, "reordered": 0}


@pytest.mark.parametrize("at", range(4 * RUN - 1))
def test_two_records_that_change_places_anywhere_are_out_of_order(at):
    values = runs(0, 4)
    values[at], values[at + 1] = values[at + 1], values[at]

    assert checked(values, [4 * RUN]) == {"lost": 0, "doubled": 0, "reordered": 1}


def test_a_run_that_is_missing_as_a_whole_is_lost():
    values = runs(0, 4)

    assert checked(values[:RUN] + values[2 * RUN :], [4 * RUN])["lost"] == RUN
    assert checked(values[RUN:], [4 * RUN])["lost"] == RUN
    assert checked(values[: 3 * RUN], [4 * RUN])["lost"] == RUN


def test_a_run_that_comes_twice_is_doubled():
    values = runs(0, 2)

    assert checked(values + values[RUN:], [2 * RUN])["doubled"] == RUN


def test_publishers_may_come_in_between_each_other():
    ones, twos = runs(0, 2), runs(1, 2)

    mixed = [*ones[:RUN], *twos[:RUN], *twos[RUN:], *ones[RUN:]]
    woven = [value for pair in zip(ones, twos, strict=True) for value in pair]

    for values in (mixed, woven):
        assert checked(values, [2 * RUN, 2 * RUN]) == {"lost": 0, "doubled": 0, "reordered": 0}


def test_a_record_of_the_right_place_but_another_publisher_is_noticed():
    ones, twos = runs(0, 1), runs(1, 1)
    ones[3] = twos[3]

    assert checked(ones, [RUN, RUN])["lost"] == 1 + RUN - 1


def test_times_of_sending_are_found_in_the_records_that_carry_one():
    values = runs(0, 2)
    first, second = values[:RUN], values[RUN:]
    stamp(first, 111)
    stamp(second, 222)

    checker = Checker(1, SIZE, RUN)

    assert checker.check(first + second) == [111, 222]
    assert checker.result([2 * RUN]) == {"lost": 0, "doubled": 0, "reordered": 0}


def test_a_record_of_another_size_is_refused():
    with pytest.raises(ValueError, match="size"):
        Checker(1, SIZE, RUN).check([b"x" * (SIZE + 4)])


@pytest.mark.parametrize("size", [0, HEAD.size - 4, HEAD.size + 1])
def test_payloads_that_cant_carry_a_number_are_refused(size):
    with pytest.raises(ValueError, match="multiple of 4"):
        Numbered(0, size, RUN)


def test_a_late_record_is_out_of_order_once_and_doubled_from_then_on():
    track = Track()
    for number in (0, 2, 1, 1, 3):
        track.add(number)

    assert (track.lost(4), track.reordered, track.doubled) == (0, 1, 1)
    assert track.lost(6) == 2
