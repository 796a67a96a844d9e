"""One append is one message: a batch as it is, or several in a bundle, so that all of them are stored or none.

A bundle, little endian:  magic "LM" | version u8 | - u8 | batches u32 | sizes u32[n] | batches
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from lockstep.errors import BatchDamaged, FormatTooNew
from lockstep.log.batch import origin, peek
from lockstep.log.port import Entry

MAGIC = b"LM"
VERSION = 1
_HEADER = struct.Struct("<2sBxI")


def bundle(batches: Sequence[bytes]) -> bytes:
    """The message that holds some sealed batches."""
    if len(batches) == 1:
        return batches[0]
    sizes = struct.pack(f"<{len(batches)}I", *map(len, batches))
    return b"".join((_HEADER.pack(MAGIC, VERSION, len(batches)), sizes, *batches))


def unbundle(data: bytes, base: int, stream: str) -> list[Entry]:
    """The batches of a message, each with the offset of its first record."""
    entries = []
    for part in _parts(data, base, stream):
        entries.append(Entry(base, part))
        base += peek(part)[0]
    return entries


def first_origin(data: bytes) -> tuple[bytes, int]:
    """Producer and sequence of the first batch of a message."""
    return origin(next(_parts(data, 0, "")))


def _parts(data: bytes, base: int, stream: str) -> Iterator[bytes]:
    if data[:2] != MAGIC:
        yield data
        return
    if len(data) < _HEADER.size:
        raise BatchDamaged(offset=base, stream=stream, reason="its message is cut off")
    _, version, number = _HEADER.unpack_from(data)
    if version > VERSION:
        raise FormatTooNew(what=f"The message at offset {base} of {stream}", found=version, known=VERSION)
    start = _HEADER.size + 4 * number
    if len(data) < start:
        raise BatchDamaged(offset=base, stream=stream, reason="its message is cut off")
    sizes = struct.unpack_from(f"<{number}I", data, _HEADER.size)
    if len(data) != start + sum(sizes):
        raise BatchDamaged(offset=base, stream=stream, reason="its message has another size than it says")
    for begin, end in pairwise(accumulate(sizes, initial=start)):
        yield data[begin:end]
