"""Regular expressions of functions, by Arrow's engine (RE2): no pattern can make it take forever, as Python's can.

Arrow gives the groups of all matches only inside of replacements, so each match is replaced by its groups between marks
that the text does not have. A group that took no part in a match is an empty text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

MAX_GROUP = 9
_MARKS = range(0xF0000, 0x10FFFE)
_SHOWN = 100

Match = tuple[str, ...]
"""The text of a match, and then of its groups."""


class BadRegex(Exception):
    """A text that is not a regular expression."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression; `groups` can be asked for, at most nine."""

    pattern: str
    groups: int

    @classmethod
    def read(cls, pattern: str) -> Regex:
        """Raises BadRegex."""
        try:
            pc.match_substring_regex(pa.scalar(""), pattern=pattern)
        except (pa.ArrowInvalid, UnicodeEncodeError) as error:
            raise BadRegex(str(error)[:_SHOWN]) from None
        return cls(pattern, next(count for count in range(MAX_GROUP, -1, -1) if _has_group(pattern, count)))

    def is_in(self, text: str) -> bool:
        """Whether it matches somewhere."""
        return bool(pc.match_substring_regex(pa.scalar(text, pa.string()), pattern=self.pattern).as_py())

    def first(self, text: str) -> Match | None:
        """The first match."""
        return next(iter(self._parts(text, 1)[1]), None)

    def all(self, text: str) -> list[Match]:
        """Every match, one behind the other."""
        return self._parts(text, None)[1]

    def replaced(self, text: str, new: Callable[[Match], str], count: int | None = None) -> str:
        """The text with its matches, or the first ones, replaced."""
        between, matches = self._parts(text, count)
        made = [part + new(match) for part, match in zip(between, matches, strict=False)]
        return "".join(made) + between[-1]

    def _parts(self, text: str, count: int | None) -> tuple[list[str], list[Match]]:
        """What stands between the matches, and the matches."""
        mark = next(letter for code in _MARKS if (letter := chr(code)) not in text)
        marked = mark + mark.join(f"\\{group}" for group in range(self.groups + 1)) + mark
        found = pc.replace_substring_regex(
            pa.scalar(text, pa.string()), pattern=self.pattern, replacement=marked, max_replacements=count
        )
        pieces = found.as_py().split(mark)
        step = self.groups + 2
        places = range(0, len(pieces) - 1, step)
        return pieces[::step], [tuple(pieces[place + 1 : place + step]) for place in places]


def _has_group(pattern: str, group: int) -> bool:
    try:
        pc.replace_substring_regex(pa.scalar(""), pattern=pattern, replacement=f"\\{group}")
    except pa.ArrowInvalid:
        return False
    return True
