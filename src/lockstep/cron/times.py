"""Finds the matching times of a cron on a clock without a zone: seconds since 1970 as the clock shows them.

All searches end: by themselves at the last year given, which is at most 100 years away where a dialect has no years.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from lockstep.cron.dialect import YEAR_FIRST

if TYPE_CHECKING:
    from lockstep.cron.expression import Cron

DAY_S = 86_400
SEARCHED_YEARS = 100
_DAY_ZERO = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _DAY_ZERO, date.max.toordinal() - _DAY_ZERO
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def year_of(second: int) -> int:
    """Return the year of a time."""
    return date.fromordinal(min(max(second // DAY_S, _FIRST_DAY), _LAST_DAY) + _DAY_ZERO).year


def matches(cron: Cron, second: int) -> bool:
    """Return whether the clock shows a matching time."""
    day, rest = divmod(second, DAY_S)
    if not cron.hours >> rest // 3600 & cron.minutes >> rest // 60 % 60 & cron.seconds >> rest % 60 & 1:
        return False
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return False
    shown = date.fromordinal(day + _DAY_ZERO)
    return bool(month_days(cron, shown.year, shown.month) >> shown.day & 1)


def first_from(cron: Cron, second: int, last_year: int) -> int | None:
    """Return the first matching time at or after a time, up to the end of a year."""
    day, rest = divmod(second, DAY_S)
    found = _first_day(cron, max(day, _FIRST_DAY), last_year)
    if found == day:
        moment = _first_moment(cron, rest)
        if moment is not None:
            return day * DAY_S + moment
        found = _first_day(cron, day + 1, last_year)
    if found is None:
        return None
    return found * DAY_S + _moment(_lowest(cron.hours), _lowest(cron.minutes), _lowest(cron.seconds))


def last_until(cron: Cron, second: int, first_year: int) -> int | None:
    """Return the last matching time at or before a time, down to the beginning of a year."""
    day, rest = divmod(second, DAY_S)
    found = _last_day(cron, min(day, _LAST_DAY), first_year)
    if found == day:
        moment = _last_moment(cron, rest)
        if moment is not None:
            return day * DAY_S + moment
        found = _last_day(cron, day - 1, first_year)
    if found is None:
        return None
    return found * DAY_S + _moment(_highest(cron.hours), _highest(cron.minutes), _highest(cron.seconds))


# --- the time of day ---------------------------------------------------------------------------------------------


def _moment(hour: int, minute: int, second: int) -> int:
    return (hour * 60 + minute) * 60 + second


def _first_moment(cron: Cron, rest: int) -> int | None:
    hour, minute, second = rest // 3600, rest // 60 % 60, rest % 60
    if cron.hours >> hour & 1:
        if cron.minutes >> minute & 1 and (found := cron.seconds >> second):
            return _moment(hour, minute, second + _lowest(found))
        if found := cron.minutes >> minute + 1:
            return _moment(hour, minute + 1 + _lowest(found), _lowest(cron.seconds))
    if found := cron.hours >> hour + 1:
        return _moment(hour + 1 + _lowest(found), _lowest(cron.minutes), _lowest(cron.seconds))
    return None


def _last_moment(cron: Cron, rest: int) -> int | None:
    hour, minute, second = rest // 3600, rest // 60 % 60, rest % 60
    if cron.hours >> hour & 1:
        if cron.minutes >> minute & 1 and (found := cron.seconds & (2 << second) - 1):
            return _moment(hour, minute, _highest(found))
        if found := cron.minutes & (1 << minute) - 1:
            return _moment(hour, _highest(found), _highest(cron.seconds))
    if found := cron.hours & (1 << hour) - 1:
        return _moment(_highest(found), _highest(cron.minutes), _highest(cron.seconds))
    return None


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _highest(bits: int) -> int:
    return bits.bit_length() - 1


# --- days --------------------------------------------------------------------------------------------------------


def month_days(cron: Cron, year: int, month: int) -> int:
    """Return the days of a month, if the cron has that year and month, as bits."""
    if not cron.months >> month & 1 or not _has_year(cron, year):
        return 0
    is_leap_february = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return cron.days.of_month(date(year, month, 1).weekday(), _LENGTHS[month] + is_leap_february)


def _has_year(cron: Cron, year: int) -> bool:
    return cron.years is None or (year >= YEAR_FIRST and bool(cron.years >> year - YEAR_FIRST & 1))


def _first_day(cron: Cron, day: int, last_year: int) -> int | None:
    """Return the first matching day at or after a day, counted from 1970."""
    if day > _LAST_DAY:
        return None
    start = date.fromordinal(day + _DAY_ZERO)
    month, date_from = start.month, start.day
    for year in range(start.year, min(last_year, date.max.year) + 1):
        while _has_year(cron, year) and (later := cron.months >> month):
            if skipped := _lowest(later):
                month, date_from = month + skipped, 1
            if found := month_days(cron, year, month) >> date_from:
                return date(year, month, date_from + _lowest(found)).toordinal() - _DAY_ZERO
            month, date_from = month + 1, 1
        month, date_from = 1, 1
    return None


def _last_day(cron: Cron, day: int, first_year: int) -> int | None:
    """Return the last matching day at or before a day, counted from 1970."""
    if day < _FIRST_DAY:
        return None
    start = date.fromordinal(day + _DAY_ZERO)
    month, date_until = start.month, start.day
    for year in range(start.year, max(first_year, date.min.year) - 1, -1):
        while _has_year(cron, year) and (earlier := cron.months & (2 << month) - 1):
            if month != _highest(earlier):
                month, date_until = _highest(earlier), 31
            if found := month_days(cron, year, month) & (2 << date_until) - 1:
                return date(year, month, _highest(found)).toordinal() - _DAY_ZERO
            month, date_until = month - 1, 31
        month, date_until = 12, 31
    return None
