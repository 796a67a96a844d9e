"""The expressions of filters, `eval: value == 1 || value % 60 == 0`: a closed part of Ruby, read and never executed.

value, tokens    value is the attribute; :::check.interval|60::: is another attribute of the event, or a default
literals         numbers, 'texts', "texts", [lists], 1..5, /patterns/i, true, false, nil
operators        || && ! or and not == != < <= > >= =~ !~ + - * / %, and lists[0]
methods          those of METHODS, and Time.now and Time.at(seconds)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

from lockstep.monitor.core.documents import attribute_at, substitute
from lockstep.monitor.core.methods import (
    MANY,
    METHODS,
    ExpressionInvalid,
    fail,
    fits,
    is_true,
    item,
    number,
    same,
    span,
)
from lockstep.monitor.core.patterns import compiled

TEXT_MAX, NESTED_MAX, DIGITS_MAX = 4096, 40, 18


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may look at."""

    value: Any
    event: Mapping[str, Any]
    moment: datetime


Node = Callable[[Scope], Any]
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<token>:::[^:].*?:::)
    | (?P<words>%w(?:\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\}))
    | (?P<number>\d+(?:_\d+)*(?:\.\d+)?)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<name>[A-Za-z_]\w*[?!]?)
    | (?P<mark>\|\||&&|==|!=|<=|>=|=~|!~|\.\.\.?|[-+*/%<>!()\[\].,?:])
    )""",
    re.VERBOSE,
)
_PATTERN = re.compile(r"\s*/((?:[^/\\]|\\.)+)/([imx]*)")
_WORDS = {"or": "||", "and": "&&", "not": "!"}
_CONSTANTS = {"true": True, "false": False, "nil": None}


def holds(text: str, scope: Scope) -> bool:
    """Whether an expression is true; ExpressionInvalid if it can't be told."""
    try:
        return is_true(expression(text)(scope))
    except ExpressionInvalid:
        raise
    except (TypeError, ValueError, AttributeError, ArithmeticError, LookupError, OSError, RecursionError) as error:
        raise ExpressionInvalid(str(error)) from error


@lru_cache(maxsize=1024)
def expression(text: str) -> Node:
    """Read an expression; ExpressionInvalid says what is wrong with it."""
    if len(text) > TEXT_MAX:
        fail(f"it is longer than {TEXT_MAX} characters")
    reader = _Reader(text)
    node = reader.choice()
    if reader.kind:
        fail(f"{reader.word!r} is not expected")
    return node


class _Reader:
    """Reads a text from left to right, one method for each level of operators."""

    def __init__(self, text: str) -> None:
        self.text, self.place, self.depth = text, 0, 0
        self.kind: str | None = ""
        self.word = ""
        self.advance()

    def advance(self) -> str:
        """Go on to the next word; returns the one before."""
        before = self.word
        if not self.text[self.place :].strip():
            self.kind, self.word = None, ""
            return before
        found = _TOKEN.match(self.text, self.place)
        if found is None:
            fail(f"{self.text[self.place :][:20].strip()!r} can't be read")
        self.kind, self.place = found.lastgroup, found.end()
        self.word = found.group(found.lastgroup or 0)
        if self.kind == "name" and self.word in _WORDS:
            self.kind, self.word = "mark", _WORDS[self.word]
        return before

    def takes(self, *words: str) -> str:
        """The word if it is one of these marks; it is read then."""
        return self.advance() if self.kind == "mark" and self.word in words else ""

    def need(self, word: str) -> None:
        if not self.takes(word):
            fail(f"{word!r} is missing before {self.word or 'the end'!r}")

    def either(self) -> Node:
        self.deeper()
        node = self.both()
        while self.takes("||"):
            node = _either(node, self.both())
        self.depth -= 1
        return node

    def choice(self) -> Node:
        """Condition ? value : value, or just a value."""
        node = self.either()
        if not self.takes("?"):
            return node
        self.deeper()
        first = self.choice()
        self.need(":")
        second = self.choice()
        self.depth -= 1
        return lambda scope: first(scope) if is_true(node(scope)) else second(scope)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > NESTED_MAX:
            fail(f"it is nested deeper than {NESTED_MAX} levels")

    def both(self) -> Node:
        node = self.negated()
        while self.takes("&&"):
            node = _both(node, self.negated())
        return node

    def negated(self) -> Node:
        turns = 0
        while self.takes("!"):
            turns += 1
        node = self.compared()
        return node if not turns else lambda scope: is_true(node(scope)) is (turns % 2 == 0)

    def compared(self) -> Node:
        node = self.sum()
        while word := self._compares():
            right = self.pattern() if word in ("=~", "!~") else self.sum()
            node = _binary(_COMPARISONS[word], node, right)
        return node

    def _compares(self) -> str:
        if self.kind == "mark" and self.word in ("=~", "!~"):
            return self.word
        return self.takes("==", "!=", "<=", ">=", "<", ">")

    def pattern(self) -> Node:
        found = _PATTERN.match(self.text, self.place)
        if found is None:
            fail(f"a pattern such as /db-.*/ is missing after {self.word!r}")
        self.place = found.end()
        self.advance()
        made = compiled(found[1], found[2])
        if isinstance(made, str):
            fail(made)
        return lambda _: made

    def sum(self) -> Node:
        node = self.product()
        while word := self.takes("+", "-"):
            node = _binary(_OPERATIONS[word], node, self.product())
        return node

    def product(self) -> Node:
        node = self.signed()
        while word := self.takes("*", "/", "%"):
            node = _binary(_OPERATIONS[word], node, self.signed())
        return node

    def signed(self) -> Node:
        if self.takes("-"):
            node = self.called()
            return lambda scope: -number(node(scope))
        return self.called()

    def called(self) -> Node:
        node = self.single()
        while word := self.takes(".", "[", "..", "..."):
            if word in ("..", "..."):
                node = _binary(partial(span, is_open=word == "..."), node, self.sum())
            elif word == "[":
                node = self.member(node)
            else:
                node = self.method(node)
        return node

    def member(self, node: Node) -> Node:
        given = [self.either()]
        if self.takes(","):
            given.append(self.either())
        self.need("]")
        return lambda scope: item(node(scope), *[each(scope) for each in given])

    def method(self, node: Node) -> Node:
        if self.kind != "name" or self.word not in METHODS:
            fail(f"there is no method {self.word or 'after the dot'!r}; there are {', '.join(METHODS)}")
        count, function = METHODS[self.word]
        if self.word in ("match", "match?"):
            has_marks = self.text[self.place :].lstrip().startswith("(")
            self.place += self.text[self.place :].index("(") + 1 if has_marks else 0
            given = [self.pattern()]
            if has_marks:
                self.need(")")
        else:
            self.advance()
            has_marks = (self.kind, self.word) == ("mark", "(")
            given = self.arguments() if has_marks else [self.choice()] if count else []
        if not given if count == MANY else len(given) != count:
            fail(f"a method was given {len(given)} values, but takes {count}")
        return lambda scope: function(node(scope), *[each(scope) for each in given])

    def arguments(self, first: str = "(", last: str = ")") -> list[Node]:
        self.need(first)
        made: list[Node] = []
        while not self.takes(last):
            if made:
                self.need(",")
            made.append(self.choice())
        return made

    def single(self) -> Node:
        kind, word = self.kind, self.word
        if kind == "mark" and word == "(":
            self.advance()
            node = self.choice()
            self.need(")")
            return node
        if kind == "mark" and word == "[":
            items = self.arguments("[", "]")
            return lambda scope: [each(scope) for each in items]
        self.advance()
        if kind == "words":
            return _constant(word[3:-1].split())
        if kind == "number":
            word = word.replace("_", "")
            if len(word) > DIGITS_MAX:
                fail(f"the number {word[:40]} is too long")
            return _constant(float(word) if "." in word else int(word))
        if kind == "text":
            return _text(re.sub(r"\\(.)", r"\1", word[1:-1]))
        if kind == "token":
            return _attribute(word)
        if kind == "name":
            return self.named(word)
        fail(f"{word or 'the end'!r} is not expected")

    def named(self, word: str) -> Node:
        if word == "value":
            return lambda scope: scope.value
        if word in _CONSTANTS:
            return _constant(_CONSTANTS[word])
        if word == "Time":
            self.need(".")
            if self.advance() == "now":
                return lambda scope: scope.moment
            (seconds,) = self.arguments() or [_constant(None)]
            return lambda scope: datetime.fromtimestamp(number(seconds(scope)), scope.moment.tzinfo or UTC)
        fail(f"{word!r} is not known")


def _constant(value: Any) -> Node:
    return lambda _: value


def _text(text: str) -> Node:
    if ":::" not in text:
        return _constant(text)

    def node(scope: Scope) -> str:
        made, missing = substitute(text, scope.event)
        return made if not missing else fail(f"the event has no {missing[0]}")

    return node


def _attribute(token: str) -> Node:
    path, bar, default = token[3:-3].partition("|")

    def node(scope: Scope) -> Any:
        value = attribute_at(scope.event, path.split("."))
        if value is None and not bar:
            fail(f"the event has no {path}")
        value = default if value is None else value
        if isinstance(value, str) and re.fullmatch(r"\d{1,18}(\.\d+)?", value):
            return float(value) if "." in value else int(value)
        return value

    return node


def _either(left: Node, right: Node) -> Node:
    def node(scope: Scope) -> Any:
        value = left(scope)
        return value if is_true(value) else right(scope)

    return node


def _both(left: Node, right: Node) -> Node:
    def node(scope: Scope) -> Any:
        value = left(scope)
        return right(scope) if is_true(value) else value

    return node


def _binary(function: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    return lambda scope: function(left(scope), right(scope))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def function(left: Any, right: Any) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        return compare(number(left), number(right))

    return function


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str) and len(left) + len(right) <= TEXT_MAX:
        return left + right
    return number(number(left) + number(right))


def _divided(left: Any, right: Any) -> Any:
    whole = type(number(left)) is int and type(number(right)) is int
    return left // right if whole else left / right


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": same,
    "!=": lambda left, right: not same(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "=~": fits,
    "!~": lambda value, pattern: not fits(value, pattern),
}
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": _plus,
    "-": lambda left, right: number(left) - number(right),
    "*": lambda left, right: number(number(left) * number(right)),
    "/": _divided,
    "%": lambda left, right: number(left) % number(right),
}
