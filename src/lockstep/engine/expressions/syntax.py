"""The tree of an expression, as it was written. Places don't count when trees are compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.engine.events.types import FieldType, Value

FIND_FIRST = ".findfirst"
"""The function that r.findfirst(text) calls, with the text and the pattern of r; nobody can write its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """Something with a value; `height` is the longest way down, bounded by the parser."""

    at: int = field(compare=False, repr=False)
    height: int = field(default=1, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Literal(Node):
    """A number, a text or null."""

    value: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Name(Node):
    """A field, variable or reserved word; a quoted name is always a field."""

    name: str
    quoted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Unary(Node):
    """- + or not."""

    operator: str
    operand: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Binary(Node):
    """Two operands."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(Node):
    """A function, its name in lower case."""

    name: str
    arguments: tuple[Node, ...]
    texts: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The arguments as they were written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Index(Node):
    """An element of an array, counted from 1."""

    array: Node
    index: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice(Node):
    """If, then, else."""

    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A step of a program."""

    at: int = field(compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Declare(Statement):
    """A variable, null at first."""

    name: str
    type: FieldType


@dataclass(frozen=True, kw_only=True, slots=True)
class Assign(Statement):
    """A new value for a variable."""

    name: str
    value: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Bare(Statement):
    """An expression; as the last step it is the program's value."""

    value: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Return(Statement):
    """The program ends with this value."""

    value: Node


@dataclass(frozen=True, kw_only=True, slots=True)
class Group(Statement):
    """Steps one after the other."""

    steps: tuple[Statement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class When(Statement):
    """A step that is taken if a condition holds, and perhaps another if not."""

    condition: Node
    then: Statement
    otherwise: Statement | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat(Statement):
    """A step that is taken again as long as a condition holds."""

    condition: Node
    body: Statement


def height_of(step: Statement | None) -> int:
    """The longest way down from a step of a program."""
    match step:
        case Bare() | Return() | Assign():
            return 1 + step.value.height
        case Group():
            return 1 + max((height_of(each) for each in step.steps), default=0)
        case Repeat():
            return 1 + max(step.condition.height, height_of(step.body))
        case When():
            return 1 + max(step.condition.height, height_of(step.then), height_of(step.otherwise))
    return 1
