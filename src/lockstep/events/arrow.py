"""Arrow tables as events: a column for each field, and perhaps one for the opcode and one for the flags."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lockstep.engine.events.columns import Bytes, EventBatch
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.events.text import BadText, parse_flags, parse_opcode
from lockstep.errors import BadRecord
from lockstep.events.rows import own_names


def batch_of(table: pa.Table, schema: Schema, block: int, stream: str) -> EventBatch:
    """The rows of a table as blocks of so many events, numbered from 1 on. A missing column is null."""
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
