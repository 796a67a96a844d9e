"""CSV lines out of events, by rows and by columns: the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.engine.events.columns import EventBatch, shaped
from lockstep.engine.events.csv_reader import CsvOutput
from lockstep.engine.events.event import FLAG_LETTERS, Event, Flag, Opcode
from lockstep.engine.events.schema import FieldType, Schema, Value
from lockstep.engine.events.text import BLANK, formatter

_SLICE = 100_000
_PLAIN_NUMBERS = frozenset({FieldType.INT32, FieldType.INT64, FieldType.DATE, FieldType.STAMP})


def header_line(schema: Schema, output: CsvOutput) -> bytes:
    """The header line of a file; empty if the options ask for none."""
    if output.header == "none":
        return b""
    fields = [str(field) if output.header == "full" else field.name for field in schema]
    return (output.delimiter.join(["opcode", "flags", *fields]) + "\n").encode()


def write_csv(batch: EventBatch, file: BinaryIO, output: CsvOutput | None = None) -> int:
    """Write the events of a batch, which has whole blocks; the number of lines. The header is the caller's."""
    output = output or CsvOutput()
    kept = shaped(batch, collapse=output.collapse, no_retention_deletes=output.no_retention_deletes)
    starts = range(0, len(kept), _SLICE)
    file.writelines(_lines(kept.slice(start, min(start + _SLICE, len(kept))), output) for start in starts)
    return len(kept)


def _lines(batch: EventBatch, output: CsvOutput) -> memoryview:
    """All lines as one piece of memory: each begins with a line end, and the first of these is moved to the back."""
    parts = [_prefixes(batch, output.delimiter)]
    for column, field in zip(batch.columns, batch.schema, strict=True):
        assert column is not None, "a pruned column can't be written"
        parts.append(_texts(column, field.type, output))
    joined = pc.binary_join_element_wise(*parts, output.delimiter, null_handling="replace", null_replacement="")
    _, offsets, text = joined.buffers()
    ends = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(bytes(memoryview(text)[int(ends[0]) + 1 : int(ends[-1])]) + b"\n")


def _prefixes(batch: EventBatch, delimiter: str) -> pa.Array:
    """A line end, the opcode and the flag of each event."""
    table = [f"\n{opcode.letter}{delimiter}{letters}" for opcode in Opcode for letters in FLAG_LETTERS.values()]
    index = (batch.opcode.astype(np.int64) - 1) * len(FLAG_LETTERS) + batch.flags - 1
    return pa.array(table, pa.string()).take(pa.array(index))


def _texts(column: pa.Array, kind: FieldType, output: CsvOutput) -> pa.Array:
    if kind is FieldType.DOUBLE:
        return doubles_as_text(column)
    if kind in _PLAIN_NUMBERS and (output.date_format is None or kind in (FieldType.INT32, FieldType.INT64)):
        return pc.cast(column, pa.string())
    if kind is not FieldType.STRING:
        column = _formatted(column, formatter(kind, output.date_format), is_nested=kind.element is not None)
    return _quoted(column, output.delimiter)


def doubles_as_text(column: pa.Array) -> pa.Array:
    """Doubles as Python writes them. Arrow is faster and writes most of them the same; the others are mended."""
    values = column.fill_null(0.5).to_numpy(zero_copy_only=False)
    size = np.abs(values)
    usual = (size >= 1e-4) & (size < 1e10)
    texts = pc.cast(column, pa.string())
    whole = usual & (values == np.floor(values))
    if whole.any():
        mask = pa.array(whole)
        longer = pc.binary_join_element_wise(texts.filter(mask), ".0", "")
        texts = pc.replace_with_mask(texts, mask, longer)
    return texts if usual.all() else _replaced(texts, ~usual, map(repr, values[~usual].tolist()))


def _formatted(column: pa.Array, convert: Callable[[Value], str], is_nested: bool) -> pa.Array:
    if is_nested:
        values = [None if item is None else convert(tuple(item)) for item in column.to_pylist()]
        return pa.array(values, pa.string())
    coded = column.dictionary_encode()
    return pa.array([convert(value) for value in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _quoted(texts: pa.Array, delimiter: str) -> pa.Array:
    """Quotes around those that need them."""
    special = pc.equal(pc.binary_length(texts), 0)
    for mark in (delimiter, '"', "\n", "\r"):
        special = pc.or_(special, pc.match_substring(texts, mark))
    for blank in BLANK:  # who reads takes blanks away that are not in quotes
        special = pc.or_(special, pc.or_(pc.starts_with(texts, blank), pc.ends_with(texts, blank)))
    chosen = special.fill_null(False).to_numpy(zero_copy_only=False)
    if not chosen.any():
        return texts
    return _replaced(texts, chosen, (_quote(text) for text in texts.filter(pa.array(chosen)).to_pylist()))


def _replaced(texts: pa.Array, chosen: npt.NDArray[np.bool_], others: Iterable[str]) -> pa.Array:
    return pc.replace_with_mask(texts, pa.array(chosen), pa.array(list(others), pa.string()))


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def lines_of(events: Iterable[Event], schema: Schema, output: CsvOutput | None = None) -> Iterator[str]:
    """The lines of events one by one, with their ends: what write_csv writes, the readable way."""
    output = output or CsvOutput()
    after_update = False
    for event in events:
        is_old, after_update = after_update, event.opcode is Opcode.UPDATE_BLOCK
        is_retention = event.opcode is Opcode.DELETE and bool(event.flags & Flag.RETENTION)
        if (is_old and output.collapse) or (is_retention and not is_old and output.no_retention_deletes):
            continue
        if after_update and output.collapse:
            event = event._replace(opcode=Opcode.UPDATE)
        yield format_line(event, schema, output)


def format_line(event: Event, schema: Schema, output: CsvOutput) -> str:
    """One event as a line."""
    texts = [event.opcode.letter, event.flags.letters]
    for value, field in zip(event.values, schema, strict=True):
        texts.append("" if value is None else _text(value, field.type, output))
    return output.delimiter.join(texts) + "\n"


def _text(value: Value, kind: FieldType, output: CsvOutput) -> str:
    text = str(value) if kind is FieldType.STRING else formatter(kind, output.date_format)(value)
    is_special = not text or text != text.strip(BLANK)
    return _quote(text) if is_special or any(mark in text for mark in (output.delimiter, '"', "\n", "\r")) else text
