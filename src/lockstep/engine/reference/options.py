"""What a window does with its output before others see it: pulse, collapse, insert-only, and slots, in this order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.engine.events.event import Event, Flag, Opcode, Row, changes
from lockstep.engine.language.compiler import Environment, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import Splitter
from lockstep.engine.reference.compute import look
from lockstep.engine.reference.index import (
    DELETE,
    INSERT,
    UPDATE_BLOCK,
    Key,
    add_change,
    key_getter,
    key_tree,
    row_tree,
    tree_key,
    tree_row,
)
from lockstep.engine.reference.operator import Moment, Tree

RESOLVED_OPCODES = frozenset({INSERT, DELETE, UPDATE_BLOCK})


def collapse(events: Sequence[Event], key_of: Callable[[Row], Key]) -> list[Event]:
    """Several changes of one key as one, at the place of the first, with the flags of the last.

    The row was there before the first and is after the last: an update pair; only after: an insert; only before: a
    delete; neither: nothing. Events that are not resolved can't be put together and stay as they are.
    """
    if any(event.opcode not in RESOLVED_OPCODES for event in events):
        return list(events)
    net: dict[Key, tuple[Row | None, Row | None, Flag]] = {}
    for event, old in changes(events):
        opcode, flags, values = event
        before, after = (values, None) if opcode is DELETE else (old, values)
        known = net.get(key := key_of(values))
        net[key] = (before if known is None else known[0], after, flags)
    out: list[Event] = []
    for before, after, flags in net.values():
        add_change(after, before, flags, out)
    return out


class Pulse:
    """Holds events back until the model's clock reaches the next multiple of the interval."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._beats = 0
        self._held: list[Event] = []

    def take(self, events: Sequence[Event], moment: Moment) -> list[Event]:
        """Everything held, if it is time; else nothing."""
        self._held.extend(events)
        beats = moment.clock_us // self._interval_us
        if beats <= self._beats:
            return []
        self._beats = beats
        held, self._held = self._held, []
        return held

    def dump(self) -> Tree:
        """What is held."""
        return [self._beats, [[int(opcode), int(flags), row_tree(row)] for opcode, flags, row in self._held]]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._beats = state[0]
        self._held = [Event(Opcode(opcode), Flag(flags), tree_row(row)) for opcode, flags, row in state[1]]


class Slots:
    """Sends each event to the slot that an expression names.

    An update that changes the slot is a delete in the old one and an insert in the new one. Null or a number below 0
    is no slot: only edges that take everything have such events.
    """

    def __init__(self, splitter: Splitter, node: Node) -> None:
        self._expression = compile_expression(
            splitter.expression, Scope.of(node.schema), initialize=splitter.initialize
        )
        self._environment = Environment(variables=list(self._expression.initial()))
        self._key_of = key_getter(node.schema)
        # A row must leave the slot it went to; if that can't be worked out anew, it is kept.
        self._chosen: dict[Key, int] | None = None if self._expression.is_pure else {}

    def split(self, events: Sequence[Event], moment: Moment) -> dict[int, list[Event]]:
        """The events of each slot."""
        slots: dict[int, list[Event]] = {}
        for event, old in changes(events):
            if event.opcode is UPDATE_BLOCK and old is not None:
                leaving = Event(DELETE, event.flags, old)
                was = self._slot(leaving, moment)
                now = self._slot(event, moment)
                halves = (event, leaving) if was == now else (leaving, event._replace(opcode=INSERT))
                for slot, half in zip((was, now) if was != now else (now, now), halves, strict=True):
                    slots.setdefault(slot, []).append(half)
            else:
                slots.setdefault(self._slot(event, moment), []).append(event)
        slots.pop(-1, None)
        return slots

    def _slot(self, event: Event, moment: Moment) -> int:
        if self._chosen is None:
            return self._choose(event)
        key = self._key_of(event.values)
        if event.opcode is DELETE and key in self._chosen:
            return self._chosen.pop(key)
        look(self._environment, event, moment)
        slot = self._choose(event)
        if event.opcode is not DELETE:
            self._chosen[key] = slot
        return slot

    def _choose(self, event: Event) -> int:
        value = self._expression.evaluate(event.values, self._environment)
        return int(value) if isinstance(value, int | float) and value >= 0 else -1

    def dump(self) -> Tree:
        """Variables, and the slots that rows went to if they are kept."""
        chosen = None if self._chosen is None else [[key_tree(key), slot] for key, slot in self._chosen.items()]
        return {"variables": row_tree(tuple(self._environment.variables)), "chosen": chosen}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._environment.variables = list(tree_row(state["variables"]))
        if self._chosen is not None:
            self._chosen = {tree_key(key): slot for key, slot in state["chosen"]}


class OutputOptions:
    """The output options of one window."""

    def __init__(self, node: Node) -> None:
        window = node.window
        self._key_of = key_getter(node.schema)
        self._pulse = None if window.pulse_us is None else Pulse(window.pulse_us)
        self._collapses = window.collapse_updates or self._pulse is not None
        self._inserts_only = window.output_insert_only
        self._slots = None if window.splitter is None else Slots(window.splitter, node)
        self.is_plain = not (self._collapses or self._inserts_only or self._slots)
        """Nothing is done at all."""

    def apply(self, events: list[Event], moment: Moment) -> list[Event]:
        """What others see of an output block."""
        if self._pulse is not None:
            events = self._pulse.take(events, moment)
        if self._collapses:
            events = collapse(events, self._key_of)
        if self._inserts_only:
            events = [event for event in events if event.opcode is INSERT]
        return events

    def split(self, events: Sequence[Event], moment: Moment) -> dict[int, list[Event]]:
        """Of what others see, the events of each slot; none if there is no splitter."""
        return {} if self._slots is None else self._slots.split(events, moment)

    def dump(self) -> Tree:
        """What is held back, and the state of the splitter."""
        return {
            "pulse": None if self._pulse is None else self._pulse.dump(),
            "slots": None if self._slots is None else self._slots.dump(),
        }

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if self._pulse is not None:
            self._pulse.load(state["pulse"])
        if self._slots is not None:
            self._slots.load(state["slots"])
