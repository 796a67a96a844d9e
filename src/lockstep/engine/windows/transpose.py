"""Transpose windows: rows to columns (wide) or columns to rows (long).

Wide: for each row with a tag one row under the row's own key, with the latest values of all tags of its group in the
fields TAG_VALUE. Tags that are not named are passed over. The values of a row stay until another row of the group with
that tag comes, or the group was silent for the clear timeout, on the model's clock. With an index a row that changes or
leaves changes or deletes what was made of it; without one nothing is kept of rows, and what is made are inserts.

Long: for each row one row for each tag, with that tag's values, numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.engine.events.event import Event, Opcode, Row
from lockstep.engine.events.types import Value
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import TransposeWindow
from lockstep.engine.windows.function_rows import Key, kept, key_of, resolved, restored, same_nan
from lockstep.engine.windows.function_values import text
from lockstep.engine.windows.index import add_change
from lockstep.engine.windows.operator import Moment, Operator, Tree

_LEAVING = frozenset({Opcode.DELETE, Opcode.SAFEDELETE})


@dataclass(slots=True)
class _Group:
    """The latest values of each tag, and when the last of them came."""

    active_us: int
    cells: dict[str, Row] = field(default_factory=dict)


class TransposeOperator(Operator):
    """Turns rows and columns."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, TransposeWindow), "made by kind"
        self._window = window
        self._form: _Wide | _Long = _Wide(node, window) if window.mode == "wide" else _Long(node, window)

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - it has one input
        """Turn a row."""
        self._form.change(event, old, moment, out)

    def on_tick(self, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - what is cleared shows in the next row
        """Forget the values of groups that were silent too long."""
        if isinstance(self._form, _Wide) and self._window.clear_us is not None:
            self._form.clear(moment.clock_us, self._window.clear_us)

    def dump(self) -> Tree:
        """The groups of the wide form, and what was made."""
        return self._form.dump() if isinstance(self._form, _Wide) else None

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if isinstance(self._form, _Wide):
            self._form.load(state)


class _Wide:
    """Keeps the values of each group; and by the key of its row what was made, if it has an index."""

    def __init__(self, node: Node, window: TransposeWindow) -> None:
        given = node.inputs[0]
        self._given = given
        self._tag = given.places[window.tag_name]
        self._tags = frozenset(window.tags_included)
        self._values = tuple(given.places[name] for name in window.tag_values)
        spread = {
            f"{tag}_{name}": (tag, place)
            for tag in window.tags_included
            for place, name in enumerate(window.tag_values)
        }
        self._cells = [None if each.name in given else spread[each.name] for each in node.schema]
        self._base = [given.places.get(each.name) for each in node.schema]
        self._by = tuple(given.places[name] for name in window.group_by)
        self._groups: dict[Key, _Group] = {}
        self._made: dict[Key, Row] | None = {} if node.is_indexed else None

    def change(self, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Take the values of a row, and show its group; what was made of the row before is replaced."""
        key = key_of(self._given, event.values)
        before = None if self._made is None else self._made.pop(key, None)
        made = None
        if event.opcode not in _LEAVING and text(event.values[self._tag]) in self._tags:
            made = self._row(event.values, self._put(event.values, moment))
            if self._made is not None:
                self._made[key] = made
        del old  # what was made of it is known
        add_change(made, before, resolved(event.flags), out)

    def _put(self, row: Row, moment: Moment) -> _Group:
        key = same_nan(tuple([row[place] for place in self._by]))
        group = self._groups.setdefault(key, _Group(moment.clock_us))
        group.cells[text(row[self._tag])] = tuple([row[place] for place in self._values])
        group.active_us = moment.clock_us
        return group

    def _row(self, row: Row, group: _Group) -> Row:
        return tuple(
            [
                _cell(group, cell) if cell is not None else None if place is None else row[place]
                for cell, place in zip(self._cells, self._base, strict=True)
            ]
        )

    def clear(self, now_us: int, limit_us: int) -> None:
        """Forget what was silent too long; before the first tick there is no clock, so it counts from there."""
        for key, group in list(self._groups.items()):
            if group.active_us == 0:
                group.active_us = now_us
            elif now_us - group.active_us >= limit_us:
                del self._groups[key]

    def dump(self) -> Tree:
        """All groups, and what was made."""
        groups = [
            [kept(key), group.active_us, [[tag, kept(values)] for tag, values in group.cells.items()]]
            for key, group in self._groups.items()
        ]
        made = None if self._made is None else [[kept(key), kept(row)] for key, row in self._made.items()]
        return {"groups": groups, "made": made}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._groups = {
            same_nan(restored(key)): _Group(active_us, {tag: restored(values) for tag, values in cells})
            for key, active_us, cells in state["groups"]
        }
        if self._made is not None:
            self._made = {same_nan(restored(key)): restored(row) for key, row in state["made"]}


def _cell(group: _Group, cell: tuple[str, int]) -> Value:
    tag, which = cell
    return group.cells[tag][which] if tag in group.cells else None


class _Long:
    """Makes rows of the fields of each tag; there is nothing to keep."""

    def __init__(self, node: Node, window: TransposeWindow) -> None:
        given = node.inputs[0]
        self._schema = node.schema
        self._tags = window.tags_included
        self._places: list[list[int | None]] = [
            [self._place(each.name, tag, window, given.places) for each in node.schema] for tag in self._tags
        ]
        self._own = {node.schema.places[window.tag_name]: "tag", node.schema.places["tagNum"]: "number"}

    @staticmethod
    def _place(name: str, tag: str, window: TransposeWindow, places: dict[str, int]) -> int | None:
        return places.get(f"{tag}_{name}" if name in window.tag_values else name)

    def change(self, event: Event, old: Row | None, _moment: Moment, out: list[Event]) -> None:
        """The rows of a row; of an update each tag's."""
        if old is None:
            out.extend(Event(event.opcode, event.flags, row) for row in self._rows(event.values))
            return
        for new, before in zip(self._rows(event.values), self._rows(old), strict=True):
            out.append(Event(Opcode.UPDATE_BLOCK, event.flags, new))
            out.append(Event(Opcode.DELETE, event.flags, before))

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
