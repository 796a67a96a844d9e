"""Values in Avro's binary encoding, read with the schema that wrote them; see the Avro 1.11 specification.

Fields are found by name. What no field of the window takes is read and dropped. A union with null gives null; of
logical types date, the timestamps and decimal have a meaning, the others are what they are written as.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from lockstep.engine.events.schema import Field, FieldType, Schema, Value
from lockstep.engine.events.text import OVERFLOW, UNPARSABLE, BadText, check_range, parse_money

Read = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value at a place in the data; the value, and the place after it."""
Convert = Callable[[Any], Value]
_ITEMS_MAX = 1 << 20
"""An array of nulls takes no bytes: its length is not bounded by the data."""
_DEPTH_MAX = 64
_DAY_S, _SECOND_US = 86_400, 1_000_000
_INTEGERS = ("int", "long")
_STAMPS_US = {"timestamp-millis": (1000, 1), "timestamp-micros": (1, 1), "timestamp-nanos": (1, 1000)}
"""Logical types as microseconds: multiplied by the first number, divided by the second."""


class BadAvroSchema(ValueError):
    """A schema that can't be used, with the reason in words."""


class AvroForm:
    """Rows of a window's fields out of Avro records.

    AvroForm('{"type":"record","name":"Order","fields":[{"name":"ID","type":"long"}]}', Schema.parse("ID*:int64"))
    """

    def __init__(self, text: str, schema: Schema) -> None:
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"it is not JSON: {error}"
            raise BadAvroSchema(msg) from None
        types = _Types()
        record = types.resolved(parsed, "")
        if record.kind != "record":
            msg = f"it is of type {record.kind}, and must be a record"
            raise BadAvroSchema(msg)
        self._read = types.reader(record)
        known = dict(record.fields)
        self._fields = [(field, _converter(field, known)) for field in schema]

    def values(self, data: bytes) -> tuple[Value, ...]:
        """The values of the window's fields; raises BadText."""
        try:
            found, at = self._read(data, 0)
        except (IndexError, struct.error):
            raise BadText(UNPARSABLE, "it ends in the middle of an Avro value") from None
        except UnicodeDecodeError as fault:
            raise BadText(UNPARSABLE, f"a string is not UTF-8: {fault.reason}") from None
        except RecursionError:
            raise BadText(UNPARSABLE, "it is nested too deep") from None
        if at != len(data):
            raise BadText(UNPARSABLE, f"it has {len(data) - at} bytes more than its Avro schema says")
        return tuple([_converted(field, convert, found[field.name]) for field, convert in self._fields])


def _converted(field: Field, convert: Convert, found: Any) -> Value:
    try:
        return None if found is None else convert(found)
    except BadText as fault:
        raise BadText(fault.reason, f"field {field.name}: {fault.detail}") from None


@dataclass(slots=True)
class _Type:
    """A type of an Avro schema: `items` of arrays and maps, the branches of unions, the fields of records."""

    kind: str
    logical: str = ""
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    items: tuple[_Type, ...] = ()
    fields: tuple[tuple[str, _Type], ...] = ()


class _Types:
    """Types by their full names, and how each is read."""

    def __init__(self) -> None:
        self._named: dict[str, _Type] = {}
        self._readers: dict[int, Read] = {}

    def resolved(self, node: Any, namespace: str, depth: int = 0) -> _Type:
        """The type that a part of a schema describes."""
        if depth > _DEPTH_MAX:
            msg = f"it is nested deeper than {_DEPTH_MAX}"
            raise BadAvroSchema(msg)
        if isinstance(node, str):
            return self._by_name(node, namespace)
        if isinstance(node, list):
            return _Type("union", items=tuple(self.resolved(branch, namespace, depth + 1) for branch in node))
        if not isinstance(node, dict) or "type" not in node:
            msg = f"{str(node)[:60]!r} is no type"
            raise BadAvroSchema(msg)
        kind = node["type"]
        if not isinstance(kind, str):
            return self.resolved(kind, namespace, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, node, namespace, depth)
        if kind in ("array", "map"):
            part = node.get("items" if kind == "array" else "values")
            return _Type(kind, items=(self.resolved(part, namespace, depth + 1),))
        if kind not in _PRIMITIVES:
            return self._by_name(kind, namespace)
        return _Type(kind, str(node.get("logicalType", "")), _whole(node, "scale"))

    def _by_name(self, name: str, namespace: str) -> _Type:
        if name in _PRIMITIVES:
            return _Type(name)
        found = self._named.get(name) or self._named.get(f"{namespace}.{name}")
        if found is None:
            msg = f"there is no type {name!r}"
            raise BadAvroSchema(msg)
        return found

    def _define(self, kind: str, node: Mapping[str, Any], namespace: str, depth: int) -> _Type:
        name = node.get("name")
        if not isinstance(name, str) or not name:
            msg = f"a type of kind {kind} has no name"
            raise BadAvroSchema(msg)
        if "." not in name:
            name = f"{node.get('namespace', namespace)}.{name}".removeprefix(".")
        made = _Type("record" if kind == "error" else kind, str(node.get("logicalType", "")), _whole(node, "scale"))
        self._named[name] = made
        if kind == "fixed":
            made.size = _whole(node, "size")
        elif kind == "enum":
            made.symbols = tuple(map(str, node.get("symbols", ())))
        else:
            made.fields = tuple(self._field(each, name.rpartition(".")[0], depth) for each in node.get("fields", ()))
        return made

    def _field(self, node: Any, namespace: str, depth: int) -> tuple[str, _Type]:
        if not isinstance(node, dict) or not isinstance(node.get("name"), str) or "type" not in node:
            msg = f"{str(node)[:60]!r} is no field"
            raise BadAvroSchema(msg)
        return node["name"], self.resolved(node["type"], namespace, depth + 1)

    def reader(self, found: _Type) -> Read:
        """How values of a type are read; one that is inside itself is looked up when it is met."""
        if found.kind in _READERS:
            return _READERS[found.kind]
        if id(found) in self._readers:
            return partial(self._read_again, id(found))
        self._readers[id(found)] = partial(self._read_again, id(found))  # until it is made, for what is inside it
        self._readers[id(found)] = made = self._made(found)
        return made

    def _made(self, found: _Type) -> Read:
        if found.kind == "fixed":
            return partial(_read_bytes, found.size)
        if found.kind == "enum":
            return partial(_read_enum, found.symbols)
        if found.kind == "record":
            return partial(_read_record, [(name, self.reader(item)) for name, item in found.fields])
        inner = [self.reader(item) for item in found.items]
        if found.kind == "union":
            return partial(_read_union, inner)
        return partial(_read_blocks, inner[0] if found.kind == "array" else partial(_read_pair, inner[0]))

    def _read_again(self, key: int, data: bytes, at: int) -> tuple[Any, int]:
        return self._readers[key](data, at)


def _whole(node: Mapping[str, Any], name: str) -> int:
    found = node.get(name, 0)
    if type(found) is not int or not 0 <= found <= 1 << 30:
        msg = f"{name} is {found!r}, which is no size"
        raise BadAvroSchema(msg)
    return found


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
        if shift > 63:
            raise BadText(UNPARSABLE, "a number has more than 64 bits")


def _read_bytes(size: int, data: bytes, at: int) -> tuple[bytes, int]:
    if size < 0 or at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _read_sized(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    return _read_bytes(size, data, at)


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    found, at = _read_sized(data, at)
    return found.decode(), at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise BadText(UNPARSABLE, f"{data[at]} is no boolean")
    return data[at] == 1, at + 1


def _read_number(form: struct.Struct, data: bytes, at: int) -> tuple[float, int]:
    return form.unpack_from(data, at)[0], at + form.size


def _read_enum(symbols: tuple[str, ...], data: bytes, at: int) -> tuple[str, int]:
    place, at = _read_long(data, at)
    if not 0 <= place < len(symbols):
        raise BadText(UNPARSABLE, f"symbol {place} is none of {len(symbols)}")
    return symbols[place], at


def _read_record(fields: list[tuple[str, Read]], data: bytes, at: int) -> tuple[dict[str, Any], int]:
    found = {}
    for name, read in fields:
        found[name], at = read(data, at)
    return found, at


def _read_union(branches: list[Read], data: bytes, at: int) -> tuple[Any, int]:
    place, at = _read_long(data, at)
    if not 0 <= place < len(branches):
        raise BadText(UNPARSABLE, f"branch {place} of a union is none of {len(branches)}")
    return branches[place](data, at)


def _read_pair(value: Read, data: bytes, at: int) -> tuple[Any, int]:
    _, at = _read_string(data, at)
    return value(data, at)


def _read_blocks(item: Read, data: bytes, at: int) -> tuple[list[Any], int]:
    """Arrays and maps come in blocks, the last of which has no items."""
    found: list[Any] = []
    while True:
        count, at = _read_long(data, at)
        if count == 0:
            return found, at
        if count < 0:
            count, (_, at) = -count, _read_long(data, at)
        if len(found) + count > _ITEMS_MAX:
            raise BadText(OVERFLOW, f"an array has more than {_ITEMS_MAX} items")
        for _ in range(count):
            value, at = item(data, at)
            found.append(value)


_READERS: Mapping[str, Read] = {
    "null": lambda _, at: (None, at),
    "boolean": _read_boolean,
    "int": _read_long,
    "long": _read_long,
    "float": partial(_read_number, struct.Struct("<f")),
    "double": partial(_read_number, struct.Struct("<d")),
    "bytes": _read_sized,
    "string": _read_string,
}
_PRIMITIVES = frozenset(_READERS)


def _converter(field: Field, known: Mapping[str, _Type]) -> Convert:
    """How the value of a field becomes one of the window's type; refuses types that do not fit before any is read."""
    if field.name not in known:
        msg = f"its record has no field {field.name!r}"
        raise BadAvroSchema(msg)
    found = known[field.name]
    branches = [branch for branch in found.items if branch.kind != "null"] if found.kind == "union" else [found]
    converters = {_convert_of(field, branch) for branch in branches}
    if len(converters) != 1:
        msg = f"field {field.name!r} may be of several types, which have no type in common"
        raise BadAvroSchema(msg)
    return converters.pop()


def _convert_of(field: Field, found: _Type) -> Convert:
    kind, made = field.type, None
    if kind in (FieldType.DATE, FieldType.STAMP):
        made = _time_of(kind, found)
    elif kind is FieldType.MONEY and found.logical == "decimal":
        made = _Amount(found.scale)
    elif kind in (FieldType.INT32, FieldType.INT64) and found.kind in (*_INTEGERS, "boolean"):
        made = _CHECKED[kind]
    elif kind is FieldType.DOUBLE and found.kind in (*_INTEGERS, "float", "double"):
        made = float
    elif kind.element is not None and found.kind == "array":
        made = _array_of(kind.element, found.items[0])
    elif (kind, found.kind) in _SAME:
        made = _as_it_is
    if made is None:
        msg = f"field {field.name!r} is of type {found.kind}, which is no {kind.value}"
        raise BadAvroSchema(msg)
    return made


def _as_it_is(found: Any) -> Value:
    value: Value = found
    return value


_SAME = {
    (FieldType.STRING, "string"),
    (FieldType.STRING, "enum"),
    (FieldType.BLOB, "bytes"),
    (FieldType.BLOB, "fixed"),
}
_CHECKED: Mapping[FieldType, Convert] = {
    kind: lambda found, kind=kind: check_range(kind, int(found))  # type: ignore[misc]
    for kind in (FieldType.INT32, FieldType.INT64, FieldType.DATE, FieldType.STAMP)
}


@dataclass(frozen=True, slots=True)
class _Amount:
    """Money out of a decimal: a whole number with so many digits after the point."""

    scale: int

    def __call__(self, found: bytes) -> Value:
        if len(found) > 64:
            raise BadText(OVERFLOW, f"a decimal of {len(found)} bytes does not fit money")
        return parse_money(format(Decimal(int.from_bytes(found, "big", signed=True)).scaleb(-self.scale), "f"))


@dataclass(frozen=True, slots=True)
class _Time:
    """A date or a stamp out of a whole number."""

    kind: FieldType
    times: int
    by: int

    def __call__(self, found: int) -> Value:
        return check_range(self.kind, found * self.times // self.by)


def _time_of(kind: FieldType, found: _Type) -> Convert | None:
    """Seconds or microseconds since 1970; a number without a logical type is taken as that."""
    if found.kind not in _INTEGERS:
        return None
    is_date = kind is FieldType.DATE
    if found.logical == "date":
        return _Time(kind, _DAY_S if is_date else _DAY_S * _SECOND_US, 1)
    if found.logical in _STAMPS_US:
        times, by = _STAMPS_US[found.logical]
        return _Time(kind, times, by * (_SECOND_US if is_date else 1))
    return _CHECKED[kind]


@dataclass(frozen=True, slots=True)
class _Array:
    """An array of numbers."""

    item: Convert

    def __call__(self, found: list[Any]) -> Value:
        return tuple([None if each is None else self.item(each) for each in found])  # type: ignore[misc]


def _array_of(element: FieldType, found: _Type) -> Convert:
    return _Array(_converter(Field("items", element), {"items": found}))
