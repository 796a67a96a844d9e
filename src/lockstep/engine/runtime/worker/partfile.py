"""A piece of input, divided for all shards of a machine, as one file: what each shard reads instead of the logs.

A file is the size of its head (8 bytes), the head, the head's CRC-32C (4 bytes), and sections: for each source the
columns that every shard looks at, for all rows, and for each shard the rows of its own. Each section has a checksum, so
that a shard reads and checks no more than it needs. A file is a copy: whatever is wrong with it, the logs are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
from google_crc32c import value as crc32c

from lockstep.engine.events.columns import EventBatch, OwnRows
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.kernels.flow import are_single
from lockstep.engine.kernels.sharding import InputShare
from lockstep.engine.kernels.span import Span
from lockstep.engine.runtime.sequence.position import Position
from lockstep.engine.runtime.sequence.reading import BrokenFrame, Range
from lockstep.errors import DataError

_SIZE, _SUM = 8, 4
_BLOCK, _CODE, _ROW = "block number", "opcode and flags", "row number"
"""Columns beside those of a schema; the name of a field has no blanks."""
_PLAIN = int(Opcode.INSERT) | int(Flag.NORMAL) << 4


def encode_part(taken: Range, shares: Mapping[str, InputShare]) -> list[Any]:
    """A range that was read with all columns, divided among the shards: the chunks of a file."""
    sections: list[pa.Buffer] = []
    sources: dict[str, list[int]] = {}
    for path, share in shares.items():
        batch = taken.span.inputs.get(path)
        if batch is not None:
            sources[path] = [len(batch), int(batch.block[0]) if len(batch) else 0, len(sections)]
            sections.append(_all_rows(share.looked_at_of(batch)))
            sections += [_own_rows(own, batch.schema) for own in share.of_all(batch)]
    head = msgpack.packb({**_told(taken), "sources": sources, "sections": _placed(sections)})
    return [len(head).to_bytes(_SIZE, "little"), head, crc32c(head).to_bytes(_SUM, "little"), *sections]


def _told(taken: Range) -> dict[str, Any]:
    """What a range says beside its events."""
    span = taken.span
    return {
        "end": taken.end.tree(),
        "blocks": [span.first, span.last],
        "ticks": span.ticks,
        "transactional": span.transactional.tolist(),
        "lagging": sorted(span.lagging),
        "broken": [asdict(broken) for broken in taken.broken],
        "lineage": taken.lineage,
    }


def _placed(sections: list[pa.Buffer]) -> list[tuple[int, int, int]]:
    """For each section where it begins behind the head, its size and its checksum."""
    found, start = [], 0
    for section in sections:
        found.append((start, len(section), crc32c(np.frombuffer(section, np.uint8))))
        start += len(section)
    return found


def _all_rows(batch: EventBatch) -> pa.Buffer:
    columns, codes = _named(batch.schema, batch.columns), batch.opcode | (batch.flags << np.uint8(4))
    if not are_single(batch.block):
        columns[_BLOCK] = pa.array(batch.block)
    if bool((codes != _PLAIN).any()):
        columns[_CODE] = pa.array(codes)
    return _written(columns)


def _own_rows(own: OwnRows, schema: Schema) -> pa.Buffer:
    return _written({_ROW: pa.array(own.rows.astype(np.int32)), **_named(schema, own.columns)})


def _named(schema: Schema, columns: tuple[pa.Array | None, ...]) -> dict[str, pa.Array]:
    pairs = zip(schema.names, columns, strict=True)
    return {name: column for name, column in pairs if column is not None}


def _written(columns: dict[str, pa.Array]) -> pa.Buffer:
    batch, sink = pa.record_batch(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def read_part(path: Path, shares: Mapping[str, InputShare], schemas: Mapping[str, Schema]) -> Range:
    """What a file holds for one shard; DataError if that is not what was written.

    It is read, and not mapped: a file that somebody cuts off ends a process that has it mapped.
    """
    try:
        with path.open("rb", buffering=0) as file:
            size = int.from_bytes(_bytes(file, 0, _SIZE), "little")
            head = msgpack.unpackb(_checked(file, _SIZE, size, None), strict_map_key=False)
            return _range(_Sections(file, _SIZE + size + _SUM, head["sections"]), head, shares, schemas)
    except (KeyError, IndexError, TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(reason=str(error)) from error


class _Sections:
    def __init__(self, file: FileIO, start: int, places: list[list[int]]) -> None:
        self._file, self._start, self._places = file, start, places

    def columns(self, number: int) -> dict[str, pa.Array]:
        start, size, checksum = self._places[number]
        data = _checked(self._file, self._start + start, size, checksum)
        batch = pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch()
        return dict(zip(batch.schema.names, batch.columns, strict=True))


def _checked(file: FileIO, start: int, size: int, checksum: int | None) -> bytes:
    """Some bytes whose checksum is known, or follows them."""
    told = _SUM if checksum is None else 0
    data = _bytes(file, start, size + told)
    if checksum is None:
        data, checksum = data[:size], int.from_bytes(data[size:], "little")
    if crc32c(data) != checksum:
        raise DataError(reason=f"the checksum of bytes {start} to {start + size} is wrong")
    return data


def _bytes(file: FileIO, start: int, size: int) -> bytes:
    """Some bytes; what a damaged size asks for beyond the end of the file is not even tried."""
    whole = os.fstat(file.fileno()).st_size
    if start + size > whole:
        raise DataError(reason=f"it has {whole} bytes, and should have {start + size} or more")
    data = os.pread(file.fileno(), size, start)
    if len(data) != size:
        raise DataError(reason=f"it ends before byte {start + size}")
    return data


def _range(
    sections: _Sections, head: Mapping[str, Any], shares: Mapping[str, InputShare], schemas: Mapping[str, Schema]
) -> Range:
    inputs = {path: _batch(sections, place, shares[path], schemas[path]) for path, place in head["sources"].items()}
    first, last = head["blocks"]
    ticks = tuple((block, time) for block, time in head["ticks"])
    transactional = np.array(head["transactional"], np.int64)
    span = Span(first, last, inputs, ticks, transactional, frozenset(head["lagging"]))
    broken = tuple(BrokenFrame(**fields) for fields in head["broken"])
    lineage = tuple((block, digest) for block, digest in head["lineage"])
    return Range(span, Position.of(head["end"]), broken, lineage=lineage)


def _batch(sections: _Sections, place: list[int], share: InputShare, schema: Schema) -> EventBatch:
    events, first, number = place
    common, mine = sections.columns(number), sections.columns(number + 1 + share.share.shard)
    if _BLOCK in common:
        block = common[_BLOCK].to_numpy()
    else:
        block = np.arange(first, first + events, dtype=np.int64)
    opcode, flags = np.full(events, int(Opcode.INSERT), np.uint8), np.full(events, int(Flag.NORMAL), np.uint8)
    if _CODE in common:
        codes = common[_CODE].to_numpy()
        opcode, flags = codes & np.uint8(15), codes >> np.uint8(4)
    rows = mine[_ROW].to_numpy().astype(np.int64)
    own = OwnRows(share.share.key, rows, tuple([mine.get(name) for name in schema.names]))
    return EventBatch(schema, block, opcode, flags, tuple([common.get(name) for name in schema.names]), own)
