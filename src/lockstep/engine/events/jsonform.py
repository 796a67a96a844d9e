"""Events as JSON objects: {"opcode":"insert","flags":"N","ID":17,"symbol":"IBM","price":101.5}.

Opcode and flags may be missing in input: an insert, normal. Numbers stay exact: an int64 has all its digits, money is
a decimal number. JSON has no nan and no infinity: they are the strings "nan", "inf" and "-inf". A blob is base64, an
array is an array, a missing field is null. If a field of the window is itself called opcode or flags, the two have an @
in front. Unknown fields, and fields that occur twice, are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from typing import Any, BinaryIO

from lockstep.engine.events.csv_rows import BadLine, shorten
from lockstep.engine.events.event import Event, Flag, Opcode
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
_DEEPEST = 200
"""Deeper objects of somebody else are refused: else the stack would decide, and engines have different ones."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


class _Decimal:
    """A number with a point or an exponent, as it was written. Made for each of them: a plain class is made fastest."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def parse_event(text: str, schema: Schema, date_format: str | None = None) -> Event:
    """The event of one JSON object; raises BadText."""
    return event_of(_load(text), schema, date_format)


class ObjectReader:
    """Events out of JSON objects of somebody else: fields of theirs that the schema does not name are left out.

    `opcode` is what an object is that does not say so itself.
    """

    def __init__(self, schema: Schema, date_format: str | None, opcode: Opcode) -> None:
        self._opcode_name, self._flags_name = own_names(schema)
        self._opcode = opcode
        self._fields = [(field.name, value_reader(field.type, date_format)) for field in schema]

    def event(self, data: bytes) -> Event:
        """The event of one object; raises BadText."""
        text = _decode(data)
        if text.count("[") + text.count("{") > _DEEPEST and _depth(text) > _DEEPEST:
            raise BadText(UNPARSABLE, f"nested deeper than {_DEEPEST}")
        found = _load(text)
        if not isinstance(found, dict):
            raise BadText(UNPARSABLE, "an event is an object")
        opcode, flags = self._opcode, Flag.NORMAL
        if self._opcode_name in found:
            opcode = parse_opcode(_word(found[self._opcode_name]))
        if self._flags_name in found:
            flags = parse_flags(_word(found[self._flags_name]))
        return Event(opcode, flags, tuple([self._value(name, read, found.get(name)) for name, read in self._fields]))

    def _value(self, name: str, read: Callable[[Any], Value], found: Any) -> Value:
        try:
            return None if found is None else read(found)
        except BadText as fault:
            raise BadText(fault.reason, f"field {name}: {fault.detail}") from None


def _word(found: Any) -> str:
    if not isinstance(found, str):
        raise BadText(WRONG_TYPE, "opcode and flags are strings")
    return found


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
        return _decoder().decode(text)
    except (json.JSONDecodeError, RecursionError) as fault:
        raise BadText(UNPARSABLE, f"not JSON: {fault}") from None


@cache
def _decoder() -> json.JSONDecoder:
    """Made once: json.loads would make one for each text."""
    return json.JSONDecoder(parse_float=_Decimal, parse_int=_integer, parse_constant=_refuse, object_pairs_hook=_unique)


def _depth(text: str) -> int:
    """How deep brackets are nested, but for those in texts."""
    deepest = depth = 0
    for found in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        deepest = max(deepest, depth)
    return deepest


def _integer(text: str) -> int | _Decimal:
    """Whole numbers; a longer one than any field holds stays text, as reading it could take long."""
    return int(text) if len(text) < 400 else _Decimal(text)


def _refuse(word: str) -> None:
    raise BadText(UNPARSABLE, f"{word} is not JSON; write it as a string")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise BadText(UNPARSABLE, f"field {twice!r} occurs twice")
    return found


def own_names(schema: Schema) -> tuple[str, str]:
    """What opcode and flags are called."""
    mark = "@" if "opcode" in schema or "flags" in schema else ""
    return f"{mark}opcode", f"{mark}flags"


def event_of(item: Any, schema: Schema, date_format: str | None = None) -> Event:
    """The event of an object that was loaded."""
    if not isinstance(item, dict):
        raise BadText(UNPARSABLE, "an event is an object")
    opcode_name, flags_name = own_names(schema)
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
    return value_reader(kind, date_format)(found)


@lru_cache(maxsize=256)
def value_reader(kind: FieldType, date_format: str | None) -> Callable[[Any], Value]:
    """How a value of JSON, not null, becomes one of a field; it raises BadText."""
    if kind.is_time and date_format is not None:
        return partial(_time, parser(kind, date_format), value_reader(kind, None))
    if kind is FieldType.DOUBLE:
        return _double
    if kind is FieldType.MONEY:
        return _money
    if kind in INT_RANGE:
        return partial(_whole, kind, *INT_RANGE[kind])
    if kind is FieldType.STRING:
        return _string
    if kind is FieldType.BLOB:
        return _blob
    assert kind.element is not None, "all other types are arrays"
    return partial(_array, kind)


def _time(parse: Callable[[str], Value], plain: Callable[[Any], Value], found: Any) -> Value:
    return parse(found) if isinstance(found, str) else plain(found)


def _whole(kind: FieldType, low: int, high: int, found: Any) -> Value:
    if type(found) is not int:
        raise _wrong(kind, found)
    return found if low <= found <= high else check_range(kind, found)


def _money(found: Any) -> Value:
    if type(found) not in (int, _Decimal):
        raise _wrong(FieldType.MONEY, found)
    return parse_money(found.text if isinstance(found, _Decimal) else str(found))


def _string(found: Any) -> Value:
    if not isinstance(found, str):
        raise _wrong(FieldType.STRING, found)
    return _checked(found)


def _blob(found: Any) -> Value:
    if not isinstance(found, str):
        raise _wrong(FieldType.BLOB, found)
    return parse_blob(found)


def _wrong(kind: FieldType, found: Any) -> BadText:
    return BadText(WRONG_TYPE, f"{_shown(found)} is not of type {kind.value}")


def _double(found: Any) -> float:
    if isinstance(found, str) and found in _NOT_FINITE:
        return float(found)
    if type(found) not in (int, _Decimal):
        raise _wrong(FieldType.DOUBLE, found)
    return parse_double(found.text if isinstance(found, _Decimal) else str(found))


def _array(kind: FieldType, found: Any) -> tuple[int | float | None, ...]:
    if not isinstance(found, list):
        raise _wrong(kind, found)
    assert kind.element is not None, "it is an array"
    read = value_reader(kind.element, None)
    values = tuple(None if item is None else read(item) for item in found)
    return tuple(value for value in values if value is None or isinstance(value, int | float))


def _checked(text: str) -> str:
    """JSON can write halves of a character, which no text can hold."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise BadText(UNPARSABLE, "half of a surrogate pair is no character") from None
    return text


def _shown(found: Any) -> str:
    return shorten(found.text if isinstance(found, _Decimal) else repr(found))


def format_event(event: Event, schema: Schema, date_format: str | None = None) -> str:
    """One event as a JSON object, without a line end; nulls are written."""
    opcode_name, flags_name = own_names(schema)
    head = [f'"{opcode_name}":"{event.opcode.name.lower()}"', f'"{flags_name}":"{event.flags.letters}"']
    return "{" + ",".join([*head, *format_fields(event.values, schema, date_format)]) + "}"


def format_fields(row: Iterable[Value], schema: Schema, date_format: str | None = None) -> list[str]:
    """The fields of a row as members of a JSON object; nulls are written."""
    values = zip(schema, row, strict=True)
    return [f"{json.dumps(field.name)}:{_text(field.type, value, date_format)}" for field, value in values]


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
