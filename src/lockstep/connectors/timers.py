"""Timers as sources: an event at a base time and then once in each interval, with its number, its time and a label.

After a takeover the next leader continues with the next time: those due while no engine led are not made up for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from lockstep.connectors.port import Note, Pace, Piece
from lockstep.connectors.properties import Properties
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import FieldType, Schema, Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_MONTHS = {"month": 1, "year": 12}
_FORM = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class Timetable:
    """Moments with equal distances, from a base time on; months are those of the calendar."""

    base: datetime
    step_us: int
    months: int
    label: str

    @classmethod
    def of(cls, properties: Properties) -> Timetable:
        """As the properties say; ConnectorRefused if they give no moments."""
        unit = properties.text("unit", "second").lower().removesuffix("s")
        if unit not in _SECONDS and unit not in _MONTHS:
            names = ", ".join([*_SECONDS, *_MONTHS])
            raise properties.refused(reason=f"its unit is {unit!r}", remedy=f"Choose {names}.")
        text = properties.text("interval")
        try:
            count = float(text)
        except ValueError:
            count = 0.0
        count = count if 0 < count < 1e9 else 0.0
        months = int(count) * _MONTHS.get(unit, 0)
        step_us = round(count * 1_000_000 * _SECONDS[unit]) if unit in _SECONDS else 0
        if not (0 < months < 12_000 or step_us >= 1_000):
            raise properties.refused(reason=f"its interval is {text!r}", remedy="Write a number above 0.")
        name = properties.connector.rpartition("/")[2]
        return cls(_base(properties), step_us, months, properties.text("label", name))

    def next(self, after_us: int) -> int:
        """The first moment after another one, in microseconds since 1970."""
        base_us = (self.base - _EPOCH) // _MICROSECOND
        if after_us < base_us:
            return base_us
        if self.step_us:
            return base_us + ((after_us - base_us) // self.step_us + 1) * self.step_us
        count = 0
        while (found := self._month(count)) <= after_us:
            count += self.months
        return found

    def _month(self, count: int) -> int:
        """So many months after the base; a day that a month does not have is its last one."""
        year, month = divmod(self.base.month - 1 + count, 12)
        first = self.base.replace(year=self.base.year + year, month=month + 1, day=1)
        later = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        day = min(self.base.day, (later - first).days)
        return (first.replace(day=day) - _EPOCH) // _MICROSECOND


def _base(properties: Properties) -> datetime:
    text, form = properties.text("basetime"), properties.text("timeformat", _FORM)
    if not text:
        return _EPOCH
    try:
        found = datetime.strptime(text, form)  # noqa: DTZ007 - UTC, unless the form has a zone
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except ValueError:
        reason = f"its basetime {text!r} is not of the form {form}"
        raise properties.refused(reason=reason, remedy="Write it so, or give it timeformat.") from None


class TimerSource:
    """Events for a window whose fields are a number, a time and a text, in this order or by fewer of them."""

    is_numbered = False

    def __init__(self, table: Timetable, schema: Schema, properties: Properties, pace: Pace,
                 wall_us: Callable[[], int]) -> None:  # fmt: skip
        self._table, self._schema, self._pace, self._wall_us = table, schema, pace, wall_us
        self._opcode = Opcode.UPSERT if properties.flag("publishwithupsert") else Opcode.INSERT
        self._made = [_value_of(item.type) for item in schema]
        if None in self._made:
            reason, remedy = "its window has other fields than a timer fills", "Use id*:int64,time:stamp,label:string."
            raise properties.refused(reason=reason, remedy=remedy)

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Yield one block at each time that is due from now on; times that passed earlier are not made up for."""
        del after, note
        return self._ticking()

    def start(self) -> Note | None:
        """Return None: a timer has no position."""
        return None

    def close(self) -> None:
        """Do nothing: a timer holds nothing open."""

    def _ticking(self) -> Iterator[Piece | None]:
        number, due = 0, self._table.next(self._wall_us())
        while True:
            while (early := due - self._wall_us()) > 0:
                self._pace.rest(early / 1e6)
                yield None
            number += 1
            yield Piece(EventBatch.of(self._schema, [(number, [self._event(due)])]), np.array([number], np.int64))
            yield None
            due = self._table.next(max(due, self._wall_us()))

    def _event(self, due: int) -> Event:
        """Return the event; its key is the time in microseconds, so it is unique even when the lead changes."""
        values: list[Value] = [make(due, self._table.label) for make in self._made if make is not None]
        return Event(self._opcode, Flag.NORMAL, tuple(values))


def _value_of(kind: FieldType) -> Callable[[int, str], Value] | None:
    made: dict[FieldType, Callable[[int, str], Value]] = {
        FieldType.INT64: lambda due, _: due,
        FieldType.STAMP: lambda due, _: due,
        FieldType.DATE: lambda due, _: due // 1_000_000,
        FieldType.STRING: lambda _, label: label,
    }
    return made.get(kind)
