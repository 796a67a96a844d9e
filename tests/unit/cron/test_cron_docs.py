"""The page about crons says what the code does."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lockstep.cron import Dialect, Zone, parse
from lockstep.cron.dialect import DEFINITIONS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cron.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    lines = PAGE[PAGE.index(f"\n| {heading} |") + 1 :].splitlines()
    size = next(number for number, line in enumerate(lines) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:size]]


def test_the_table_of_dialects() -> None:
    names = {"day": "day of month", "weekday": "day of week"}
    found = table("dialect")
    assert {row[0].strip("`") for row in found} == set(Dialect)
    for dialect, fields, weekdays, dates, days, both, ranges in found:
        definition = DEFINITIONS[Dialect(dialect.strip("`"))]
        written = [names.get(word, word) for word in fields.replace("[year]", "year").split()]
        assert written == [field.name for field in definition.fields]
        assert definition.last_is_optional is ("[year]" in fields)
        by_name = {field.name: field for field in definition.fields}
        weekday, date = by_name["day of week"], by_name["day of month"]
        sunday = weekday.aliases.get(weekday.names["SUN"], weekday.names["SUN"])
        assert weekdays == f"{weekday.low} to {weekday.high}, {sunday} is SUN"
        assert set(re.findall(r"`([^`]+)`", dates)) == date.specials
        assert set(re.findall(r"`([^`]+)`", days)) == weekday.specials
        assert both.replace("`", "'") == definition.days.value
        assert (ranges == "is refused") is definition.ranges_are_strict


@pytest.mark.parametrize("row", table("cron"), ids=" ".join)
def test_the_table_of_example_nights(row) -> None:
    expression, dst, *written = (cell.strip("`") for cell in row)
    place = Zone("Europe/Berlin", dst)
    for day, times in zip(
        (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)), written, strict=True
    ):
        start = day - timedelta(hours=3)
        found = parse(expression).occurrences(start, start + timedelta(hours=23), place)
        shown = [each.astimezone(place.info) for each in found]
        assert ", ".join(f"{each:%H:%M %Z}" for each in shown if each.day == day.day) == times.replace("-", "")


@pytest.mark.parametrize("dst", ["once", "literal"])
def test_an_hourly_cron_follows_real_time(dst) -> None:
    place = Zone("Europe/Berlin", dst)
    for day, count in ((datetime(2026, 3, 29, tzinfo=UTC), 23), (datetime(2026, 10, 25, tzinfo=UTC), 25)):
        found = [each.astimezone(place.info) for each in parse("0 * * * *").occurrences(
            day - timedelta(hours=5), day + timedelta(hours=30), place)]  # fmt: skip
        assert len([each for each in found if each.day == day.day]) == count


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("0 0 0 ? * L", "last Sunday of every month"),
        ("0 0 0 1 */2 ?", "every February months"),
        ("0 0 0 L-3 * ?", "last day of month"),
        ("0 0 0 L,15 * ?", "at -1 and 15 days"),
        ("7 5 */2 * * ?", "and second 7"),
    ],
)
def test_descriptions_that_mislead_are_named(expression, sentence) -> None:
    assert sentence in parse(expression, "QUARTZ").describe()
    assert f'"{sentence}"' in " ".join(PAGE.split())
