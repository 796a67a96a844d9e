"""Patterns of filters and silences: regular expressions that can't run for ever, and globs."""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]  # the standard library's own reader of patterns
from typing import Any

from lockstep.monitor.core.automaton import Automaton

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
