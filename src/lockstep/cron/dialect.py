"""The four dialects of cron expressions: which fields they have, and what may stand in each.

             QUARTZ                         SPRING            UNIX             CRON4J
    fields   s m h day month weekday year   the same, no year m h day month weekday (both)
    weekday  1 to 7, 1 is Sunday            the same          0 to 7, 0 and 7  0 to 6, 0 is Sunday
                                                              are Sunday
    days     exactly one of both is '?'     the same          either may fit   both must fit

The tables are those of cron-utils 7.0.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

YEAR_FIRST, YEAR_LAST = 1970, 2099
"""The years that Quartz knows."""


class Dialect(StrEnum):
    """How an expression is to be understood."""

    QUARTZ = "QUARTZ"
    UNIX = "UNIX"
    CRON4J = "CRON4J"
    SPRING = "SPRING"


class DayChoice(Enum):
    """What a day needs if both its number and its weekday are restricted."""

    ONE_IS_OPEN = "exactly one of both fields is '?'"
    EITHER = "either may fit"
    BOTH = "both must fit"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Field:
    """One field: its range, the names and special characters it knows, and values that mean another one."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)
    specials: frozenset[str] = frozenset()
    aliases: Mapping[int, int] = field(default_factory=dict)
    is_cyclic: bool = True

    @property
    def longest_step(self) -> int:
        """The largest period that a step may have."""
        return self.high - self.low


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Definition:
    """The fields of a dialect in their order; the last may be left out if `last_is_optional`."""

    fields: tuple[Field, ...]
    days: DayChoice
    monday: int
    ranges_are_strict: bool = False
    last_is_optional: bool = False

    @property
    def lengths(self) -> list[int]:
        """How many fields an expression may have."""
        most = len(self.fields)
        return [most - 1, most] if self.last_is_optional else [most]


_YEAR = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEK = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

SECOND = Field(name="second", low=0, high=59)
MINUTE = Field(name="minute", low=0, high=59)
HOUR = Field(name="hour", low=0, high=23)
MONTH = Field(name="month", low=1, high=12, names=dict(zip(_YEAR, range(1, 13), strict=True)))
YEAR = Field(name="year", low=YEAR_FIRST, high=YEAR_LAST, is_cyclic=False)


def _day(*specials: str) -> Field:
    return Field(name="day of month", low=1, high=31, specials=frozenset(specials))


def _weekday(
    low: int, high: int, numbers: tuple[int, ...], *specials: str, aliases: Mapping[int, int] | None = None
) -> Field:
    return Field(
        name="day of week",
        low=low,
        high=high,
        names=dict(zip(_WEEK, numbers, strict=True)),
        specials=frozenset(specials),
        aliases=aliases or {},
    )


_QUARTZ_DAYS = (
    _day("?", "L", "W", "LW"),
    MONTH,
    _weekday(1, 7, (2, 3, 4, 5, 6, 7, 1), "?", "L", "#"),
)
DEFINITIONS: Mapping[Dialect, Definition] = {
    Dialect.QUARTZ: Definition(
        fields=(SECOND, MINUTE, HOUR, *_QUARTZ_DAYS, YEAR),
        days=DayChoice.ONE_IS_OPEN,
        monday=2,
        last_is_optional=True,
    ),
    Dialect.SPRING: Definition(fields=(SECOND, MINUTE, HOUR, *_QUARTZ_DAYS), days=DayChoice.ONE_IS_OPEN, monday=2),
    Dialect.UNIX: Definition(
        # SUN is 7 in a range (FRI-SUN); by itself 7 means 0.
        fields=(MINUTE, HOUR, _day(), MONTH, _weekday(0, 7, (1, 2, 3, 4, 5, 6, 7), aliases={7: 0})),
        days=DayChoice.EITHER,
        monday=1,
        ranges_are_strict=True,
    ),
    Dialect.CRON4J: Definition(
        fields=(MINUTE, HOUR, _day("L"), MONTH, _weekday(0, 6, (1, 2, 3, 4, 5, 6, 0))),
        days=DayChoice.BOTH,
        monday=1,
        ranges_are_strict=True,
    ),
}
