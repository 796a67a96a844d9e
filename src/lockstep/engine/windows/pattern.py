"""Pattern windows: a row for every time that events came in a described way.

Inserts and the new rows of updates are events to a pattern; rows that leave are not. A match makes one INSERT. If the
schema has one output less than fields and its key is a single int64, the key is the number of the match, from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.compiler import Environment, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import Pattern, PatternOutput, PatternWindow
from lockstep.engine.windows.function_rows import KeyGuard
from lockstep.engine.windows.function_values import fit
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.pattern_events import EventTest, scope_of
from lockstep.engine.windows.pattern_tracker import MAX_OPEN, Found, Open, Tracker

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
