"""Which days of a month an expression means.

Every rule depends on two facts of a month: the weekday of its first day (0 is Monday) and its length. A set of days is
an integer with bit n for day n.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from lockstep.cron.dialect import DayChoice, Definition, Field
from lockstep.cron.syntax import NOT_GIVEN, Always, Between, Every, Node, On, Open, Several

_SATURDAY, _SUNDAY, _WEEK = 5, 6, 7
_EVERY_WEEK = sum(1 << _WEEK * week for week in range(5))
_DAYS_KEPT = 1 << 14


class DayRule(Protocol):
    """A day that no plain number or weekday says."""

    def day(self, first: int, length: int) -> int:
        """Return the day in a month that begins on weekday `first`; not a day of it if there is none."""


@dataclass(frozen=True, slots=True)
class LastDay:
    """`L`, and `L-3` for three days before it."""

    before: int = 0

    def day(self, first: int, length: int) -> int:
        """Return the day; 0 or less if the month is too short."""
        del first
        return length - self.before


@dataclass(frozen=True, slots=True)
class LastWorkday:
    """`LW`: the last day from Monday to Friday."""

    def day(self, first: int, length: int) -> int:
        """Return the day."""
        return length - max(0, _weekday(length, first) - 4)


@dataclass(frozen=True, slots=True)
class NearestWorkday:
    """`15W`: the day from Monday to Friday nearest to the 15th, in the same month."""

    date: int

    def day(self, first: int, length: int) -> int:
        """Return the day; 0 if the month has no such date."""
        if self.date > length:
            return 0
        weekday = _weekday(self.date, first)
        if weekday == _SATURDAY:
            return 3 if self.date == 1 else self.date - 1
        if weekday == _SUNDAY:
            return self.date - 2 if self.date == length else self.date + 1
        return self.date


@dataclass(frozen=True, slots=True)
class NthWeekday:
    """`6#3`: the third Friday."""

    weekday: int
    nth: int

    def day(self, first: int, length: int) -> int:
        """Return the day; after the end of the month if it has fewer."""
        del length
        return 1 + (self.weekday - first) % _WEEK + _WEEK * (self.nth - 1)


@dataclass(frozen=True, slots=True)
class LastOfWeekday:
    """`6L`: the last Friday."""

    weekday: int

    def day(self, first: int, length: int) -> int:
        """Return the day."""
        return length - (_weekday(length, first) - self.weekday) % _WEEK


@dataclass(frozen=True, slots=True)
class Days:
    """The days that an expression means: by number, by weekday (bit 0 is Monday), and by rules for each.

    A part that is None does not restrict. If both do, `both` says whether a day must fit both or one of them.
    """

    dates: int | None
    weekdays: int | None
    date_rules: tuple[DayRule, ...] = ()
    weekday_rules: tuple[DayRule, ...] = ()
    both: bool = True

    def of_month(self, first: int, length: int) -> int:
        """Return the days in a month of so many days that begins on weekday `first`."""
        all_days = (2 << length) - 2
        if self.dates is None:
            return all_days if self.weekdays is None else self._by_weekday(first, length) & all_days
        by_date = self.dates | _by_rules(self.date_rules, first, length)
        if self.weekdays is None:
            return by_date & all_days
        by_weekday = self._by_weekday(first, length)
        return (by_date & by_weekday if self.both else by_date | by_weekday) & all_days

    def _by_weekday(self, first: int, length: int) -> int:
        wanted = self.weekdays or 0
        from_first = (wanted >> first | wanted << (_WEEK - first)) & 0x7F
        return (from_first * _EVERY_WEEK << 1) | _by_rules(self.weekday_rules, first, length)


def _by_rules(rules: tuple[DayRule, ...], first: int, length: int) -> int:
    found = 0
    for rule in rules:
        day = rule.day(first, length)
        if 1 <= day <= length:
            found |= 1 << day
    return found


def _weekday(day: int, first: int) -> int:
    return (first + day - 1) % _WEEK


# --- from fields -------------------------------------------------------------------------------------------------


def values(node: Node, field: Field) -> int:
    """Return the plain values that a field means as bits; special characters and `?` mean none."""
    match node:
        case Always():
            return _range(field.low, field.high, 1, field)
        case On(value, special):
            return 0 if special else 1 << value
        case Between(int(first), int(last)):
            return _range(first, last, 1, field)
        case Every(Between(int(first), int(last)), period):
            return _range(first, last, period, field)
        case Every(On(value), period):
            return _range(value, field.high, period, field)
        case Every(_, period):
            return _range(field.low, field.high, period, field)
        case Several(items):
            found = 0
            for item in items:
                found |= values(item, field)
            return found
        case _:
            return 0


def _range(first: int, last: int, period: int, field: Field) -> int:
    """Bits of a range; one that ends before it begins goes on from the lowest value (22-2), except for years."""
    size = field.high - field.low + 1
    if last < first and field.is_cyclic:
        last += size
    found = 0
    for number in range(first, last + 1, period):
        found |= 1 << (field.low + (number - field.low) % size)
    return found


@lru_cache(maxsize=_DAYS_KEPT)
def days(date_node: Node, weekday_node: Node, definition: Definition) -> Days:
    """Return what both fields of days mean together; kept, so that equal days are one object."""
    fields = {field.name: field for field in definition.fields}
    date_field, weekday_field = fields["day of month"], fields["day of week"]
    is_open = (Always, Open)
    numbers = values(weekday_node, weekday_field) | _saturday(weekday_node, weekday_field)
    return Days(
        dates=None if isinstance(date_node, is_open) else values(date_node, date_field),
        weekdays=None if isinstance(weekday_node, is_open) else _weekdays(numbers, definition.monday),
        date_rules=tuple(rule for item in _items(date_node) if (rule := _date_rule(item)) is not None),
        weekday_rules=tuple(
            rule for item in _items(weekday_node) if (rule := _weekday_rule(item, definition.monday)) is not None
        ),
        both=definition.days is not DayChoice.EITHER,
    )


def _items(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Several) else (node,)


def _weekdays(numbers: int, monday: int) -> int:
    """Bits of weekdays from bits of a dialect's numbers."""
    return sum({1 << (number - monday) % _WEEK for number in range(8) if numbers >> number & 1})


def _saturday(node: Node, field: Field) -> int:
    """`L` by itself is every Saturday, in cron-utils as in Quartz."""
    is_last = any(isinstance(item, On) and item.special == "L" and item.value == NOT_GIVEN for item in _items(node))
    return 1 << field.names["SAT"] if is_last else 0


def _date_rule(node: Node) -> DayRule | None:
    match node:
        case On(_, "L", nth):
            return LastDay(max(nth, 0))
        case On(date, "W"):
            return NearestWorkday(date)
        case On(_, "LW"):
            return LastWorkday()
        case _:
            return None


def _weekday_rule(node: Node, monday: int) -> DayRule | None:
    match node:
        case On(value, "#", nth):
            return NthWeekday((value - monday) % _WEEK, nth)
        case On(value, "L") if value != NOT_GIVEN:
            return LastOfWeekday((value - monday) % _WEEK)
        case _:
            return None
