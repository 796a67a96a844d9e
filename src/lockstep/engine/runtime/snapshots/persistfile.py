"""The file of one shard of a persisted snapshot: what it is of, its pages as they were sealed, and one checksum.

    magic "LSSN" | version u16 | - u16 | size of the index u32 | index, msgpack | head | pages | CRC-32C u32

Little endian. Whatever the version, the file begins with magic and version and ends with the checksum of everything
before it: so damage is told from a newer form.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgpack
from google_crc32c import extend

from lockstep.engine.errors import SnapshotRefused
from lockstep.engine.runtime.snapshots.snapshot import HEAD, Head, decode_head, unseal
from lockstep.errors import BadArgument, LockstepError

MAGIC, VERSION = b"LSSN", 1
FIXED = struct.Struct("<4sHHI")
_CRC = struct.Struct("<I")
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """What stands in front of the pages."""

    name: str
    """The snapshot's, which is that of its folder."""
    belongs: str
    """To whose sequence log it belongs; empty: nobody said."""
    shard: int
    shards: int
    made_ns: int
    """Wall clock of the writer, a label."""
    head: int
    """Bytes of the head."""
    pages: tuple[tuple[str, int], ...]
    """Names and sizes of the pages, in the order in which they follow."""


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A whole file, without its pages."""

    index: Index
    head: Head
    bytes: int


def head_of(page: bytes, place: str) -> Head:
    """A sealed head, whatever model it is of."""
    try:
        fingerprint = msgpack.unpackb(unseal(page, place), strict_map_key=False)["fingerprint"]
        return decode_head(page, fingerprint, place)
    except LockstepError as error:
        raise SnapshotRefused(place=place, reason=error.template.format(**error.params).rstrip(".")) from error
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as error:
        raise SnapshotRefused(place=place, reason=f"its head can't be read ({error})") from error


def pieces(index: Index, head: bytes, pages: Mapping[str, bytes]) -> Iterator[bytes]:
    """The file piece by piece; large pages are not copied."""
    packed: bytes = msgpack.packb(asdict(index))
    crc = 0
    for piece in chain((FIXED.pack(MAGIC, VERSION, 0, len(packed)), packed, head), pages.values()):
        crc = extend(crc, piece)
        yield piece
    yield _CRC.pack(crc)


def sizes(pages: Mapping[str, bytes]) -> tuple[tuple[str, int], ...]:
    """Names and sizes of pages, as an index has them."""
    if HEAD in pages:
        raise BadArgument(name="pages", value=HEAD, reason="the head is given apart")
    return tuple((name, len(content)) for name, content in pages.items())


def check(path: Path) -> ShardFile:
    """A file that is whole and of a known form, else SnapshotRefused. Reads it once, in pieces."""
    with _opened(path) as file:
        return _checked(path, file)[0]


def read(path: Path) -> tuple[ShardFile, dict[str, bytes]]:
    """A file that is whole, and its head and pages by name, sealed."""
    with _opened(path) as file:
        found, head = _checked(path, file)
        pages = {HEAD: head}
        for name, size in found.index.pages:
            pages[name] = file.read(size)
        return found, pages


def _checked(path: Path, file: BinaryIO) -> tuple[ShardFile, bytes]:
    """Checks everything, and leaves the file at its first page."""
    size = os.fstat(file.fileno()).st_size
    _check_sum(path, file, size)
    file.seek(0)
    magic, version, _, packed = FIXED.unpack(file.read(FIXED.size))
    if magic != MAGIC:
        raise SnapshotRefused(place=path, reason="it is not the file of a snapshot")
    if version != VERSION:
        raise SnapshotRefused(place=path, reason=f"it has format {version}, and this version reads {VERSION}")
    index = _index(path, file.read(packed))
    if FIXED.size + packed + index.head + sum(pages for _, pages in index.pages) + _CRC.size != size:
        raise SnapshotRefused(place=path, reason="its index does not fit its size")
    head = file.read(index.head)
    return ShardFile(index, head_of(head, str(path)), size), head


def _check_sum(path: Path, file: BinaryIO, size: int) -> None:
    left, crc = size - _CRC.size, 0
    if left < FIXED.size:
        raise SnapshotRefused(place=path, reason=f"it has {size} bytes, which is too short")
    while left and (chunk := file.read(min(left, _CHUNK))):
        crc, left = extend(crc, chunk), left - len(chunk)
    if file.read(_CRC.size) != _CRC.pack(crc):
        raise SnapshotRefused(place=path, reason="its checksum does not match")


def _index(path: Path, packed: bytes) -> Index:
    try:
        fields = msgpack.unpackb(packed)
        index = Index(**{**fields, "pages": tuple((str(name), int(size)) for name, size in fields["pages"])})
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise SnapshotRefused(place=path, reason=f"its index can't be read ({error})") from error
    numbers = (index.shard, index.shards, index.made_ns, index.head, *(size for _, size in index.pages))
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise SnapshotRefused(place=path, reason="its index can't be read (a number is none)")
    return index


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A plain file: links are not followed, and nothing that would make us wait is opened."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SnapshotRefused(place=path, reason="it is not a file")
            yield file
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise SnapshotRefused(place=path, reason=reason) from error
