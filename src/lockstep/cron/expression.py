"""A cron expression, read once: bit masks of its fields, and when it fires."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC as UTC_TIME
from datetime import datetime, timedelta
from functools import lru_cache

from lockstep.cron import description, instants, syntax
from lockstep.cron.days import Days, days, values
from lockstep.cron.dialect import DEFINITIONS, YEAR, YEAR_FIRST, Dialect, Field
from lockstep.cron.zone import UTC, Zone
from lockstep.errors import BadArgument, CronInvalid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC_TIME)
_SECOND = timedelta(seconds=1)
_EARLIEST = (datetime(1, 1, 1, tzinfo=UTC_TIME) - _EPOCH) // _SECOND
_LATEST = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC_TIME) - _EPOCH) // _SECOND
_CRONS_KEPT, _FIELDS_KEPT = 1 << 16, 1 << 15
_ONLY_FIRST = 1
_DIALECTS = {dialect.value: dialect for dialect in Dialect}


@dataclass(frozen=True, slots=True)
class Cron:
    """A valid expression. Masks have bit n for value n; `years` bit n for 1970 + n, and None for every year.

    Instants are aware datetimes; answers are in UTC.
    """

    expression: str
    dialect: Dialect
    seconds: int
    minutes: int
    hours: int
    months: int
    days: Days
    years: int | None

    def next(self, after: datetime, zone: Zone = UTC) -> datetime | None:
        """Return when it fires first after an instant; None if not within 100 years."""
        return _datetime(instants.first_after(self, _floor(after, "after"), zone))

    def previous(self, before: datetime, zone: Zone = UTC) -> datetime | None:
        """Return when it fired last before an instant; None if not within 100 years."""
        return _datetime(instants.last_before(self, _ceiling(before, "before"), zone))

    def matches(self, at: datetime, zone: Zone = UTC) -> bool:
        """Return whether it fires in the second of an instant; UNIX and CRON4J fire at second 0 only."""
        return instants.is_due(self, _floor(at, "at"), zone)

    def occurrences(
        self, start: datetime, stop: datetime, zone: Zone = UTC, limit: int | None = None
    ) -> Iterator[datetime]:
        """Yield when it fires after `start` and up to `stop`, at most `limit` times."""
        end, count = _floor(stop, "stop"), 0
        at = instants.first_after(self, _floor(start, "start"), zone)
        while at is not None and at <= end and (limit is None or count < limit):
            yield _EPOCH + timedelta(seconds=at)
            at, count = instants.first_after(self, at, zone), count + 1

    def describe(self) -> str:
        """Return the English sentence of cron-utils."""
        definition = DEFINITIONS[self.dialect]
        nodes = syntax.read(syntax.split(self.expression, definition), definition)
        return description.describe(nodes, definition)


def parse(expression: str, dialect: Dialect | str = Dialect.UNIX) -> Cron:
    """Read an expression; CronInvalid, with the sentence of cron-utils, if it is not valid in the dialect."""
    return _parse(expression, dialect_named(dialect))


def dialect_named(name: Dialect | str) -> Dialect:
    """Return the dialect of that name, in capitals or not."""
    known_name = _DIALECTS.get(name)
    if known_name is not None:
        return known_name
    try:
        return Dialect(name.upper())
    except ValueError:
        known = f"it must be one of {', '.join(Dialect)}"
        raise BadArgument(name="dialect", value=name, reason=known) from None


@lru_cache(maxsize=_CRONS_KEPT)
def _parse(expression: str, dialect: Dialect) -> Cron:
    definition = DEFINITIONS[dialect]
    try:
        parts = syntax.split(expression, definition)
        nodes = syntax.read(parts, definition)
    except syntax.Refused as fault:
        raise CronInvalid(
            dialect=dialect.value, expression=expression, place=fault.place, reason=fault.reason
        ) from None
    strict = definition.ranges_are_strict
    masks = {
        field.name: 0 if field.specials else _mask(text, field, strict)
        for text, field in zip(parts, definition.fields, strict=False)
    }
    by_name = dict(zip((field.name for field in definition.fields), nodes, strict=False))
    return Cron(
        expression=expression,
        dialect=dialect,
        seconds=masks.get("second", _ONLY_FIRST),
        minutes=masks["minute"],
        hours=masks["hour"],
        months=masks["month"],
        days=days(by_name["day of month"], by_name["day of week"], definition),
        years=_years(masks["year"]) if "year" in masks else _years_of(dialect),
    )


@lru_cache(maxsize=_FIELDS_KEPT)
def _mask(text: str, field: Field, strict: bool) -> int:
    return values(syntax.valid_field(text, field, strict), field)


def _years_of(dialect: Dialect) -> int | None:
    """The years of an expression that names none: Quartz knows 1970 to 2099, the others have all."""
    return _years(_mask("*", YEAR, False)) if dialect is Dialect.QUARTZ else None


def _years(mask: int) -> int:
    return mask >> YEAR_FIRST


def _floor(instant: datetime, name: str) -> int:
    if instant.tzinfo is None:
        reason = "it has no time zone; give an aware datetime, as datetime(2026, 1, 31, tzinfo=UTC)"
        raise BadArgument(name=name, value=str(instant), reason=reason)
    return (instant - _EPOCH) // _SECOND


def _ceiling(instant: datetime, name: str) -> int:
    """So that 12:00:00 is before 12:00:00.5."""
    second = _floor(instant, name)
    return second if _EPOCH + timedelta(seconds=second) == instant else second + 1


def _datetime(second: int | None) -> datetime | None:
    """An instant in UTC; None if there is none, or if it is after the year 9999 or before the year 1 there."""
    return _EPOCH + timedelta(seconds=second) if second is not None and _EARLIEST <= second <= _LATEST else None
