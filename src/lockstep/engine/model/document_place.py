"""Values of a document together with where they stand, so that every complaint names a line and a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NoReturn

from lockstep.engine.errors import ModelUnreadable

Plain = Any
"""None, bool, int and str, and lists and string-keyed dicts of these."""
Path = tuple[str | int, ...]
Mark = tuple[int, int]
"""A line and a column, both counted from 1."""


def nearest(name: str, known: Sequence[str]) -> str:
    """What to do about a name that is not known."""
    close = get_close_matches(name, known, 1, 0.6)
    return f"Did you mean {close[0]}?" if close else f"Known are: {', '.join(known)}."


@dataclass(frozen=True, slots=True)
class Where:
    """Where the values and keys of a document stand in its text."""

    source: str = "document"
    values: Mapping[Path, Mark] = field(default_factory=dict)
    keys: Mapping[Path, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """One value of a document."""

    value: Plain
    where: Where
    path: Path = ()

    def refuse(self, reason: str, remedy: str, *, key: str | None = None) -> NoReturn:
        """Complain about this value, or about one of its keys."""
        path = self.path if key is None else (*self.path, key)
        mark = (self.where.values if key is None else self.where.keys).get(path, (1, 1))
        source, (line, column) = self.where.source, mark
        raise ModelUnreadable(source=source, line=line, column=column, reason=reason, remedy=remedy) from None

    def want(self, wanted: str) -> NoReturn:
        """Complain that something else was wanted here."""
        what = f"{self.path[-1]} " if self.path and isinstance(self.path[-1], str) else ""
        self.refuse(f"{what}must be {wanted}", f"Write {wanted}.")

    def text(self) -> str:
        """A text; a plain number or truth value stands for how it is written."""
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        if not isinstance(self.value, str | int):
            self.want("a text")
        return str(self.value)

    def number(self) -> int:
        """A whole number."""
        if type(self.value) is not int:
            self.want("a whole number")
        return self.value

    def flag(self) -> bool:
        """A truth value."""
        if type(self.value) is not bool:
            self.want("true or false")
        return self.value

    def items(self) -> list[Place]:
        """The items of a list."""
        if not isinstance(self.value, list | tuple):
            self.want("a list")
        return [Place(item, self.where, (*self.path, place)) for place, item in enumerate(self.value)]

    def entries(self) -> dict[str, Place]:
        """The entries of a mapping."""
        if not isinstance(self.value, dict):
            self.want("a mapping")
        return {key: Place(item, self.where, (*self.path, key)) for key, item in self.value.items()}

    def record(self, known: Sequence[str]) -> dict[str, Place]:
        """The entries of a mapping that may have these keys only; keys without a value count as left out."""
        found = self.entries()
        for key in found:
            if key not in known:
                self.refuse(f"{key!r} is not known here", nearest(key, known), key=key)
        return {key: place for key, place in found.items() if place.value is not None}
