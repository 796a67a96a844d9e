"""Pages of kept state as bytes: msgpack, with arrays as their raw bytes and whole numbers of any size."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from lockstep.engine.columns.flow import Part

_ARRAY, _WIDE = 1, 2


def pack(tree: Any) -> bytes:
    """A tree of plain values and arrays as bytes."""
    packed: bytes = msgpack.packb(tree, default=_to_extension)
    return packed


def unpack(page: bytes) -> Any:
    """The tree in a page; tuples have become lists."""
    return msgpack.unpackb(page, ext_hook=_from_extension, strict_map_key=False)


def pack_columns(part: Part) -> bytes:
    """The columns of some rows as bytes."""
    table = pa.table(list(part.columns.values()), names=list(part.columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack_columns(page: bytes, length: int) -> Part:
    """The rows that `pack_columns` packed."""
    table = pa.ipc.open_stream(page).read_all()
    columns = (column.combine_chunks() for column in table.columns)
    arrays = [column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return Part(dict(zip(table.column_names, arrays, strict=True)), length)


def _to_extension(value: Any) -> msgpack.ExtType:
    if isinstance(value, np.ndarray):
        shape = [value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
        return msgpack.ExtType(_ARRAY, msgpack.packb(shape))
    if isinstance(value, int | np.integer):
        return msgpack.ExtType(_WIDE, _wide_bytes(int(value)))
    message = f"state may not hold a {type(value).__name__}"
    raise TypeError(message)


def _from_extension(code: int, data: bytes) -> Any:
    if code == _ARRAY:
        kind, shape, raw = msgpack.unpackb(data)
        return np.frombuffer(raw, np.dtype(kind)).reshape(shape).copy()
    if code == _WIDE:
        return int.from_bytes(data, "big", signed=True)
    return msgpack.ExtType(code, data)


def _wide_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
