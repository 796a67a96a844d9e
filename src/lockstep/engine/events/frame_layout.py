"""What a frame of event blocks looks like: its header, its parts, and where the columns of a schema stand.

docs/reference/event-format.md says it byte by byte. Wide values come before narrow ones, so that every array is
aligned without padding, and can be used where it lies.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

import pyarrow as pa
from google_crc32c import value as crc32c

from lockstep.core.outputs import Lineage
from lockstep.engine.errors import FrameDamaged
from lockstep.engine.events.schema import Field, FieldType, Schema
from lockstep.errors import FormatTooNew

MAGIC = b"LE"
VERSION = 3
WHOLE, CUT, TRACED = 1, 2, 3
"""The version of frames whose blocks are whole, of those that hold a piece of one, and of those with a lineage."""
HEAD = struct.Struct("<2sBBI8sIIq")
PIECE = struct.Struct("<II")
LINEAGE = struct.Struct("<8sII")
"""The digest of the block before the first one, the number of pairs, and 4 bytes that are 0."""
DIGEST_BYTES = 8
TRAILER = 4
RESIDUE = 0x48674BC7
"""The CRC-32C of any bytes that end with their own CRC-32C."""

CLIENT, PREVIOUS, SHAPES, PLACES, NUMBERS, COUNTS, CODES, TRANSACTIONAL = (1 << bit for bit in range(8))
"""Which of the parts are there."""

LENGTHS_U8, LENGTHS_U16, OFFSETS_U32, LENGTHS = 0, 1, 2, 3
NULLS, ELEMENT_NULLS = 4, 8
"""Bits of a column's shape: how the sizes of its values are written, and whether some are null."""

WIDTHS = {
    FieldType.INT32: 4,
    FieldType.INT64: 8,
    FieldType.DOUBLE: 8,
    FieldType.DATE: 8,
    FieldType.STAMP: 8,
    FieldType.MONEY: 8,
    FieldType.STRING: 1,
    FieldType.BLOB: 1,
    FieldType.ARRAY_INT32: 4,
    FieldType.ARRAY_INT64: 8,
    FieldType.ARRAY_DOUBLE: 8,
}
"""Bytes of one value, or of one element of it."""


@dataclass(frozen=True, slots=True)
class FrameHead:
    """What the first bytes of a frame tell, without a look at its events.

    The blocks are `first` to `last`. Frames with a `client` count the client's messages, which have no gaps. On an out
    stream the numbers may skip, and `previous` is the last block before the first on that stream; it is `first` itself
    if the frame goes on with a block that was too large for the frame before. Such a frame begins with piece `part` of
    its first block; `more` says that its only block goes on in the next frame.
    """

    flags: int
    fingerprint: bytes
    blocks: int
    events: int
    first: int
    last: int
    previous: int | None
    client: bytes | None
    size: int
    """Bytes up to here."""
    part: int = 0
    more: bool = False
    before: str = ""
    """The digest of the block before the first, and below those of its own: see `lockstep.core.outputs`."""
    lineage: Lineage = ()


@dataclass(frozen=True, slots=True)
class Column:
    """How the values of a field are written: `width` bytes each, or for each element."""

    name: str
    arrow: pa.DataType
    width: int
    element: pa.DataType | None
    empty: str | bytes | int
    """Stands where a value is null."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns of a schema stand in a frame; the numbers are places in the schema."""

    schema: Schema
    fingerprint: bytes
    columns: tuple[Column, ...]
    wide: tuple[int, ...]
    narrow: tuple[int, ...]
    sized: tuple[int, ...]
    texts: tuple[int, ...]
    arrays: tuple[int, ...]

    @property
    def shape_bytes(self) -> int:
        """Room for the shapes, up to a multiple of eight."""
        return (len(self.schema) + 7) // 8 * 8


@lru_cache(maxsize=1024)
def layout_of(schema: Schema) -> Layout:
    """The layout for a schema."""
    columns = tuple(_column(field) for field in schema)
    by_width = {width: tuple(at for at, one in enumerate(columns) if one.width == width) for width in (1, 4, 8)}
    arrays = tuple(at for at, one in enumerate(columns) if one.element is not None)
    return Layout(
        schema,
        blake2b(str(schema).encode(), digest_size=8).digest(),
        columns,
        by_width[8],
        by_width[4],
        tuple(sorted((*by_width[1], *arrays))),
        by_width[1],
        arrays,
    )


def _column(field: Field) -> Column:
    element = field.type.element
    empties: dict[FieldType, str | bytes] = {FieldType.STRING: "", FieldType.BLOB: b""}
    empty = empties.get(field.type, 0)
    return Column(field.name, field.type.arrow, WIDTHS[field.type], element.arrow if element else None, empty)


def read_head(data: bytes | memoryview, place: str = "") -> FrameHead:
    """The head of a frame; nothing after it is read, and the checksum is not verified; raises FrameDamaged."""
    if len(data) < HEAD.size + TRAILER:
        raise FrameDamaged(place=place, reason=f"it has {len(data)} bytes, a frame has {HEAD.size + TRAILER} or more")
    magic, version, flags, span, fingerprint, blocks, events, first = HEAD.unpack_from(data)
    if magic != MAGIC or version == 0:
        raise FrameDamaged(place=place, reason="it does not begin like an event frame")
    if version > VERSION:
        raise FormatTooNew(what=f"The event frame at {place}", found=version, known=VERSION)
    size = HEAD.size + (16 if flags & CLIENT else 0) + (8 if flags & PREVIOUS else 0)
    end = size + (0, PIECE.size, PIECE.size + LINEAGE.size)[version - 1]
    if end + TRAILER > len(data):
        raise FrameDamaged(place=place, reason="it ends in its header")
    client = bytes(data[HEAD.size : HEAD.size + 16]) if flags & CLIENT else None
    previous = int.from_bytes(data[size - 8 : size], "little", signed=True) if flags & PREVIOUS else None
    last = first + span if blocks else first - 1
    if version == WHOLE:
        return FrameHead(flags, fingerprint, blocks, events, first, last, previous, client, end)
    part, more = _piece(data, size, blocks, place, is_alone=version == CUT)
    before, lineage, end = _lineage(data, end, first, last, place) if version == TRACED else ("", (), end)
    return FrameHead(
        flags, fingerprint, blocks, events, first, last, previous, client, end, part, more, before, lineage
    )


def _piece(data: bytes | memoryview, at: int, blocks: int, place: str, *, is_alone: bool) -> tuple[int, bool]:
    part, more = PIECE.unpack_from(data, at)
    if more > 1 or not blocks or (more and blocks != 1) or (is_alone and not (part or more)):
        raise FrameDamaged(place=place, reason="it does not say which piece of a block it is")
    return part, bool(more)


def _lineage(data: bytes | memoryview, end: int, first: int, last: int, place: str) -> tuple[str, Lineage, int]:
    """The digest of the block before, the lineage, and where it ends."""
    before, count, zero = LINEAGE.unpack_from(data, end - LINEAGE.size)
    numbers = end + DIGEST_BYTES * count
    after = numbers + lineage_numbers_bytes(count)
    if zero or not count or after + TRAILER > len(data):
        raise FrameDamaged(place=place, reason="its lineage is not whole")
    blocks = struct.unpack_from(f"<{count}I", data, numbers)
    if first + blocks[-1] != last or any(one >= other for one, other in pairwise(blocks)):
        raise FrameDamaged(place=place, reason="its lineage does not fit its blocks")
    digests = bytes(data[end:numbers]).hex()
    width = 2 * DIGEST_BYTES
    pairs = ((first + block, digests[at * width : (at + 1) * width]) for at, block in enumerate(blocks))
    return _digest_text(before), tuple(pairs), after


def lineage_numbers_bytes(count: int) -> int:
    """Room for the numbers of a lineage, up to a multiple of eight."""
    return (4 * count + 7) // 8 * 8


def _digest_text(digest: bytes) -> str:
    """As text; zeros say that it is not known."""
    return digest.hex() if any(digest) else ""


def verify(data: bytes, place: str) -> None:
    """Refuse bytes that are not what was written."""
    if crc32c(data) != RESIDUE:
        raise FrameDamaged(place=place, reason="its checksum is wrong")
