"""The logic of a pattern as a tree: fby{1 hour}(a, and(not(b), c)).

What the operators mean is in docs/decisions/0016-what-patterns-mean.md; here they are only read and checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from lockstep.engine.expressions.faults import fault, suggestion
from lockstep.engine.model.durations import DURATION_REMEDY, parse_duration

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
