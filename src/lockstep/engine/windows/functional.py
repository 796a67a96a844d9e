"""Functional windows: rows whose fields are made by functions, one or several of each input row.

A window with an index knows which rows it made of which input row: when that changes or leaves, so do they. Without an
index the rows of the old input row are made again to be taken back; where that can't be done, because they hold the
number of the event, only new rows are made. With an opcode function, that decides what becomes of the rows by their
own key; with produces-only-inserts every change is an insert and rows that leave make nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.engine.events.event import Event, Opcode, Row
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import FunctionalWindow
from lockstep.engine.windows.function_maker import OPCODE_WORDS, RowMaker
from lockstep.engine.windows.function_rows import KeptRows, Key, kept, key_of, restored, same_nan
from lockstep.engine.windows.operator import Moment, Operator, Tree

_LEAVING = frozenset({Opcode.DELETE, Opcode.SAFEDELETE})


class FunctionalOperator(Operator):
    """Makes rows by functions."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, FunctionalWindow), "made by kind"
        self._window = window
        self._maker = RowMaker(node)
        self._rows = KeptRows(node)
        self._made: dict[tuple[int, Key], list[Key]] = {}
        """The keys of the rows made of an input row, by its input and its key."""

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Make the rows of an input row, or take them back."""
        if self._window.opcode:
            self._by_opcode(port, event, moment, out)
        elif self._window.produces_only_inserts:
            if event.opcode not in _LEAVING:
                self._apply(Opcode.INSERT, event, self._make(port, event, moment), moment, out)
        elif self.node.is_indexed:
            self._by_input(port, event, moment, out)
        else:
            self._made_again(port, event, old, moment, out)

    def _make(self, port: int, event: Event, moment: Moment) -> list[Row]:
        return self._maker.make(port, event, moment, lambda why, what: self.refuse(event, why, what, moment))[0]

    def _by_opcode(self, port: int, event: Event, moment: Moment, out: list[Event]) -> None:
        def complain(reason: str, detail: str) -> None:
            self.refuse(event, reason, detail, moment)

        rows, written = self._maker.make(port, event, moment, complain)
        opcode = OPCODE_WORDS.get(written.strip().lower())
        if opcode is None:
            complain("bad-opcode", f"the opcode function gave {written!r}")
        else:
            self._apply(opcode, event, rows, moment, out)

    def _apply(self, opcode: Opcode, event: Event, rows: Sequence[Row], moment: Moment, out: list[Event]) -> list[Key]:
        """Resolve an opcode for each row; the keys of those that could be taken."""
        keys: list[Key] = []
        for row in rows:
            found = self._rows.resolve(opcode, event.flags, row)
            if isinstance(found, str):
                self.refuse(Event(opcode, event.flags, row), found, "a row made by functions", moment)
            else:
                out.extend(found)
                keys.append(key_of(self.node.schema, row))
        return keys

    def _by_input(self, port: int, event: Event, moment: Moment, out: list[Event]) -> None:
        owner = (port, key_of(self.node.inputs[port], event.values))
        is_new = event.opcode is Opcode.INSERT
        before = [] if is_new else self._made.pop(owner, [])
        rows = [] if event.opcode in _LEAVING else self._make(port, event, moment)
        staying = {key_of(self.node.schema, row) for row in rows}
        gone = [row for key in before if key not in staying and (row := self._rows.get(key)) is not None]
        self._apply(Opcode.DELETE, event, gone, moment, out)
        keys: list[Key] = []
        for row in rows:
            key = key_of(self.node.schema, row)
            # A row that was there is changed once; a second one of the same key is a duplicate like any other.
            opcode = Opcode.UPDATE if key in before and key not in keys else Opcode.INSERT
            keys.extend(self._apply(opcode, event, [row], moment, out))
        if keys:
            self._made[owner] = [*self._made.get(owner, []), *keys]

    def _made_again(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        can_take_back = not self._maker.uses_numbers
        if old is None:
            if can_take_back or event.opcode not in _LEAVING:
                self._apply(event.opcode, event, self._make(port, event, moment), moment, out)
            return
        rows = self._make(port, event, moment)
        if not can_take_back:
            self._apply(Opcode.INSERT, event, rows, moment, out)
            return
        silent = self._maker.make(port, Event(event.opcode, event.flags, old), moment, lambda _why, _what: None)
        self._change(event, rows, silent[0], moment, out)

    def _change(self, event: Event, rows: list[Row], before: list[Row], moment: Moment, out: list[Event]) -> None:
        schema = self.node.schema
        staying = {key_of(schema, row) for row in rows}
        olds = {key_of(schema, row): row for row in before}
        self._apply(Opcode.DELETE, event, [row for key, row in olds.items() if key not in staying], moment, out)
        for row in rows:
            old = olds.pop(key_of(schema, row), None)
            if old is None:
                self._apply(Opcode.INSERT, event, [row], moment, out)
            else:
                out.append(Event(Opcode.UPDATE_BLOCK, event.flags, row))
                out.append(Event(Opcode.DELETE, event.flags, old))

    def dump(self) -> Tree:
        """The number of the last event, the rows, and what they were made of."""
        made = [[port, kept(key), [kept(each) for each in keys]] for (port, key), keys in self._made.items()]
        return {"counter": self._maker.made, "rows": self._rows.dump(), "made": made}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._maker.made = state["counter"]
        self._rows.load(state["rows"])
        self._made = {
            (port, same_nan(restored(key))): [same_nan(restored(each)) for each in keys]
            for port, key, keys in state["made"]
        }
