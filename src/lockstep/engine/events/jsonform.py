"""Events as JSON objects: {"opcode":"insert","flags":"N","ID":17,"symbol":"IBM","price":101.5}.

Opcode and flags may be missing in input: an insert, normal. Numbers stay exact: an int64 has all its digits, money is
a decimal number. JSON has no nan and no infinity: they are the strings "nan", "inf" and "-inf". A blob is base64, an
array is an array, a missing field is null. If a field of the window is itself called opcode or flags, the two have an @
in front. Unknown fields, and fields that occur twice, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from lockstep.engine.events.csv_rows import BadLine, shorten
from lockstep.engine.events.event import Event
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.events.text import (
    UNPARSABLE,
    WRONG_TYPE,
    BadText,
    check_range,
    format_blob,
    format_money,
    formatter,
    parse_blob,
    parse_double,
    parse_flags,
    parse_money,
    parse_opcode,
    parser,
)
from lockstep.engine.events.types import INT_RANGE, FieldType, Value

_NOT_FINITE = ("nan", "inf", "-inf")


@dataclass(frozen=True, slots=True)
class _Decimal:
    """A number with a point or an exponent, as it was written."""

    text: str


def parse_event(text: str, schema: Schema, date_format: str | None = None) -> Event:
    """The event of one JSON object; raises BadText."""
    return event_of(_load(text), schema, date_format)


def parse_object(data: bytes, schema: Schema, date_format: str | None, opcode: str) -> Event:
    """The event of a JSON object of somebody else: fields of its own that the schema does not name are left out.

    `opcode` is what it is if it does not say so itself. Raises BadText.
    """
    found = _load(_decode(data))
    if isinstance(found, dict):
        known = {*schema.names, *_own_names(schema)}
        found = {_own_names(schema)[0]: opcode, **{name: item for name, item in found.items() if name in known}}
    return event_of(found, schema, date_format)


def read_json(
    file: BinaryIO, schema: Schema, on_bad: Callable[[BadLine], None], date_format: str | None = None
) -> Iterator[Event]:
    """The events of a file with an object or an array of objects in each line, or with one array over all lines.

    What is no event goes to `on_bad`; of an array only the objects that are none.
    """
    for line, data in _pieces(file):
        try:
            found = _load(_decode(data))
        except BadText as fault:
            on_bad(BadLine(line, fault.reason, fault.detail, shorten(data)))
            continue
        for item in found if isinstance(found, list) else [found]:
            try:
                yield event_of(item, schema, date_format)
            except BadText as fault:
                on_bad(BadLine(line, fault.reason, fault.detail, shorten(data)))


def _pieces(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank; or the whole file, if it is one array over several lines."""
    for line, data in enumerate(file, 1):
        if line == 1 and data.strip().startswith(b"[") and not data.strip().endswith(b"]"):
            yield 1, data + file.read()
            return
        if data.strip():
            yield line, data


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as fault:
        raise BadText(UNPARSABLE, f"not UTF-8 at byte {fault.start}") from None


def _load(text: str) -> Any:
    try:
        return json.loads(
            text, parse_float=_Decimal, parse_int=_integer, parse_constant=_refuse, object_pairs_hook=_unique
        )
    except (json.JSONDecodeError, RecursionError) as fault:
        raise BadText(UNPARSABLE, f"not JSON: {fault}") from None


def _integer(text: str) -> int | _Decimal:
    """Whole numbers; a longer one than any field holds stays text, as reading it could take long."""
    return int(text) if len(text) < 400 else _Decimal(text)


def _refuse(word: str) -> None:
    raise BadText(UNPARSABLE, f"{word} is not JSON; write it as a string")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadText(UNPARSABLE, f"field {name!r} occurs twice")
        found[name] = value
    return found


def _own_names(schema: Schema) -> tuple[str, str]:
    """What opcode and flags are called."""
    mark = "@" if "opcode" in schema or "flags" in schema else ""
    return f"{mark}opcode", f"{mark}flags"


def event_of(item: Any, schema: Schema, date_format: str | None = None) -> Event:
    """The event of an object that was loaded."""
    if not isinstance(item, dict):
        raise BadText(UNPARSABLE, "an event is an object")
    opcode_name, flags_name = _own_names(schema)
    opcode, flags = item.get(opcode_name, "insert"), item.get(flags_name, "N")
    if not isinstance(opcode, str) or not isinstance(flags, str):
        raise BadText(WRONG_TYPE, "opcode and flags are strings")
    unknown = [name for name in item if name not in schema and name not in (opcode_name, flags_name)]
    if unknown:
        raise BadText(UNPARSABLE, f"there is no field {unknown[0]!r}")
    values = tuple(_named_value(field, item.get(field.name), date_format) for field in schema)
    return Event(parse_opcode(opcode), parse_flags(flags), values)


def _named_value(field: Field, found: Any, date_format: str | None) -> Value:
    try:
        return None if found is None else _value(field.type, found, date_format)
    except BadText as fault:
        raise BadText(fault.reason, f"field {field.name}: {fault.detail}") from None


def _value(kind: FieldType, found: Any, date_format: str | None) -> Value:
    if kind.is_time and date_format is not None and isinstance(found, str):
        return parser(kind, date_format)(found)
    if kind is FieldType.DOUBLE:
        return _double(found)
    if kind is FieldType.MONEY and type(found) in (int, _Decimal):
        return parse_money(found.text if isinstance(found, _Decimal) else str(found))
    if kind in INT_RANGE and type(found) is int:
        return check_range(kind, found)
    if kind is FieldType.STRING and isinstance(found, str):
        return _checked(found)
    if kind is FieldType.BLOB and isinstance(found, str):
        return parse_blob(found)
    if kind.element is not None and isinstance(found, list):
        return _array(kind.element, found)
    raise BadText(WRONG_TYPE, f"{_shown(found)} is not of type {kind.value}")


def _double(found: Any) -> float:
    if isinstance(found, str) and found in _NOT_FINITE:
        return float(found)
    if type(found) not in (int, _Decimal):
        raise BadText(WRONG_TYPE, f"{_shown(found)} is not of type double")
    return parse_double(found.text if isinstance(found, _Decimal) else str(found))


def _array(element: FieldType, found: list[Any]) -> tuple[int | float | None, ...]:
    values = tuple(None if item is None else _value(element, item, None) for item in found)
    return tuple(value for value in values if value is None or isinstance(value, int | float))


def _checked(text: str) -> str:
    """JSON can write halves of a character, which no text can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadText(UNPARSABLE, "half of a surrogate pair is no character") from None
    return text


def _shown(found: Any) -> str:
    return shorten(found.text if isinstance(found, _Decimal) else repr(found))


def format_event(event: Event, schema: Schema, date_format: str | None = None) -> str:
    """One event as a JSON object, without a line end; nulls are written."""
    opcode_name, flags_name = _own_names(schema)
    head = [f'"{opcode_name}":"{event.opcode.name.lower()}"', f'"{flags_name}":"{event.flags.letters}"']
    values = zip(schema, event.values, strict=True)
    fields = [f"{json.dumps(field.name)}:{_text(field.type, value, date_format)}" for field, value in values]
    return "{" + ",".join([*head, *fields]) + "}"


def write_json(events: Iterable[Event], schema: Schema, file: BinaryIO, date_format: str | None = None) -> int:
    """Events as lines of JSON; the number of lines."""
    count = 0
    for count, event in enumerate(events, 1):  # noqa: B007 - the last one is the answer
        file.write(format_event(event, schema, date_format).encode() + b"\n")
    return count


def _text(kind: FieldType, value: Value, date_format: str | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        assert kind.element is not None
        return "[" + ",".join(_text(kind.element, item, None) for item in value) + "]"
    if kind.is_time and date_format is not None:
        return json.dumps(formatter(kind, date_format)(value), ensure_ascii=False)
    if kind is FieldType.MONEY:
        return format_money(value)
    if kind is FieldType.BLOB:
        return f'"{format_blob(value)}"'
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    text = repr(value)
    return f'"{text}"' if text in _NOT_FINITE else text
