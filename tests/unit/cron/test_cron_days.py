"""Days of a month: rules, and how numbers and weekdays go together."""

from __future__ import annotations

import calendar
from datetime import date

import pytest

from lockstep.cron import parse
from lockstep.cron.days import LastDay, LastOfWeekday, LastWorkday, NearestWorkday, NthWeekday

MONTHS = [(year, month) for year in range(2020, 2048) for month in range(1, 13)]
"""Every length of month with every first weekday."""


def shape(year: int, month: int) -> tuple[int, int]:
    return calendar.monthrange(year, month)


def weekday(year: int, month: int, day: int) -> int:
    return date(year, month, day).weekday()


@pytest.mark.parametrize(("year", "month"), MONTHS)
def test_rules_by_their_meaning(year, month) -> None:
    first, length = shape(year, month)
    days = range(1, length + 1)
    workdays = [day for day in days if weekday(year, month, day) < 5]
    assert LastDay(3).day(first, length) == length - 3
    assert LastWorkday().day(first, length) == workdays[-1]
    for day in days:
        nearest = min(workdays, key=lambda each: (abs(each - day), each > day))
        assert NearestWorkday(day).day(first, length) == nearest
    for wanted in range(7):
        those = [day for day in days if weekday(year, month, day) == wanted]
        assert LastOfWeekday(wanted).day(first, length) == those[-1]
        found = [NthWeekday(wanted, nth).day(first, length) for nth in range(1, 6)]
        assert [day for day in found if day <= length] == those


@pytest.mark.parametrize("length", [28, 29, 30])
def test_a_month_without_the_date_is_left_out(length) -> None:
    assert NearestWorkday(31).day(0, length) == 0


def days_of(expression: str, dialect: str, year: int, month: int) -> list[int]:
    bits = parse(expression, dialect).days.of_month(*shape(year, month))
    return [day for day in range(32) if bits >> day & 1]


@pytest.mark.parametrize(
    ("dialect", "fields", "days"),  # February 2026 begins on a Sunday and has 28 days
    [
        ("UNIX", "* * *", [*range(1, 29)]),
        ("UNIX", "31 * *", []),
        ("UNIX", "13 * 5", [6, 13, 20, 27]),
        ("UNIX", "1-3 * 5", [1, 2, 3, 6, 13, 20, 27]),
        ("UNIX", "*/14 * *", [1, 15]),
        ("UNIX", "* * 0,7", [1, 8, 15, 22]),
        ("CRON4J", "13 * 5", [13]),
        ("CRON4J", "12 * 5", []),
        ("CRON4J", "L * *", [28]),
        ("CRON4J", "L-3,1 * *", [1, 25]),
        ("CRON4J", "L * 6", [28]),
        ("CRON4J", "1-7 * MON", [2]),
    ],
)
def test_days_without_question_marks(dialect, fields, days) -> None:
    assert days_of(f"0 0 {fields}", dialect, 2026, 2) == days


@pytest.mark.parametrize(
    ("fields", "days"),
    [
        ("* * ?", [*range(1, 29)]),
        ("? * *", [*range(1, 29)]),
        ("L * ?", [28]),
        ("15L * ?", [28]),
        ("L-27 * ?", [1]),
        ("L-28 * ?", []),
        ("LW * ?", [27]),
        ("1W * ?", [2]),
        ("28W * ?", [27]),
        ("29W * ?", []),
        ("LW,1W,10 * ?", [2, 10, 27]),
        ("?,5 * ?", [5]),
        ("? * 2", [2, 9, 16, 23]),
        ("? * 2#1", [2]),
        ("? * 2#5", []),
        ("? * 2L,1#2,4", [4, 8, 11, 18, 23, 25]),
        ("? * L", [7, 14, 21, 28]),
        ("? * L-3", [7, 14, 21, 28]),
        ("? * ?,?", []),
    ],
)
@pytest.mark.parametrize("dialect", ["QUARTZ", "SPRING"])
def test_days_with_question_marks(dialect, fields, days) -> None:
    assert days_of(f"0 0 0 {fields}", dialect, 2026, 2) == days
