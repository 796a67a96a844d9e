"""Events in other forms: dictionaries by field name, Arrow tables, JSON and binary files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from lockstep.engine.errors import FrameDamaged
from lockstep.engine.events.columns import Bytes, EventBatch
from lockstep.engine.events.csv_reader import REFUSED_WHOLE, TRANSACTION, BadLine
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import decode_frame, encode_frame
from lockstep.engine.events.json_format import format_event, read_json
from lockstep.engine.events.schema import INT_RANGE, MONEY_SCALE, Field, FieldType, Schema, Value, fits, is_writable
from lockstep.engine.events.text import WRONG_TYPE, BadText, parse_flags, parse_opcode
from lockstep.errors import BadRecord

Row = dict[str, Any]
"""An event by field names, with its opcode, flags and block."""
Item = Event | Mapping[str, Any] | Sequence[Any]
"""What can be published as an event: an Event, a row by names, or the values in the order of the schema."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _SECOND = timedelta(microseconds=1), timedelta(seconds=1)


def own_names(schema: Schema) -> tuple[str, str, str]:
    """What opcode, flags and block are called: with an @ if a field has one of these names."""
    names = ("opcode", "flags", "block")
    mark = "@" if any(name in schema for name in names) else ""
    opcode, flags, block = (mark + name for name in names)
    return opcode, flags, block


def row_of(event: Event, block: int, schema: Schema) -> Row:
    """An event of a block as a row."""
    opcode, flags, number = own_names(schema)
    head: Row = {opcode: event.opcode.name.lower(), flags: event.flags.letters, number: block}
    return head | dict(zip(schema.names, event.values, strict=True))


def event_of(item: Item, schema: Schema, stream: str) -> Event:
    """Return the record as an event; raises BadRecord with what is wrong with it."""
    try:
        return _event(item, schema)
    except BadText as fault:
        raise BadRecord(stream=stream, reason=fault.detail) from None


def _event(item: Item, schema: Schema) -> Event:
    if isinstance(item, Event):
        return Event(Opcode(item.opcode), Flag(item.flags), _values(item.values, schema))
    if isinstance(item, Mapping):
        return _named(item, schema)
    if isinstance(item, str | bytes):
        raise BadText(WRONG_TYPE, "an event is a mapping, a tuple or an Event, not text")
    return Event(Opcode.INSERT, Flag.NORMAL, _values(item, schema))


def _named(item: Mapping[str, Any], schema: Schema) -> Event:
    own = own_names(schema)
    unknown = [name for name in item if name not in schema and name not in own]
    if unknown:
        raise BadText(WRONG_TYPE, f"there is no field {unknown[0]!r}")
    opcode, flags = item.get(own[0], Opcode.INSERT), item.get(own[1], Flag.NORMAL)
    return Event(
        opcode if isinstance(opcode, Opcode) else parse_opcode(str(opcode)),
        flags if isinstance(flags, Flag) else parse_flags(str(flags)),
        tuple(_value(field, item.get(field.name)) for field in schema),
    )


def _values(values: Sequence[Any], schema: Schema) -> tuple[Value, ...]:
    if len(values) != len(schema):
        raise BadText(WRONG_TYPE, f"it has {len(values)} values, not {len(schema)}")
    return tuple(_value(field, value) for field, value in zip(schema, values, strict=True))


def _value(field: Field, given: Any) -> Value:
    value: Value = _plain(field.type, given)
    if not fits(field.type, value):
        raise BadText(WRONG_TYPE, f"field {field.name}: {given!r} is no {field.type.value}")
    if not is_writable(value):
        raise BadText(WRONG_TYPE, f"field {field.name}: half of a surrogate pair is no character")
    return value


def _plain(kind: FieldType, given: Any) -> Any:
    """A value as events hold it; what can't be one is left as it is."""
    if isinstance(given, datetime) and kind.is_time and given.tzinfo is not None:
        return (given - _EPOCH) // (_SECOND if kind is FieldType.DATE else _MICROSECOND)
    if isinstance(given, Decimal) and kind is FieldType.MONEY and given.is_finite():
        scaled = given * MONEY_SCALE
        return int(scaled) if scaled == int(scaled) else given
    if kind is FieldType.DOUBLE and type(given) is int:
        return float(given)
    if kind is FieldType.BLOB and isinstance(given, bytearray | memoryview):
        return bytes(given)
    if kind.element is not None and isinstance(given, list | tuple):
        return tuple(_plain(kind.element, one) for one in given)
    return int(given) if kind in INT_RANGE and _is_whole(given) else given


def _is_whole(given: Any) -> bool:
    """Whether it is a whole number of another library."""
    return not isinstance(given, bool) and hasattr(given, "__index__")


def batch_of(table: pa.Table, schema: Schema, block: int, stream: str) -> EventBatch:
    """Return the rows of a table as blocks of equal size, numbered from 1; a missing column is null."""
    own = own_names(schema)
    unknown = [name for name in table.column_names if name not in schema and name not in own]
    if unknown:
        raise BadRecord(stream=stream, reason=f"there is no field {unknown[0]!r}")
    try:
        columns = tuple(_column(table, field.name, field.type.arrow) for field in schema)
        opcode = _codes(table, own[0], {name: int(parse_opcode(name)) for name in _words(table, own[0])}, Opcode.INSERT)
        flags = _codes(table, own[1], {name: int(parse_flags(name)) for name in _words(table, own[1])}, Flag.NORMAL)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, BadText) as fault:
        raise BadRecord(stream=stream, reason=str(fault).splitlines()[0]) from fault
    return EventBatch(schema, np.arange(table.num_rows, dtype=np.int64) // block + 1, opcode, flags, columns)


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind)
    return _joined(table, name).cast(kind)


def _joined(table: pa.Table, name: str) -> pa.Array:
    found = table.column(name).combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _words(table: pa.Table, name: str) -> list[str]:
    return [str(word) for word in table.column(name).unique().to_pylist()] if name in table.column_names else []


def _codes(table: pa.Table, name: str, codes: dict[str, int], usual: int) -> Bytes:
    if name not in table.column_names:
        return np.full(table.num_rows, usual, np.uint8)
    return np.array([codes[str(word)] for word in table.column(name).to_pylist()], np.uint8)


OnBad = Callable[[BadLine], None]
Read = Callable[[BinaryIO, Schema, OnBad, str | None], Iterator[Event]]
"""Reads the events of a file; takes a schema, who is told of what is no event, and how times are written."""
PREFIX = 4
"""Bytes of a frame's length, little endian."""
FRAME_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class JsonForm:
    """How objects become blocks."""

    block: int = 1
    transactional: bool = False
    date_format: str | None = None


@dataclass(slots=True)
class _Blocks:
    """Events on their way to blocks. In a transactional block one that is broken keeps its place."""

    schema: Schema
    form: JsonForm
    on_bad: OnBad
    number: int = 0
    events: list[Event] = field(default_factory=list)
    broken: int = 0

    def bad(self, line: BadLine) -> None:
        self.on_bad(line)
        self.broken += self.form.transactional

    def is_full(self) -> bool:
        return len(self.events) + self.broken >= self.form.block

    def take(self) -> Iterator[EventBatch]:
        """The block at hand, unless it is empty or refused whole."""
        events, broken, self.events, self.broken = self.events, self.broken, [], 0
        if broken:
            for event in events:
                text = format_event(event, self.schema, self.form.date_format)
                self.on_bad(BadLine(0, TRANSACTION, REFUSED_WHOLE, text))
        elif events:
            self.number += 1
            yield EventBatch.of(self.schema, [(self.number, events)])


def read_json_blocks(file: BinaryIO, schema: Schema, form: JsonForm, on_bad: OnBad) -> Iterator[EventBatch]:
    """Yield the events of JSON objects, each batch as one block; objects that are not events go to `on_bad`."""
    return event_blocks(read_json, file, schema, form, on_bad)


def event_blocks(read: Read, file: BinaryIO, schema: Schema, form: JsonForm, on_bad: OnBad) -> Iterator[EventBatch]:
    """Events that `read` finds in a file, each batch one block."""
    blocks = _Blocks(schema, form, on_bad)
    for event in read(file, schema, blocks.bad, form.date_format):
        while blocks.is_full():  # of broken ones only: they came before this event
            yield from blocks.take()
        blocks.events.append(event)
        if blocks.is_full():
            yield from blocks.take()
    yield from blocks.take()


def frame_with_length(batch: EventBatch) -> bytes:
    """A block as a frame with its length before it."""
    frame = encode_frame(batch)
    return len(frame).to_bytes(PREFIX, "little") + frame


def read_frames(file: BinaryIO, schema: Schema, place: str) -> Iterator[EventBatch]:
    """The blocks of a file of frames with their lengths, each batch one frame."""
    at = 0
    while prefix := _read(file, PREFIX):
        size = int.from_bytes(prefix, "little")
        where = f"byte {at} of {place}"
        if len(prefix) < PREFIX or not size or size > FRAME_MAX:
            raise FrameDamaged(place=where, reason="there is no length of a frame")
        data = _read(file, size)
        if len(data) < size:
            raise FrameDamaged(place=where, reason=f"it ends after {len(data)} of {size} bytes")
        yield decode_frame(data, schema, place=where).batch
        at += PREFIX + size


def _read(file: BinaryIO, size: int) -> bytes:
    """So many bytes, or less at the end; a source may give them in pieces."""
    data = b""
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


def limited(batches: Iterable[EventBatch], most: int | None) -> Iterator[EventBatch]:
    """Yield batches up to the given number of events."""
    left = most
    for batch in batches:
        if left is not None and len(batch) >= left:
            yield batch.slice(0, left)
            return
        yield batch
        left = None if left is None else left - len(batch)


def single_blocks(batch: EventBatch) -> Iterator[EventBatch]:
    """The blocks of a batch one by one."""
    cuts = np.flatnonzero(np.r_[True, batch.block[1:] != batch.block[:-1]]).tolist() if len(batch) else []
    for start, stop in zip(cuts, [*cuts[1:], len(batch)], strict=True) if cuts else ():
        yield batch.slice(start, stop)
