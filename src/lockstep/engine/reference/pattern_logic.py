"""The logic of a pattern as a tree, and its events: conditions on a row, and what they bind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import FieldType, Schema, Value
from lockstep.engine.language.compiler import Environment, Expression, Scope, compile_expression
from lockstep.engine.language.faults import fault, suggestion
from lockstep.engine.language.syntax import Token, tokens
from lockstep.engine.model.values import DURATION_REMEDY, parse_duration
from lockstep.engine.model.windows import Pattern

MAX_DEPTH = 32
MAX_RUN = 100_000


@dataclass(frozen=True, slots=True)
class Leaf:
    """An event that must occur."""

    event: str


@dataclass(frozen=True, slots=True)
class Fby:
    """One after the other; with `time_us` the last at most that long after the first."""

    time_us: int | None
    parts: tuple[Logic, ...]


@dataclass(frozen=True, slots=True)
class And:
    """All, in any order; with `time_us` the last at most that long after the first."""

    time_us: int | None
    parts: tuple[Logic, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """The first of them that occurs."""

    parts: tuple[Logic, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Not now: the next event is another one, and it does not come while its neighbours are waited for."""

    part: Logic


@dataclass(frozen=True, slots=True)
class NotOccur:
    """Never until the time of the operator around it has passed."""

    part: Logic


@dataclass(frozen=True, slots=True)
class Is:
    """The very next `count` events, nothing between them."""

    count: int
    part: Logic


Logic = Leaf | Fby | And | Or | Not | NotOccur | Is

_OPERATORS = ("fby", "and", "or", "not", "notoccur", "is")
_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_][\w-]*)|(?P<time>\{[^{}]*\})|(?P<run>:\s*\d+)|(?P<sign>[(),]))", re.ASCII)
_ENDLESS = (
    "notoccur has no time after which it holds",
    "Give the operator around it a time, as in fby{10 seconds}(first, notoccur(second)).",
)
_EXAMPLE = "Write it as in fby{1 hour}(first, and(not(other), second))."


def parse_logic(text: str) -> Logic:
    """The tree that a text describes; raises BadExpression with the character where it goes wrong."""
    reader = _Reader(text)
    tree = reader.part(0)
    reader.expect_end()
    return tree


def leaves(tree: Logic) -> Iterator[str]:
    """The names of the events in a tree, from left to right; a name used twice comes twice."""
    if isinstance(tree, Leaf):
        yield tree.event
    elif isinstance(tree, Not | NotOccur | Is):
        yield from leaves(tree.part)
    else:
        for part in tree.parts:
            yield from leaves(part)


def is_negative(tree: Logic) -> bool:
    """Says what must not come."""
    return isinstance(tree, Not | NotOccur)


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def part(self, depth: int, *, is_timed: bool = False) -> Logic:
        """An event or an operator with its operands; `is_timed`: where notoccur can wait for the end of a time."""
        at = self._skip()
        if depth > MAX_DEPTH:
            self._fail(at, f"it is nested deeper than {MAX_DEPTH}", "Split it into several patterns.")
        name = self._take("name")
        if name is None:
            self._fail(at, "an event or an operator is missing", _EXAMPLE)
        operator = name.lower()
        if operator not in _OPERATORS or not self._calls():
            return self._leaf(name, at)
        return self._operator(operator, at, depth, is_timed=is_timed)

    def expect_end(self) -> None:
        """Nothing may follow."""
        at = self._skip()
        if at < len(self.text):
            self._fail(at, f"nothing may follow the pattern, but {self.text[at : at + 20]!r} does", _EXAMPLE)

    def _leaf(self, name: str, at: int) -> Leaf:
        if self._calls():
            self._fail(at, f"{name!r} is not an operator", suggestion(name, _OPERATORS, _EXAMPLE))
        return Leaf(name)

    def _calls(self) -> bool:
        found = _TOKEN.match(self.text, self.place)
        return found is not None and (found.lastgroup in ("time", "run") or found["sign"] == "(")

    def _operator(self, name: str, at: int, depth: int, *, is_timed: bool) -> Logic:
        time_us, count = self._time(name), self._count(name)
        if name in ("fby", "and"):
            return self._several(name, time_us, at, depth, is_timed=is_timed)
        if name == "or":
            return Or(self._operands(at, depth, timed=(is_timed,)))
        (part,) = self._one(name, at, depth)
        if name == "not":
            return Not(part)
        if name == "is":
            return Is(count, part)
        if not is_timed:
            self._fail(at, *_ENDLESS)
        return NotOccur(part)

    def _several(self, name: str, time_us: int | None, at: int, depth: int, *, is_timed: bool) -> Fby | And:
        timed = is_timed or time_us is not None
        if name == "and":
            return And(time_us, self._operands(at, depth, timed=(timed,)))
        parts = self._operands(at, depth, timed=(is_timed, timed), is_fby=True)
        tail = next((place for place in reversed(range(len(parts))) if not is_negative(parts[place])), -1) + 1
        # The time of fby runs from its first operand on, so that one can't wait for the end of it.
        can_wait = timed if tail else is_timed
        if not can_wait and any(isinstance(part, NotOccur) for part in parts[tail:]):
            self._fail(at, *_ENDLESS)
        return Fby(time_us, parts)

    def _operands(self, at: int, depth: int, *, timed: tuple[bool, ...], is_fby: bool = False) -> tuple[Logic, ...]:
        self._sign("(", at)
        parts: list[Logic] = []
        while True:
            is_timed = timed[min(len(parts), len(timed) - 1)]
            # In a row of operands notoccur may also guard the way to the next one; whether it does is seen at the end.
            is_guard = is_fby and self._peek_name() == "notoccur"
            parts.append(self.part(depth + 1, is_timed=is_timed or is_guard))
            if self._sign(",)", at) == ")":
                return tuple(parts)

    def _one(self, name: str, at: int, depth: int) -> tuple[Logic]:
        parts = self._operands(at, depth, timed=(False,))
        if len(parts) != 1:
            self._fail(at, f"{name} takes one operand, not {len(parts)}", f"Write {name}(event).")
        if not _is_test(parts[0]):
            remedy = "Use events joined by and, or and not without a time there."
            self._fail(at, f"what {name} is about must be decided by a single event", remedy)
        return (parts[0],)

    def _time(self, name: str) -> int | None:
        at = self._skip()
        time = self._take("time")
        if time is None:
            return None
        if name not in ("fby", "and"):
            self._fail(at, f"{name} takes no time", "Only fby and and can have one.")
        try:
            time_us = parse_duration(time[1:-1])
        except ValueError as error:
            self._fail(at, str(error), DURATION_REMEDY)
        if time_us < 0:
            self._fail(at, "a time can't be negative", DURATION_REMEDY)
        return time_us

    def _count(self, name: str) -> int:
        at = self._skip()
        run = self._take("run")
        if run is None:
            return 1
        count = int(run[1:]) if len(run) < 12 else MAX_RUN + 1
        if name != "is" or not 1 <= count <= MAX_RUN:
            self._fail(at, f"{name}{run} is not known", f"Only is takes a count, from 1 to {MAX_RUN}: is:3(event).")
        return count

    def _peek_name(self) -> str:
        found = _TOKEN.match(self.text, self.place)
        return (found["name"] or "").lower() if found else ""

    def _sign(self, wanted: str, opened: int) -> str:
        at = self._skip()
        sign = self._take("sign")
        if sign is None or sign not in wanted:
            if at >= len(self.text):
                self._fail(opened, "the operator that begins here has no end", "Close it with ).")
            self._fail(at, f"{' or '.join(wanted)} is expected here", _EXAMPLE)
        return sign

    def _take(self, kind: str) -> str | None:
        found = _TOKEN.match(self.text, self.place)
        if found is None or found.lastgroup != kind:
            return None
        self.place = found.end()
        return found[kind]

    def _skip(self) -> int:
        while self.place < len(self.text) and self.text[self.place].isspace():
            self.place += 1
        return self.place

    def _fail(self, at: int, reason: str, remedy: str) -> NoReturn:
        raise fault(self.text, at, reason, remedy)


def _is_test(tree: Logic) -> bool:
    if isinstance(tree, Leaf):
        return True
    if isinstance(tree, Not):
        return _is_test(tree.part)
    if isinstance(tree, And):
        return tree.time_us is None and all(map(_is_test, tree.parts))
    return isinstance(tree, Or) and all(map(_is_test, tree.parts))


Names = tuple[tuple[str, FieldType], ...]

_CONSTANTS = frozenset({"null", "true", "false"})


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an event's text that must hold; with `variable` it binds that to the rest of it."""

    text: str
    at: int
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Binding:
    """Variable number `variable` takes the value of an expression, or must equal it."""

    variable: int
    value: Expression


@dataclass(frozen=True, slots=True)
class EventTest:
    """One event of a pattern, ready to be asked."""

    name: str
    port: int
    bindings: tuple[Binding, ...]
    conditions: tuple[Expression, ...]
    visible: tuple[int, ...]
    """The variables its expressions can see: those that have no field's name."""

    def match(self, row: Row, variables: list[Value], environment: Environment) -> list[Value] | None:
        """The variables as they are bound if the row is this event, else None."""
        bound = list(variables)
        for binding in self.bindings:
            value = binding.value.evaluate(self.seen(row, bound), environment)
            known = bound[binding.variable]
            if value is None or (known is not None and known != value):
                return None
            bound[binding.variable] = value
        seen = self.seen(row, bound)
        return bound if all(condition.evaluate(seen, environment) for condition in self.conditions) else None

    def seen(self, row: Row, variables: Sequence[Value]) -> list[Value]:
        """What its expressions work on."""
        return [*row, *(variables[place] for place in self.visible)]


@dataclass(frozen=True, slots=True)
class PatternEvents:
    """All events of a pattern by name, and the variables they share."""

    tests: dict[str, EventTest]
    variables: Names


def compile_events(pattern: Pattern, ports: dict[str, int], inputs: Sequence[Schema]) -> PatternEvents:
    """The events of a pattern; raises BadExpression, with the whole text, for one that can't be understood."""
    parts: dict[str, tuple[Part, ...]] = {}
    variables: list[tuple[str, FieldType]] = []
    for event in pattern.events:
        schema = inputs[port_of(event.source, ports)]
        with _about(event.expression):
            parts[event.name] = split_event(event.expression, schema)
            _declare(parts[event.name], schema, variables)
    known = tuple(variables)
    tests = {}
    for event in pattern.events:
        port = port_of(event.source, ports)
        with _about(event.expression):
            tests[event.name] = _test(event.name, port, inputs[port], event.expression, parts[event.name], known)
    return PatternEvents(tests, known)


@contextmanager
def _about(text: str) -> Iterator[None]:
    """Faults inside are reported with this text, whatever part of it was parsed."""
    try:
        yield
    except BadExpression as error:
        raise BadExpression(**{**error.params, "text": text}) from None


def port_of(source: str, ports: dict[str, int]) -> int:
    """The input that a window's events come in by; one that has a single input needs no names."""
    if source in ports:
        return ports[source]
    if len(set(ports.values())) == 1:
        return next(iter(ports.values()))
    remedy = f"It has: {', '.join(sorted(ports))}."
    raise fault(source, 0, f"the pattern has no input window {source!r}", remedy)


def scope_of(schema: Schema, variables: Names) -> tuple[Scope, tuple[int, ...]]:
    """What an expression about a row can name: its fields, and the variables that have no field's name."""
    visible = tuple(place for place, (name, _) in enumerate(variables) if name not in schema)
    fields = tuple((field.name, field.type) for field in schema)
    return Scope((*fields, *(variables[place] for place in visible))), visible


def split_event(text: str, schema: Schema) -> tuple[Part, ...]:
    """The parts of an event's text that must all hold."""
    found = tokens(text)[:-1]
    if not found:
        return ()
    return tuple(_part(text, piece, schema) for piece in _conjuncts(found))


def _conjuncts(piece: list[Token]) -> list[list[Token]]:
    """The operands of the outermost and, brackets around them taken off; the piece itself if an or is on top."""
    while _is_bracketed(piece):
        piece = piece[1:-1]
    tops = _tops(piece)
    if any(token.word in ("or", "||", "xor", ";", "if", "return") for token in tops):
        return [piece]
    cuts = [place for place, token in enumerate(piece) if token in tops and token.word in ("and", "&&")]
    if not cuts:
        return [piece]
    edges = zip([-1, *cuts], [*cuts, len(piece)], strict=True)
    return [inner for start, end in edges for inner in _conjuncts(piece[start + 1 : end])]


def _is_bracketed(piece: list[Token]) -> bool:
    if len(piece) < 3 or piece[0].word != "(" or piece[-1].word != ")":
        return False
    depth = 0
    for token in piece[:-1]:
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0:
            return False
    return True


def _tops(piece: list[Token]) -> list[Token]:
    found, depth = [], 0
    for token in piece:
        depth += (token.word in ("(", "[")) - (token.word in (")", "]"))
        if depth == 0:
            found.append(token)
    return found


def _part(text: str, piece: list[Token], schema: Schema) -> Part:
    if not piece:
        raise fault(text, 0, "an operand of and is missing", "Write a condition on both sides of and.")
    sides = _sides(piece)
    if sides is not None:
        left, right = (_unbound(side, schema) for side in sides)
        if left and right:
            remedy = "Compare it with a field; that binds it."
            raise fault(text, piece[0].at, f"neither {left!r} nor {right!r} is a field", remedy)
        if left or right:
            return Part(_text(text, sides[1] if left else sides[0]), piece[0].at, left or right)
    return Part(_text(text, piece), piece[0].at)


def _sides(piece: list[Token]) -> tuple[list[Token], list[Token]] | None:
    tops = _tops(piece)
    if tops and tops[0].word == "not":
        return None
    signs = [token for token in tops if token.word in ("==", "!=", "<>", "^=", "<", ">", "<=", ">=", "=")]
    if len(signs) != 1 or signs[0].word not in ("==", "="):
        return None
    place = piece.index(signs[0])
    return piece[:place], piece[place + 1 :]


def _unbound(side: list[Token], schema: Schema) -> str | None:
    """The name of a side that is nothing but a name, and not that of a field."""
    if len(side) != 1 or side[0].kind != "name" or side[0].word in _CONSTANTS:
        return None
    return None if side[0].text in schema or side[0].text.upper().startswith("ESP_") else side[0].text


def _text(text: str, piece: list[Token]) -> str:
    """The text of a piece in its own place, so that errors name the right character."""
    if not piece:
        return ""
    end = piece[-1].at + len(piece[-1].text) + 2 * (piece[-1].kind == "quoted")
    return " " * piece[0].at + text[piece[0].at : end]


def _declare(parts: tuple[Part, ...], schema: Schema, known: list[tuple[str, FieldType]]) -> None:
    for part in parts:
        if part.variable is not None and part.variable not in [name for name, _ in known]:
            scope, _ = scope_of(schema, tuple(known))
            known.append((part.variable, compile_expression(part.text, scope).type))


def _test(name: str, port: int, schema: Schema, text: str, parts: tuple[Part, ...], variables: Names) -> EventTest:
    scope, visible = scope_of(schema, variables)
    places = {variable: place for place, (variable, _) in enumerate(variables)}
    bindings, conditions = [], []
    for part in parts:
        expression = compile_expression(part.text, scope)
        if part.variable is None:
            conditions.append(expression)
        else:
            place = places[part.variable]
            _check_type(text, part, expression.type, variables[place][1])
            bindings.append(Binding(place, expression))
    return EventTest(name, port, tuple(bindings), tuple(conditions), visible)


def _check_type(text: str, part: Part, given: FieldType, first: FieldType) -> None:
    if given is not first and not (given.is_numeric and first.is_numeric):
        reason = f"{part.variable} is a {first.value}, and can't be compared with a {given.value}"
        raise fault(text, part.at, reason, "Use another name for the second value.")
