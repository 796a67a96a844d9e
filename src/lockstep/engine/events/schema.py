"""Types of fields, how their values look in Python, in Arrow and as text; and schemas of named fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import pyarrow as pa

from lockstep.engine.errors import BadSchema


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


Value = int | float | str | bytes | tuple[int | float | None, ...] | None
"""A field's value; None is null."""

MONEY_SCALE = 10_000


class FieldType(Enum):
    """The type of a field, by its name in models."""

    INT32 = "int32"
    INT64 = "int64"
    DOUBLE = "double"
    STRING = "string"
    DATE = "date"
    STAMP = "stamp"
    MONEY = "money"
    BLOB = "blob"
    ARRAY_INT32 = "array(i32)"
    ARRAY_INT64 = "array(i64)"
    ARRAY_DOUBLE = "array(dbl)"

    @property
    def arrow(self) -> pa.DataType:
        """How a column of it is kept."""
        return _ARROW[self]

    @property
    def is_numeric(self) -> bool:
        """Can be calculated with."""
        return self in _NUMERIC

    @property
    def is_integer(self) -> bool:
        """Kept as a whole number: int32, int64, date, stamp and money."""
        return self in _INTEGER

    @property
    def is_time(self) -> bool:
        """Can be a clock."""
        return self in (FieldType.DATE, FieldType.STAMP)

    @property
    def element(self) -> FieldType | None:
        """The type of an array's elements."""
        return _ELEMENT.get(self)


_ARROW = {
    FieldType.INT32: pa.int32(),
    FieldType.INT64: pa.int64(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.STRING: pa.string(),
    FieldType.DATE: pa.int64(),
    FieldType.STAMP: pa.int64(),
    FieldType.MONEY: pa.int64(),
    FieldType.BLOB: pa.binary(),
    FieldType.ARRAY_INT32: pa.list_(pa.int32()),
    FieldType.ARRAY_INT64: pa.list_(pa.int64()),
    FieldType.ARRAY_DOUBLE: pa.list_(pa.float64()),
}
_ELEMENT = {
    FieldType.ARRAY_INT32: FieldType.INT32,
    FieldType.ARRAY_INT64: FieldType.INT64,
    FieldType.ARRAY_DOUBLE: FieldType.DOUBLE,
}
_INTEGER = frozenset({FieldType.INT32, FieldType.INT64, FieldType.DATE, FieldType.STAMP, FieldType.MONEY})
_NUMERIC = _INTEGER | {FieldType.DOUBLE}

INT_RANGE = {
    FieldType.INT32: (-(2**31), 2**31 - 1),
    FieldType.INT64: (-(2**63), 2**63 - 1),
    FieldType.DATE: (-(2**63), 2**63 - 1),
    FieldType.STAMP: (-(2**63), 2**63 - 1),
    FieldType.MONEY: (-(2**63), 2**63 - 1),
}


def fits(kind: FieldType, value: Value) -> bool:
    """Whether a value may stand in a field of this type; null always may."""
    if value is None:
        return True
    if kind in INT_RANGE:
        low, high = INT_RANGE[kind]
        return type(value) is int and low <= value <= high
    if kind is FieldType.DOUBLE:
        return type(value) is float
    if kind is FieldType.STRING:
        return type(value) is str
    if kind is FieldType.BLOB:
        return type(value) is bytes
    element = kind.element
    return element is not None and type(value) is tuple and all(fits(element, item) for item in value)


def is_writable(value: Value) -> bool:
    """Whether UTF-8 can write a value, if it is a text: what code makes may hold halves of characters."""
    if type(value) is not str or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
