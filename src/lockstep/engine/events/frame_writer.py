"""Frames out of columns."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google_crc32c import value as crc32c

from lockstep.core.outputs import Lineage
from lockstep.engine.events.columns import EventBatch, Int64s
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.frame_layout import (
    CLIENT,
    CODES,
    COUNTS,
    CUT,
    DIGEST_BYTES,
    ELEMENT_NULLS,
    HEAD,
    LENGTHS_U8,
    LENGTHS_U16,
    LINEAGE,
    MAGIC,
    NULLS,
    NUMBERS,
    OFFSETS_U32,
    PIECE,
    PLACES,
    PREVIOUS,
    SHAPES,
    TRACED,
    TRANSACTIONAL,
    WHOLE,
    Column,
    Layout,
    layout_of,
    lineage_numbers_bytes,
)
from lockstep.errors import BadArgument

Places = tuple[Int64s, Int64s]
"""For each event: which event of the block caused it, and its place among what that one caused."""

CLIENT_BYTES = 16
PLAIN = int(Opcode.INSERT) | int(Flag.NORMAL) << 4
_CRC = struct.Struct("<I")


@dataclass(slots=True)
class _Packed:
    """A column in the pieces it is written as."""

    shape: int = 0
    fixed: Any = b""
    lengths: npt.NDArray[Any] | None = None
    nulls: bytes = b""
    text: Any = b""
    elements: int = 0


def encode_frame(
    batch: EventBatch,
    *,
    numbers: Int64s | None = None,
    first_id: int | None = None,
    previous: int | None = None,
    client: bytes | None = None,
    transactional: Int64s | None = None,
    places: Places | None = None,
    part: int = 0,
    more: bool = False,
    before: str = "",
    lineage: Lineage = (),
) -> bytes:
    """The blocks of a batch as one frame.

    The blocks are those of the batch; `numbers` names them all if some have no events. With `first_id` they are
    renamed first_id, first_id + 1 and so on, as a client counts its messages. `transactional` are the numbers, as in
    the batch, of blocks to be taken whole or not at all. A block too large for one frame is written in pieces: the
    batch begins with piece `part` of its first block, and with `more` its only block goes on in the next frame.
    `lineage` has the digests of its blocks, its last pair that of the last block, and `before` that of `previous`.
    """
    layout = layout_of(batch.schema)
    numbers, counts = _blocks(batch, numbers)
    columns = [_pack(column, kind) for column, kind in zip(batch.columns, layout.columns, strict=True)]
    parts = _Parts(layout, len(batch), len(numbers), columns)
    if client is not None:
        if len(client) != CLIENT_BYTES:
            raise BadArgument(name="client", value=client, reason=f"it has {CLIENT_BYTES} bytes")
        parts.add(CLIENT, client)
    if previous is not None:
        parts.add(PREVIOUS, previous.to_bytes(8, "little", signed=True))
    parts.add_piece(part, more, always=bool(lineage))
    if lineage:
        parts.add_lineage(int(numbers[0]), before, lineage)
    parts.add_shapes()
    if places is not None:
        parts.add(PLACES, *(np.ascontiguousarray(part, np.int64).data for part in places))
    parts.body.extend(columns[at].fixed for at in layout.wide)
    first, span = parts.add_numbers(numbers, first_id)
    if bool((counts != 1).any()):
        parts.add(COUNTS, counts.astype(np.uint32).data)
    parts.body.extend(columns[at].fixed for at in layout.narrow)
    parts.add_lengths(OFFSETS_U32, np.uint32)
    parts.add_lengths(LENGTHS_U16, np.uint16)
    parts.add_codes(batch)
    if transactional is not None and len(transactional):
        parts.add(TRANSACTIONAL, np.packbits(np.isin(numbers, transactional), bitorder="little").data)
    parts.body.extend(column.nulls for column in columns)
    parts.add_lengths(LENGTHS_U8, np.uint8)
    parts.body.extend(columns[at].text for at in layout.texts)
    return parts.close(first, span)


class _Parts:
    """A frame in the making."""

    def __init__(self, layout: Layout, events: int, blocks: int, columns: list[_Packed]) -> None:
        self.layout, self.events, self.blocks, self.columns = layout, events, blocks, columns
        self.version, self.flags = WHOLE, 0
        self.body: list[Any] = []

    def add(self, flag: int, *pieces: Any) -> None:
        self.flags |= flag
        self.body.extend(pieces)

    def add_piece(self, part: int, more: bool, *, always: bool) -> None:
        if more and self.blocks != 1:
            raise BadArgument(name="more", value=more, reason="a block that goes on stands alone in its frame")
        if part or more or always:
            self.version = CUT
            self.body.append(PIECE.pack(part, more))

    def add_lineage(self, first: int, before: str, lineage: Lineage) -> None:
        self.version = TRACED
        self.body.append(LINEAGE.pack(bytes.fromhex(before) or bytes(DIGEST_BYTES), len(lineage), 0))
        self.body.append(bytes.fromhex("".join(digest for _, digest in lineage)))
        numbers = struct.pack(f"<{len(lineage)}I", *(block - first for block, _ in lineage))
        self.body.append(numbers.ljust(lineage_numbers_bytes(len(lineage)), b"\0"))

    def add_shapes(self) -> None:
        shapes = bytes([column.shape for column in self.columns])
        if any(shapes):
            self.add(SHAPES, shapes.ljust(self.layout.shape_bytes, b"\0"))
        self.body.extend(self.columns[at].elements.to_bytes(8, "little") for at in self.layout.arrays)

    def add_numbers(self, numbers: Int64s, first_id: int | None) -> tuple[int, int]:
        if first_id is not None or not self.blocks:
            return first_id or 0, max(0, self.blocks - 1)
        first, span = int(numbers[0]), int(numbers[-1] - numbers[0])
        if span >= 2**32:
            raise BadArgument(name="numbers", value=(first, first + span), reason="a frame spans up to 2**32 blocks")
        if span != self.blocks - 1:
            self.add(NUMBERS, (numbers - first).astype(np.uint32).data)
        return first, span

    def add_lengths(self, form: int, kind: type[np.unsignedinteger[Any]]) -> None:
        for at in self.layout.sized:
            column = self.columns[at]
            if column.lengths is not None and column.shape & 3 == form:
                lengths = column.lengths
                values = np.concatenate(([0], np.cumsum(lengths))) if form == OFFSETS_U32 else lengths
                self.body.append(values.astype(kind).data)

    def add_codes(self, batch: EventBatch) -> None:
        codes = batch.opcode | (batch.flags << 4)
        if bool((codes != PLAIN).any()):
            self.add(CODES, codes.data)

    def close(self, first: int, span: int) -> bytes:
        shape = (self.flags, span, self.layout.fingerprint, self.blocks, self.events, first)
        frame = b"".join([HEAD.pack(MAGIC, self.version, *shape), *self.body])
        return frame + _CRC.pack(crc32c(frame))


def _blocks(batch: EventBatch, numbers: Int64s | None) -> tuple[Int64s, Int64s]:
    """The numbers of the blocks, and how many events each has."""
    block = batch.block
    if numbers is None:
        if len(block) < 2:
            return block, np.ones(len(block), np.int64)
        ends = np.append(np.flatnonzero(block[1:] != block[:-1]), len(block) - 1)
        numbers, ends = block[ends], ends + 1
    else:
        ends = np.searchsorted(block, numbers, "right")
    counts = ends.copy()
    counts[1:] -= ends[:-1]
    if bool((numbers[1:] <= numbers[:-1]).any()) or int(counts.sum()) != len(block):
        raise BadArgument(name="numbers", value="...", reason="blocks must rise, and hold all events")
    return numbers, counts


_NONE: Int64s = np.array([], np.int64)


def _pack(column: pa.Array | None, kind: Column) -> _Packed:
    assert column is not None, "a pruned column can't be written"
    packed = _Packed()
    if column.null_count:
        packed.shape, packed.nulls = NULLS, _bitmap(column)
        if kind.element is None:
            column = column.fill_null(kind.empty)
    if kind.element is not None:
        _pack_array(packed, column, kind.width)
    elif kind.width == 1:
        _pack_text(packed, column)
    else:
        packed.fixed = _fixed(column, kind.width)
    return packed


def _fixed(column: pa.Array, width: int) -> Any:
    """The values as bytes."""
    if not len(column):
        return b""
    start = column.offset * width
    return memoryview(column.buffers()[1])[start : start + len(column) * width]


def _pack_text(packed: _Packed, column: pa.Array) -> None:
    _, offset_bytes, text = column.buffers()
    offsets = (
        np.frombuffer(offset_bytes, np.int32)[column.offset : column.offset + len(column) + 1] if column else _NONE
    )
    _set_lengths(packed, offsets[1:] - offsets[:-1])
    if len(offsets) and text is not None:
        packed.text = memoryview(text)[int(offsets[0]) : int(offsets[-1])]


def _pack_array(packed: _Packed, column: pa.Array, width: int) -> None:
    values = column.flatten()
    _set_lengths(packed, pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    packed.elements = len(values)
    if values.null_count:
        packed.shape |= ELEMENT_NULLS
        packed.nulls += _bitmap(values)
        values = values.fill_null(0)
    packed.fixed = _fixed(values, width)


def _set_lengths(packed: _Packed, lengths: npt.NDArray[Any]) -> None:
    longest = int(lengths.max()) if len(lengths) else 0
    packed.lengths = lengths
    packed.shape |= LENGTHS_U8 if longest < 2**8 else LENGTHS_U16 if longest < 2**16 else OFFSETS_U32


def _bitmap(column: pa.Array) -> bytes:
    return np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes()
