"""Events as JSON objects: one by one, and by columns with the same meaning."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from lockstep.engine.events.columns import Bytes, EventBatch
from lockstep.engine.events.csv_reader import BadLine, by_distinct, shorten
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import INT_RANGE, Field, FieldType, Schema, Value
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

_NOT_FINITE = ("nan", "inf", "-inf")
_DEEPEST = 200
"""Objects of other programs that are nested deeper are refused: the limit must not depend on an engine's stack."""
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
    """Events from JSON objects of other programs: fields that the schema does not name are left out.

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


_BLANK = b" \t\n\r"
_BOM = b"\xef\xbb\xbf"
_BYTES_MAX = 1 << 30
_FIRST = 256
"""So many objects at most are read with whatever names they have; more of them may have only the names of these."""
_CELLS_MAX = 1 << 24
"""Arrow keeps a cell of each name for each object, also where all names are different, as in maps."""
_TABLE_BYTES_MAX = 1 << 28
_DEEPEST_COLUMN = 128
"""Objects with more brackets than that may be nested deeper than Arrow should follow."""
_NO_NUMBER = re.compile(rb"[:\[,][ \t\r]*-?(?:NaN|Inf)")
"""What Arrow takes for a number; it may also be in a text."""
_HIDDEN_LETTER = re.compile(rb"\\u00[467]")
"""An escape under which a letter of a name may be hidden."""


class ObjectColumns:
    """Batches from JSON objects of other programs: fields that the schema does not name are left out."""

    def __init__(self, schema: Schema, date_format: str | None, opcode: Opcode) -> None:
        self._schema, self._date_format, self._opcode = schema, date_format, opcode
        self._own = own_names(schema)
        columns = {name: pa.string() for name in self._own} | {field.name: self._arrow(field) for field in schema}
        # Unknown fields are read too: only so does Arrow see that one of them occurs twice.
        self._parsing = pajson.ParseOptions(pa.schema(list(columns.items())), unexpected_field_behavior="infer")
        self._is_fit = not any(field.type is FieldType.MONEY for field in schema)

    def read(self, values: Sequence[bytes]) -> EventBatch | None:
        """The events of so many values; None if they must be read one by one."""
        piece = _lines(values) if self._is_fit else None
        if piece is None:
            return None
        try:
            table = self._table(piece, len(values))
            return self._batch(table, piece) if table is not None and table.num_rows == len(values) else None
        except (pa.ArrowException, BadText):  # whatever it is: one by one they are read, or refused with a reason
            return None

    def _table(self, piece: bytes, count: int) -> pa.Table | None:
        """All that Arrow reads, of no more names than it can keep for each object; None if there may be more."""
        if count <= _FIRST:
            return _read(piece, self._parsing) if count * piece.count(b":") <= _CELLS_MAX else None
        lines = piece.split(b"\n", _FIRST)
        first = self._table(b"\n".join(lines[:_FIRST]) + b"\n", _FIRST)
        if first is None or first.nbytes * count > _TABLE_BYTES_MAX * _FIRST:
            return None
        return _read(piece, pajson.ParseOptions(first.schema, unexpected_field_behavior="error"))

    def _arrow(self, field: Field) -> pa.DataType:
        is_text = field.type is FieldType.BLOB or (field.type.is_time and self._date_format is not None)
        return pa.string() if is_text else field.type.arrow

    def _batch(self, table: pa.Table, piece: bytes) -> EventBatch | None:
        found = {name: table.column(name).combine_chunks() for name in (*self._own, *self._schema.names)}
        for name in self._own:
            if not _is_told_apart(found[name], name.encode(), piece):
                return None
        if not all(_is_exact(found[field.name]) for field in self._schema):
            return None
        opcode, flags = self._own
        return EventBatch(
            self._schema,
            np.zeros(table.num_rows, np.int64),
            _codes(found[opcode], parse_opcode, self._opcode),
            _codes(found[flags], parse_flags, Flag.NORMAL),
            tuple(self._value(found[field.name], field) for field in self._schema),
        )

    def _value(self, column: pa.Array, field: Field) -> pa.Array:
        if self._arrow(field) == field.type.arrow:
            return column
        return by_distinct(column, parser(field.type, self._date_format), field.type.arrow)


def _read(piece: bytes, parsing: pajson.ParseOptions) -> pa.Table:
    reading = pajson.ReadOptions(use_threads=False, block_size=len(piece) + 1)
    return pajson.read_json(pa.BufferReader(piece), read_options=reading, parse_options=parsing)


def _lines(values: Sequence[bytes]) -> bytes | None:
    """The objects, each a line; None if it is not sure that each of them is one object.

    Where a line ends with a bracket and the next one begins with one, a reader that goes on is between two objects: it
    can't be inside a text, which has no line end. So as many objects as lines are one in each.
    """
    lines = [value.strip(_BLANK) for value in values]
    piece = b"\n".join(lines)
    if piece.count(b"\n") != len(lines) - 1:  # a return between two names means as much, and in a text as little
        lines = [line.replace(b"\n", b"\r") for line in lines]
        piece = b"\n".join(lines)
    is_each_one = piece.startswith(b"{") and piece.endswith(b"}") and piece.count(b"}\n{") == len(lines) - 1
    if not is_each_one or b"\0" in piece or _BOM in piece or len(piece) > _BYTES_MAX or _may_be_deep(piece, lines):
        return None
    if (b"NaN" in piece or b"Inf" in piece) and _NO_NUMBER.search(piece):
        return None
    try:
        piece.decode()
    except UnicodeDecodeError:
        return None
    return piece + b"\n"


def _may_be_deep(piece: bytes, lines: Sequence[bytes]) -> bool:
    def brackets(text: bytes) -> int:
        return text.count(b"{") + text.count(b"[")

    return brackets(piece) - len(lines) > _DEEPEST_COLUMN and max(map(brackets, lines)) > _DEEPEST_COLUMN


def _is_told_apart(column: pa.Array, name: bytes, piece: bytes) -> bool:
    """Whether an opcode that is not there is so because nobody wrote it: one that is null is refused."""
    written = len(column) - column.null_count
    if written == len(column):
        return True
    return piece.count(b'"%b"' % name) == written and _HIDDEN_LETTER.search(piece) is None


def _is_exact(column: pa.Array) -> bool:
    """Whether no double is infinite, which stands for one that is too large, or -0.0, which may be written as -0."""
    values = column.flatten() if pa.types.is_list(column.type) else column
    if not pa.types.is_floating(values.type):
        return True
    found = values.drop_null().to_numpy()
    return bool(np.isfinite(found).all() and not np.signbit(found[found == 0]).any())


def _codes(column: pa.Array, parse: Callable[[str], int], usual: int) -> Bytes:
    """The codes of a column of words; `usual` where there is none."""
    if column.null_count == len(column):
        return np.full(len(column), usual, np.uint8)
    coded = column.dictionary_encode()
    table = np.array([*(parse(word) for word in coded.dictionary.to_pylist()), usual], np.uint8)
    codes: Bytes = table[coded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]
    return codes
