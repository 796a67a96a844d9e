"""The events of a pattern: conditions on a row, and the variables that they bind.

In `s == symbol and quantity > 5` the name s is no field, so the first event to get there binds it, and every later one
must have the same value. Only a comparison that must hold (not one behind or, or inside not) can bind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lockstep.engine.errors import BadExpression
from lockstep.engine.events.event import Row
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import FieldType, Value
from lockstep.engine.expressions.compiler import Environment, Expression, Scope, compile_expression
from lockstep.engine.expressions.faults import fault
from lockstep.engine.expressions.lexer import Token, tokens
from lockstep.engine.model.windows import Pattern

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
    """Faults inside are told about this text, whatever part of it was at hand."""
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
