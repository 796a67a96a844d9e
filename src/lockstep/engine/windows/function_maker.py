"""The rows that a functional window makes of one input row: its own, and one for each item of its loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lockstep.engine.events.event import OPCODES, Event, Opcode, Row
from lockstep.engine.events.types import Value
from lockstep.engine.expressions.faults import fault
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import EventLoop, FunctionalWindow
from lockstep.engine.windows.function_context import Context
from lockstep.engine.windows.function_documents import Unreadable, json_at, json_steps, json_value, xml_at, xml_steps
from lockstep.engine.windows.function_sets import FunctionSet, names_of, values_of
from lockstep.engine.windows.function_special import BadArgument, compile_pattern, searchable
from lockstep.engine.windows.function_texts import Function, Names, compile_function
from lockstep.engine.windows.function_values import made, seen, text, truth
from lockstep.engine.windows.operator import Moment

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
