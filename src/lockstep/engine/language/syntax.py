"""Expressions as text and as trees: tokens with their places, and the tree of what was written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lockstep.engine.events.schema import FieldType, Value
from lockstep.engine.language.faults import fault

FIND_FIRST = ".findfirst"
"""The function that r.findfirst(text) calls, with the text and the pattern of r; no expression can name it."""


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


MAX_TEXT = 65_536
MAX_INTEGER = 2**63
"""One more than fits: it may follow a minus."""

_PIECE = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      |(?P<name>[^\W\d]\w*)
      |(?P<quoted>`[^`\n]+`|\$[^\W\d]\w*)
      |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      |(?P<sign>\*\*|&&|\|\||==|!=|<>|<=|>=|\^=|/(?!\*)|[-+*%&<>=!(),;\[\]]
          |\.(?=[^\W\d]))""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text: kind is number, name, quoted, text, sign or end."""

    kind: str
    text: str
    at: int
    value: Value = None

    @property
    def word(self) -> str:
        """What keywords and operators are compared by: case does not matter."""
        return self.text.lower() if self.kind in ("name", "sign") else ""


def tokens(text: str) -> list[Token]:
    """All tokens of a text, followed by one of kind end."""
    if len(text) > MAX_TEXT:
        raise fault(text, MAX_TEXT, f"it is longer than {MAX_TEXT} characters", "Split it into several windows.")
    found: list[Token] = []
    place = 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        if piece is None:
            raise _strange(text, place)
        if piece.lastgroup != "space":
            found.append(_token(text, piece.lastgroup or "", piece.group(), place))
        place = piece.end()
    found.append(Token("end", "", len(text)))
    return found


def _token(text: str, kind: str, piece: str, at: int) -> Token:
    if kind == "number":
        return Token(kind, piece, at, _number(text, piece, at))
    if kind == "text":
        return Token(kind, piece, at, _unescaped(text, piece, at))
    if kind == "quoted":
        return Token(kind, piece.strip("`").removeprefix("$"), at)
    return Token(kind, piece, at)


def _number(text: str, piece: str, at: int) -> int | float:
    if piece.isdigit():
        whole = int(piece) if len(piece) < 30 else MAX_INTEGER + 1
        if whole > MAX_INTEGER:
            raise fault(text, at, f"{piece[:40]} does not fit into int64", "Write it as a double: 1e20.")
        return whole
    value = float(piece)
    if value == float("inf"):
        raise fault(text, at, f"{piece[:40]} does not fit into a double", "The largest double is about 1.79e308.")
    return value


def _unescaped(text: str, piece: str, at: int) -> str:
    mark, body = piece[0], piece[1:-1]
    plain = re.sub(
        rf"\\(.)|{mark}{mark}",
        lambda found: mark if found.group(1) is None else _ESCAPES.get(found.group(1), found.group()),
        body,
        flags=re.DOTALL,
    )
    if any("\ud800" <= letter <= "\udfff" for letter in plain):
        raise fault(text, at, "the text holds half a character (a surrogate)", "Write the whole character.")
    return plain


def _strange(text: str, at: int) -> Exception:
    letter = text[at]
    if letter in "'\"":
        return fault(text, at, "the text that begins here has no end", f"Close it with {letter}.")
    if text.startswith("/*", at):
        return fault(text, at, "the comment that begins here has no end", "Close it with */.")
    if letter == "|":
        return fault(text, at, "a single | means nothing", "Write || or 'or' for a choice, & to join texts.")
    return fault(text, at, f"{letter!r} means nothing here", "Remove it, or put texts into quotes.")
