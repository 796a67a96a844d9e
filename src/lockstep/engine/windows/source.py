"""Source windows: what comes in from outside is checked, and its opcodes are resolved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from lockstep.engine.events.event import Event, Row
from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.windows.checks import RowCheck
from lockstep.engine.windows.index import INSERT, UPDATE_BLOCK, Index, Trial
from lockstep.engine.windows.operator import Moment, Operator, Tree
from lockstep.engine.windows.retention import make_policy

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
