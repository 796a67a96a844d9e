"""Windows that change the shape of rows: counter, transpose and remove-state."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import Value
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import CounterWindow, RemoveStateWindow, TransposeWindow
from lockstep.engine.reference.function_values import text
from lockstep.engine.reference.functional import Key, kept, key_of, resolved, restored, same_nan
from lockstep.engine.reference.index import add_change
from lockstep.engine.reference.operator import Moment, Operator, Tree

_SECOND = 1_000_000


@dataclass(slots=True)
class _Count:
    """What is known of one input."""

    total: int = 0
    interval: int = 0
    since_us: int | None = None
    active_us: int | None = None
    row: Row | None = None


class CounterOperator(Operator):
    """Counts events."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, CounterWindow), "made by kind"
        self._window = window
        self._counts = [_Count() for _ in node.parents]
        self._origin_us: int | None = None
        self._last_us = 0

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - an event is an event
        """Count an event."""
        count = self._counts[port]
        count.total += 1
        count.interval += 1
        if self._origin_us is not None:
            count.active_us = moment.clock_us
            if count.since_us is None:
                count.since_us = moment.clock_us

    def on_tick(self, moment: Moment, out: list[Event]) -> None:
        """Make rows if an interval has passed."""
        now = moment.clock_us
        if self._origin_us is None:
            self._begin(now)
            return
        self._clear(now, out)
        if self._is_due(now):
            for port, count in enumerate(self._counts):
                if count.total:
                    self._emit(self.node.parents[port].name, count, now, out)
            self._last_us = now

    def _begin(self, now: int) -> None:
        """The first tick: what came before it counts as come now, for want of a clock."""
        self._origin_us = self._last_us = now
        for count in self._counts:
            if count.total:
                count.since_us = count.active_us = now

    def _is_due(self, now: int) -> bool:
        assert self._origin_us is not None, "a tick came before"
        step = self._window.count_us
        if not step:
            return now > self._last_us
        return (now - self._origin_us) // step > (self._last_us - self._origin_us) // step

    def _clear(self, now: int, out: list[Event]) -> None:
        limit = self._window.clear_us
        for port, count in enumerate(self._counts):
            if limit and count.active_us is not None and now - count.active_us >= limit:
                if count.row is not None:
                    out.append(Event(Opcode.DELETE, Flag.NORMAL, count.row))
                self._counts[port] = _Count()

    def _emit(self, name: str, count: _Count, now: int, out: list[Event]) -> None:
        since = now if count.since_us is None else count.since_us
        known: dict[str, Value] = {
            "input": name,
            "totalCount": count.total,
            "totalSeconds": (now - since) / _SECOND,
            "totalRate": _rate(count.total, now - since),
            "intervalCount": count.interval,
            "intervalSeconds": (now - self._last_us) / _SECOND,
            "intervalRate": _rate(count.interval, now - self._last_us),
        }
        row = tuple([known.get(field.name) for field in self.node.schema])
        count.interval = 0
        if not self.node.is_indexed:
            out.append(Event(Opcode.INSERT, Flag.NORMAL, row))
            return
        if count.row is None:
            out.append(Event(Opcode.INSERT, Flag.NORMAL, row))
        else:
            out.append(Event(Opcode.UPDATE_BLOCK, Flag.NORMAL, row))
            out.append(Event(Opcode.DELETE, Flag.NORMAL, count.row))
        count.row = row

    def dump(self) -> Tree:
        """All counts, and when the last rows were made."""
        counts = [
            [count.total, count.interval, count.since_us, count.active_us, None if count.row is None else [*count.row]]
            for count in self._counts
        ]
        return {"origin": self._origin_us, "last": self._last_us, "counts": counts}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._origin_us, self._last_us = state["origin"], state["last"]
        self._counts = [
            _Count(total, interval, since, active, None if row is None else restored(row))
            for total, interval, since, active, row in state["counts"]
        ]


def _rate(events: int, microseconds: int) -> float | None:
    """Events a second; null if no time has passed."""
    return events * _SECOND / microseconds if microseconds > 0 else None


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


_KINDS = {
    Opcode.UPDATE: "updates",
    Opcode.UPSERT: "updates",
    Opcode.UPDATE_BLOCK: "updates",
    Opcode.DELETE: "deletes",
    Opcode.SAFEDELETE: "deletes",
}
_BY_RETENTION = {"updates": "retentionUpdates", "deletes": "retentionDeletes"}


class RemoveStateOperator(Operator):
    """Numbers events."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, RemoveStateWindow), "made by kind"
        self._removed = frozenset(window.remove)
        self._number = 0
        self._places = [node.inputs[0].places.get(field.name) for field in node.schema]
        self._own = {node.schema.places[name]: name for name in _OWN if name in node.schema}

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:  # noqa: ARG002 - time does not matter
        """Pass an event on as an insert, unless its kind is left out."""
        kind = kind_of(event)
        if kind in self._removed:
            return
        self._emit(event, event.values, event.opcode.letter, out)
        if event.opcode is Opcode.UPDATE_BLOCK and old is not None and "updateBlockDeletes" not in self._removed:
            self._emit(event, old, Opcode.DELETE.letter, out)

    def _emit(self, event: Event, row: Row, letters: str, out: list[Event]) -> None:
        number, self._number = self._number, self._number + 1
        own: dict[str, Value] = {
            "eventNumber": number + 1,
            "originalOC": letters,
            "originalFL": event.flags.letters,
        }
        values = [
            own[self._own[place]] if place in self._own else _at(row, given) for place, given in enumerate(self._places)
        ]
        out.append(Event(Opcode.INSERT, Flag.NORMAL, tuple(values)))

    def dump(self) -> Tree:
        """The number of the last event."""
        return {"number": self._number}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        self._number = state["number"]


_OWN = ("eventNumber", "originalOC", "originalFL")


def kind_of(event: Event) -> str | None:
    """The kind of an event, as `remove` names it; inserts have none."""
    kind = _KINDS.get(event.opcode)
    return _BY_RETENTION[kind] if kind is not None and event.flags & Flag.RETENTION else kind


def _at(row: Row, place: int | None) -> Value:
    return None if place is None else row[place]
