"""Schemas: the named, typed fields of a window, and which of them are its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from lockstep.engine.errors import BadSchema
from lockstep.engine.events.types import FieldType, Value


@dataclass(frozen=True, slots=True)
class Field:
    """One field; the key of a window is made of those with `key`."""

    name: str
    type: FieldType
    key: bool = False

    def __str__(self) -> str:
        return f"{self.name}{'*' if self.key else ''}:{self.type.value}"


@dataclass(frozen=True)
class Schema:
    """The fields of a window, in order.

    Schema.parse("ID*:int32,symbol:string,price:double")   # a star marks a key field
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for field in self.fields:
            if not field.name.replace("-", "_").isidentifier():
                raise BadSchema(text=str(self), reason=f"{field.name!r} is not a field name")
            if field.name in seen:
                raise BadSchema(text=str(self), reason=f"field {field.name!r} occurs twice")
            seen.add(field.name)

    @classmethod
    def parse(cls, text: str) -> Schema:
        """The schema written as `name*:type,...`."""
        parts = [part.strip() for part in text.split(",") if part.strip()]
        return cls(tuple(_parse_field(part, text) for part in parts))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all fields."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """The places of the key fields."""
        return tuple(place for place, field in enumerate(self.fields) if field.key)

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each field by name."""
        return {field.name: place for place, field in enumerate(self.fields)}

    def key_of(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """The key in a row of this schema."""
        return tuple([values[place] for place in self.keys])

    def __getitem__(self, name: str) -> Field:
        return self.fields[self.places[name]]

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return ",".join(str(field) for field in self.fields)


def _parse_field(part: str, text: str) -> Field:
    name, _, kind = part.partition(":")
    try:
        return Field(name.strip().removesuffix("*"), FieldType(kind.strip().lower()), name.strip().endswith("*"))
    except ValueError:
        known = ", ".join(kind.value for kind in FieldType)
        reason = f"{part!r} must be NAME:TYPE with a type of {known}"
        raise BadSchema(text=text, reason=reason) from None
