"""Join windows, which put rows together where fields are equal; and unions of windows with one schema."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import cast

from lockstep.engine.events.event import Event, Flag, Row
from lockstep.engine.events.schema import Field, FieldType, Schema, Value
from lockstep.engine.language.compiler import Environment, Expression, Scope, compile_expression
from lockstep.engine.model.graph import Node
from lockstep.engine.model.schemas import fact_sides, join_fields, join_names, meets_many
from lockstep.engine.model.windows import JoinField, JoinWindow, UnionWindow
from lockstep.engine.reference.compute import Converter, converter, look
from lockstep.engine.reference.index import (
    DELETE,
    INSERT,
    RESOLVED,
    SAFEDELETE,
    UPDATE_BLOCK,
    UPSERT,
    Index,
    Key,
    add_change,
    key_getter,
    key_tree,
    row_tree,
    same_nan,
    tree_key,
    tree_row,
)
from lockstep.engine.reference.operator import Moment, Operator, Tree
from lockstep.engine.reference.source import details, pass_on


class JoinOperator(Operator):
    """Keeps both sides, and what it gave out, so that the old half of an update is always what was said before."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(JoinWindow, node.window)
        self._fact = fact_sides(window, *node.inputs)[0]
        self._type = window.type
        self._meets_many = meets_many(window, *node.inputs)
        self._regenerates = not window.no_regenerates
        self._takes_again = window.no_regenerates and not node.is_indexed and window.type != "fullouter"
        self._sides = [
            Side(schema, [pair[place] for pair in window.conditions], is_kept=index != "pi_EMPTY")
            for place, (schema, index) in enumerate(
                zip(node.inputs, (window.left_index, window.right_index), strict=True)
            )
        ]
        self._maker = RowMaker(node)
        self._given: dict[Key, Row] = {}
        self._environment = Environment(variables=[])

    def on_change(
        self,
        port: int,
        event: Event,
        old: Row | None,
        moment: Moment,
        out: list[Event],
    ) -> None:
        """Take one change of one side."""
        if event.opcode not in (INSERT, DELETE, UPDATE_BLOCK):
            detail = f"{event.opcode.name.lower()} is not resolved: the parent has no index"
            self.refuse(event, "bad-opcode", detail, moment)
            return
        side = self._sides[port]
        key = side.key_of(event.values)
        is_known = (key in side.rows) == (event.opcode is INSERT)
        if is_known and event.opcode is INSERT and self._takes_again and port == self._fact:
            side.drop(key)  # readings that come again under their key: each is an insert of its own
            self._given.pop(key, None)
        elif side.is_kept and is_known and event.opcode is not UPDATE_BLOCK:
            reason = "duplicate-key" if event.opcode is INSERT else "unknown-key"
            self.refuse(event, reason, details(reason), moment)
            return
        if not self._maker.is_pure:
            look(self._environment, event, moment)
        before = side.drop(key)
        if not side.is_kept and event.opcode is not INSERT:
            before = event.values if event.opcode is DELETE else old
        after = None if event.opcode is DELETE else event.values
        if after is not None:
            side.put(after)
        telling = _Telling(event, moment, out)
        if self._meets_many:
            self._on_pairs(port, after, before, telling)
            return
        change = self._on_fact if port == self._fact else self._on_dimension
        change(after, before, telling)

    def _on_pairs(self, port: int, after: Row | None, before: Row | None, telling: _Telling) -> None:
        """A row of either side, and all rows of the other that it met or meets."""
        side, others = self._sides[port], self._sides[1 - port]
        met, meets = (
            {others.keys_of(other): other for other in others.matching(None if row is None else side.match_of(row))}
            for row in (before, after)
        )
        own = side.keys_of(cast(Row, before if after is None else after))
        for key in met | meets:
            slot = own + key if port == 0 else key + own
            row, other = (after, meets[key]) if key in meets else (None, None)
            left, right = (row, other) if port == 0 else (other, row)
            self._settle(slot, left, right, telling)

    def _on_fact(self, after: Row | None, before: Row | None, telling: _Telling) -> None:
        if not self._sides[self._fact].is_kept:
            add_change(self._met(after, telling), self._met(before, telling), telling.flags, telling.out)
            return
        slots = dict.fromkeys(self._slot(row, self._fact) for row in (before, after) if row is not None)
        for slot in slots:
            row = after if after is not None and self._slot(after, self._fact) == slot else None
            some = row if row is not None else before
            match = None if some is None else self._sides[self._fact].match_of(some)
            self._settle(slot, row, self._dimension(match), telling)

    def _met(self, fact: Row | None, telling: _Telling) -> Row | None:
        """What a fact makes with the dimension as it is now."""
        if fact is None:
            return None
        return self._joined(fact, self._dimension(self._sides[self._fact].match_of(fact)), telling)

    def _on_dimension(self, after: Row | None, before: Row | None, telling: _Telling) -> None:
        side, facts = self._sides[1 - self._fact], self._sides[self._fact]
        for row in _distinct(before, after, side):
            match = side.match_of(row)
            met = facts.matching(match)
            is_looked_up = match is not None and side.is_kept
            dimension = self._dimension(match) if is_looked_up else (row if row is after else None)
            for fact in met if self._regenerates else ():
                self._settle(self._slot(fact, self._fact), fact, dimension, telling)
            if not met and self._type == "fullouter":
                self._settle(self._slot(row, 1 - self._fact), None, dimension, telling)

    def _dimension(self, match: Match | None) -> Row | None:
        """The row of the dimension that facts with these values meet."""
        return next(iter(self._sides[1 - self._fact].matching(match)), None)

    def _slot(self, row: Row, side: int) -> Key:
        """Where a row's output is remembered: by the fact's key; by what both sides share in a full outer join."""
        if self._type != "fullouter":
            return cast(Key, self._sides[side].key_of(row))
        match = self._sides[side].match_of(row)
        if match is not None:
            return ("both", *match)
        return ("lr"[side], *[row[place] for place in self.node.inputs[side].keys])

    def _settle(self, slot: Key, fact: Row | None, dimension: Row | None, telling: _Telling) -> None:
        """Say what became of the output of a slot."""
        old = self._given.pop(slot, None)
        new = self._joined(fact, dimension, telling)
        if new is not None:
            self._given[slot] = new
        add_change(new, old, telling.flags, telling.out)

    def _joined(self, fact: Row | None, dimension: Row | None, telling: _Telling) -> Row | None:
        is_full = self._type == "fullouter"
        if fact is None and (dimension is None or not is_full):
            return None
        if dimension is None and self._type == "inner":
            return None
        left, right = (fact, dimension) if self._fact == 0 else (dimension, fact)

        def overflow(detail: str) -> None:
            self.refuse(telling.event, "overflow", detail, telling.moment)

        return self._maker.row(left, right, self._environment, overflow)

    def dump(self) -> Tree:
        """Both sides, and what was given out."""
        given = [[key_tree(slot), row_tree(row)] for slot, row in self._given.items()]
        return {"sides": [side.dump() for side in self._sides], "given": given}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        for side, rows in zip(self._sides, state["sides"], strict=True):
            side.load(rows)
        self._given = {_flat(tree_key(slot)): tree_row(row) for slot, row in state["given"]}


class _Telling:
    """The event that causes something, and where to say it."""

    __slots__ = ("event", "flags", "moment", "out")

    def __init__(self, event: Event, moment: Moment, out: list[Event]) -> None:
        self.event = event
        self.flags: Flag = event.flags
        self.moment = moment
        self.out = out


def _flat(slot: Key) -> Key:
    """A slot whose doubles stand as they are: in states of earlier versions of a full join each is a tuple of one."""
    if not isinstance(slot, tuple) or slot[:1] != ("both",):
        return slot
    return tuple([same_nan(each[0]) if _is_double(each) else each for each in slot])


def _is_double(value: Key) -> bool:
    return isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], float)


def _distinct(before: Row | None, after: Row | None, side: Side) -> list[Row]:
    """The rows of a change whose matches are to be looked at: one if the condition's fields stayed the same."""
    rows = [row for row in (before, after) if row is not None]
    same = len(rows) == 2 and side.match_of(rows[0]) == side.match_of(rows[1])
    return rows[1:] if same else rows


Names = tuple[tuple[str, FieldType], ...]
Overflow = Callable[[str], None]
"""Told if a value does not fit its field."""


class RowMaker:
    """Fields are taken from one of the sides (l_NAME, r_NAME), or made by an expression over both."""

    def __init__(self, node: Node) -> None:
        left, right = node.inputs
        names = join_names(left, right)
        self._nothing = ((None,) * len(left), (None,) * len(right))
        self._places = {name: place for place, (name, _) in enumerate(names)}
        window = cast(JoinWindow, node.window)
        fields = zip(join_fields(window, left, right), node.schema, strict=True)
        self._steps = [self._step(each, field, names) for each, field in fields]
        self._only_right = self._right_keys(window, left, right)
        self.is_pure = all(isinstance(step, int) or step[0].is_pure for step in self._steps)

    def _right_keys(self, window: JoinWindow, left: Schema, right: Schema) -> dict[int, int]:
        """In a full outer join: where a key of the left side is found in the right row, if there is no left one."""
        if window.type != "fullouter":
            return {}
        pairs = {left.places[mine]: right.places[theirs] for mine, theirs in window.conditions}
        return {place: len(left) + pairs[place] for place in left.keys}

    def _step(self, made: JoinField, field: Field, names: Names) -> int | tuple[Expression, Converter | None, Field]:
        if made.source is not None:
            return self._places[made.source]
        expression = compile_expression(made.expression or "", Scope(names), wanted=field.type)
        return expression, converter(expression.type, field.type), field

    def row(self, left: Row | None, right: Row | None, environment: Environment, overflow: Overflow) -> Row:
        """The row for one of each side."""
        both = (left or self._nothing[0]) + (right or self._nothing[1])
        made: list[Value] = []
        for step in self._steps:
            if isinstance(step, int):
                made.append(both[step if left is not None else self._only_right.get(step, step)])
                continue
            expression, convert, field = step
            value = expression.evaluate(both, environment)
            if value is not None and convert is not None:
                value = convert(value)
                if value is None:
                    overflow(f"{field.name} does not fit {field.type.value}")
            made.append(value)
        return tuple(made)


Match = tuple[Value, ...]
"""The values of the condition's fields."""


class Side:
    """Rows in the order in which they came; an update comes in at the end. A null in the condition matches nothing."""

    def __init__(self, schema: Schema, fields: Sequence[str], *, is_kept: bool = True) -> None:
        self.is_kept = is_kept
        self.key_of = key_getter(schema)
        self._keys = schema.keys
        self._fields = [schema.places[name] for name in fields]
        self.rows: dict[Key, Row] = {}
        self._by_match: dict[Match, OrderedDict[Key, Row]] = {}

    def keys_of(self, row: Row) -> tuple[Value, ...]:
        """The values of the key fields."""
        return tuple([same_nan(row[place]) for place in self._keys])

    def match_of(self, row: Row) -> Match | None:
        """What the other side must have, too; None if one of the fields is null."""
        match = tuple([same_nan(row[place]) for place in self._fields])
        return None if None in match else match

    def matching(self, match: Match | None) -> list[Row]:
        """The rows with these values, in order."""
        found = None if match is None else self._by_match.get(match)
        return list(found.values()) if found else []

    def put(self, row: Row) -> None:
        """Add a row whose key is not there; a side without an index keeps none."""
        if not self.is_kept:
            return
        key, match = self.key_of(row), self.match_of(row)
        self.rows[key] = row
        if match is not None:
            self._by_match.setdefault(match, OrderedDict())[key] = row

    def drop(self, key: Key) -> Row | None:
        """Take a row out; None if it is not there."""
        row = self.rows.pop(key, None)
        match = None if row is None else self.match_of(row)
        if match is not None:
            found = self._by_match[match]
            del found[key]
            if not found:
                del self._by_match[match]
        return row

    def dump(self) -> Tree:
        """The rows in order."""
        return [row_tree(row) for row in self.rows.values()]

    def load(self, state: Tree) -> None:
        """Go on from dumped rows."""
        self.rows, self._by_match = {}, {}
        for row in state:
            self.put(tree_row(row))


class UnionOperator(Operator):
    """Knows for each row which input wrote it."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._is_strict = cast(UnionWindow, node.window).strict
        self._index = Index(node.schema) if node.is_indexed else None
        self._writers: dict[Key, int] = {}

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Take one change of one input."""
        index = self._index
        if index is None:
            pass_on(event, old, out)
            return
        key = index.key_of(event.values)
        writer = self._writers.get(key)
        if self._is_strict:
            if writer is not None and writer != port:
                self.refuse(event, "strict-union", f"the row with this key is from input {writer + 1}", moment)
                return
        elif event.opcode is INSERT:
            event = Event(UPSERT, RESOLVED[event.flags], event.values)
        elif writer != port and (event.opcode is DELETE or event.opcode is SAFEDELETE):
            return
        reason = index.take(event, out)
        if reason is not None:
            self.refuse(event, reason, details(reason), moment)
        elif key in index.rows:
            self._writers[key] = port
        else:
            self._writers.pop(key, None)

    def dump(self) -> Tree:
        """The rows with their writers."""
        if self._index is None:
            return None
        return {"index": self._index.dump(), "writers": [self._writers[key] for key in self._index.rows]}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if self._index is not None:
            self._index.load(state["index"])
            self._writers = dict(zip(self._index.rows, state["writers"], strict=True))
