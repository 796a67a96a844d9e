"""Who is next in a line of sequential nodes: the smallest is active, every other watches the one right below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

PREFIX = "server-n_"
_NODE = re.compile(re.escape(PREFIX) + r"\d{10}")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the line: `below` is the greatest node that is less than one's own; without one it is active."""

    below: str | None = None

    @property
    def is_active(self) -> bool:
        """Whether nobody is before it."""
        return self.below is None


def place_in_line(children: Iterable[str], mine: str, is_ours: Callable[[str], bool]) -> Place | None:
    """The place of a node among the children of the root, whatever else is there; None if it is not among them.

    `is_ours` says whether another node is of the same group, and is asked of no more than it takes.
    """
    line = {name for name in children if _NODE.fullmatch(name)}  # of one width, so that text sorts as numbers do
    if mine not in line:
        return None
    before = sorted((name for name in line if name < mine), reverse=True)
    return Place(next(filter(is_ours, before), None))
