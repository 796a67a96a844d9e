"""Records of any stream as events: one record is one event, as it is or as its value says.

As it is, a row has some of these fields: `shard`, `offset`, `key`, `value` and `time` (when it was made). If the value
is decoded, the fields are the value's, but for `record_shard`, `record_offset`, `record_key` and `record_time`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from lockstep.engine.events.avro_format import AvroForm
from lockstep.engine.events.columns import Bytes, EventBatch, Int64s
from lockstep.engine.events.csv_reader import ColumnReader, CsvOptions, RowReader
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.json_format import ObjectColumns, ObjectReader
from lockstep.engine.events.schema import Field, FieldType, Schema
from lockstep.engine.events.text import UNPARSABLE, BadText

JSON, CSV, AVRO = "json", "csv", "avro"
DECODERS = (JSON, CSV, AVRO)
PREFIX = "record_"
TYPES = {
    "shard": (FieldType.INT32, FieldType.INT64),
    "offset": (FieldType.INT64,),
    "key": (FieldType.STRING, FieldType.BLOB),
    "value": (FieldType.STRING, FieldType.BLOB),
    "time": (FieldType.STAMP, FieldType.DATE),
}
"""What a record has, and the types that it may be given."""
_FEW, _LEAST, _PARTS = 48, 64, 8
"""So few values are read one by one at once; a part has so many, or is one of so many parts."""
_ROWS_AT_ONCE, _COLUMNS_AT_ONCE = 4096, 16384
_NS = {FieldType.STAMP: 1_000, FieldType.DATE: 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Records:
    """Records after each other, column by column."""

    shard: Int64s
    offset: Int64s
    key: Sequence[bytes | None]
    value: Sequence[bytes]
    created_ns: Sequence[int]

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that is no event of its window: the how manieth, and why."""

    at: int
    reason: str
    detail: str


@dataclass(slots=True)
class _Made:
    """Columns of the value's fields, a row for each record, and the records that have none."""

    opcode: Bytes
    flags: Bytes
    columns: dict[str, pa.Array]
    bad: list[BadRecord]


_Parse = Callable[[bytes], Event | None]
_ReadAtOnce = Callable[[Sequence[bytes]], EventBatch | None]


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How values are decoded; see SourceWindow."""

    decode: str | None = None
    avro_schema: str | None = None
    date_format: str | None = None
    upsert: bool = False


class RecordForm:
    """Makes events of records."""

    def __init__(self, schema: Schema, options: RecordOptions) -> None:
        self._schema, self._opcode = schema, Opcode.UPSERT if options.upsert else Opcode.INSERT
        self._own = {name: part for name in schema.names if (part := part_of(name, options.decode)) is not None}
        rest = Schema(tuple(field for field in schema if field.name not in self._own))
        self._decode: Callable[[Sequence[bytes]], _Made] | None = None
        if options.decode is not None:
            self._decode = _decoder(options, rest, self._opcode)

    def events(
        self, records: Records, numbers: Int64s, wanted: frozenset[str] | None
    ) -> tuple[EventBatch, list[BadRecord]]:
        """The events with the block numbers given, without unneeded columns, and the records that are not events."""
        made = self._plain(len(records)) if self._decode is None else self._decode(records.value)
        for name, part in self._own.items():
            made.columns[name] = self._part(self._schema[name], part, records, made.bad)
        bad = {each.at: each for each in reversed(made.bad)}
        columns = tuple(made.columns[name] if wanted is None or name in wanted else None for name in self._schema.names)
        batch = EventBatch(self._schema, numbers, made.opcode, made.flags, columns)
        if bad:
            batch = batch.take(np.delete(np.arange(len(records), dtype=np.intp), sorted(bad)))
        return batch, [bad[at] for at in sorted(bad)]

    def _plain(self, count: int) -> _Made:
        return _Made(np.full(count, self._opcode, np.uint8), np.full(count, Flag.NORMAL, np.uint8), {}, [])

    def _part(self, field: Field, part: str, records: Records, bad: list[BadRecord]) -> pa.Array:
        kind = field.type
        if part in ("key", "value"):
            return _texts(field, records.key if part == "key" else records.value, bad)
        if part == "time":
            return pa.array(np.asarray(records.created_ns, np.int64) // _NS[kind])
        return pa.array(records.shard if part == "shard" else records.offset).cast(kind.arrow)


def part_of(name: str, decode: str | None) -> str | None:
    """Which part of a record a field is; None if it comes from the value."""
    if decode is None:
        return name if name in TYPES else None
    part = name.removeprefix(PREFIX)
    return part if name != part and part in TYPES and part != "value" else None


def _texts(field: Field, found: Sequence[bytes | None], bad: list[BadRecord]) -> pa.Array:
    """Keys or values as bytes or as text; what is not UTF-8 is a bad record."""
    if field.type is FieldType.BLOB:
        return pa.array(found, pa.binary())
    try:
        return pa.array(found, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        texts = [_text(at, field, data, bad) for at, data in enumerate(found)]
        return pa.array(texts, pa.string())


def _text(at: int, field: Field, data: bytes | None, bad: list[BadRecord]) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as fault:
        bad.append(BadRecord(at, UNPARSABLE, f"field {field.name}: not UTF-8 at byte {fault.start}"))
        return None


def _decoder(options: RecordOptions, schema: Schema, opcode: Opcode) -> Callable[[Sequence[bytes]], _Made]:
    if options.decode == CSV:
        csv = CsvOptions(add_opcode=True, add_flags=True, upsert=options.upsert, date_format=options.date_format)
        at_once = partial(_csv_at_once, ColumnReader(schema, csv))
        return partial(_by_columns, schema, at_once, partial(_csv_line, RowReader(schema, csv)))
    if options.decode == AVRO:
        form = AvroForm(options.avro_schema or "", schema)
        return partial(_by_rows, schema, lambda data: Event(opcode, Flag.NORMAL, form.values(data)))
    columns, rows = (
        ObjectColumns(schema, options.date_format, opcode),
        ObjectReader(schema, options.date_format, opcode),
    )
    return partial(_by_columns, schema, columns.read, rows.event)


def _by_rows(schema: Schema, parse: _Parse, values: Sequence[bytes]) -> _Made:
    """One value after the other; some thousands at a time, so that few objects are alive at once."""
    starts = range(0, max(len(values), 1), _ROWS_AT_ONCE)
    return _joined(schema, [_few_rows(schema, parse, values[at : at + _ROWS_AT_ONCE], at) for at in starts])


def _few_rows(schema: Schema, parse: _Parse, values: Sequence[bytes], start: int) -> _Made:
    events: list[Event] = []
    bad: list[BadRecord] = []
    nothing = Event(Opcode.INSERT, Flag.NORMAL, (None,) * len(schema))
    for at, data in enumerate(values, start):
        try:
            found = parse(data)
            if found is None:
                raise BadText(UNPARSABLE, "it is empty")
            events.append(found)
        except BadText as fault:
            bad.append(BadRecord(at, fault.reason, fault.detail))
            events.append(nothing)
    batch = EventBatch.of(schema, [(0, events)])
    return _Made(batch.opcode, batch.flags, dict(zip(schema.names, batch.columns, strict=True)), bad)


def _joined(schema: Schema, parts: Sequence[_Made]) -> _Made:
    """Rows after each other."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in schema.names}
    opcode, flags = (np.concatenate([getattr(part, name) for part in parts]) for name in ("opcode", "flags"))
    return _Made(opcode, flags, columns, [each for part in parts for each in part.bad])


def _by_columns(schema: Schema, read: _ReadAtOnce, parse: _Parse, values: Sequence[bytes]) -> _Made:
    """By columns as far as possible."""
    starts = range(0, max(len(values), 1), _COLUMNS_AT_ONCE)
    cuts = [(at, values[at : at + _COLUMNS_AT_ONCE]) for at in starts]
    return _joined(schema, [part for at, cut in cuts for part in _parts(schema, read, parse, cut, at)])


def _parts(schema: Schema, read: _ReadAtOnce, parse: _Parse, values: Sequence[bytes], start: int) -> Iterator[_Made]:
    """Smaller parts until one is read at once, or is so small that rows will do.

    Parts are a few times smaller each, so that values of which none is read at once are not tried often.
    """
    batch = None if len(values) <= _FEW else read(values)
    if batch is not None:
        yield _Made(batch.opcode, batch.flags, dict(zip(schema.names, batch.columns, strict=True)), [])
    elif len(values) <= _LEAST:
        yield _few_rows(schema, parse, values, start)
    else:
        size = max(-(-len(values) // _PARTS), _LEAST)
        for at in range(0, len(values), size):
            yield from _parts(schema, read, parse, values[at : at + size], start + at)


def _csv_at_once(columns: ColumnReader, values: Sequence[bytes]) -> EventBatch | None:
    """None if a line is empty, is more than one, or has quotes, which could make one of several."""
    lines = [value.removesuffix(b"\n").removesuffix(b"\r") for value in values]
    piece = b"\n".join(lines) + b"\n"
    if not all(lines) or b'"' in piece or piece.count(b"\n") != len(lines):
        return None
    batch = columns.read(piece)
    return batch if batch is not None and len(batch) == len(lines) else None


def _csv_line(rows: RowReader, value: bytes) -> Event | None:
    line = value.removesuffix(b"\n")
    end, is_record = rows.record_end(line + b"\n", 0, is_last=True)
    if not is_record or end != len(line) + 1:
        raise BadText(UNPARSABLE, "it is not one line of CSV")
    return rows.event(line)


def problems(schema: Schema, options: RecordOptions) -> Iterator[tuple[str, str]]:
    """What is wrong with the fields of a window over records, each with what to do."""
    for field in schema:
        part = part_of(field.name, options.decode)
        if part is None and options.decode is None:
            yield f"A record has no {field.name!r}.", f"Choose from {', '.join(TYPES)}, or say how to decode the value."
        elif part is not None and field.type not in TYPES[part]:
            names = " or ".join(kind.value for kind in TYPES[part])
            yield f"Field {field.name} is of type {field.type.value}.", f"Make it {names}."
    if options.decode is not None and all(part_of(name, options.decode) for name in schema.names):
        yield "No field comes from the value.", "Leave decode out, or name fields of the value."


def key_repeats(schema: Schema, decode: str | None) -> bool:
    """Whether the key is the offset alone: shards of a stream have the same offsets."""
    prefix = "" if decode is None else PREFIX
    return [schema.names[place] for place in schema.keys] == [f"{prefix}offset"]
