"""JSON objects by columns: the fast way, with the same meaning as one by one.

Arrow reads most objects exactly as they are read one by one; what it refuses, might read in another way, or can't tell
apart, is left to that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from lockstep.engine.events.columns import Bytes, EventBatch
from lockstep.engine.events.csv_columns import by_distinct
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.jsonform import own_names
from lockstep.engine.events.schema import Field, Schema
from lockstep.engine.events.text import BadText, parse_flags, parse_opcode, parser
from lockstep.engine.events.types import FieldType

_BLANK = b" \t\n\r"
_BOM = b"\xef\xbb\xbf"
_BYTES_MAX = 1 << 30
_FIRST = 256
"""So many objects at most are read with whatever names they have; more of them may have only the names of these."""
_CELLS_MAX = 1 << 24
"""Arrow keeps a cell of each name for each object, also where all names are different, as in maps."""
_TABLE_BYTES_MAX = 1 << 28
_DEEPEST = 128
"""Objects with more brackets than that may be nested deeper than Arrow should follow."""
_NO_NUMBER = re.compile(rb"[:\[,][ \t\r]*-?(?:NaN|Inf)")
"""What Arrow takes for a number; it may also be in a text."""
_HIDDEN_LETTER = re.compile(rb"\\u00[467]")
"""An escape under which a letter of a name may be hidden."""


class ObjectColumns:
    """Batches out of objects of somebody else, of which fields that the schema does not name are left out."""

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

    return brackets(piece) - len(lines) > _DEEPEST and max(map(brackets, lines)) > _DEEPEST


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
