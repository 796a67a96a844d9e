"""Nights when clocks are changed, for both policies, against an oracle that asks the clock minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from lockstep.cron import Cron, Zone, parse, zone
from lockstep.errors import BadArgument, ZoneUnknown

MINUTE = timedelta(minutes=1)
NIGHTS = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-10-04"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("America/St_Johns", "2006-04-02"),
    ("America/St_Johns", "2006-10-29"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Africa/Casablanca", "2026-03-22"),
    ("Pacific/Apia", "2011-12-30"),
    ("America/Juneau", "1867-10-18"),
]
EXPRESSIONS = [
    "30 2 * * *", "0 3 * * *", "15 1-3 * * *", "*/15 2 * * *", "*/20 * * * *", "45 * * * *", "0 */2 * * *",
    "1 0 * * *", "30 0,23 * * *", "59 23 * * *", "0 12 * * *", "* 2 * * *", "* 1 * * 0",
]  # fmt: skip


def shown_matches(cron: Cron, shown: datetime) -> bool:
    return cron.matches(shown.replace(tzinfo=UTC))


def clock(place: Zone, start: datetime, stop: datetime) -> list[tuple[datetime, datetime]]:
    """What the clock shows, minute by minute."""
    minutes = [start + MINUTE * count for count in range(int((stop - start) / MINUTE) + 1)]
    return [(each, each.astimezone(place.info).replace(tzinfo=None)) for each in minutes]


def expected(cron: Cron, place: Zone, shown: list[tuple[datetime, datetime]]) -> list[datetime]:
    """What the documentation says, read literally."""
    if place.dst == "literal" or cron.hours.bit_count() == 24:
        return [instant for instant, time in shown[1:] if shown_matches(cron, time)]
    found, latest = [], shown[0][1]
    for instant, time in shown[1:]:
        new = [latest + MINUTE * count for count in range(1, int((time - latest) / MINUTE) + 1)]
        if any(shown_matches(cron, each) for each in new):
            found.append(instant)
        latest = max(latest, time)
    return found


@pytest.mark.parametrize("dst", ["once", "literal"])
@pytest.mark.parametrize(("name", "day"), NIGHTS)
def test_nights(name, day, dst) -> None:
    place = Zone(name, dst)
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(hours=20)
    start -= timedelta(seconds=place.info.utcoffset(start).total_seconds() % 60)  # clocks of 1867 had other seconds
    shown = clock(place, start, start + timedelta(days=2, hours=12))
    stop = shown[-1][0]
    for expression in EXPRESSIONS:
        cron = parse(expression)
        wanted = expected(cron, place, shown)
        assert list(cron.occurrences(start, stop, place)) == wanted, expression
        found, before = [], stop + timedelta(seconds=1)
        while (before := cron.previous(before, place)) is not None and before > start:
            found.append(before)
        assert found[::-1] == wanted, expression
        some = [instant for instant, _ in shown[1::7]]
        assert [each for each in some if cron.matches(each, place)] == sorted({*wanted} & {*some}), expression


def times_of(expression: str, place: Zone, day: str, count: int, dialect: str = "UNIX") -> list[str]:
    start = datetime.fromisoformat(day).replace(tzinfo=UTC)
    found = parse(expression, dialect).occurrences(start, start + timedelta(days=400), place, count)
    return [f"{each.astimezone(place.info):%d. %H:%M:%S %Z}" for each in found]


def test_the_example_night_of_the_documentation() -> None:
    once, literal = Zone("Europe/Berlin"), Zone("Europe/Berlin", "literal")
    assert times_of("30 2 * * *", once, "2026-03-28T12:00", 2) == ["29. 03:00:00 CEST", "30. 02:30:00 CEST"]
    assert times_of("30 2 * * *", literal, "2026-03-28T12:00", 2) == ["30. 02:30:00 CEST", "31. 02:30:00 CEST"]
    assert times_of("30 2 * * *", once, "2026-10-24T12:00", 2) == ["25. 02:30:00 CEST", "26. 02:30:00 CET"]
    assert times_of("30 2 * * *", literal, "2026-10-24T12:00", 2) == ["25. 02:30:00 CEST", "25. 02:30:00 CET"]
    for place in (once, literal):
        assert times_of("0 * * * *", place, "2026-03-29T00:30", 2) == ["29. 03:00:00 CEST", "29. 04:00:00 CEST"]
        assert times_of("0 * * * *", place, "2026-10-24T23:30", 3) == [
            "25. 02:00:00 CEST", "25. 02:00:00 CET", "25. 03:00:00 CET",
        ]  # fmt: skip


def test_all_times_of_a_gap_are_one() -> None:
    place = Zone("Europe/Berlin")
    found = times_of("* * 2 * * ?", place, "2026-03-29T00:30", 2, "QUARTZ")
    assert found == ["29. 03:00:00 CEST", "30. 02:00:00 CEST"]
    assert times_of("0 2,3 * * *", place, "2026-03-29T00:30", 2) == ["29. 03:00:00 CEST", "30. 02:00:00 CEST"]


def test_a_day_that_a_zone_left_out_fires_at_its_end() -> None:
    place = Zone("Pacific/Apia")
    assert times_of("0 12 * * *", place, "2011-12-30T00:00", 2) == ["31. 00:00:00 +14", "31. 12:00:00 +14"]


def test_the_last_time_of_all_may_be_shown_twice() -> None:
    place = Zone("Europe/Berlin", "literal")
    text = "0 30 2 25 10 ? 2026"
    assert times_of(text, place, "2026-10-01", 9, "QUARTZ") == ["25. 02:30:00 CEST", "25. 02:30:00 CET"]
    assert times_of(text, Zone("Europe/Berlin"), "2026-10-01", 9, "QUARTZ") == ["25. 02:30:00 CEST"]


@pytest.mark.parametrize("dst", ["once", "literal"])
@pytest.mark.parametrize("years", ["2026", "*"])
def test_previous_finds_a_later_time_of_the_first_pass(dst, years) -> None:
    cron = parse(f"0 30 2 25 10 ? {years}", "QUARTZ")
    second_pass = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)  # the clock shows 02:15 again
    assert cron.previous(second_pass, Zone("Europe/Berlin", dst)) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize("place", [Zone("Europe/Berlin"), Zone("Africa/Casablanca", "literal"), Zone("Etc/GMT+12")])
def test_searches_end_in_zones_too(place) -> None:
    cron, start = parse("0 0 30 2 *"), datetime(2026, 1, 1, tzinfo=UTC)
    assert (cron.next(start, place), cron.previous(start, place)) == (None, None)
    far = parse("0 0 0 1 1 ? 2099", "QUARTZ")
    assert far.next(start, place).year in (2098, 2099)
    assert far.next(datetime(2099, 6, 1, tzinfo=UTC), place) is None


@pytest.mark.parametrize("name", ["America/New_York", "Asia/Tokyo", "Etc/GMT-14", "Etc/GMT+12"])
def test_the_first_and_the_last_year_have_an_end(name) -> None:
    place, cron = Zone(name), parse("0 12 * * *")
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert cron.next(first, place) - first < timedelta(days=2)
    assert last - cron.previous(last, place) < timedelta(days=2)
    assert cron.previous(first, place) is None
    assert cron.next(last, place) is None
    assert cron.matches(last, place) is cron.matches(first, place) is False


def test_zones_come_from_the_pinned_package_and_not_from_the_system(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("zoneinfo.TZPATH", (str(tmp_path),))
    zone._info.cache_clear()
    assert Zone("Europe/Berlin").info.key == "Europe/Berlin"
    assert "UTC" in zone.names()


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("europe/berlin", "Did you mean Europe/Berlin"),
        ("Berlin", "Did you mean Europe/Berlin?"),
        ("New York", "Did you mean America/New_York?"),
        ("../../etc/passwd", "Use a name such as UTC"),
        ("", "Use a name such as UTC"),
    ],
)
def test_an_unknown_zone_is_answered_with_near_names(name, cure) -> None:
    with pytest.raises(ZoneUnknown, match=cure.replace("?", r"\?")):
        Zone(name)


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(BadArgument, match="once or literal"):
        Zone("UTC", "twice")  # type: ignore[arg-type]


@pytest.mark.slow
def test_no_zone_is_changed_twice_within_the_time_between_two_probes() -> None:
    """The search for changes relies on it; a new version of tzdata must not break it unnoticed."""
    from importlib import resources
    from zoneinfo import _common

    shortest = timedelta(days=365)
    for name in zone.names():
        with (resources.files("tzdata") / "zoneinfo" / name).open("rb") as file:
            kinds, instants, offsets, *_ = _common.load_data(file)
        changes, offset = [], None
        for kind, instant in zip(kinds, instants, strict=True):
            if offsets[kind] != offset:
                changes.append(instant)
            offset = offsets[kind]
        gaps = [later - earlier for earlier, later in pairwise(changes)]
        shortest = min(shortest, timedelta(seconds=min(gaps, default=10**9)))
    assert shortest > timedelta(seconds=2 * zone._PROBE_S)
