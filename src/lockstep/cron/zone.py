"""Time zones from the pinned tzdata package, as periods of constant offset to UTC."""

from __future__ import annotations

import difflib
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC as UTC_TIME
from datetime import datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

from lockstep.cron.times import DAY_S, year_of
from lockstep.errors import BadArgument, ZoneUnknown

Dst = Literal["once", "literal"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC_TIME)
_PROBE_S = 2 * DAY_S
_YEARS_KEPT = 1 << 13
_SUGGESTIONS = 3
_FIRST_YEAR, _LAST_YEAR = 3, 9997
"""A datetime has no room for offsets before year 1 and after 9999: the periods of these years go on to both ends."""
_FAR_S = 1 << 40


class Period(NamedTuple):
    """Instants from `start` up to but not including `stop` with one offset; the clock before `start` had `before`.

    If `before` is smaller, the clock was put forward at `start`: it never showed the times of the gap. If it is larger,
    the clock was put back, and shows the times of the overlap a second time.
    """

    start: int
    stop: int
    offset: int
    before: int

    @property
    def has_gap(self) -> bool:
        """Whether the clock was put forward at the start."""
        return self.offset > self.before

    @property
    def shown_until(self) -> int:
        """The first time of the clock that it had not shown before the start."""
        return self.start + max(self.before, self.offset)


@dataclass(frozen=True, slots=True)
class Zone:
    """Where the clock of a cron stands, and what it does in nights when clocks are changed.

    Zone("Europe/Berlin")              # a fixed local time fires once, see docs/reference/cron.md
    Zone("Europe/Berlin", "literal")   # whenever the clock shows a matching time: never in a gap, twice in an overlap
    """

    name: str = "UTC"
    dst: Dst = "once"

    def __post_init__(self) -> None:
        if self.dst not in get_args(Dst):
            raise BadArgument(name="dst", value=self.dst, reason=f"it must be {' or '.join(get_args(Dst))}")
        if not self.is_utc:
            _info(self.name)

    @property
    def is_utc(self) -> bool:
        """Whether its clock shows UTC."""
        return self.name == "UTC"

    @property
    def info(self) -> ZoneInfo:
        """The zone as datetimes take it."""
        return _info(self.name)

    def period(self, instant: int) -> Period:
        """Return the period of constant offset around an instant, in seconds since 1970."""
        periods = _periods(self.name, min(max(year_of(instant), _FIRST_YEAR), _LAST_YEAR))
        return periods[bisect_right(periods, instant, key=_start) - 1]


UTC = Zone()


def names() -> frozenset[str]:
    """Return the names of all zones."""
    return _names()


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset((resources.files("tzdata") / "zones").read_text(encoding="utf-8").split())


@lru_cache(maxsize=1024)
def _info(name: str) -> ZoneInfo:
    """Read a zone from the tzdata package, never from the system: all machines of a cluster must agree."""
    if name not in _names():
        raise ZoneUnknown(name=name, cure=_cure(name))
    with (resources.files("tzdata") / "zoneinfo" / name).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _cure(name: str) -> str:
    known = {each.casefold(): each for each in sorted(_names())}
    places = {each.rpartition("/")[2]: each for each in known}  # 'Berlin' is near 'Europe/Berlin'
    wanted = str(name).casefold().replace(" ", "_")
    found = difflib.get_close_matches(wanted, known, n=_SUGGESTIONS, cutoff=0.75)
    found += [places[place] for place in difflib.get_close_matches(wanted, places, n=_SUGGESTIONS, cutoff=0.75)]
    meant = list(dict.fromkeys(known[each] for each in found))[:_SUGGESTIONS]
    return (
        f"Did you mean {' or '.join(meant)}?" if meant else "Use a name such as UTC, Europe/Berlin or America/New_York."
    )


def _start(period: Period) -> int:
    return period.start


def _offset(info: ZoneInfo, instant: int) -> int:
    offset = (_EPOCH + timedelta(seconds=instant)).astimezone(info).utcoffset()
    assert offset is not None
    return offset.days * DAY_S + offset.seconds


def _year_start(year: int) -> int:
    return (datetime(year, 1, 1, tzinfo=UTC_TIME) - _EPOCH).days * DAY_S


@lru_cache(maxsize=_YEARS_KEPT)
def _changes(name: str, year: int) -> tuple[int, ...]:
    """The instants of a year from which on another offset holds.

    zoneinfo does not tell them, so they are looked for between probes two days apart; no zone changes twice in five.
    """
    info, found = _info(name), []
    start, stop = _year_start(year), _year_start(year + 1)
    offset = _offset(info, start - 1)
    for probe in (*range(start, stop, _PROBE_S), stop - 1):
        after = _offset(info, probe)
        if after != offset:
            low, high = max(probe - _PROBE_S, start - 1), probe
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(info, middle) == offset else (low, middle)
            found.append(high)
            offset = after
    return tuple(found)


@lru_cache(maxsize=_YEARS_KEPT)
def _periods(name: str, year: int) -> tuple[Period, ...]:
    """The periods of a year and of those beside it, so that a change near its ends is known in it."""
    info = _info(name)
    changes = [change for each in (year - 1, year, year + 1) for change in _changes(name, each)]
    first, last = _year_start(year - 1), _year_start(year + 2)
    starts = [first, *(change for change in changes if change != first)]
    offsets = [_offset(info, start) for start in starts]
    before = [_offset(info, first - 1), *offsets]
    starts[0] = -_FAR_S if year == _FIRST_YEAR else first
    stops = [*starts[1:], _FAR_S if year == _LAST_YEAR else last]
    return tuple(map(Period, starts, stops, offsets, before))
