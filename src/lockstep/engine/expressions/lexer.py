"""Text to tokens, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lockstep.engine.events.types import Value
from lockstep.engine.expressions.faults import fault

MAX_TEXT = 65_536
MAX_INTEGER = 2**63
"""One more than fits: it may stand behind a minus."""

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
    """All tokens of a text, with one of kind end behind them."""
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
