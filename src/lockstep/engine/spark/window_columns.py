"""Events of a window as Spark's columns, and rows of a data frame as frames on a source window's stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lockstep.engine.errors import ValueUnfit
from lockstep.engine.events.columns import Bytes, EventBatch, Int64s
from lockstep.engine.events.event import FLAG_LETTERS, Flag, Opcode
from lockstep.engine.events.frames import encode_frame
from lockstep.engine.events.schema import Field, FieldType, Schema
from lockstep.engine.events.text import BadText, parse_flags, parse_opcode
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.sequence.streams import FRAME_BYTES, FRAME_LIMIT
from lockstep.engine.spark.rows_columns import Rows
from lockstep.engine.spark.window_options import WindowWriteOptions, usual_opcode
from lockstep.errors import BadConfig, BadRecord

MONEY = DecimalType(19, 4)
_TYPES: dict[FieldType, DataType] = {
    FieldType.INT32: IntegerType(),
    FieldType.INT64: LongType(),
    FieldType.DOUBLE: DoubleType(),
    FieldType.STRING: StringType(),
    FieldType.DATE: TimestampType(),
    FieldType.STAMP: TimestampType(),
    FieldType.MONEY: MONEY,
    FieldType.BLOB: BinaryType(),
    FieldType.ARRAY_INT32: ArrayType(IntegerType()),
    FieldType.ARRAY_INT64: ArrayType(LongType()),
    FieldType.ARRAY_DOUBLE: ArrayType(DoubleType()),
}
_OWN_TYPES = (LongType(), StringType(), StringType(), TimestampType())
_INTS = ("tinyint", "smallint", "int")
_TIMES = ("timestamp", "timestamp_ntz", "date", "bigint")
_TAKEN: dict[FieldType, tuple[str, ...]] = {
    FieldType.INT32: _INTS,
    FieldType.INT64: (*_INTS, "bigint"),
    FieldType.DOUBLE: (*_INTS, "float", "double"),
    FieldType.STRING: ("string",),
    FieldType.DATE: _TIMES,
    FieldType.STAMP: _TIMES,
    FieldType.MONEY: ("decimal",),
    FieldType.BLOB: ("binary",),
    FieldType.ARRAY_INT32: tuple(f"array<{kind}>" for kind in _INTS),
    FieldType.ARRAY_INT64: tuple(f"array<{kind}>" for kind in (*_INTS, "bigint")),
    FieldType.ARRAY_DOUBLE: tuple(f"array<{kind}>" for kind in (*_INTS, "float", "double")),
}
"""The types of a data frame's columns that fit a field without loss; a decimal of any size."""
_OPCODE_NAMES = {int(code): code.name.lower() for code in Opcode}
_DATE_UNIT = 1_000_000
"""Microseconds in a second, of which dates have whole ones."""


def own_columns(schema: Schema) -> tuple[str, str, str, str]:
    """What the columns of the event itself are called: with more underscores if a field has one of these names."""
    taken, mark = {name.lower() for name in schema.names}, "_"
    while any(f"{mark}{name}" in taken for name in ("block", "opcode", "flags", "time")):
        mark += "_"
    return f"{mark}block", f"{mark}opcode", f"{mark}flags", f"{mark}time"


def frame_schema(schema: Schema, columns: Sequence[str] | None, *, integers: bool) -> StructType:
    """The columns of a data frame over a window: all of them, or those asked for."""
    kinds: dict[str, DataType] = {
        field.name: LongType() if integers and field.type.is_time else _TYPES[field.type] for field in schema
    }
    kinds |= dict(zip(own_columns(schema), _OWN_TYPES, strict=True))
    for name in columns or ():
        if name not in kinds:
            reason = f"there is no column {name!r}; there are {', '.join(kinds)}"
            raise BadConfig(field="columns", value=",".join(columns or ()), reason=reason)
    return StructType([StructField(name, kinds[name]) for name in columns or kinds])


def checked_schema(asked: StructType, schema: Schema, *, integers: bool) -> pa.Schema:
    """The schema of Arrow for the columns that are asked for, which must be ours."""
    ours = frame_schema(schema, None, integers=integers)
    for field in asked.fields:
        if field.name not in ours.fieldNames() or ours[field.name].dataType != field.dataType:
            have = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in ours.fields)
            reason = f"the window has no such column; it has {have}"
            raise BadConfig(field="schema", value=f"{field.name} {field.dataType.simpleString()}", reason=reason)
    return to_arrow_schema(StructType([StructField(one.name, one.dataType) for one in asked.fields]), timezone="UTC")


def to_arrow(batch: EventBatch, times_ns: Int64s, wanted: pa.Schema, window: str) -> pa.RecordBatch:
    """Events as rows; `times_ns` says for each when the bus took it."""
    block, opcode, flags, time = own_columns(batch.schema)
    own = {
        block: lambda: pa.array(batch.block),
        opcode: lambda: _words(batch.opcode, _OPCODE_NAMES),
        flags: lambda: _words(batch.flags, FLAG_LETTERS),
        time: lambda: pa.array(times_ns // 1_000),
    }
    arrays = [
        own[one.name]().cast(one.type) if one.name in own else _shown(batch, batch.schema[one.name], one.type, window)
        for one in wanted
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _words(codes: Bytes, names: dict[int, str]) -> pa.Array:
    words = pa.array([names.get(code, "") for code in range(max(names) + 1)])
    return words.take(pa.array(codes))


def _shown(batch: EventBatch, field: Field, kind: pa.DataType, window: str) -> pa.Array:
    """A column as Spark has it."""
    column = batch.column(field.name)
    try:
        if pa.types.is_timestamp(kind) and field.type is FieldType.DATE:
            return pc.multiply_checked(column, _DATE_UNIT).cast(kind)
        if pa.types.is_decimal(kind):
            return _rescaled(column.cast(pa.decimal128(19, 0)), kind)
        return column.cast(kind)
    except pa.ArrowInvalid as fault:
        raise ValueUnfit(window=window, field=field.name, kind=str(kind), reason=_first_line(fault)) from fault


def _rescaled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same digits with the point elsewhere."""
    return pa.Array.from_buffers(kind, len(column), column.buffers(), column.null_count, column.offset)


@dataclass(frozen=True, slots=True)
class EventForm:
    """How the rows of a data frame become events of a window."""

    schema: Schema
    columns: tuple[tuple[str, str], ...]
    """For each field or own column that is there its name, and that of the frame's column."""
    usual: Opcode
    """The opcode of rows that say none."""

    @classmethod
    def of(cls, frame: StructType, schema: Schema, usual: Opcode, *, makes_keys: bool = False) -> EventForm:
        """Refuse rows that the window can't take; names of columns have no case, as in Spark."""
        _, opcode, flags, _ = own_columns(schema)
        taken = {field.name: _TAKEN[field.type] for field in schema} | dict.fromkeys((opcode, flags), ("string",))
        found = tuple((_meant(column.name, list(taken)), column.name) for column in frame.fields)
        for (name, _), column in zip(found, frame.fields, strict=True):
            _check_type(column, name, taken, schema)
        names = [name for name, _ in found]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise BadConfig(field="schema", value=double, reason="two columns are this field; drop one")
        missing = [field.name for field in schema if field.key and field.name not in names and not makes_keys]
        if missing:
            raise BadConfig(field="schema", value=frame.simpleString(), reason=f"it has no key {missing[0]!r}")
        return cls(schema, found, usual)

    def events(self, rows: pa.RecordBatch, block: int, stream: str) -> EventBatch:
        """Rows as blocks of so many events, numbered from 1 on; a column that is not there is null."""
        places = dict(self.columns)
        _, opcode, flags, _ = own_columns(self.schema)
        columns = tuple(
            self._field(rows.column(places[field.name]), field, stream)
            if field.name in places
            else pa.nulls(rows.num_rows, field.type.arrow)
            for field in self.schema
        )
        return EventBatch(
            self.schema,
            np.arange(rows.num_rows, dtype=np.int64) // block + 1,
            self._codes(rows, places.get(opcode), _opcode, int(self.usual), stream),
            self._codes(rows, places.get(flags), parse_flags, int(Flag.NORMAL), stream),
            columns,
        )

    def _field(self, column: pa.Array, field: Field, stream: str) -> pa.Array:
        try:
            return _taken(column, field.type)
        except pa.ArrowInvalid as fault:
            raise BadRecord(stream=stream, reason=f"field {field.name}: {_first_line(fault)}") from fault

    def _codes(self, rows: pa.RecordBatch, name: str | None, parse: object, usual: int, stream: str) -> Bytes:
        if name is None:
            return np.full(rows.num_rows, usual, np.uint8)
        found = rows.column(name).cast(pa.string()).dictionary_encode()
        try:
            codes = np.array([int(parse(word)) for word in found.dictionary.to_pylist()] + [usual], np.uint8)  # type: ignore[operator]
        except BadText as fault:
            raise BadRecord(stream=stream, reason=fault.detail) from None
        places = found.indices.fill_null(len(codes) - 1).to_numpy(zero_copy_only=False)
        chosen: Bytes = codes[places]
        return chosen


def _check_type(column: StructField, name: str, taken: dict[str, tuple[str, ...]], schema: Schema) -> None:
    kind = column.dataType.simpleString()
    if name in taken and (kind in taken[name] or (kind.startswith("decimal") and "decimal" in taken[name])):
        return
    own = own_columns(schema)
    if name in (own[0], own[3]):
        reason = "the engine numbers blocks and the bus knows the time: drop this column"
    elif name not in taken:
        reason = f"the window has no such field; it has {', '.join(taken)}"
    else:
        reason = f"it would lose something; cast it to {' or '.join(taken[name])}"
    raise BadConfig(field="schema", value=f"{column.name} {kind}", reason=reason)


def _meant(name: str, known: list[str]) -> str:
    """The field that a column is: that of the same name, or the only one that differs by case."""
    alike = [one for one in known if one.lower() == name.lower()]
    return alike[0] if name not in known and len(alike) == 1 else name


def _taken(column: pa.Array, kind: FieldType) -> pa.Array:
    """A column as events hold it; ArrowInvalid if a value is not exactly one."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        micros = column.cast(pa.timestamp("us", getattr(column.type, "tz", None))).cast(pa.int64())
        return _seconds(micros) if kind is FieldType.DATE else micros
    if pa.types.is_decimal(column.type):
        exact = column.cast(pa.decimal128(38, 4))
        return _rescaled(exact, pa.decimal128(38, 0)).cast(pa.int64())
    return column.cast(kind.arrow)


def _seconds(micros: pa.Array) -> pa.Array:
    whole = pc.divide(micros, _DATE_UNIT)
    if not pc.all(pc.equal(pc.multiply(whole, _DATE_UNIT), micros)).as_py() and micros.null_count < len(micros):
        message = "a date has whole seconds, and a time stamp has a fraction; use date_trunc('second', ...)"
        raise pa.ArrowInvalid(message)
    return whole


def _opcode(text: str) -> Opcode:
    found = parse_opcode(text)
    if found is Opcode.UPDATE_BLOCK:
        msg = "bad-opcode"
        raise BadText(msg, "update_block is made by windows: read with option collapse=true, or send upserts")
    return found


def _first_line(fault: Exception) -> str:
    return str(fault).splitlines()[0].rstrip(".")


_FRAME_EVENTS = 4_096


@dataclass(frozen=True, slots=True)
class FrameForm:
    """How rows become records of an input: blocks of `block` events, in frames of a good size."""

    events: EventForm
    block: int

    @classmethod
    def of(cls, frame: StructType, node: Node, options: WindowWriteOptions) -> FrameForm:
        """For the rows of a data frame; BadConfig if the window can't take them."""
        window = node.window
        makes_keys = isinstance(window, SourceWindow) and window.autogen_key
        usual = options.opcode or usual_opcode(node)
        return cls(EventForm.of(frame, node.schema, usual, makes_keys=makes_keys), options.block)

    def __call__(self, batch: pa.RecordBatch, stream: str, now_ns: int) -> Iterator[Rows]:
        """The records of an Arrow batch."""
        events = self.events.events(batch, self.block, stream)
        if not len(events):
            return
        blocks = max(1, self._events_in_frame(events) // self.block)
        cuts = [*range(0, len(events), blocks * self.block), len(events)]
        frames = [
            frame for at in range(len(cuts) - 1) for frame in self._frames(events, cuts[at], cuts[at + 1], stream)
        ]
        yield Rows(frames, [None] * len(frames), [()] * len(frames), [now_ns] * len(frames))

    def _events_in_frame(self, events: EventBatch) -> int:
        size: int = sum(column.nbytes for column in events.columns if column is not None)
        return min(_FRAME_EVENTS, max(1, FRAME_BYTES * len(events) // max(1, size)))

    def _frames(self, events: EventBatch, start: int, stop: int, stream: str) -> Iterator[bytes]:
        """Whole blocks as a frame, or as several if values are that large."""
        piece = events.slice(start, stop)
        blocks = int(piece.block[-1] - piece.block[0]) + 1
        if sum(column.nbytes for column in piece.columns if column is not None) <= FRAME_LIMIT:
            yield encode_frame(piece, first_id=1)
        elif blocks == 1:
            raise BadRecord(stream=stream, reason=f"a block of {stop - start} rows is above {FRAME_LIMIT} bytes")
        else:
            middle = int(np.searchsorted(events.block, piece.block[0] + blocks // 2))
            yield from self._frames(events, start, middle, stream)
            yield from self._frames(events, middle, stop, stream)
