"""CSV lines by columns: the fast way, with the same meaning as line by line.

Arrow reads most lines exactly as the rows do; what it refuses, or might read in another way, is left to the rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lockstep.engine.events.columns import Bytes, EventBatch
from lockstep.engine.events.csv_options import CsvOptions
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BLANK, BadText, Parse, parse_flags, parse_opcode, parser
from lockstep.engine.events.types import FieldType

_DIRECT = frozenset({FieldType.INT32, FieldType.INT64, FieldType.DOUBLE, FieldType.STRING})
_TIMES = frozenset({FieldType.DATE, FieldType.STAMP})
_CODES = pa.dictionary(pa.int32(), pa.string())
_BOM = b"\xef\xbb\xbf"


class ColumnReader:
    """Batches out of pieces of a file; a piece is whole records."""

    def __init__(self, schema: Schema, options: CsvOptions) -> None:
        self.schema, self.options = schema, options
        self.fields = [field for field in schema if not (options.no_autogen_field and field.key)]
        self.leading = [name for name, added in (("#o", options.add_opcode), ("#f", options.add_flags)) if not added]
        self.names = [*self.leading, *(field.name for field in self.fields)]
        types = {field.name: self._arrow(field.type) for field in self.fields} | dict.fromkeys(self.leading, _CODES)
        self.ends = np.zeros(256, np.bool_)
        self.ends[list(options.delimiter.encode() + b"\r\n")] = True
        self.parsing = pacsv.ParseOptions(delimiter=options.delimiter, newlines_in_values=True)
        self.converting = pacsv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )

    def _is_direct(self, kind: FieldType) -> bool:
        return kind in _DIRECT or (kind in _TIMES and self.options.date_format is None)

    def _arrow(self, kind: FieldType) -> pa.DataType:
        return kind.arrow if self._is_direct(kind) else pa.string()

    def _has_blanks(self, piece: bytes) -> bool:
        """Whether a field may begin or end with a blank; without a pattern, which takes longer than Arrow's reading."""
        data = np.frombuffer(piece, np.uint8)
        at = np.flatnonzero((data == ord(" ")) | (data == ord("\t")))
        if not len(at):
            return False
        at_an_edge = at[0] == 0 or at[-1] == len(data) - 1
        return bool(at_an_edge or self.ends[data[at - 1]].any() or self.ends[data[at + 1]].any())

    def read(self, piece: bytes) -> EventBatch | None:
        """The events of a piece; None if the rows must have a look."""
        has_blanks = self._has_blanks(piece)
        if _is_unusual(piece) or (has_blanks and b'"' in piece):  # blanks inside quotes are kept, others are not
            return None
        reading = pacsv.ReadOptions(column_names=self.names, use_threads=False, block_size=len(piece) + 1)
        try:
            table = pacsv.read_csv(
                pa.BufferReader(piece),
                read_options=reading,
                parse_options=self.parsing,
                convert_options=self.converting,
            )
            return self._batch(_trimmed(table) if has_blanks else table)
        except (pa.ArrowInvalid, BadText):
            return None

    def _batch(self, table: pa.Table) -> EventBatch | None:
        length = table.num_rows
        columns = {name: _one(table.column(name)) for name in self.names}
        if any(field.type is FieldType.DOUBLE and not _is_finite(columns[field.name]) for field in self.fields):
            return None
        opcode, flags = self._codes(columns, length)
        made = tuple(
            self._value(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(length, field.type.arrow)
            for field in self.schema
        )
        return EventBatch(self.schema, np.zeros(length, np.int64), opcode, flags, made)

    def _codes(self, columns: dict[str, pa.Array], length: int) -> tuple[Bytes, Bytes]:
        opcode, flags = np.full(length, Opcode.INSERT, np.uint8), np.full(length, Flag.NORMAL, np.uint8)
        if "#o" in columns:
            opcode = _lookup(columns["#o"], parse_opcode)
        if "#f" in columns:
            flags = _lookup(columns["#f"], parse_flags)
        if self.options.upsert:
            opcode = np.where(opcode == Opcode.INSERT, np.uint8(Opcode.UPSERT), opcode)
        return opcode, flags

    def _value(self, column: pa.Array, kind: FieldType) -> pa.Array:
        if self._is_direct(kind):
            return column
        return by_distinct(column, parser(kind, self.options.date_format), kind.arrow)


def by_distinct(column: pa.Array, convert: Parse, arrow: pa.DataType) -> pa.Array:
    """A column of strings converted, each distinct one once."""
    coded = column.dictionary_encode()
    values = pa.array([convert(text) for text in coded.dictionary.to_pylist()], arrow)
    return values.take(coded.indices)


def _lookup(column: pa.Array, parse: Callable[[str], int]) -> Bytes:
    """The codes of a column of letters, of which there are only a few different ones."""
    known, indices = column.dictionary.to_pylist(), column.indices
    if column.null_count:
        known, indices = [*known, ""], indices.fill_null(len(known))
    table = np.array([parse(text) for text in known] or [0], np.uint8)
    codes: Bytes = table[indices.to_numpy(zero_copy_only=False)]
    return codes


def _trimmed(table: pa.Table) -> pa.Table:
    """Texts without the blanks around them; one that is nothing else is null."""
    for place, field in enumerate(table.schema):
        if field.type == pa.string():
            column = pc.utf8_trim(table.column(place), BLANK)
            table = table.set_column(place, field, pc.if_else(pc.equal(column, ""), None, column))
    return table


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _is_finite(column: pa.Array) -> bool:
    """Arrow makes infinity of what is too large, and nan of nan(x); the rows tell them apart."""
    return bool(pc.all(pc.is_finite(column), min_count=0).as_py())


def _is_unusual(piece: bytes) -> bool:
    """Has what Arrow takes for more than it is: hexadecimal numbers, lone returns, a byte order mark."""
    lone_return = b"\r" in piece and piece.count(b"\r") != piece.count(b"\r\n")
    return lone_return or b"0x" in piece or b"0X" in piece or piece.startswith(_BOM)
