"""Retention: which rows a window must let go, and when. Five kinds, by time or by count.

bytime_sliding            rows as old as the limit leave, one by one
bytime_jumping            everything leaves at the end of each period of the limit's length
bytime_jumping_lookback   rows as old as the limit leave, but only when the clock crosses a multiple of the unit
bycount_sliding           when there are more than the limit, the oldest leave
bycount_jumping           when there is one more than the limit, all but that one leave

The clock of a window is the running maximum of its time field over all events that it took, or the model's clock, which
only ticks move. A row is as old as the clock says that has passed since it came, so a late time stamp is not late here:
the row counts from the clock that it met. An update makes a row the youngest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model.values import MAX_US
from lockstep.engine.model.windows import Retention
from lockstep.engine.reference.operator import Tree

MICROSECONDS = {FieldType.DATE: 1_000_000, FieldType.STAMP: 1}
"""How many microseconds a unit of a time field is."""


class Policy(ABC):
    """Decides by keys: `ages` has those that are there, oldest first, with the clock at which each came."""

    __slots__ = ("ages", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.ages: OrderedDict[Hashable, int | None] = OrderedDict()

    @abstractmethod
    def taken(self, key: Hashable | None, values: Row) -> Sequence[Hashable]:
        """An event was taken; `key` is the row that came or was renewed, if any. The rows that leave, oldest first."""

    def ticked(self, clock_us: int) -> Sequence[Hashable]:  # noqa: ARG002 - most kinds don't look at it
        """The model's clock moved. The rows that leave, oldest first."""
        return ()

    def forget(self, key: Hashable) -> None:
        """A row was deleted by an event."""
        del self.ages[key]

    def arrive(self, key: Hashable, clock: int | None) -> None:
        """A row came or was renewed: it is the youngest."""
        self.ages[key] = clock
        self.ages.move_to_end(key)

    def all_but(self, newest: Hashable | None) -> list[Hashable]:
        """Let everything go except the row that has just come."""
        leaving = [key for key in self.ages if key != newest]
        for key in leaving:
            del self.ages[key]
        return leaving

    def dump(self) -> Tree:
        """What there is to remember besides the ages."""
        return []

    def load(self, state: Tree, ages: Iterable[tuple[Hashable, int | None]]) -> None:  # noqa: ARG002 - see TimePolicy
        """Go on from dumped state."""
        self.ages = OrderedDict(ages)


class CountSliding(Policy):
    """bycount_sliding."""

    __slots__ = ()

    def taken(self, key: Hashable | None, values: Row) -> Sequence[Hashable]:  # noqa: ARG002 - counts look at no field
        """While there are too many, the oldest leaves."""
        if key is not None:
            self.arrive(key, None)
        leaving = []
        while len(self.ages) > self.limit:
            leaving.append(self.ages.popitem(last=False)[0])
        return leaving


class CountJumping(Policy):
    """bycount_jumping."""

    __slots__ = ()

    def taken(self, key: Hashable | None, values: Row) -> Sequence[Hashable]:  # noqa: ARG002 - counts look at no field
        """One too many: all before it leave."""
        if key is not None:
            self.arrive(key, None)
        return self.all_but(key) if len(self.ages) > self.limit else ()


class TimePolicy(Policy):
    """The kinds by time: on the field at `place`, in units of `scale` microseconds; without a place on ticks.

    Until the clock is known (no time stamp, no tick so far) rows have no age; they count from its first value.
    """

    __slots__ = ("most", "now", "place", "scale")

    def __init__(self, limit: int, place: int | None, scale: int) -> None:
        super().__init__(limit)
        self.place = place
        self.scale = scale
        self.most = MAX_US // scale
        """A time that is further away than this does not move the clock."""
        self.now: int | None = None

    def taken(self, key: Hashable | None, values: Row) -> Sequence[Hashable]:
        """Move the clock if there is a field, note the arrival, and see what is due."""
        place = self.place
        if place is not None:
            time = values[place]
            if type(time) is int and -self.most <= time <= self.most:
                self._move(time * self.scale)
        if key is not None:
            ages = self.ages
            ages[key] = self.now
            ages.move_to_end(key)
        if place is None or self.now is None:
            return ()
        return self.due(self.now, key)

    def ticked(self, clock_us: int) -> Sequence[Hashable]:
        """See what is due, if the model's clock is the one that counts."""
        if self.place is not None:
            return ()
        self._move(clock_us)
        return self.due(clock_us, None)

    def _move(self, time: int) -> None:
        if self.now is None:
            self.begin(time)
            for key in self.ages:
                self.ages[key] = time
            self.now = time
        elif time > self.now:
            self.now = time

    def begin(self, time: int) -> None:
        """The clock is known for the first time."""

    @abstractmethod
    def due(self, now: int, newest: Hashable | None) -> Sequence[Hashable]:
        """The rows that leave now; `newest` is the one that the event brought."""

    def too_old(self, now: int) -> list[Hashable]:
        """Let the rows go that are as old as the limit."""
        ages = self.ages
        leaving = []
        while ages:
            first = next(iter(ages))
            if now - (ages[first] or 0) < self.limit:
                break
            del ages[first]
            leaving.append(first)
        return leaving

    def dump(self) -> Tree:
        """The clock."""
        return [self.now]

    def load(self, state: Tree, ages: Iterable[tuple[Hashable, int | None]]) -> None:
        """Go on from dumped state."""
        super().load(state, ages)
        self.now = state[0]


class TimeSliding(TimePolicy):
    """bytime_sliding."""

    __slots__ = ()

    def due(self, now: int, newest: Hashable | None) -> Sequence[Hashable]:  # noqa: ARG002 - age is all that counts
        """Whatever is too old."""
        return self.too_old(now)


class TimeJumping(TimePolicy):
    """bytime_jumping: periods begin with the first time that the clock shows."""

    __slots__ = ("end", "step")

    def __init__(self, limit: int, place: int | None, scale: int, step: int | None = None) -> None:
        super().__init__(limit, place, scale)
        self.step = step or limit
        self.end = 0

    def begin(self, time: int) -> None:
        """The first period."""
        self.end = time + self.step

    def due(self, now: int, newest: Hashable | None) -> Sequence[Hashable]:
        """At the end of a period, whatever was there before."""
        if now < self.end:
            return ()
        self.end += ((now - self.end) // self.step + 1) * self.step
        return self.leaving(now, newest)

    def leaving(self, now: int, newest: Hashable | None) -> Sequence[Hashable]:  # noqa: ARG002 - age does not count
        """What goes when a period ends."""
        return self.all_but(newest)

    def dump(self) -> Tree:
        """The clock, and when the period ends."""
        return [self.now, self.end]

    def load(self, state: Tree, ages: Iterable[tuple[Hashable, int | None]]) -> None:
        """Go on from dumped state."""
        super().load(state, ages)
        self.end = state[1]


class TimeJumpingLookback(TimeJumping):
    """bytime_jumping_lookback: periods of the unit, at whose ends the rows as old as the limit leave."""

    __slots__ = ()

    def leaving(self, now: int, newest: Hashable | None) -> Sequence[Hashable]:  # noqa: ARG002 - age is all that counts
        """What is too old."""
        return self.too_old(now)


def make_policy(retention: Retention | None, schema: Schema) -> Policy | None:
    """The policy that a model asks for."""
    if retention is None:
        return None
    limit, field = retention.limit, retention.field
    if retention.kind == "bycount_sliding":
        return CountSliding(limit)
    if retention.kind == "bycount_jumping":
        return CountJumping(limit)
    place = None if field is None else schema.places[field]
    scale = 1 if field is None else MICROSECONDS[schema[field].type]
    if retention.kind == "bytime_sliding":
        return TimeSliding(limit, place, scale)
    if retention.kind == "bytime_jumping":
        return TimeJumping(limit, place, scale)
    return TimeJumpingLookback(limit, place, scale, retention.unit_us)
