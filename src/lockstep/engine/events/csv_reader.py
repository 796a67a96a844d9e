"""CSV lines as events: line by line, and by columns, which is the fast way with the same meaning."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lockstep.engine.events.columns import Bytes, EventBatch, Int64s, concat
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import FieldType, Schema, Value
from lockstep.engine.events.text import (
    BLANK,
    UNPARSABLE,
    BadText,
    Parse,
    parse_flags,
    parse_opcode,
    parser,
    time_formats,
)
from lockstep.errors import BadArgument

_NO_DELIMITERS = frozenset('"\r\n.+- ')


def check_delimiter(delimiter: str) -> None:
    """Refuse what could be part of a number, or is not one character."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in _NO_DELIMITERS:
        raise BadArgument(name="delimiter", value=delimiter, reason="use one character such as , ; | or a tab")


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvOptions:
    """How lines are read. A line is `opcode,flag,fields...`, unless the options say that it has less."""

    header: int = 0
    """Lines to skip at the beginning."""
    add_opcode: bool = False
    """Lines have no opcode: all are inserts."""
    add_flags: bool = False
    """Lines have no flag: all are normal."""
    upsert: bool = False
    """Inserts are taken as upserts."""
    no_autogen_field: bool = False
    """Lines have no key field, because the window makes the key itself."""
    delimiter: str = ","
    date_format: str | None = None
    """As strptime has it, in UTC; None: whole seconds or microseconds since 1970."""
    ignore_errors: bool = False
    """Broken lines are dropped without a word; else they are bad records."""
    max_events: int | None = None
    block_size: int = 1
    transactional: bool = False
    """All blocks are transactional; it is for who makes blocks of the events."""

    def __post_init__(self) -> None:
        check_delimiter(self.delimiter)
        if self.date_format is not None:
            time_formats(self.date_format)
        if self.block_size < 1:
            raise BadArgument(name="block_size", value=self.block_size, reason="a block has one event or more")

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> CsvOptions:
        """The options a connector's properties set; others are of no interest here."""
        found: dict[str, object] = {}
        for name, text in properties.items():
            if name in _SWITCHES:
                found[_SWITCHES[name]] = text.strip().lower() in ("true", "1", "yes")
            elif name in _NUMBERS and text.strip():
                found[_NUMBERS[name]] = _number(name, text)
            elif name in _TEXTS and text:
                found[_TEXTS[name]] = text
        return cls(**found)  # type: ignore[arg-type]


_SWITCHES = {
    "addcsvopcode": "add_opcode",
    "addcsvflags": "add_flags",
    "publishwithupsert": "upsert",
    "noautogenfield": "no_autogen_field",
    "ignorecsvparseerrors": "ignore_errors",
    "transactional": "transactional",
}
_NUMBERS = {"header": "header", "maxevents": "max_events", "blocksize": "block_size"}
_TEXTS = {"csvfielddelimiter": "delimiter", "dateformat": "date_format"}


def _number(name: str, text: str) -> int:
    words = {"true": 1, "false": 0}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    if not text.strip().isdecimal():
        raise BadArgument(name=name, value=text, reason="it must be a whole number")
    return int(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvOutput:
    """How lines are written.

    `collapse` writes an update as one line with opcode U instead of UB and D, so that the file can be published again.
    `no_retention_deletes` leaves out deletes caused by retention. A header has the names, `full` also types and keys.
    """

    collapse: bool = False
    no_retention_deletes: bool = False
    header: Literal["none", "names", "full"] = "none"
    delimiter: str = ","
    date_format: str | None = None

    def __post_init__(self) -> None:
        check_delimiter(self.delimiter)


_SHOWN = 200
MAX_RECORD = 1 << 20
"""A quoted field that is still open after so many bytes was never meant to be one."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no event: counted by its reason, shown shortened."""

    line: int
    reason: str
    detail: str
    text: str


def shorten(data: bytes | str) -> str:
    """A line as it can be shown."""
    text = data if isinstance(data, str) else data[: 4 * _SHOWN].decode("utf-8", "replace")
    text = text.rstrip("\r\n")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def well_formed(delimiter: str) -> re.Pattern[bytes]:
    """As many whole records as possible in which quotes stand around whole fields only."""
    mark = re.escape(delimiter.encode())
    field = rb'(?:"(?:[^"]++|"")*+"|[^"' + mark + rb"\n]*+)"
    return re.compile(rb"(?:(?:" + field + mark + rb")*+" + field + rb"\r?\n)*+")


def one_record(delimiter: str) -> re.Pattern[bytes]:
    """One record; a quote inside a field that does not begin with one is just a character."""
    mark = re.escape(delimiter.encode())
    field = rb'(?:"(?:[^"]++|"")*+"|(?!")[^' + mark + rb"\n]*+)"
    return re.compile(rb"(?:" + field + mark + rb")*+" + field + rb"\r?\n")


class RowReader:
    """Events out of single lines."""

    def __init__(self, schema: Schema, options: CsvOptions) -> None:
        self.options, self.schema = options, schema
        self.places = tuple(at for at, field in enumerate(schema) if not (options.no_autogen_field and field.key))
        self.parsers = tuple(parser(schema.fields[at].type, options.date_format) for at in self.places)
        self.leading = (not options.add_opcode) + (not options.add_flags)
        self._record = one_record(options.delimiter)
        mark = re.escape(options.delimiter)
        self._field = re.compile(rf'"((?:[^"]++|"")*+)"(?={mark}|\Z)|(?!")([^{mark}]*+)')

    def record_end(self, data: bytes, start: int, is_last: bool) -> tuple[int, bool]:
        """Where the record at `start` ends, and whether it is one; 0 if only more data can tell.

        A record whose quotes do not close ends with its line, so that it takes nothing else with it.
        """
        found = self._record.match(data, start)
        if found:
            return found.end(), True
        line_end = data.find(b"\n", start) + 1
        return (0, False) if not is_last and len(data) - start < MAX_RECORD else (line_end or len(data), False)

    def event(self, record: bytes) -> Event | None:
        """The event of a record; None for an empty line."""
        try:
            text = record.decode("utf-8")
        except UnicodeDecodeError as fault:
            raise BadText(UNPARSABLE, f"not UTF-8 at byte {fault.start}") from None
        text = text.removesuffix("\n").removesuffix("\r")
        return self.event_of(self.fields(text)) if text else None

    def fields(self, text: str) -> list[str | None]:
        """The fields of a line; None for one that is empty and not quoted."""
        mark = self.options.delimiter
        if '"' not in text:
            return [part.strip(BLANK) or None for part in text.split(mark)]
        found: list[str | None] = []
        at = 0
        while True:
            match = self._field.match(text, at)
            if match is None:
                raise BadText(UNPARSABLE, f"the quotes of field {len(found) + 1} do not match")
            quoted, plain = match.groups()
            found.append(quoted.replace('""', '"') if quoted is not None else plain.strip(BLANK) or None)
            at = match.end() + 1
            if at > len(text):
                return found

    def event_of(self, fields: list[str | None]) -> Event:
        """The event made of the fields of a line."""
        options, at = self.options, 0
        opcode, flags = Opcode.INSERT, Flag.NORMAL
        if not options.add_opcode:
            opcode, at = parse_opcode(fields[0] or ""), 1
        if not options.add_flags:
            flags, at = parse_flags((fields[at] if at < len(fields) else None) or ""), at + 1
        if options.upsert and opcode is Opcode.INSERT:
            opcode = Opcode.UPSERT
        return Event(opcode, flags, self._values(fields[at:], opcode))

    def _values(self, fields: list[str | None], opcode: Opcode) -> tuple[Value, ...]:
        missing = len(self.places) - len(fields)  # fields after the last one in the line are missing
        if missing > 0 and opcode not in (Opcode.DELETE, Opcode.SAFEDELETE):
            raise BadText(UNPARSABLE, f"it has {len(fields)} fields, not {len(self.places)}")
        values: list[Value] = [None] * len(self.schema)
        for place, parse, text in zip(self.places, self.parsers, fields, strict=False):
            if text is not None:
                values[place] = self._value(place, parse, text)
        return tuple(values)

    def _value(self, place: int, parse: Parse, text: str) -> Value:
        try:
            return parse(text)
        except BadText as fault:
            raise BadText(fault.reason, f"field {self.schema.names[place]}: {fault.detail}") from None


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


TRANSACTION = "transaction"
REFUSED_WHOLE = "another line of its block is no event"


@dataclass(frozen=True, slots=True)
class _Span:
    """Records in a row that are events: which places they have, and where they stand in the file."""

    place: int
    count: int
    line: int
    data: bytes


class Places:
    """Which place each record of a file has, counting broken ones too."""

    def __init__(self, rows: RowReader) -> None:
        self._rows = rows
        self.next = 0
        self._spans: deque[_Span] = deque()
        self._broken: list[int] = []

    def good(self, count: int, line: int, data: bytes) -> None:
        """So many events, in records that begin at a line."""
        if count:
            self._spans.append(_Span(self.next, count, line, data))
            self.next += count

    def bad(self) -> None:
        """A record that is no event."""
        self._broken.append(self.next)
        self.next += 1

    def of_events(self, count: int) -> Int64s:
        """The places of the next events that were not dropped yet."""
        parts = [np.arange(span.place, span.place + span.count, dtype=np.int64) for span in self._spans]
        return np.concatenate([np.empty(0, np.int64), *parts])[:count]

    def refused(self, size: int) -> Int64s:
        """The blocks that have a broken record."""
        return np.unique(np.array(self._broken, np.int64) // size)

    def drop(self, before: int) -> None:
        """Forget what lies before a place."""
        while self._spans and self._spans[0].place + self._spans[0].count <= before:
            self._spans.popleft()
        if self._spans and self._spans[0].place < before:
            self._spans[0] = self._cut(self._spans[0], before)
        self._broken = [place for place in self._broken if place >= before]

    def lines(self, places: Sequence[int]) -> Iterator[BadLine]:
        """The records at places, in order, as lines that were refused with their block."""
        spans, wanted = iter(self._spans), deque(places)
        for span in spans:
            records = self._records(span) if wanted and wanted[0] < span.place + span.count else []
            for place, (line, record) in enumerate(records, span.place):
                if wanted and wanted[0] == place:
                    wanted.popleft()
                    yield BadLine(line, TRANSACTION, REFUSED_WHOLE, shorten(record))

    def _cut(self, span: _Span, before: int) -> _Span:
        gone = before - span.place
        line, _ = self._records(span)[gone]
        data = b"".join(record for _, record in self._records(span)[gone:])
        return _Span(before, span.count - gone, line, data)

    def _records(self, span: _Span) -> list[tuple[int, bytes]]:
        """The records of a span that are not empty, each with its line."""
        found, at, line = [], 0, span.line
        while at < len(span.data):
            end, _ = self._rows.record_end(span.data, at, is_last=True)
            record = span.data[at:end]
            if record.strip(b"\r\n"):
                found.append((line, record))
            at, line = end, line + record.count(b"\n")
        return found


def whole_blocks(
    batches: Iterator[EventBatch], places: Places, size: int, chunk: int, on_bad: Callable[[BadLine], None]
) -> Iterator[EventBatch]:
    """Blocks of so many records without a broken one, numbered from 1 on, in batches of whole blocks."""
    wanted = -(-chunk // size) * size
    waiting: list[EventBatch] = []
    count = done = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        if count < wanted:
            continue
        joined, end = concat(waiting), places.next // size * size
        whole = int(np.searchsorted(places.of_events(count), end))
        kept = _kept(joined.slice(0, whole), places, size, done, on_bad)
        places.drop(end)
        waiting, count = [joined.slice(whole, count)], count - whole
        if len(kept):
            done = int(kept.block[-1])
            yield kept
    if count:
        kept = _kept(concat(waiting), places, size, done, on_bad)
        if len(kept):
            yield kept


def _kept(batch: EventBatch, places: Places, size: int, done: int, on_bad: Callable[[BadLine], None]) -> EventBatch:
    """The events of valid blocks, numbered consecutively; the others are reported one by one."""
    at = places.of_events(len(batch))
    is_refused = np.isin(at // size, places.refused(size))
    if is_refused.any():
        for line in places.lines(at[is_refused].tolist()):
            on_bad(line)
        batch, at = batch.take(np.flatnonzero(~is_refused)), at[~is_refused]
    _, block = np.unique(at // size, return_inverse=True)
    return replace(batch, block=block.astype(np.int64) + done + 1)
