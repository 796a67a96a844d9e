"""How dataclasses become documents and back, with the place of each value for complaints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import Any, Generic, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from lockstep.engine.errors import BadSchema, ModelUnreadable
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model.values import DURATION_REMEDY, duration_text, parse_duration

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
        """Report that something else was expected here."""
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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """A way into a document and back: read(Place(write(value))) == value."""

    read: Callable[[Place], T]
    write: Callable[[T], Plain]


def _read_schema(place: Place) -> Schema:
    if isinstance(place.value, dict):
        text = ",".join(f"{name}:{kind.text()}" for name, kind in place.entries().items())
    else:
        text = place.text()
    try:
        return Schema.parse(text)
    except BadSchema as error:
        place.refuse(str(error.params["reason"]), BadSchema.advice)


def _read_type(place: Place) -> FieldType:
    known = [kind.value for kind in FieldType]
    if place.text() not in known:
        place.refuse(f"{place.text()!r} is not a type", nearest(place.text(), known))
    return FieldType(place.text())


def read_duration(place: Place) -> int:
    """Microseconds."""
    try:
        return parse_duration(place.text())
    except ValueError as error:
        place.refuse(str(error), DURATION_REMEDY)


def _read_pairs(place: Place) -> tuple[tuple[str, str], ...]:
    if isinstance(place.value, dict):
        return tuple((name, item.text()) for name, item in place.entries().items())
    return tuple(read_pair(item) for item in place.items())


def read_pair(place: Place) -> tuple[str, str]:
    """A list of two texts."""
    parts = place.items()
    if len(parts) != 2:
        place.want("a list of two texts")
    return parts[0].text(), parts[1].text()


def _write_pairs(pairs: tuple[tuple[str, str], ...]) -> Plain:
    named = dict(pairs)
    return named if len(named) == len(pairs) else [list(pair) for pair in pairs]


def _read_texts(place: Place) -> tuple[str, ...]:
    return tuple(item.text() for item in place.items()) if isinstance(place.value, list) else (place.text(),)


TEXT: Codec[str] = Codec(Place.text, str)
DURATION: Codec[int] = Codec(read_duration, duration_text)
TEXTS: Codec[tuple[str, ...]] = Codec(_read_texts, list)
PAIRS: Codec[tuple[tuple[str, str], ...]] = Codec(_read_pairs, _write_pairs)
SCHEMA: Codec[Schema] = Codec(_read_schema, str)
_SIMPLE: Mapping[Any, Codec[Any]] = {
    str: TEXT,
    int: Codec(Place.number, int),
    bool: Codec(Place.flag, bool),
    FieldType: Codec(_read_type, lambda kind: kind.value),
    Schema: SCHEMA,
    tuple[str, ...]: TEXTS,
    tuple[tuple[str, str], ...]: PAIRS,
}


def several(item: Codec[T]) -> Codec[tuple[T, ...]]:
    """A list of what the codec reads."""
    return Codec(
        lambda place: tuple(item.read(part) for part in place.items()),
        lambda values: [item.write(value) for value in values],
    )


def codec_of(hint: Any) -> Codec[Any]:
    """The codec for a type hint."""
    if get_origin(hint) is UnionType:
        (hint,) = (choice for choice in get_args(hint) if choice is not NoneType)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if get_origin(hint) is tuple:
        return several(codec_of(get_args(hint)[0]))
    return record(hint)


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a record: its key in documents and how its value is written there."""

    key: str
    field: Field[Any]
    codec: Codec[Any]

    @property
    def default(self) -> Any:
        """What the field has when it is left out; MISSING if it may not be."""
        return self.field.default


def _entry(field: Field[Any], hint: Any, special: Codec[Any] | None) -> Entry:
    if field.name.endswith("_us"):
        return Entry(field.name.removesuffix("_us"), field, special or DURATION)
    return Entry(field.name.removesuffix("_"), field, special or codec_of(hint))


_FIRST = ("name", "description")
_LAST = ("windows", "edges", "queries")


def _rank(cls: type, name: str) -> int:
    """Where a key stands in a document: names first, then what a class says itself, then what it inherits."""
    if name in _FIRST:
        return _FIRST.index(name) - len(_FIRST)
    inherited = any(name in getattr(base, "__annotations__", {}) for base in cls.__mro__[1:])
    return int(inherited) if name not in _LAST else 2 + _LAST.index(name)


def entries_of(cls: type, special: Mapping[str, Codec[Any]]) -> list[Entry]:
    """The entries of a dataclass; `special` codecs go before those its hints suggest."""
    hints = get_type_hints(cls)
    ordered = sorted(fields(cls), key=lambda field: _rank(cls, field.name))
    return [_entry(field, hints[field.name], special.get(field.name)) for field in ordered]


def read_record(place: Place, entries: list[Entry], more: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a record by name; keys `more` may be there besides."""
    found = place.record([*more, *(entry.key for entry in entries)])
    for entry in entries:
        if entry.key not in found and entry.default is MISSING:
            place.refuse(f"{entry.key!r} is missing", f"Add {entry.key}.")
    return {entry.field.name: entry.codec.read(found[entry.key]) for entry in entries if entry.key in found}


def write_record(value: Any, entries: list[Entry]) -> dict[str, Plain]:
    """The fields of a record that differ from their defaults."""
    values = ((entry, getattr(value, entry.field.name)) for entry in entries)
    return {entry.key: entry.codec.write(item) for entry, item in values if item != entry.default}


@cache
def record(cls: Any) -> Codec[Any]:
    """The codec of a dataclass, from its hints."""
    entries = entries_of(cls, {})
    return Codec(lambda place: cls(**read_record(place, entries)), lambda value: write_record(value, entries))
