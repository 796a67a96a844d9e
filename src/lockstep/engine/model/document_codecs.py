"""How dataclasses become documents and back: one codec for each type, records made from their type hints.

What has its default is left out of a document. A field NAME_us is written as NAME, as a duration with a unit; a field
NAME_, called so because NAME is a word of Python's, as NAME.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

from lockstep.engine.errors import BadSchema
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.types import FieldType
from lockstep.engine.model.document_place import Place, Plain, nearest
from lockstep.engine.model.durations import DURATION_REMEDY, duration_text, parse_duration

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
