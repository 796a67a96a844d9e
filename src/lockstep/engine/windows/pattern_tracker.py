"""One pattern at work: its open patterns by index value, the clock they follow, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.compiler import Environment
from lockstep.engine.model.durations import MAX_US
from lockstep.engine.model.windows import Pattern
from lockstep.engine.windows.function_rows import kept, restored, same_nan
from lockstep.engine.windows.operator import Tree
from lockstep.engine.windows.pattern_events import PatternEvents, compile_events, port_of
from lockstep.engine.windows.pattern_logic import parse_logic
from lockstep.engine.windows.pattern_steps import DONE, FAILED, HOLDS, Offer, State, make_steps

MAX_OPEN = 10_000
"""Open patterns for one index value; beyond that the oldest is dropped."""

_PER_SECOND = 1_000_000
_UNKNOWN = -(2**62)
"""The time of what came before the clock was known: none that counts is so far away, see MAX_US."""


@dataclass(slots=True)
class Open:
    """A pattern that has begun: the events it has taken so far, by name, and what is still waited for."""

    number: int
    index: tuple[Value, ...]
    variables: list[Value]
    rows: dict[str, Row]
    state: State
    deadline: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A match: the events by name, and what the variables were bound to."""

    rows: dict[str, Row]
    variables: list[Value]


@dataclass(slots=True)
class _Places:
    """Where an input's rows hold the index fields and the time."""

    index: tuple[int, ...]
    time: tuple[int, int] | None = None
    """The place of the time and how many microseconds one of it is."""


class Tracker:
    """Follows one pattern through the events of its inputs."""

    def __init__(self, pattern: Pattern, ports: dict[str, int], inputs: tuple[Schema, ...], limit: int) -> None:
        self.events: PatternEvents = compile_events(pattern, ports, inputs)
        self.root = make_steps(parse_logic(pattern.logic))
        self.has_time = bool(pattern.time_fields)
        self.limit = limit
        self._places = _places(pattern, ports, inputs)
        self._clock_us: int | None = None
        self._next = 0
        self._open: dict[tuple[Value, ...], dict[int, Open]] = {}
        self._deadlines: list[tuple[int, int, tuple[Value, ...]]] = []

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def take(self, port: int, row: Row, environment: Environment, dropped: Callable[[Open], None]) -> Iterator[Found]:
        """The matches that an event makes: first those whose time was over before it, then its own."""
        places = self._places.get(port)
        if places is None:
            return
        now = self._time(places, row, environment.clock_us)
        if self.has_time and now != _UNKNOWN:
            yield from self.expire(now)
        index = same_nan(tuple([row[place] for place in places.index]))
        yield from self._offer_all(port, row, now, index, environment)
        queue = self._open.get(index, {})
        while len(queue) > self.limit:
            dropped(self._close(queue[next(iter(queue))]))

    def tick(self, clock_us: int) -> Iterator[Found]:
        """The matches that the model's clock makes, if it is the one that is followed."""
        if not self.has_time:
            self._move(clock_us)
            yield from self.expire(clock_us)

    def expire(self, now: int) -> Iterator[Found]:
        """Decide the open patterns whose time was over before `now`, the earliest first."""
        while self._deadlines and self._deadlines[0][0] < now:
            deadline, number, index = heappop(self._deadlines)
            entry = self._open.get(index, {}).get(number)
            if entry is not None and entry.deadline == deadline:
                yield from self._settle(entry, self.root.expire(entry.state, deadline))

    def _offer_all(
        self, port: int, row: Row, now: int, index: tuple[Value, ...], environment: Environment
    ) -> Iterator[Found]:
        def match(name: str, variables: list[Value]) -> list[Value] | None:
            test = self.events.tests[name]
            return test.match(row, variables, environment) if test.port == port else None

        taken: set[int] = set()
        for entry in list(self._open.get(index, {}).values()):
            offer = Offer(match, row, now, entry.variables, entry.rows)
            status = self.root.offer(entry.state, offer)
            entry.variables = offer.variables
            if status != FAILED:
                taken |= offer.taken
            yield from self._settle(entry, status)
        yield from self._begin(Offer(match, row, now, [None] * len(self.events.variables), {}), index, taken)

    def _begin(self, offer: Offer, index: tuple[Value, ...], taken: set[int]) -> Iterator[Found]:
        """Open a pattern with this event, unless one that is open already took it at the same place."""
        state = self.root.fresh()
        status = self.root.offer(state, offer)
        if status == FAILED or offer.taken & taken or not (offer.taken or status in (HOLDS, DONE)):
            return
        entry = Open(self._next, index, offer.variables, offer.rows, state)
        self._next += 1
        self._open.setdefault(index, {})[entry.number] = entry
        yield from self._settle(entry, status)

    def _settle(self, entry: Open, status: int) -> Iterator[Found]:
        if status in (HOLDS, DONE):
            self._close(entry)
            yield Found(entry.rows, entry.variables)
        elif status == FAILED:
            self._close(entry)
        else:
            self._watch(entry)

    def _watch(self, entry: Open) -> None:
        before, entry.deadline = entry.deadline, self.root.deadline(entry.state)
        if entry.deadline is not None and entry.deadline != before:
            heappush(self._deadlines, (entry.deadline, entry.number, entry.index))

    def _close(self, entry: Open) -> Open:
        queue = self._open[entry.index]
        del queue[entry.number]
        if not queue:
            del self._open[entry.index]
        return entry

    def _time(self, places: _Places, row: Row, clock_us: int) -> int:
        if not self.has_time:
            if clock_us:
                self._move(clock_us)
        elif places.time is not None:
            place, unit = places.time
            time = row[place]
            if isinstance(time, int) and abs(time) <= MAX_US // unit:
                self._move(time * unit)
        return _UNKNOWN if self._clock_us is None else self._clock_us

    def _move(self, now: int) -> None:
        """The clock never goes back; what came before it was known counts as come at its first value."""
        if self._clock_us is None:
            for queue in self._open.values():
                for entry in queue.values():
                    entry.state = _since(entry.state, now)
            self._set_deadlines()
        self._clock_us = now if self._clock_us is None else max(now, self._clock_us)

    def dump(self) -> Tree:
        """The clock and all open patterns."""
        entries = sorted((entry for queue in self._open.values() for entry in queue.values()), key=lambda e: e.number)
        return {
            "clock": self._clock_us,
            "next": self._next,
            "open": [
                [entry.number, kept(entry.index), kept(tuple(entry.variables)), _rows(entry.rows), _copy(entry.state)]
                for entry in entries
            ],
        }

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._clock_us, self._next = state["clock"], state["next"]
        self._open = {}
        for number, index, variables, rows, steps in state["open"]:
            events = {name: restored(row) for name, row in rows}
            entry = Open(number, same_nan(restored(index)), list(restored(variables)), events, _copy(steps))
            self._open.setdefault(entry.index, {})[number] = entry
        self._set_deadlines()

    def _set_deadlines(self) -> None:
        self._deadlines = []
        for queue in self._open.values():
            for entry in queue.values():
                entry.deadline = self.root.deadline(entry.state)
                if entry.deadline is not None:
                    self._deadlines.append((entry.deadline, entry.number, entry.index))
        heapify(self._deadlines)


def _places(pattern: Pattern, ports: dict[str, int], inputs: tuple[Schema, ...]) -> dict[int, _Places]:
    places: dict[int, _Places] = {}
    for event in pattern.events:
        port = port_of(event.source, ports)
        if port not in places:
            places[port] = _Places(tuple(inputs[port].places[name] for name in pattern.index))
    for name, source in pattern.time_fields:
        port = port_of(source, ports)
        if port in places:
            unit = _PER_SECOND if inputs[port][name].type is FieldType.DATE else 1
            places[port].time = (inputs[port].places[name], unit)
    return places


def _rows(rows: dict[str, Row]) -> list[list[object]]:
    return [[name, kept(row)] for name, row in rows.items()]


def _since(state: State, now: int) -> State:
    """The state with what happened at an unknown time put at `now`."""
    return [_since(item, now) if isinstance(item, list) else now if item == _UNKNOWN else item for item in state]


def _copy(state: State) -> State:
    return [_copy(item) if isinstance(item, list) else item for item in state]
