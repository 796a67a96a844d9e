"""Finds when a cron fires, as instants in seconds since 1970, in a time zone.

A clock that is put forward leaves out times (a gap), one that is put back shows times twice (an overlap). With
`literal` a cron fires whenever the clock shows a matching time. With `once` that holds for crons of every hour, which
follow real time; of others each matching time fires once: at the end of the gap, or at the first pass of the overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.cron import times
from lockstep.cron.dialect import YEAR_FIRST
from lockstep.cron.times import DAY_S, SEARCHED_YEARS

if TYPE_CHECKING:
    from lockstep.cron.expression import Cron
    from lockstep.cron.zone import Period, Zone

EVERY_HOUR = (1 << 24) - 1
_NEAR_S = 3 * DAY_S
"""More than clocks of two zones, or one before and after a change, can differ."""


def fires_once(cron: Cron, zone: Zone) -> bool:
    """Return whether each matching time of the clock is to fire exactly once."""
    return zone.dst == "once" and cron.hours != EVERY_HOUR


def is_due(cron: Cron, instant: int, zone: Zone) -> bool:
    """Return whether a cron fires at an instant."""
    if zone.is_utc:
        return times.matches(cron, instant)
    period, once = zone.period(instant), fires_once(cron, zone)
    shown = instant + period.offset
    if times.matches(cron, shown) and not (once and shown < period.shown_until):
        return True
    return once and instant == period.start and _has_match_in_gap(cron, period)


def first_after(cron: Cron, instant: int, zone: Zone) -> int | None:
    """Return the first instant after another at which a cron fires; None if there is none within 100 years."""
    last_year = times.year_of(instant) + SEARCHED_YEARS
    if zone.is_utc:
        return times.first_from(cron, instant + 1, last_year)
    once, at = fires_once(cron, zone), instant + 1
    while True:
        period = zone.period(at)
        if once and at == period.start and _has_match_in_gap(cron, period):
            return at
        shown = max(at + period.offset, period.shown_until) if once else at + period.offset
        found = times.first_from(cron, shown, last_year)
        if found is not None and found < period.stop + period.offset:
            return found - period.offset
        # A change soon after `at` may show earlier times again; later ones can't.
        is_change_near = period.stop - at <= _NEAR_S
        if is_change_near:
            at = period.stop
        elif found is None:
            return None
        else:
            at = max(period.stop, found - _NEAR_S)


def last_before(cron: Cron, instant: int, zone: Zone) -> int | None:
    """Return the last instant before another at which a cron fires; None if there is none within 100 years."""
    first_year = YEAR_FIRST if cron.years is not None else times.year_of(instant) - SEARCHED_YEARS
    if zone.is_utc:
        return times.last_until(cron, instant - 1, first_year)
    once, at = fires_once(cron, zone), instant - 1
    while True:
        period = zone.period(at)
        found = times.last_until(cron, at + period.offset, first_year)
        begin = period.shown_until if once else period.start + period.offset
        if found is not None and found >= begin:
            return found - period.offset
        if once and _has_match_in_gap(cron, period):
            return period.start
        is_change_near = at - period.start <= _NEAR_S
        if is_change_near:
            at = period.start - 1
        elif found is None:
            return None
        else:
            at = min(period.start - 1, found + _NEAR_S)


def _has_match_in_gap(cron: Cron, period: Period) -> bool:
    if not period.has_gap:
        return False
    first, end = period.start + period.before, period.start + period.offset
    found = times.first_from(cron, first, times.year_of(end))
    return found is not None and found < end
