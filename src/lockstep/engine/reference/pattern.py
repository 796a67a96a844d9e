"""Pattern windows: a row for every time that events came in a described way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import Field, FieldType, Schema, Value
from lockstep.engine.language.compiler import Environment, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.values import MAX_US
from lockstep.engine.model.windows import Pattern, PatternOutput, PatternWindow
from lockstep.engine.reference.function_values import fit
from lockstep.engine.reference.functional import KeyGuard, kept, restored, same_nan
from lockstep.engine.reference.operator import Moment, Operator, Tree
from lockstep.engine.reference.pattern_logic import (
    EventTest,
    PatternEvents,
    compile_events,
    parse_logic,
    port_of,
    scope_of,
)
from lockstep.engine.reference.pattern_steps import DONE, FAILED, HOLDS, Offer, State, make_steps

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


_LEAVING = frozenset({Opcode.DELETE, Opcode.SAFEDELETE})

Maker = Callable[[Found, Environment], Value]


class PatternOperator(Operator):
    """Finds patterns in the events of its inputs; `limit` bounds the open ones for each index value."""

    def __init__(self, node: Node, limit: int = MAX_OPEN) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, PatternWindow), "made by kind"
        ports = {parent.name: port for port, parent in enumerate(node.parents)}
        self._numbered = numbered_key(window.schema, window.patterns)
        self._keys = KeyGuard(node) if self._numbered is None else None
        self._matches = 0
        self._trackers = [Tracker(pattern, ports, node.inputs, limit) for pattern in _active(window)]
        self._makers = [
            _makers(pattern, tracker, node.inputs, output_fields(window.schema, window.patterns))
            for pattern, tracker in zip(_active(window), self._trackers, strict=True)
        ]

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - only new rows are events to a pattern
        """Offer a row to every pattern, in the order they are declared."""
        if event.opcode in _LEAVING:
            return
        environment = Environment(moment.clock_us, moment.block, event.opcode.letter, event.flags.letters, [])

        def dropped(entry: Open) -> None:
            detail = f"more than {self._trackers[0].limit} open patterns for {entry.index}: the oldest was dropped"
            self.refuse(event, "pattern-overflow", detail, moment)

        for tracker, makers in zip(self._trackers, self._makers, strict=True):
            for found in tracker.take(port, event.values, environment, dropped):
                self._emit(found, makers, environment, moment, out)

    def on_tick(self, moment: Moment, out: list[Event]) -> None:
        """Decide what waited for the model's clock."""
        environment = Environment(moment.clock_us, moment.block, "I", "N", [])
        for tracker, makers in zip(self._trackers, self._makers, strict=True):
            for found in tracker.tick(moment.clock_us):
                self._emit(found, makers, environment, moment, out)

    def _emit(
        self, found: Found, makers: list[Maker], environment: Environment, moment: Moment, out: list[Event]
    ) -> None:
        self._matches += 1
        values = [maker(found, environment) for maker in makers]
        if self._numbered is not None:
            values.insert(self._numbered, self._matches)
        fitted = [fit(field.type, value) for field, value in zip(self.node.schema, values, strict=True)]
        event = Event(Opcode.INSERT, Flag.NORMAL, tuple([value for value, _ in fitted]))
        for field, (_, reason) in zip(self.node.schema, fitted, strict=True):
            if reason is not None:
                self.refuse(event, reason, f"field {field.name} became null", moment)
        refusal = self._keys.refusal(event.values) if self._keys is not None else None
        if refusal is None:
            out.append(event)
        else:
            self.refuse(event, refusal, "two matches made rows that can't be told apart", moment)

    def dump(self) -> Tree:
        """The open patterns, and how many matches there were."""
        return {
            "matches": self._matches,
            "keys": self._keys.dump() if self._keys is not None else None,
            "patterns": [tracker.dump() for tracker in self._trackers],
        }

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._matches = state["matches"]
        if self._keys is not None:
            self._keys.load(state["keys"])
        for tracker, saved in zip(self._trackers, state["patterns"], strict=True):
            tracker.load(saved)


def numbered_key(schema: Schema, patterns: tuple[Pattern, ...]) -> int | None:
    """The place of the key that numbers the matches: the single int64 key field that no output is for."""
    is_number = len(schema.keys) == 1 and schema.fields[schema.keys[0]].type is FieldType.INT64
    is_short = all(len(pattern.output) == len(schema) - 1 for pattern in patterns)
    return schema.keys[0] if is_number and is_short and patterns else None


def output_fields(schema: Schema, patterns: tuple[Pattern, ...]) -> tuple[Field, ...]:
    """The fields that the outputs of each pattern fill, in order."""
    skipped = numbered_key(schema, patterns)
    return tuple(field for place, field in enumerate(schema) if place != skipped)


def _active(window: PatternWindow) -> list[Pattern]:
    return [pattern for pattern in window.patterns if pattern.is_active]


def _makers(pattern: Pattern, tracker: Tracker, inputs: tuple[Schema, ...], fields: Sequence[Field]) -> list[Maker]:
    return [_maker(output, tracker, inputs, field.type) for output, field in zip(pattern.output, fields, strict=True)]


def _maker(output: PatternOutput, tracker: Tracker, inputs: tuple[Schema, ...], kind: FieldType) -> Maker:
    """How a field of a match is made. An event that did not occur (another branch of or did) gives null."""
    if output.node is None:
        return _from_variables(output, tracker, kind)
    test = _test_of(output.node, tracker)
    schema = inputs[test.port]
    if output.field is not None:
        return _from_field(output.node, schema.places[output.field])
    return _from_expression(output, test, schema, tracker, kind)


def _test_of(name: str, tracker: Tracker) -> EventTest:
    if name not in tracker.events.tests:
        known = ", ".join(tracker.events.tests)
        raise BadExpression(text=name, at=1, reason=f"{name!r} is no event of the pattern", remedy=f"It has: {known}.")
    return tracker.events.tests[name]


def _from_field(node: str, place: int) -> Maker:
    def make(found: Found, _: Environment) -> Value:
        row = found.rows.get(node)
        return None if row is None else row[place]

    return make


def _from_expression(
    output: PatternOutput, test: EventTest, schema: Schema, tracker: Tracker, kind: FieldType
) -> Maker:
    if not (output.expression or "").strip():
        return lambda _found, _environment: None
    scope, _ = scope_of(schema, tracker.events.variables)
    expression = compile_expression(output.expression or "", scope, wanted=kind)

    def make(found: Found, environment: Environment) -> Value:
        row = found.rows.get(test.name)
        return None if row is None else expression.evaluate(test.seen(row, found.variables), environment)

    return make


def _from_variables(output: PatternOutput, tracker: Tracker, kind: FieldType) -> Maker:
    if not (output.expression or "").strip():
        return lambda _found, _environment: None
    expression = compile_expression(output.expression or "", Scope(tracker.events.variables), wanted=kind)
    return lambda found, environment: expression.evaluate(found.variables, environment)
