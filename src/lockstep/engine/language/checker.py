"""A tree becomes typed code against the names that it may use; every fault is reported with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.engine.events.schema import FieldType, Schema, Value
from lockstep.engine.language.catalogue import FUNCTIONS, METHODS
from lockstep.engine.language.code import Code, Environment, Row, Uses, constant, row_by_row
from lockstep.engine.language.faults import Misfit, fault, suggestion
from lockstep.engine.language.functions import element_of
from lockstep.engine.language.operators import binary, chosen, negated
from lockstep.engine.language.syntax import Binary, Call, Choice, Index, Literal, Name, Node, Unary

if TYPE_CHECKING:
    from lockstep.engine.language.programs import UserFunctions

_INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True, slots=True)
class Scope:
    """The fields an expression may use, in the order in which a row has them."""

    names: tuple[tuple[str, FieldType], ...]

    @classmethod
    def of(cls, schema: Schema) -> Scope:
        """The fields of a schema."""
        return cls(tuple((item.name, item.type) for item in schema))


@dataclass(frozen=True, slots=True)
class Variable:
    """Where a variable lives: kept from event to event, or only while the program runs."""

    place: int
    type: FieldType
    is_kept: bool


@dataclass(slots=True)
class Checker:
    """Types one text against a scope and the variables declared so far."""

    text: str
    scope: Scope
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: UserFunctions | None = None
    parameters: Sequence[Code] | None = None
    """In a function of the user: what it was given; the last names of the scope are for them."""
    calling: tuple[str, ...] = ()
    """The functions of the user that led here."""
    depth: int = 0
    """How far down the tree is what is typed now."""
    _fields: Mapping[str, tuple[int, FieldType]] = field(init=False)

    def __post_init__(self) -> None:
        self._fields = {name: (place, kind) for place, (name, kind) in enumerate(self.scope.names)}

    def code(self, node: Node) -> Code:
        """The code of a tree."""
        match node:
            case Literal():
                return _literal(node.value)
            case Name():
                return self._name(node)
            case Unary():
                return self._build(node, (node.operand,))
            case Binary():
                return self._build(node, (node.left, node.right))
            case Index():
                return self._build(node, (node.array, node.index))
            case Choice():
                return self._build(node, (node.condition, node.then, node.otherwise))
            case Call():
                return self._call(node)
        raise AssertionError(node)

    @property
    def width(self) -> int:
        """How many fields a row has, without parameters."""
        return len(self.scope.names) - len(self.parameters or ())

    def _codes(self, parts: tuple[Node, ...]) -> list[Code]:
        found = []
        self.depth += 1
        for part in parts:
            found.append(self.code(part))  # noqa: PERF401 - a comprehension is a frame more on a deep stack
        self.depth -= 1
        return found

    def _build(self, node: Node, parts: tuple[Node, ...]) -> Code:
        codes = self._codes(parts)
        try:
            return _combined(node, codes)
        except Misfit as misfit:
            at = node.at if misfit.argument is None else parts[misfit.argument].at
            raise fault(self.text, at, misfit.reason, misfit.remedy) from None

    def _call(self, node: Call) -> Code:
        if self.functions is not None and node.name in self.functions:
            return self.functions.called(node, self._codes(node.arguments), self)
        if self.parameters is not None and node.name in ("parameter", "parametercount"):
            return self._parameter(node, self.parameters)
        self._check_call(node)
        return self._build(node, node.arguments)

    def _parameter(self, node: Call, given: Sequence[Code]) -> Code:
        if node.name == "parametercount":
            return _literal(len(given))
        number = self.code(node.arguments[0]) if len(node.arguments) == 1 else None
        place = number.value if number is not None and number.is_constant else None
        if type(place) is not int or place < 1:
            reason = "the number of a parameter must stand in the expression"
            raise fault(self.text, node.at, reason, "Write parameter(1) for the first one.")
        if place > len(given) or given[place - 1].is_constant:
            return constant(None, None) if place > len(given) else given[place - 1]
        return self._name(Name(at=node.at, name=f"parameter({place})", quoted=True))

    def _check_call(self, node: Call) -> None:
        function = FUNCTIONS.get(node.name) or METHODS.get(node.name)
        if function is None:
            remedy = suggestion(node.name, FUNCTIONS, "")
            if node.name.startswith("esp_a"):
                remedy = "Aggregate functions work in aggregate windows only, and not inside each other."
            raise fault(self.text, node.at, f"there is no function {node.name}", remedy)
        if not function.fewest <= len(node.arguments) <= function.most:
            reason = f"{node.name} can't take {len(node.arguments)} argument(s)"
            raise fault(self.text, node.at, reason, f"Write {function.usage}.")

    def _name(self, node: Name) -> Code:
        if not node.quoted and node.name in self.variables:
            return _read(self.variables[node.name])
        if node.name in self._fields:
            return _column(node.name, *self._fields[node.name])
        reserved = node.name.upper()
        if reserved == "ESP_OPCODE":
            return row_by_row(FieldType.STRING, lambda _row, env: env.opcode, Uses(event=True))
        if reserved == "ESP_FLAGS":
            return row_by_row(FieldType.STRING, lambda _row, env: env.flags, Uses(event=True))
        remedy = suggestion(node.name, [*self._fields, *self.variables], "Declare it first: integer x.")
        raise fault(self.text, node.at, f"there is no field {node.name!r}", remedy)


def _combined(node: Node, codes: list[Code]) -> Code:
    match node:
        case Unary():
            return negated(node.operator, *codes)
        case Binary():
            return binary(node.operator, *codes)
        case Index():
            return element_of(*codes)
        case Choice():
            return chosen(*codes)
        case Call():
            return (FUNCTIONS.get(node.name) or METHODS[node.name]).build(*codes)
    raise AssertionError(node)


def _literal(value: Value) -> Code:
    if value is None:
        return constant(None, None)
    if isinstance(value, int):
        return constant(FieldType.INT32 if value in _INT32 else FieldType.INT64, value)
    return constant(FieldType.DOUBLE if isinstance(value, float) else FieldType.STRING, value)


def _column(name: str, place: int, kind: FieldType) -> Code:
    def run(row: Row, _env: Environment) -> Value:
        return row[place]

    return Code(kind, run, lambda inputs: inputs.vector(name), Uses(fields=frozenset({name})))


def _read(variable: Variable) -> Code:
    place = variable.place
    if variable.is_kept:
        return row_by_row(variable.type, lambda _row, env: env.variables[place], Uses(variables=True))
    return row_by_row(variable.type, lambda _row, env: env.scratch[place], Uses())
