"""Very many crons in numpy columns: which of them fire in which second.

Each minute the columns of hours, minutes and days pick the candidates, once; within that minute only the seconds of the
candidates are looked at. Crons of one time zone are a group, so that a minute of UTC is one local minute for all of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lockstep.cron import instants
from lockstep.cron.days import Days
from lockstep.cron.expression import Cron
from lockstep.cron.times import DAY_S, month_days
from lockstep.cron.zone import Period, Zone
from lockstep.errors import BadArgument

Slots = NDArray[np.int64]
Seconds = NDArray[np.int64]
_Calendar = tuple[int, int | None, Days]

MINUTE_S = 60
_DAY_ZERO = date(1970, 1, 1).toordinal()
_MONTHS_KEPT = 8
_SMALLEST = 16
_CALENDARS_SPARE = 1024
_AT_ONCE = np.uint64(1)


class CronTable:
    """Crons by slot number. A slot that is removed is given out again.

    table = CronTable.of([(parse("*/5 * * * *"), UTC)])
    slots, seconds = table.due(start, stop)
    """

    def __init__(self) -> None:
        self._calendars = _Calendars()
        self._groups: dict[Zone, _Group] = {}
        self._zones: list[Zone | None] = []
        self._rows = np.empty(0, np.int64)
        self._free: list[int] = []
        self._minute: tuple[int, Slots, NDArray[np.uint64]] | None = None

    @classmethod
    def of(cls, crons: Sequence[tuple[Cron, Zone]]) -> Self:
        """Return a table of these crons, in slots from 0 on."""
        table = cls()
        table._zones = [zone for _, zone in crons]
        table._rows = np.empty(len(crons), np.int64)
        by_zone: dict[Zone, list[int]] = {}
        for slot, (_, zone) in enumerate(crons):
            by_zone.setdefault(zone, []).append(slot)
        for zone, slots in by_zone.items():
            table._rows[slots] = table._group(zone).extend(slots, [crons[slot][0] for slot in slots])
        return table

    def __len__(self) -> int:
        """The number of crons."""
        return len(self._zones) - len(self._free)

    def add(self, cron: Cron, zone: Zone) -> int:
        """Add a cron and return its slot."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._zones)
            self._zones.append(None)
            self._rows = _with_room(self._rows, slot + 1)
        self._put(slot, cron, zone)
        return slot

    def remove(self, slot: int) -> None:
        """Remove the cron of a slot."""
        self._take(slot)
        self._free.append(slot)

    def replace(self, slot: int, cron: Cron, zone: Zone) -> None:
        """Put another cron into a slot that has one."""
        self._take(slot)
        self._put(slot, cron, zone)

    def due(self, start: int, stop: int) -> tuple[Slots, Seconds]:
        """Return the slots that fire after second `start` and up to `stop`, and when, by second and then by slot.

        Seconds are counted from 1970. A minute's candidates are kept, so asking second by second costs little.
        """
        slots, seconds, _ = self.due_up_to(start, stop, sys.maxsize)
        return slots, seconds

    def due_up_to(self, start: int, stop: int, most: int) -> tuple[Slots, Seconds, int]:
        """Return the same, but no later minutes once there are `most`; and up to which second all are there."""
        slots: list[Slots] = []
        seconds: list[Seconds] = []
        count = 0
        for minute in range((start + 1) // MINUTE_S, stop // MINUTE_S + 1):
            if count >= most:
                stop = minute * MINUTE_S - 1
                break
            begin = minute * MINUTE_S
            candidates, masks = self._candidates(minute)
            for second in _set_bits(masks, max(start + 1 - begin, 0), min(stop - begin, MINUTE_S - 1)):
                found = candidates[(masks >> np.uint64(second) & _AT_ONCE).astype(bool)]
                slots.append(found)
                seconds.append(np.full(len(found), begin + second, np.int64))
                count += len(found)
        return _joined(slots, np.int64), _joined(seconds, np.int64), stop

    def _candidates(self, minute: int) -> tuple[Slots, NDArray[np.uint64]]:
        """The slots that fire in a minute, in order, and for each its seconds as bits."""
        if self._minute is None or self._minute[0] != minute:
            found = [group.candidates(minute * MINUTE_S) for group in self._groups.values() if group.size]
            slots = _joined([slots for slots, _ in found], np.int64)
            masks = _joined([masks for _, masks in found], np.uint64)
            order = np.argsort(slots)
            self._minute = (minute, slots[order], masks[order])
        return self._minute[1:]

    def _group(self, zone: Zone) -> _Group:
        return self._groups.setdefault(zone, _Group(zone, self._calendars))

    def _put(self, slot: int, cron: Cron, zone: Zone) -> None:
        self._rows[slot] = self._group(zone).extend([slot], [cron])[0]
        self._zones[slot] = zone
        self._minute = None
        if self._calendars.size > 2 * len(self) + _CALENDARS_SPARE:
            self._forget_calendars()

    def _take(self, slot: int) -> None:
        zone = self._zones[slot] if 0 <= slot < len(self._zones) else None
        if zone is None:
            raise BadArgument(name="slot", value=slot, reason="it has no cron")
        group, row = self._groups[zone], int(self._rows[slot])
        moved = group.remove(row)
        self._rows[moved] = row
        if not group.size:
            del self._groups[zone]
        self._zones[slot] = None
        self._minute = None

    def _forget_calendars(self) -> None:
        """Drop calendars that no cron has any more, so that changes do not fill the memory."""
        columns = [group.column("calendars") for group in self._groups.values()]
        used = np.unique(np.concatenate(columns))
        self._calendars.keep(used.tolist())
        for column in columns:
            column[:] = np.searchsorted(used, column)


def _with_room(column: NDArray[Any], size: int) -> NDArray[Any]:
    """A column with room for so many rows, and for as many again if it had to grow."""
    if size <= len(column):
        return column
    grown = np.zeros(max(size, 2 * len(column), _SMALLEST), column.dtype)
    grown[: len(column)] = column
    return grown


def _joined(parts: list[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, kind)


def _set_bits(masks: NDArray[np.uint64], low: int, high: int) -> Iterable[int]:
    """The seconds between two in which any mask has its bit."""
    some = int(np.bitwise_or.reduce(masks)) if len(masks) else 0
    return [second for second in range(low, high + 1) if some >> second & 1]


class _Calendars:
    """Distinct months, years and days of crons by number, and the days of a month that each has."""

    def __init__(self) -> None:
        self._numbers: dict[_Calendar, int] = {}
        self._crons: list[Cron] = []
        self._months: dict[tuple[int, int], NDArray[np.uint32]] = {}

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._crons)

    def keep(self, numbers: Sequence[int]) -> None:
        """Drop all others, and number these anew."""
        crons = [self._crons[number] for number in numbers]
        self._numbers, self._crons, self._months = {}, [], {}
        for cron in crons:
            self.number(cron)

    def number(self, cron: Cron) -> int:
        """Return the number of a cron's calendar."""
        found = self._numbers.setdefault((cron.months, cron.years, cron.days), len(self._crons))
        if found == len(self._crons):
            self._crons.append(cron)
        return found

    def numbers(self, crons: Iterable[Cron]) -> list[int]:
        """Return the numbers of the calendars of crons; many of them are the same object."""
        known: dict[int, int] = {}
        found = []
        for cron in crons:
            number = known.get(id(cron))
            if number is None:
                number = known[id(cron)] = self.number(cron)
            found.append(number)
        return found

    def cron(self, number: int, seconds: int, minutes: int, hours: int) -> Cron:
        """Return a cron with a calendar and a time of day."""
        return replace(self._crons[number], seconds=seconds, minutes=minutes, hours=hours)

    def of_month(self, year: int, month: int) -> NDArray[np.uint32]:
        """Return the days of a month as bits, by calendar number."""
        known = self._months.pop((year, month), np.empty(0, np.uint32))
        if len(known) < len(self._crons):
            added = (month_days(cron, year, month) for cron in self._crons[len(known) :])
            known = np.concatenate([known, np.fromiter(added, np.uint32)])
        while len(self._months) >= _MONTHS_KEPT:
            del self._months[next(iter(self._months))]
        self._months[year, month] = known
        return known


class _Group:
    """The crons of one zone in columns. Rows have no order: a removed one is filled with the last."""

    def __init__(self, zone: Zone, calendars: _Calendars) -> None:
        self._zone, self._calendars = zone, calendars
        self.size = 0
        self._columns: dict[str, NDArray[Any]] = {
            "slots": np.empty(0, np.int64),
            "seconds": np.empty(0, np.uint64),
            "minutes": np.empty(0, np.uint64),
            "hours": np.empty(0, np.uint32),
            "calendars": np.empty(0, np.int32),
        }

    def column(self, name: str) -> NDArray[Any]:
        """Return a column, without the room at its end."""
        return self._columns[name][: self.size]

    def extend(self, slots: Sequence[int], crons: Sequence[Cron]) -> range:
        """Add crons, and return their rows."""
        count, old = len(crons), self.size
        self.size += count
        self._columns = {name: _with_room(column, self.size) for name, column in self._columns.items()}
        rows: dict[str, Iterable[int]] = {
            "slots": slots,
            "seconds": (cron.seconds for cron in crons),
            "minutes": (cron.minutes for cron in crons),
            "hours": (cron.hours for cron in crons),
            "calendars": self._calendars.numbers(crons),
        }
        for name, values in rows.items():
            column = self._columns[name]
            column[old : self.size] = np.fromiter(values, column.dtype, count)
        return range(old, self.size)

    def remove(self, row: int) -> int:
        """Remove a row, fill it with the last, and return the slot that it has now."""
        self.size -= 1
        for column in self._columns.values():
            column[row] = column[self.size]
        return int(self._columns["slots"][row])

    def candidates(self, begin: int) -> tuple[Slots, NDArray[np.uint64]]:
        """Return the slots that fire in the minute from `begin` on, and for each its seconds as bits."""
        if self._zone.is_utc:
            rows = self._rows_at(begin)
            return self.column("slots")[rows], self.column("seconds")[rows]
        period = self._zone.period(begin)
        masks = self._masks_in_zone(begin, period) if _is_regular(period, begin) else self._masks_one_by_one(begin)
        rows = np.flatnonzero(masks)
        return self.column("slots")[rows], masks[rows]

    def _rows_at(self, shown: int) -> NDArray[np.intp]:
        """The rows that fire in the minute that the clock shows."""
        day, rest = divmod(shown, DAY_S)
        hour, minute = rest // 3600, rest // MINUTE_S % 60
        today = date.fromordinal(day + _DAY_ZERO)
        fits = self.column("hours") >> np.uint32(hour) & np.uint32(1)
        rows = np.flatnonzero(fits.astype(bool) & (self.column("minutes") >> np.uint64(minute) & _AT_ONCE).astype(bool))
        days = self._calendars.of_month(today.year, today.month)[self.column("calendars")[rows]]
        found: NDArray[np.intp] = rows[(days >> np.uint32(today.day) & np.uint32(1)).astype(bool)]
        return found

    def _masks_in_zone(self, begin: int, period: Period) -> NDArray[np.uint64]:
        """The seconds of each row in a minute of one offset, in whole minutes."""
        shown = begin + period.offset
        masks = self._masks_at(shown)
        if self._zone.dst == "once":
            is_fixed = self.column("hours") != np.uint32(instants.EVERY_HOUR)
            if shown < period.shown_until:
                masks[is_fixed] = 0
            if begin == period.start and period.has_gap:
                masks[is_fixed & self._fires_between(begin + period.before, shown)] |= _AT_ONCE
        return masks

    def _masks_at(self, shown: int) -> NDArray[np.uint64]:
        masks = np.zeros(self.size, np.uint64)
        rows = self._rows_at(shown)
        masks[rows] = self.column("seconds")[rows]
        return masks

    def _fires_between(self, first: int, end: int) -> NDArray[np.bool_]:
        """Which rows have a time in the minutes of a gap."""
        found = np.zeros(self.size, bool)
        for shown in range(first, end, MINUTE_S):
            found[self._rows_at(shown)] = True
        return found

    def _masks_one_by_one(self, begin: int) -> NDArray[np.uint64]:
        """The seconds of each row, however the clock runs: offsets with seconds were in use a century ago."""
        masks = np.zeros(self.size, np.uint64)
        for row in range(self.size):
            cron = self._cron(row)
            due = (instants.is_due(cron, begin + second, self._zone) for second in range(MINUTE_S))
            masks[row] = sum(1 << second for second, is_due in enumerate(due) if is_due)
        return masks

    def _cron(self, row: int) -> Cron:
        names = ("calendars", "seconds", "minutes", "hours")
        return self._calendars.cron(*(int(self._columns[name][row]) for name in names))


def _is_regular(period: Period, begin: int) -> bool:
    """Whether the clock shows whole minutes, and is not changed within this one."""
    clock = (period.offset, period.before, period.start)
    return begin + MINUTE_S <= period.stop and not any(number % MINUTE_S for number in clock)
