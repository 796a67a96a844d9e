"""Functional windows: rows whose fields are made by functions, one or several for each input row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import replace

from lockstep.engine.events.event import OPCODES, Event, Flag, Opcode, Row
from lockstep.engine.events.schema import Schema, Value
from lockstep.engine.language.faults import fault
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import EventLoop, FunctionalWindow
from lockstep.engine.reference.function_documents import Unreadable, json_at, json_steps, json_value, xml_at, xml_steps
from lockstep.engine.reference.function_language import (
    Function,
    FunctionSet,
    Names,
    compile_function,
    names_of,
    values_of,
)
from lockstep.engine.reference.function_special import BadArgument, Context, compile_pattern, searchable
from lockstep.engine.reference.function_values import made, seen, text, truth
from lockstep.engine.reference.operator import Moment, Operator, Tree

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


MAX_ITEMS = 100_000
"""Of one loop for one event."""
OPCODE_WORDS = {
    "insert": Opcode.INSERT,
    "update": Opcode.UPDATE,
    "upsert": Opcode.UPSERT,
    "delete": Opcode.DELETE,
    "safedelete": Opcode.SAFEDELETE,
    **{letter.lower(): opcode for letter, opcode in OPCODES.items() if opcode is not Opcode.UPDATE_BLOCK},
}
"""What an opcode function may give, in small letters."""
ITEM = "_context"
"""The property by which the functions of a loop see the item, whatever else it is called."""

Finder = Callable[[Value, Context], list[Value]]
Complain = Callable[[str, str], None]
"""Takes a reason and a detail."""


class RowMaker:
    """Makes rows, and counts them: eventCounter() is the number of a row among all, from 1."""

    def __init__(self, node: Node) -> None:
        window = node.window
        assert isinstance(window, FunctionalWindow), "made by kind"
        self._node = node
        names = names_of((*node.inputs, node.schema), dict(window.expressions))  # what is not made yet is null
        self._main = FunctionSet(window.properties, window.functions, names)
        self._generate = _optional(window.generate, self._main.names)
        self._opcode = _optional(quoted_opcode(window.opcode), self._main.names)
        self._loops = [_Loop(loop, self._main.names) for loop in window.loops]
        self._copied = [_copied_places(node, port) for port in range(len(node.inputs))]
        self.made = 0

    @property
    def uses_numbers(self) -> bool:
        """Whether the rows of an input row can't be made again because they hold the number of the event."""
        every = [*self._main.functions, *(function for loop in self._loops for function in loop.functions)]
        about = (function for function in (self._generate, self._opcode) if function is not None)
        return any(function.uses_numbers for function in (*every, *about))

    def make(self, port: int, event: Event, moment: Moment, complain: Complain) -> tuple[list[Row], str]:
        """The rows of an input row, and the opcode that the window's function gives them."""
        context = self._context(port, event, moment)
        self._count(context, 1)
        results = self._main.run(context)
        opcode = text(self._opcode.evaluate(context)) if self._opcode else ""
        rows: list[Row] = []
        if self._generate is None or truth(self._generate.evaluate(context)):
            self.made += 1
            rows.append(self._row(port, event.values, results, complain))
        for loop in self._loops:
            for item in loop.items(context):
                values = {**context.values, loop.data: item}
                inner = replace(context, values=values, properties={**context.properties, ITEM: item})
                self._count(inner, len(rows) + 1)
                self.made += 1
                rows.append(self._row(port, event.values, {**results, **loop.run(inner)}, complain))
        for detail in context.complaints:
            complain("overflow", detail)
        return rows, opcode

    def _context(self, port: int, event: Event, moment: Moment) -> Context:
        return Context(
            values=values_of(self._node.inputs[port], event.values),
            input=self._node.parents[port].name,
            window=self._node.path,
            opcode=event.opcode.letter,
            flags=event.flags.letters,
            clock_us=moment.clock_us,
            block=moment.block,
        )

    def _count(self, context: Context, number: int) -> None:
        context.counter, context.number = self.made + 1, number

    def _row(self, port: int, row: Row, results: dict[str, Value], complain: Complain) -> Row:
        """A field takes the result of its name, else the input field of its name, else null."""
        values: list[Value] = []
        given = self._node.inputs[port].fields
        for field, place in zip(self._node.schema, self._copied[port], strict=True):
            if field.name not in results and (place is None or given[place].type is field.type):
                values.append(None if place is None else row[place])
                continue
            found = results[field.name] if field.name in results else seen(given[place or 0].type, row[place or 0])
            value, reason = made(field.type, found)
            if reason is not None:
                complain(reason, f"field {field.name} became null")
            values.append(value)
        return tuple(values)


class _Loop:
    """A loop, ready to be run."""

    def __init__(self, loop: EventLoop, names: Names) -> None:
        self.data = loop.data
        self._use = compile_function(loop.use, names)
        inner = Names((*names.fields, loop.data), (*names.properties, ITEM), names.expressions)
        self._set = FunctionSet(loop.properties, loop.functions, inner)
        self._find = _finder(loop)

    @property
    def functions(self) -> list[Function]:
        """All functions of the loop."""
        return [self._use, *self._set.functions]

    def items(self, context: Context) -> list[Value]:
        """What the loop runs over."""
        found = self._find(self._use.evaluate(context), context)
        if len(found) > MAX_ITEMS:
            context.complain(f"a loop has more than {MAX_ITEMS} items; the others are left out")
        return found[:MAX_ITEMS]

    def run(self, context: Context) -> dict[str, Value]:
        """The results for one item."""
        return self._set.run(context)


def _finder(loop: EventLoop) -> Finder:
    try:
        return _FINDERS[loop.kind](loop)
    except KeyError:
        raise fault(loop.kind, 0, f"there is no loop of kind {loop.kind!r}", "Use regex, json or xml.") from None
    except Unreadable as error:
        raise fault(loop.item, 0, str(error), "Fix the path.") from None
    except BadArgument as error:
        raise fault(loop.item, 0, error.reason, error.remedy) from None


def _regex_finder(loop: EventLoop) -> Finder:
    pattern = compile_pattern(loop.item)
    if not 0 <= loop.group <= pattern.groups:
        raise BadArgument(0, f"it has no group {loop.group}", f"It has 0 to {pattern.groups}.")

    def find(value: Value, context: Context) -> list[Value]:
        plain = searchable(value, context)
        return [] if plain is None else [found[loop.group] for found in pattern.all(plain)]

    return find


def _json_finder(loop: EventLoop) -> Finder:
    steps = json_steps(loop.item)

    def find(value: Value, context: Context) -> list[Value]:
        found = None if value is None else json_at(context.json(text(value)), steps)
        items = found if isinstance(found, list) else [] if found is None else [found]
        return [json_value(item) for item in items]

    return find


def _xml_finder(loop: EventLoop) -> Finder:
    steps = xml_steps(loop.item)

    def find(value: Value, context: Context) -> list[Value]:
        root = None if value is None else context.xml(text(value))
        return [] if root is None else list(xml_at(root, steps))

    return find


_FINDERS: dict[str, Callable[[EventLoop], Finder]] = {
    "regex": _regex_finder,
    "json": _json_finder,
    "xml": _xml_finder,
}


def _copied_places(node: Node, port: int) -> list[int | None]:
    """For each output field the place of the input field of its name."""
    return [node.inputs[port].places.get(field.name) for field in node.schema]


def quoted_opcode(opcode: str | None) -> str | None:
    """An opcode that stands there as a word, as a text: <opcode>upsert</opcode>."""
    return f"'{opcode.strip()}'" if opcode is not None and opcode.strip().lower() in OPCODE_WORDS else opcode


def _optional(written: str | None, names: Names) -> Function | None:
    return None if written is None or not written.strip() else compile_function(written, names)


Key = tuple[Value, ...]
_RESOLVED = {Flag(bits): Flag(bits & ~Flag.PARTIAL) or Flag.NORMAL for bits in range(8)}
_PARTIALS = frozenset(flags for flags in _RESOLVED if flags & Flag.PARTIAL)


class KeyGuard:
    """The keys of rows that only ever come: each may come once."""

    def __init__(self, node: Node) -> None:
        self._schema = node.schema
        self._known: dict[Key, None] | None = {} if node.is_indexed else None

    def refusal(self, row: Row) -> str | None:
        """Why a row can't be inserted; None if it can, and is."""
        key = key_of(self._schema, row)
        if None in key:
            return "null-key"
        if self._known is not None:
            if key in self._known:
                return "duplicate-key"
            self._known[key] = None
        return None

    def dump(self) -> Tree:
        """All keys."""
        return None if self._known is None else [kept(key) for key in self._known]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        if self._known is not None:
            self._known = {same_nan(restored(key)): None for key in state}


class KeptRows:
    """The rows of a window by key; a window without an index keeps none, and passes opcodes on as they are."""

    def __init__(self, node: Node) -> None:
        self._schema = node.schema
        self.is_indexed = node.is_indexed
        self._rows: MutableMapping[Key, Row] = {}

    def get(self, key: Key) -> Row | None:
        """The row of a key."""
        return self._rows.get(key)

    def resolve(self, opcode: Opcode, flags: Flag, row: Row) -> list[Event] | str:
        """The events that an opcode comes down to, or the reason why it can't be."""
        key = key_of(self._schema, row)
        if None in key:
            return "null-key"
        if not self.is_indexed:
            return [Event(Opcode.UPDATE if opcode is Opcode.UPDATE_BLOCK else opcode, flags, row)]
        old = self._rows.get(key)
        if opcode in (Opcode.DELETE, Opcode.SAFEDELETE):
            return self._removed(key, old, flags, is_safe=opcode is Opcode.SAFEDELETE)
        if opcode is Opcode.INSERT and old is not None:
            return "duplicate-key"
        if opcode in (Opcode.UPDATE, Opcode.UPDATE_BLOCK) and old is None:
            return "unknown-key"
        return self._stored(key, old, flags, row)

    def _removed(self, key: Key, old: Row | None, flags: Flag, *, is_safe: bool) -> list[Event] | str:
        if old is None:
            return [] if is_safe else "unknown-key"
        del self._rows[key]
        return [Event(Opcode.DELETE, resolved(flags), old)]

    def _stored(self, key: Key, old: Row | None, flags: Flag, row: Row) -> list[Event]:
        if old is not None and flags in _PARTIALS:
            row = tuple([new if new is not None else before for new, before in zip(row, old, strict=True)])
        self._rows[key] = row
        if old is None:
            return [Event(Opcode.INSERT, resolved(flags), row)]
        return [Event(Opcode.UPDATE_BLOCK, resolved(flags), row), Event(Opcode.DELETE, resolved(flags), old)]

    def rows(self) -> Iterator[Row]:
        """All rows."""
        return iter(self._rows.values())

    def dump(self) -> Tree:
        """All rows."""
        return [kept(row) for row in self._rows.values()]

    def load(self, state: Tree) -> None:
        """Go on from a dumped state."""
        rows = [restored(row) for row in state]
        self._rows = {key_of(self._schema, row): row for row in rows}


def key_of(schema: Schema, row: Row) -> Key:
    """The key in a row; all NaN are one key."""
    return same_nan(schema.key_of(row))


def same_nan(key: Key) -> Key:
    """A key in which every NaN is the same object: a dict finds it again only then."""
    return tuple([math.nan if isinstance(value, float) and math.isnan(value) else value for value in key])


def resolved(flags: Flag) -> Flag:
    """The flags of an event whose opcode is resolved: it is whole now."""
    return _RESOLVED[flags]


def kept(values: Row) -> list[Tree]:
    """Values to be kept."""
    return [list(value) if isinstance(value, tuple) else value for value in values]


def restored(values: list[Value]) -> Row:
    """A row as it was kept: an array comes back as a list."""
    return tuple([tuple(value) if isinstance(value, list) else value for value in values])
