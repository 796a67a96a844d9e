"""The function language of functional and notification windows, and functions that belong together."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Schema, Value
from lockstep.engine.language.faults import fault, suggestion
from lockstep.engine.model.windows import ContextProperty
from lockstep.engine.reference.function_library import CALLS, NUMBERED, Call, read_list, read_map
from lockstep.engine.reference.function_special import SPECIALS, Argument, BadArgument, Context, Evaluate, Special
from lockstep.engine.reference.function_values import number, seen, text

MAX_DEPTH = 64
MAX_LENGTH = 65_536

_TOKEN = re.compile(
    r"""(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
       |(?P<field>\$[A-Za-z_][\w-]*)
       |(?P<property>\#[A-Za-z_][\w-]*)
       |(?P<name>[A-Za-z_]\w*)
       |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
       |(?P<sign>[(),])""",
    re.VERBOSE | re.ASCII,
)
_PROSE = re.compile(r"\s*[A-Za-z]\w*[,.;:!?]?\s+[^\s,)]", re.ASCII)
"""Two words."""
_CONSTANTS: dict[str, Value] = {"null": None, "true": 1, "false": 0}
_EXAMPLE = "Write it as in concat($a,'-',$b)."


@dataclass(frozen=True, slots=True)
class Names:
    """What a function can speak of: fields and earlier results, properties, and named regular expressions."""

    fields: Collection[str] = ()
    properties: Collection[str] = ()
    expressions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Function:
    """A function, ready to be evaluated on events."""

    text: str
    fields: frozenset[str]
    """The names it uses with a $."""
    clocks: tuple[str, ...]
    """The functions it uses that read the model's clock."""
    uses_numbers: bool
    """Uses the number of an event, so that it gives something else when it is asked again."""
    evaluate: Evaluate


def compile_function(text: str, names: Names, *, prose: bool = False) -> Function:
    """The function that a text describes; raises BadExpression with the character where it goes wrong.

    With `prose` several words that call nothing stand for themselves, as ESP has it.
    """
    if len(text) > MAX_LENGTH:
        raise fault(text, MAX_LENGTH, f"it is longer than {MAX_LENGTH} characters", "Split it into several functions.")
    reader = _Reader(text, names)
    found = reader.whole(prose=prose)
    fields, clocks = frozenset(reader.fields), tuple(dict.fromkeys(reader.clocks))
    return Function(text, fields, clocks, reader.uses_numbers, found.evaluate)


def check_function(text: str, schema: Schema, names: Collection[str] = (), properties: Collection[str] = ()) -> None:
    """Raise BadExpression if a text is no function of the fields of a schema and of other names."""
    compile_function(text, Names((*schema.names, *names), properties))


class _Reader:
    """Reads one text from left to right, and builds the closure."""

    def __init__(self, text: str, names: Names) -> None:
        self.text = text
        self.names = names
        self.place = 0
        self.fields: list[str] = []
        self.clocks: list[str] = []
        self.uses_numbers = False

    def whole(self, *, prose: bool) -> Argument:
        """The whole text; an empty one is null."""
        if not self.text.strip():
            return _constant(None)
        if prose and _PROSE.match(self.text) and not any(mark in self.text for mark in "$#("):
            return _constant(self.text.strip())
        found = self._value(0)
        at = self._skip()
        if at < len(self.text):
            self._fail(at, f"nothing may follow the function, but {self.text[at : at + 20]!r} does", _EXAMPLE)
        return found

    def _value(self, depth: int) -> Argument:
        at = self._skip()
        if depth > MAX_DEPTH:
            self._fail(at, f"it is nested deeper than {MAX_DEPTH}", "Split it into several functions.")
        kind, piece = self._take()
        if kind == "number":
            return _constant(number(piece))
        if kind == "text":
            return _constant(piece[1:-1].replace(piece[0] * 2, piece[0]))
        if kind == "field":
            return self._field(piece[1:], at)
        if kind == "property":
            return self._property(piece[1:], at)
        if kind == "name":
            return self._named(piece, at, depth)
        self._fail(at, "a value is missing" if not piece else f"{piece!r} means nothing here", _EXAMPLE)

    def _field(self, name: str, at: int) -> Argument:
        if name not in self.names.fields:
            self._fail(at, f"there is no field {name!r}", suggestion(name, self.names.fields, _EXAMPLE))
        self.fields.append(name)
        return Argument(lambda context: context.values.get(name))

    def _property(self, name: str, at: int) -> Argument:
        if name in self.names.expressions:
            return Argument(lambda _: self.names.expressions[name], pattern=self.names.expressions[name])
        if name not in self.names.properties:
            known = (*self.names.properties, *self.names.expressions)
            self._fail(at, f"there is no property {name!r}", suggestion(name, known, _EXAMPLE))
        return Argument(lambda context: context.properties.get(name))

    def _named(self, name: str, at: int, depth: int) -> Argument:
        if self._peek() != "(":
            if name.lower() not in _CONSTANTS:
                self._fail(at, f"{name!r} is neither a function nor a field", f"Write ${name} or '{name}'.")
            return _constant(_CONSTANTS[name.lower()])
        known = SPECIALS.get(name.lower()) or CALLS.get(name.lower())
        if known is None:
            self._unknown(name, at)
        places, arguments = self._arguments(at, depth)
        if len(arguments) < known.least or (known.most is not None and len(arguments) > known.most):
            wanted = str(known.least) if known.most == known.least else f"{known.least} to {known.most or 'any number'}"
            self._fail(at, f"{known.name} takes {wanted} argument(s), not {len(arguments)}", _EXAMPLE)
        return self._built(known, places, arguments)

    def _built(self, known: Special | Call, places: list[int], arguments: list[Argument]) -> Argument:
        if isinstance(known, Call):
            return Argument(self._call(known, [argument.evaluate for argument in arguments]))
        try:
            return Argument(known.build(arguments))
        except BadArgument as error:
            self._fail(places[min(error.argument, len(places) - 1)], error.reason, error.remedy)

    def _call(self, call: Call, arguments: list[Evaluate]) -> Evaluate:
        make = call.make
        if call.reads_clock:
            self.clocks.append(call.name)
        if not call.needs_context:
            return lambda context: make(*[argument(context) for argument in arguments])
        self.uses_numbers = self.uses_numbers or call.name in NUMBERED
        return lambda context: make(context, *[argument(context) for argument in arguments])

    def _unknown(self, name: str, at: int) -> NoReturn:
        known = [*(call.name for call in CALLS.values()), *(special.name for special in SPECIALS.values())]
        self._fail(at, f"there is no function {name!r}", suggestion(name, known, _EXAMPLE))

    def _arguments(self, opened: int, depth: int) -> tuple[list[int], list[Argument]]:
        places: list[int] = []
        arguments: list[Argument] = []
        self._take()
        while self._peek() != ")":
            places.append(self._skip())
            arguments.append(self._value(depth + 1))
            at = self._skip()
            if at >= len(self.text):
                self._fail(opened, "the function that begins here has no end", "Close it with ).")
            if self._peek() == ",":
                self._take()
            elif self._peek() != ")":
                self._fail(at, ", or ) is expected here", _EXAMPLE)
        self._take()
        return places or [opened], arguments

    def _peek(self) -> str:
        at = self._skip()
        return self.text[at : at + 1]

    def _take(self) -> tuple[str, str]:
        at = self._skip()
        found = _TOKEN.match(self.text, at)
        if found is None:
            if at < len(self.text):
                is_quote = self.text[at] in "'\""
                reason = "the text that begins here has no end" if is_quote else f"{self.text[at]!r} means nothing here"
                self._fail(at, reason, "Close it." if is_quote else _EXAMPLE)
            return "end", ""
        self.place = found.end()
        return found.lastgroup or "", found.group()

    def _skip(self) -> int:
        while self.place < len(self.text) and self.text[self.place].isspace():
            self.place += 1
        return self.place

    def _fail(self, at: int, reason: str, remedy: str) -> NoReturn:
        raise fault(self.text, at, reason, remedy)


def _constant(value: Value) -> Argument:
    return Argument(lambda _: value, literal=value)


class FunctionSet:
    """Properties, then functions; each sees the fields and what was made before it."""

    def __init__(
        self, properties: Sequence[ContextProperty], functions: Sequence[tuple[str, str]], names: Names
    ) -> None:
        self._properties: list[tuple[ContextProperty, Function]] = []
        for each in properties:
            self._properties.append((each, compile_function(each.text, names)))
            names = Names(names.fields, (*names.properties, each.name), names.expressions)
        self._functions: list[tuple[str, Function]] = []
        for name, written in functions:
            self._functions.append((name, compile_function(written, names, prose=True)))
            names = Names((*names.fields, name), names.properties, names.expressions)
        self.names = names
        """What those who come after can speak of."""

    @property
    def functions(self) -> list[Function]:
        """All functions, properties included."""
        return [function for _, function in (*self._properties, *self._functions)]

    def run(self, context: Context) -> dict[str, Value]:
        """Evaluate all for an event; the context knows the results afterwards."""
        for each, function in self._properties:
            context.properties[each.name] = property_value(each, function.evaluate(context))
        results: dict[str, Value] = {}
        for name, function in self._functions:
            results[name] = context.values[name] = function.evaluate(context)
        return results


def property_value(described: ContextProperty, value: Value) -> Value:
    """A property as functions see it: lists, sets and maps are kept as JSON text, so that no separator can hurt."""
    if value is None:
        return None
    plain = text(value)
    if described.kind in ("list", "set"):
        items = read_list(plain, described.outer or ",")
        return _json(list(dict.fromkeys(items)) if described.kind == "set" else items)
    if described.kind == "map" and described.outer and described.inner:
        return _json(read_map(plain, described.outer, described.inner))
    return plain


def names_of(inputs: Iterable[Schema], expressions: Mapping[str, str] | None = None) -> Names:
    """The fields of all inputs; one that an event's own input lacks is null for it."""
    fields = dict.fromkeys(name for schema in inputs for name in schema.names)
    return Names(tuple(fields), (), expressions or {})


def values_of(schema: Schema, row: Row) -> dict[str, Value]:
    """The fields of a row by name, as functions see them."""
    return {field.name: seen(field.type, value) for field, value in zip(schema, row, strict=True)}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
