"""Next, previous, matches and occurrences in UTC, where they are hard."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from lockstep.cron import parse
from lockstep.errors import BadArgument


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def next_of(expression: str, dialect: str, after: str) -> str | None:
    found = parse(expression, dialect).next(at(after))
    return None if found is None else found.replace(tzinfo=None).isoformat()


def previous_of(expression: str, dialect: str, before: str) -> str | None:
    found = parse(expression, dialect).previous(at(before))
    return None if found is None else found.replace(tzinfo=None).isoformat()


@pytest.mark.parametrize(
    ("dialect", "expression", "after", "found"),
    [
        ("UNIX", "* * * * *", "2026-01-01T00:00:00", "2026-01-01T00:01:00"),
        ("UNIX", "* * * * *", "2025-12-31T23:59:59", "2026-01-01T00:00:00"),
        ("UNIX", "0 0 29 2 *", "2025-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("UNIX", "0 0 29 2 *", "2096-02-29T00:00:00", "2104-02-29T00:00:00"),
        ("UNIX", "0 0 31 * *", "2026-01-31T00:00:00", "2026-03-31T00:00:00"),
        ("UNIX", "0 0 31 4 *", "2026-01-01T00:00:00", None),
        ("UNIX", "0 0 30 2 *", "2026-01-01T00:00:00", None),
        ("CRON4J", "0 0 29 2 MON", "2026-01-01T00:00:00", "2044-02-29T00:00:00"),
        ("CRON4J", "0 0 29 2 SUN", "2088-02-29T00:00:00", "2128-02-29T00:00:00"),
        ("QUARTZ", "* * * * * ?", "2026-01-01T00:00:00", "2026-01-01T00:00:01"),
        ("QUARTZ", "* * * * * ?", "2026-01-01T00:00:00.500000", "2026-01-01T00:00:01"),
        ("QUARTZ", "0 0 0 31W * ?", "2026-05-01T00:00:00", "2026-05-29T00:00:00"),
        ("QUARTZ", "0 0 0 1 1 ?", "2098-06-01T00:00:00", "2099-01-01T00:00:00"),
        ("QUARTZ", "0 0 0 1 1 ?", "2099-01-01T00:00:00", None),
        ("SPRING", "0 0 0 1 1 ?", "2099-01-01T00:00:00", "2100-01-01T00:00:00"),
        ("QUARTZ", "0 0 0 1 1 ?", "1960-01-01T00:00:00", "1970-01-01T00:00:00"),
        ("QUARTZ", "0 0 0 1 1 ?", "1869-12-31T23:59:59", None),
        ("QUARTZ", "0 0 0 1 1 ? 2030/2", "2026-01-01T00:00:00", "2030-01-01T00:00:00"),
        ("QUARTZ", "0 0 0 1 1 ? 2030-2020", "2026-01-01T00:00:00", None),
        ("UNIX", "0 12 * * *", "1969-12-31T11:59:59", "1969-12-31T12:00:00"),
        ("UNIX", "0 12 29 2 *", "0001-01-01T00:00:00", "0004-02-29T12:00:00"),
        ("UNIX", "0 12 31 12 *", "9999-12-31T11:00:00", "9999-12-31T12:00:00"),
        ("UNIX", "0 12 31 12 *", "9999-12-31T12:00:00", None),
        ("UNIX", "59 23 * * *", "9999-12-31T23:59:59", None),
    ],
)
def test_next(dialect, expression, after, found) -> None:
    assert next_of(expression, dialect, after) == found


@pytest.mark.parametrize(
    ("dialect", "expression", "before", "found"),
    [
        ("UNIX", "* * * * *", "2026-01-01T00:00:00", "2025-12-31T23:59:00"),
        ("UNIX", "* * * * *", "2026-01-01T00:00:01", "2026-01-01T00:00:00"),
        ("QUARTZ", "* * * * * ?", "2026-01-01T00:00:00.500000", "2026-01-01T00:00:00"),
        ("UNIX", "0 0 29 2 *", "2104-02-29T00:00:00", "2096-02-29T00:00:00"),
        ("UNIX", "0 0 30 2 *", "2026-01-01T00:00:00", None),
        ("QUARTZ", "0 0 0 L * ? 2020", "2021-02-15T00:00:00", "2020-12-31T00:00:00"),
        ("QUARTZ", "0 0 12 ? * 2L 2020", "2021-02-15T00:00:00", "2020-12-28T12:00:00"),
        ("QUARTZ", "0 0 0 1 1 ?", "2500-01-01T00:00:00", "2099-01-01T00:00:00"),
        ("QUARTZ", "0 0 0 1 1 ?", "1970-01-01T00:00:00", None),
        ("QUARTZ", "0 0 0 1 1 ?", "1960-01-01T00:00:00", None),
        ("SPRING", "0 0 0 1 1 ?", "1900-06-01T00:00:00", "1900-01-01T00:00:00"),
        ("UNIX", "0 12 1 1 *", "0001-01-01T12:00:01", "0001-01-01T12:00:00"),
        ("UNIX", "0 12 1 1 *", "0001-01-01T12:00:00", None),
        ("UNIX", "0 0 1 1 *", "0001-01-01T00:00:00", None),
    ],
)
def test_previous(dialect, expression, before, found) -> None:
    assert previous_of(expression, dialect, before) == found


@pytest.mark.parametrize(
    ("dialect", "expression", "instant", "is_match"),
    [
        ("UNIX", "30 * * * *", "2026-01-01T00:30:00", True),
        ("UNIX", "30 * * * *", "2026-01-01T00:30:01", False),
        ("CRON4J", "30 * * * *", "2026-01-01T00:30:59", False),
        ("QUARTZ", "1 30 * * * ?", "2026-01-01T00:30:01", True),
        ("QUARTZ", "1 30 * * * ?", "2026-01-01T00:30:01.999999", True),
        ("QUARTZ", "0 0 0 1 1 ? 2020", "2020-01-01T00:00:00", True),
        ("QUARTZ", "0 0 0 1 1 ?", "2100-01-01T00:00:00", False),
        ("QUARTZ", "0 0 0 1 1 ?", "1969-01-01T00:00:00", False),
        ("UNIX", "0 0 30 2 *", "2026-03-02T00:00:00", False),
    ],
)
def test_matches(dialect, expression, instant, is_match) -> None:
    assert parse(expression, dialect).matches(at(instant)) is is_match


def test_datetimes_of_any_zone_are_taken_and_utc_is_given() -> None:
    found = parse("0 12 * * *").next(datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=2))))
    assert (found, found.tzinfo) == (at("2026-01-01T12:00:00"), UTC)


@pytest.mark.parametrize("call", ["next", "previous", "matches"])
def test_a_datetime_without_a_zone_is_refused(call) -> None:
    with pytest.raises(BadArgument, match="has no time zone"):
        getattr(parse("* * * * *"), call)(datetime(2026, 1, 1))  # noqa: DTZ001


def test_occurrences_are_after_the_start_and_up_to_the_stop() -> None:
    cron, start = parse("*/10 * * * *"), at("2026-01-01T00:00:00")
    found = list(cron.occurrences(start, at("2026-01-01T00:30:00")))
    assert [each.minute for each in found] == [10, 20, 30]
    assert [each.minute for each in cron.occurrences(start, at("2030-01-01T00:00:00"), limit=2)] == [10, 20]
    assert list(cron.occurrences(start, at("2026-01-01T00:09:59.999999"))) == []
    assert list(cron.occurrences(start, at("2025-01-01T00:00:00"))) == []
    assert list(cron.occurrences(start, at("2030-01-01T00:00:00"), limit=0)) == []
