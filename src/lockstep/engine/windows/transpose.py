"""Transpose windows: rows to columns (wide) or columns to rows (long).

Wide: a row for each group, with the latest values of each tag in the fields TAG_VALUE. The row that set a tag's values
owns them: when it leaves they become null, and when a group has no values left, its row leaves. Tags that are not named
are passed over. A group that was silent for the clear timeout, on the model's clock, is deleted on a tick.

Long: for each row one row for each tag, with that tag's values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.types import Value
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import TransposeWindow
from lockstep.engine.windows.function_rows import Key, kept, key_of, resolved, restored, same_nan
from lockstep.engine.windows.function_values import text
from lockstep.engine.windows.operator import Moment, Operator, Tree

_LEAVING = frozenset({Opcode.DELETE, Opcode.SAFEDELETE})


@dataclass(slots=True)
class _Group:
    """A row of the wide form: the values of each tag with the key of the row that set them."""

    base: Row
    active_us: int
    cells: dict[str, tuple[Key, Row]] = field(default_factory=dict)
    shown: Row | None = None


class TransposeOperator(Operator):
    """Turns rows and columns."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, TransposeWindow), "made by kind"
        self._window = window
        self._form: _Wide | _Long = _Wide(self, window) if window.mode == "wide" else _Long(node, window)

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - it has one input
        """Turn a row."""
        self._form.change(event, old, moment, out)

    def on_tick(self, moment: Moment, out: list[Event]) -> None:
        """Clear groups that were silent too long."""
        if isinstance(self._form, _Wide) and self._window.clear_us is not None:
            self._form.clear(moment.clock_us, self._window.clear_us, out)

    def dump(self) -> Tree:
        """The groups of the wide form."""
        return self._form.dump() if isinstance(self._form, _Wide) else None

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if isinstance(self._form, _Wide):
            self._form.load(state)


class _Wide:
    """Keeps a row for each group."""

    def __init__(self, operator: Operator, window: TransposeWindow) -> None:
        node = operator.node
        given = node.inputs[0]
        self._operator = operator
        self._node = node
        self._tag = given.places[window.tag_name]
        self._tags = frozenset(window.tags_included)
        self._values = tuple(given.places[name] for name in window.tag_values)
        spread = {
            f"{tag}_{name}": (tag, place)
            for tag in window.tags_included
            for place, name in enumerate(window.tag_values)
        }
        self._cells = [spread.get(each.name) for each in node.schema]
        self._base = [given.places.get(each.name) for each in node.schema]
        self._groups: dict[Key, _Group] = {}

    def change(self, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Take the old values away, put the new ones in; a group that changes is shown once."""
        leaving = event.values if event.opcode in _LEAVING else old
        touched: dict[Key, None] = {}
        if leaving is not None:
            self._remove(leaving, touched)
        if event.opcode not in _LEAVING:
            self._put(event, moment, touched)
        for key in touched:
            self._groups[key].active_us = moment.clock_us
            self._show(key, resolved(event.flags), out)

    def _remove(self, row: Row, touched: dict[Key, None]) -> None:
        key, tag = self._group_of(row), text(row[self._tag])
        group = self._groups.get(key)
        if group is not None and tag in group.cells and group.cells[tag][0] == self._owner(row):
            del group.cells[tag]
            touched[key] = None

    def _put(self, event: Event, moment: Moment, touched: dict[Key, None]) -> None:
        row = event.values
        key, tag = self._group_of(row), text(row[self._tag])
        if row[self._tag] is None or tag not in self._tags:
            return
        if None in key:
            self._operator.refuse(event, "null-key", "the group has no value", moment)
            return
        base = tuple([None if place is None else row[place] for place in self._base])
        group = self._groups.setdefault(key, _Group(base, moment.clock_us))
        group.base = base
        group.cells[tag] = (self._owner(row), tuple([row[place] for place in self._values]))
        touched[key] = None

    def _group_of(self, row: Row) -> Key:
        places = (self._base[place] for place in self._node.schema.keys)
        return same_nan(tuple([None if place is None else row[place] for place in places]))

    def _owner(self, row: Row) -> Key:
        return key_of(self._node.inputs[0], row)

    def _show(self, key: Key, flags: Flag, out: list[Event]) -> None:
        group = self._groups[key]
        before, group.shown = group.shown, self._row(group) if group.cells else None
        if group.shown is None:
            del self._groups[key]
        if group.shown is not None:
            out.append(Event(Opcode.INSERT if before is None else Opcode.UPDATE_BLOCK, flags, group.shown))
        if before is not None:
            out.append(Event(Opcode.DELETE, flags, before))

    def _row(self, group: _Group) -> Row:
        return tuple([self._cell(group, cell, place) for place, cell in enumerate(self._cells)])

    def _cell(self, group: _Group, cell: tuple[str, int] | None, place: int) -> Value:
        if cell is None:
            return group.base[place]
        tag, which = cell
        return group.cells[tag][1][which] if tag in group.cells else None

    def clear(self, now_us: int, limit_us: int, out: list[Event]) -> None:
        """Delete what was silent too long; before the first tick there is no clock, so it counts from there."""
        for key, group in list(self._groups.items()):
            if group.active_us == 0:
                group.active_us = now_us
            elif now_us - group.active_us >= limit_us:
                group.cells.clear()
                self._show(key, Flag.NORMAL, out)

    def dump(self) -> Tree:
        """All groups."""
        return [
            [
                kept(key),
                kept(group.base),
                group.active_us,
                [[tag, kept(owner), kept(values)] for tag, (owner, values) in group.cells.items()],
            ]
            for key, group in self._groups.items()
        ]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._groups = {}
        for key, base, active_us, cells in state:
            group = _Group(restored(base), active_us)
            group.cells = {tag: (same_nan(restored(owner)), restored(values)) for tag, owner, values in cells}
            group.shown = self._row(group)
            self._groups[same_nan(restored(key))] = group


class _Long:
    """Makes rows of the fields of each tag; there is nothing to keep."""

    def __init__(self, node: Node, window: TransposeWindow) -> None:
        given = node.inputs[0]
        self._schema = node.schema
        self._tags = window.tags_included
        self._places: list[list[int | None]] = [
            [self._place(each.name, tag, window, given.places) for each in node.schema] for tag in self._tags
        ]
        self._own = {node.schema.places[window.tag_name]: "tag"}
        if "tagNum" in node.schema:
            self._own[node.schema.places["tagNum"]] = "number"

    @staticmethod
    def _place(name: str, tag: str, window: TransposeWindow, places: dict[str, int]) -> int | None:
        return places.get(f"{tag}_{name}" if name in window.tag_values else name)

    def change(self, event: Event, old: Row | None, _moment: Moment, out: list[Event]) -> None:
        """The rows of a row; of an update each tag's, and if the key changed the old ones leave first."""
        if old is None:
            out.extend(Event(event.opcode, event.flags, row) for row in self._rows(event.values))
            return
        pairs = list(zip(self._rows(event.values), self._rows(old), strict=True))
        if all(key_of(self._schema, new) == key_of(self._schema, before) for new, before in pairs):
            for new, before in pairs:
                out.append(Event(Opcode.UPDATE_BLOCK, event.flags, new))
                out.append(Event(Opcode.DELETE, event.flags, before))
        else:
            out.extend(Event(Opcode.DELETE, event.flags, before) for _, before in pairs)
            out.extend(Event(Opcode.INSERT, event.flags, new) for new, _ in pairs)

    def _rows(self, row: Row) -> list[Row]:
        return [
            tuple([self._value(row, place, at, number) for at, place in enumerate(places)])
            for number, places in enumerate(self._places)
        ]

    def _value(self, row: Row, place: int | None, at: int, number: int) -> Value:
        own = self._own.get(at)
        if own is not None:
            return self._tags[number] if own == "tag" else number
        return None if place is None else row[place]
