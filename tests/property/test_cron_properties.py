"""Crons against an oracle that walks through time and asks of each field by itself whether it fits."""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.cron import Zone, parse
from lockstep.cron.table import CronTable

EVERYTHING = ("*", "*/1")
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca"]


@dataclass(frozen=True)
class Part:
    """The text of a field, and the values it means."""

    text: str
    values: frozenset[int]


@st.composite
def items(draw: st.DrawFn, low: int, high: int) -> Part:
    first, last = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    period = draw(st.integers(1, 6 if high == 7 else high - low))  # cron-utils takes a period of 7 weekdays for 0
    everything = range(low, high + 1)
    kinds = {
        f"{first}": {first},
        f"{first}-{last}": {*range(first, last + 1)},
        f"*/{period}": {*everything[::period]},
        f"{first}/{period}": {*range(first, high + 1, period)},
        f"{first}-{last}/{period}": {*range(first, last + 1, period)},
    }
    text = draw(st.sampled_from(sorted(kinds)))
    return Part(text, frozenset(kinds[text]))


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> Part:
    if draw(st.integers(0, 2)) == 0:
        return Part("*", frozenset(range(low, high + 1)))
    found = draw(st.lists(items(low, high), min_size=1, max_size=3))
    return Part(",".join(part.text for part in found), frozenset[int]().union(*(part.values for part in found)))


@dataclass(frozen=True)
class Written:
    """An expression, and its fields as sets."""

    text: str
    dialect: str
    seconds: Part
    minutes: Part
    hours: Part
    dates: Part
    months: Part
    weekdays: Part

    def fits(self, at: datetime) -> bool:
        return self._fits_time(at) and self._fits_day(at)

    def _fits_time(self, at: datetime) -> bool:
        shown = (at.second in self.seconds.values, at.minute in self.minutes.values, at.hour in self.hours.values)
        return all(shown)

    def _fits_day(self, at: datetime) -> bool:
        by_date = self._fits_date(at)
        by_weekday = self.weekdays.text in EVERYTHING or (at.isoweekday() % 7) in self.weekdays.values
        restricted = self.dates.text not in EVERYTHING and self.weekdays.text not in EVERYTHING
        fits = by_date or by_weekday if self.dialect == "UNIX" and restricted else by_date and by_weekday
        return at.month in self.months.values and fits

    def _fits_date(self, at: datetime) -> bool:
        if self.dates.text == "L":
            return at.day == calendar.monthrange(at.year, at.month)[1]
        return at.day in self.dates.values


ZERO, ANY = Part("0", frozenset({0})), Part("*", frozenset())


@st.composite
def expressions(draw: st.DrawFn) -> Written:
    dialect = draw(st.sampled_from(["UNIX", "CRON4J", "SPRING"]))
    minutes, hours, months = draw(fields(0, 59)), draw(fields(0, 23)), draw(fields(1, 12))
    dates = draw(fields(1, 31))
    if dialect == "SPRING":
        seconds = draw(fields(0, 59))
        text = f"{seconds.text} {minutes.text} {hours.text} {dates.text} {months.text} ?"
        return Written(text, dialect, seconds, minutes, hours, dates, months, ANY)
    if dialect == "CRON4J" and draw(st.booleans()):
        dates = Part("L", frozenset())
    weekdays = draw(fields(0, 7 if dialect == "UNIX" else 6))  # 7 is Sunday too
    weekdays = Part(weekdays.text, frozenset(number % 7 for number in weekdays.values))
    text = f"{minutes.text} {hours.text} {dates.text} {months.text} {weekdays.text}"
    return Written(text, dialect, ZERO, minutes, hours, dates, months, weekdays)


MOMENTS = st.datetimes(datetime(1950, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
SECOND, WALK_S = timedelta(seconds=1), 4000


def walked(written: Written, start: datetime, step: timedelta) -> datetime | None:
    """The first fitting second from there on, of so many."""
    at = start
    for _ in range(WALK_S):
        if written.fits(at):
            return at
        at += step
    return None


@settings(max_examples=60)
@given(written=expressions(), moment=MOMENTS)
def test_next_and_previous_are_what_a_walk_second_by_second_finds(written, moment) -> None:
    cron = parse(written.text, written.dialect)
    whole = moment.replace(microsecond=0)
    following, preceding = cron.next(moment), cron.previous(moment)
    found = walked(written, whole + SECOND, SECOND)
    if found is not None or (following is not None and following <= whole + SECOND * WALK_S):
        assert following == found
    found = walked(written, whole if moment > whole else whole - SECOND, -SECOND)
    if found is not None or (preceding is not None and preceding > whole - SECOND * WALK_S):
        assert preceding == found
    assert cron.matches(moment) == written.fits(whole)


@settings(max_examples=60)
@given(written=expressions(), moment=MOMENTS)
def test_next_leaves_out_no_day(written, moment) -> None:
    cron = parse(written.text, written.dialect)
    following = cron.next(moment)
    last = moment + timedelta(days=1500) if following is None else following
    days = min((last - moment).days, 1500)
    assert not any(written._fits_day(moment + timedelta(days=count)) for count in range(1, days))
    if following is not None:
        assert written.fits(following)


@settings(max_examples=120)
@given(written=expressions(), moment=MOMENTS, name=st.sampled_from(ZONES), dst=st.sampled_from(["once", "literal"]))
def test_next_and_previous_lead_back_to_each_other(written, moment, name, dst) -> None:
    cron, zone = parse(written.text, written.dialect), Zone(name, dst)
    following = cron.next(moment, zone)
    if following is None:
        return
    assert following > moment
    assert cron.matches(following, zone)
    before = cron.previous(following, zone)
    assert before is None or before <= moment
    assert cron.previous(following + SECOND, zone) == following
    assert cron.next(following - SECOND, zone) == following
    assert before is None or cron.next(before, zone) == following


CHANGES = [
    datetime(2026, 3, 29, 1, tzinfo=UTC),
    datetime(2026, 10, 25, 1, tzinfo=UTC),
    datetime(2026, 3, 8, 7, tzinfo=UTC),
    datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
    datetime(2006, 10, 29, 2, 31, tzinfo=UTC),
    datetime(1880, 1, 1, tzinfo=UTC),
    datetime(2026, 7, 31, 23, 59, tzinfo=UTC),
]


@settings(max_examples=60)
@given(
    crons=st.lists(
        st.tuples(expressions(), st.sampled_from(ZONES), st.sampled_from(["once", "literal"])), min_size=1, max_size=12
    ),
    change=st.sampled_from(CHANGES),
    before_s=st.integers(0, 5400),
    window_s=st.sampled_from([1, 7, 61, 3600, 7300]),
    removed=st.sets(st.integers(0, 11)),
)
def test_a_table_finds_what_each_cron_says(crons, change, before_s, window_s, removed) -> None:
    made = [(parse(written.text, written.dialect), Zone(name, dst)) for written, name, dst in crons]
    table = CronTable.of(made)
    gone = {slot for slot in removed if slot < len(made)}
    for slot in sorted(gone):
        table.remove(slot)
    start = change - timedelta(seconds=before_s)
    stop = start + timedelta(seconds=window_s)
    expected = sorted(
        (int(at.timestamp()), slot)
        for slot, (cron, zone) in enumerate(made)
        if slot not in gone
        for at in cron.occurrences(start, stop, zone)
    )
    slots, seconds = table.due(int(start.timestamp()), int(stop.timestamp()))
    assert list(zip(seconds.tolist(), slots.tolist(), strict=True)) == expected
    assert (slots.dtype, seconds.dtype) == (np.int64, np.int64)
