"""Patterns of filters and silences: regular expressions that can't run for ever, and globs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]  # the standard library's own reader of patterns
from re import _constants as sre  # type: ignore[attr-defined]  # the standard library's own reader of patterns
from typing import Any

PATTERN_MAX, SUBJECT_MAX = 256, 512
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_SIMPLE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN, _constants.AT)


@lru_cache(maxsize=1024)
def compiled(pattern: str, flags: str = "") -> re.Pattern[str] | Automaton | str:
    """The pattern, ready to be used; or what is wrong with it. Texts are looked at up to `SUBJECT_MAX` characters.

    With one repetition at most Python's matcher takes a millisecond for such a text; with more it can take longer than
    any text is worth, and an automaton does it.
    """
    if len(pattern) > PATTERN_MAX:
        return f"the pattern is longer than {PATTERN_MAX} characters"
    wanted = (re.IGNORECASE if "i" in flags else 0) | (re.DOTALL if "m" in flags else 0) | re.MULTILINE
    wanted |= re.VERBOSE if "x" in flags else 0
    text = pattern.replace(r"\z", r"\Z").replace(r"\h", "[0-9a-fA-F]")
    try:
        tree = _parser.parse(text, wanted)
        return re.compile(text, wanted) if _repeats(tree) <= 1 else Automaton(text, wanted)
    except (re.error, ValueError, RecursionError, OverflowError) as error:
        return f"the pattern {pattern!r} can't be read: {error}"


def _repeats(tree: Any) -> int:
    """How many repetitions there are; 2 if there is anything that Python's matcher may take long for."""
    found = 0
    for what, given in tree:
        if what in _REPEATS:
            found += 1 if all(each in _SIMPLE for each, _ in given[2]) else 2
        elif what is _constants.BRANCH:
            found += sum(map(_repeats, given[1]))
        elif what is _constants.SUBPATTERN:
            found += _repeats(given[-1])
        elif what not in _SIMPLE:
            return 2
    return found


def is_glob(text: str) -> bool:
    """Whether a text has a character of globs."""
    return "*" in text or "?" in text


def fits_glob(text: str, pattern: str) -> bool:
    """Whether a text is as a pattern says, letter by letter; in steps that its length bounds."""
    place, mark, star, back = 0, 0, -1, 0
    while place < len(text):
        if mark < len(pattern) and pattern[mark] == "*":
            star, back = mark, place
            mark += 1
        elif mark < len(pattern) and pattern[mark] in ("?", text[place]):
            place, mark = place + 1, mark + 1
        elif star >= 0:
            back += 1
            place, mark = back, star + 1
        else:
            return False
    return all(each == "*" for each in pattern[mark:])


STATES_MAX = 500
Test = Callable[[str], bool]
Place = Callable[[str, int], bool]
_CATEGORIES: dict[Any, tuple[Test, bool]] = {
    sre.CATEGORY_DIGIT: (str.isdecimal, True),
    sre.CATEGORY_NOT_DIGIT: (str.isdecimal, False),
    sre.CATEGORY_SPACE: (str.isspace, True),
    sre.CATEGORY_NOT_SPACE: (str.isspace, False),
    sre.CATEGORY_WORD: (lambda mark: mark.isalnum() or mark == "_", True),
    sre.CATEGORY_NOT_WORD: (lambda mark: mark.isalnum() or mark == "_", False),
}


class Unsupported(ValueError):
    """The pattern has something that an automaton does not, or too much."""


class Automaton:
    """States by number: a test and the state after it, a condition on the place and one, or several states at once."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._tests: dict[int, tuple[Test, int]] = {}
        self._places: dict[int, tuple[Place, int]] = {}
        self._ways: dict[int, tuple[int, ...]] = {}
        self._count, self._spent = 1, 0
        tree = _parser.parse(pattern, flags)
        self._begin = self._sequence(tree, tree.state.flags, 0)

    def search(self, text: str) -> bool:
        """Whether the pattern fits anywhere in the text. State 0 is the end."""
        now = self._closure((self._begin,), text, 0)
        for place, mark in enumerate(text):
            if 0 in now:
                return True
            after = {self._tests[state][1] for state in now if self._tests[state][0](mark)}
            now = self._closure((*after, self._begin), text, place + 1)
        return 0 in now

    def _closure(self, states: Iterable[int], text: str, place: int) -> set[int]:
        """All states that are reached without another character: those with a test, and the end."""
        seen: set[int] = set()
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            if state in self._ways:
                waiting += self._ways[state]
            elif state in self._places:
                holds, after = self._places[state]
                waiting += [after] if holds(text, place) else []
            else:
                found.add(state)
        return found

    # From the end to the beginning: each part is built with the state that comes after it.

    def _add(self) -> int:
        self._spend()
        self._count += 1
        return self._count - 1

    def _spend(self) -> None:
        self._spent += 1
        if self._spent > STATES_MAX:
            reason = f"it has more than {STATES_MAX} steps, with its repetitions written out"
            raise Unsupported(reason)

    def _sequence(self, tree: Any, flags: int, after: int) -> int:
        for what, given in reversed(list(tree)):
            after = self._part(what, given, flags, after)
        return after

    def _part(self, what: Any, given: Any, flags: int, after: int) -> int:
        if what in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, inner = given
            return self._repeat(least, most, inner, flags, after)
        if what is sre.SUBPATTERN:
            _, more, less, inner = given
            return self._sequence(inner, (flags | more) & ~less, after)
        state = self._add()
        if what is sre.BRANCH:
            self._ways[state] = tuple(self._sequence(each, flags, after) for each in given[1])
        elif what is sre.AT:
            self._places[state] = (_place(given, flags), after)
        else:
            self._tests[state] = (_test(what, given, flags), after)
        return state

    def _repeat(self, least: int, most: int, inner: Any, flags: int, after: int) -> int:
        if most is sre.MAXREPEAT:
            state = self._add()
            self._ways[state] = ()
            self._ways[state] = (self._sequence(inner, flags, state), after)
            end = state
        else:
            end = after
            for _ in range(most - least):
                state = self._add()
                self._ways[state] = (self._sequence(inner, flags, end), after)
                end = state
        for _ in range(least):
            self._spend()
            end = self._sequence(inner, flags, end)
        return end


def _test(what: Any, given: Any, flags: int) -> Test:
    """What a character has to be."""
    if what is sre.ANY:
        return (lambda _: True) if flags & re.DOTALL else (lambda mark: mark != "\n")
    if what is sre.LITERAL:
        return _any_case(_literal(given), flags)
    if what is sre.NOT_LITERAL:
        literal = _any_case(_literal(given), flags)
        return lambda mark: not literal(mark)
    if what is sre.IN:
        return _set(given, flags)
    reason = "a construct that is not supported"
    raise Unsupported(reason)


def _literal(code: int) -> Test:
    return chr(code).__eq__


def _any_case(test: Test, flags: int) -> Test:
    if not flags & re.IGNORECASE:
        return test
    return lambda mark: test(mark) or test(mark.lower()) or test(mark.upper())


def _set(items: Any, flags: int) -> Test:
    wanted = not any(what is sre.NEGATE for what, _ in items)
    tests = [_item(what, given, flags) for what, given in items if what is not sre.NEGATE]
    return lambda mark: any(test(mark) for test in tests) is wanted


def _item(what: Any, given: Any, flags: int) -> Test:
    if what is sre.RANGE:
        low, high = given
        return _any_case(lambda mark: len(mark) == 1 and low <= ord(mark) <= high, flags)
    if what is sre.CATEGORY:
        test, wanted = _CATEGORIES[given]
        return lambda mark: test(mark) is wanted
    return _test(what, given, flags)


def _place(given: Any, flags: int) -> Place:
    """A condition on the place between two characters."""
    if given is sre.AT_BEGINNING_STRING or (given is sre.AT_BEGINNING and not flags & re.MULTILINE):
        return lambda _, place: place == 0
    if given is sre.AT_BEGINNING:
        return lambda text, place: place == 0 or text[place - 1] == "\n"
    if given is sre.AT_END_STRING:
        return lambda text, place: place == len(text)
    if given is sre.AT_END:
        return lambda text, place: place == len(text) or text[place] == "\n"
    if given in (sre.AT_BOUNDARY, sre.AT_NON_BOUNDARY):
        wanted = given is sre.AT_BOUNDARY
        return lambda text, place: (_is_word(text, place - 1) is not _is_word(text, place)) is wanted
    reason = "a construct that is not supported"
    raise Unsupported(reason)


def _is_word(text: str, place: int) -> bool:
    return 0 <= place < len(text) and _CATEGORIES[sre.CATEGORY_WORD][0](text[place])
