"""Windows that pass rows on: source windows, which check what comes from outside, copy windows, and idle ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from lockstep.engine.events.event import Event, Row
from lockstep.engine.events.schema import INT_RANGE, FieldType, Schema, Value, fits
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import CopyWindow, SourceWindow
from lockstep.engine.reference.index import INSERT, UPDATE_BLOCK, Index, Trial, add_update
from lockstep.engine.reference.operator import Moment, Operator, Tree
from lockstep.engine.reference.retention import make_policy

Fault = tuple[str, str]
"""A reason and the detail of it."""

_DETAILS = {
    "duplicate-key": "a row with this key is there already",
    "unknown-key": "no row has this key",
    "transaction": "another event of its transactional block is bad",
}


def details(reason: str) -> str:
    """What there is to say about a reason that needs no more words."""
    return _DETAILS.get(reason, "")


class SourceOperator(Operator):
    """Checks, keys, resolves and retains. Without an index opcodes are passed on as they are."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(SourceWindow, node.window)
        policy = make_policy(window.retention, node.schema)
        self._is_insert_only = window.insert_only
        self._index = Index(node.schema, policy) if node.is_indexed or policy is not None else None
        self._check = RowCheck(node.schema)
        self._keys = node.schema.keys
        self._autogen = node.schema.keys[0] if window.autogen_key else None
        self._keys_made = 0

    def evaluate(self, inputs: Sequence[Sequence[Event]], moment: Moment) -> list[Event]:
        """Injected events one by one, or all or none of them if the block is transactional."""
        out: list[Event] = []
        for events in inputs:
            if moment.transactional:
                self._take_all(events, moment, out)
            else:
                for event in events:
                    self.on_change(0, event, None, moment, out)
        if moment.is_tick:
            self.on_tick(moment, out)
        return out

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - one input
        """Take one event, or refuse it."""
        fault = self._fault(event)
        if fault is not None:
            self.refuse(event, *fault, moment)
            return
        reason = self._take(event, out)
        if reason is not None:
            self.refuse(event, reason, details(reason), moment)

    def _take_all(self, events: Sequence[Event], moment: Moment, out: list[Event]) -> None:
        faults = self._trial(events)
        if any(faults):
            for event, fault in zip(events, faults, strict=True):
                self.refuse(event, *(fault or ("transaction", details("transaction"))), moment)
            return
        for event in events:
            # Retention may let a row go that the trial still saw; the block is taken whole all the same.
            self._take(event, out, forgiving=True)

    def _trial(self, events: Sequence[Event]) -> list[Fault | None]:
        trial = Trial(self._index) if self._index is not None and self._autogen is None else None
        faults: list[Fault | None] = []
        for event in events:
            fault = self._fault(event)
            if fault is None and trial is not None:
                reason = trial.fault(event)
                fault = None if reason is None else (reason, details(reason))
            faults.append(fault)
        return faults

    def _fault(self, event: Event) -> Fault | None:
        """What is wrong with an event by itself, whatever rows there are."""
        opcode, _, values = event
        if opcode is UPDATE_BLOCK:
            return "bad-opcode", "update blocks are made by windows, they can't come in"
        if self._is_insert_only and opcode is not INSERT:
            return "bad-opcode", f"{opcode.name.lower()} into a window that takes inserts only"
        wrong = self._check.fault(values)
        if wrong is not None:
            return "wrong-type", wrong
        if self._autogen is None:
            for place in self._keys:
                if values[place] is None:
                    return "null-key", f"{self.node.schema.names[place]} is null"
        return None

    def _take(self, event: Event, out: list[Event], *, forgiving: bool = False) -> str | None:
        if self._autogen is not None:
            event = event._replace(values=self._keyed(event.values, self._autogen))
        if self._index is None:
            out.append(event)
            return None
        return self._index.take(event, out, forgiving=forgiving)

    def _keyed(self, values: Row, place: int) -> Row:
        """The row with the next key; what stood there is not looked at."""
        number, self._keys_made = self._keys_made, self._keys_made + 1
        is_text = self.node.schema.fields[place].type is FieldType.STRING
        key: Value = str(number) if is_text else number
        return (*values[:place], key, *values[place + 1 :])

    def on_tick(self, moment: Moment, out: list[Event]) -> None:
        """Retention on the model's clock."""
        if self._index is not None:
            self._index.tick(moment.clock_us, out)

    def dump(self) -> Tree:
        """Rows, and how many keys were made."""
        return {"index": None if self._index is None else self._index.dump(), "keys_made": self._keys_made}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._keys_made = state["keys_made"]
        if self._index is not None:
            self._index.load(state["index"])


_KNOWN_MAX = 4096


class RowCheck:
    """Finds values of a wrong type.

    The Python types of a row are looked at together, once for each combination that occurs; then only whole numbers
    (they have bounds) and arrays (they have elements) need a look of their own.
    """

    __slots__ = ("_arrays", "_known", "_ranges", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: set[tuple[type, ...]] = set()
        kinds = [(place, field.type) for place, field in enumerate(schema)]
        self._ranges = [(place, *INT_RANGE[kind]) for place, kind in kinds if kind in INT_RANGE]
        self._arrays = [place for place, kind in kinds if kind.element is not None]

    def fault(self, values: Row) -> str | None:
        """What is wrong with a row, if something is."""
        types = tuple(map(type, values))
        if types not in self._known:
            fault = self._slow(values)
            if fault is None and len(self._known) < _KNOWN_MAX:
                self._known.add(types)
            return fault
        for place, low, high in self._ranges:
            value = values[place]
            if value is not None and not low <= value <= high:  # type: ignore[operator]  # its type was looked at
                return self._slow(values)
        return self._slow(values) if self._arrays else None

    def _slow(self, values: Row) -> str | None:
        if len(values) != len(self._schema):
            return f"{len(values)} values for {len(self._schema)} fields"
        for field, value in zip(self._schema, values, strict=True):
            if not fits(field.type, value):
                return f"{field.name} is {value!r:.80}, not of type {field.type.value}"
        return None


class IdleOperator(Operator):
    """Gives nothing."""

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Nothing comes here."""

    def dump(self) -> Tree:
        """There is no state."""
        return {}

    def load(self, state: Tree) -> None:
        """There is no state."""


class CopyOperator(Operator):
    """Resolves and retains. With retention it may have let rows go that the parent still has: that is forgiven."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        policy = make_policy(cast(CopyWindow, node.window).retention, node.schema)
        self._index = Index(node.schema, policy) if node.is_indexed or policy is not None else None
        self._has_retention = policy is not None

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - one input
        """Take one change."""
        if self._index is None:
            pass_on(event, old, out)
            return
        reason = self._index.take(event, out, forgiving=self._has_retention)
        if reason is not None:
            self.refuse(event, reason, details(reason), moment)

    def on_tick(self, moment: Moment, out: list[Event]) -> None:
        """Retention on the model's clock."""
        if self._index is not None:
            self._index.tick(moment.clock_us, out)

    def dump(self) -> Tree:
        """The rows."""
        return None if self._index is None else self._index.dump()

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if self._index is not None:
            self._index.load(state)


def pass_on(event: Event, old: Row | None, out: list[Event]) -> None:
    """What a window without an index does: the change as it came."""
    if event.opcode is UPDATE_BLOCK and old is not None:
        add_update(event.values, old, event.flags, out)
    else:
        out.append(event)
