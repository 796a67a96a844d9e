"""Faults of a model: where, what, and what to do; collected, so that all are seen at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that keeps a model from running."""

    place: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem} {self.remedy}"


@dataclass(slots=True)
class Findings:
    """Faults in the order in which they were found, each once."""

    found: list[Fault] = field(default_factory=list)

    def add(self, place: str, problem: str, remedy: str) -> None:
        """Note a fault; a sentence each."""
        fault = Fault(place, problem, remedy)
        if fault not in self.found:
            self.found.append(fault)


def did_you_mean(name: str, known: Iterable[str], what: str) -> str:
    """The remedy for an unknown name: the nearest one that exists, else all of them."""
    names = sorted(set(known))
    by_folded = {other.casefold(): other for other in names}
    near = get_close_matches(name.casefold(), list(by_folded), n=1)
    if near:
        return f"Did you mean {by_folded[near[0]]!r}?"
    return f"There is: {shortened(names)}." if names else f"There is no {what}."


def shortened(names: Iterable[str], limit: int = 12) -> str:
    """Names in a row, not more than people read."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def duplicates(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, in the order of their second time."""
    seen: set[str] = set()
    twice: list[str] = []
    for name in names:
        if name in seen and name not in twice:
            twice.append(name)
        seen.add(name)
    return twice
