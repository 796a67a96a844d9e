"""The form of snapshots: sealed pages, the head that says what they are pages of, and the file of one shard.

    magic "LSSN" | version u16 | - u16 | size of the index u32 | index, msgpack | head | pages | CRC-32C u32

Little endian. Whatever the version, the file begins with magic and version and ends with the checksum of everything
before it: so damage can be distinguished from a newer form.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import msgpack
from google_crc32c import extend
from google_crc32c import value as crc32c

from lockstep.engine.errors import ModelMismatch, SnapshotDamaged, SnapshotRefused
from lockstep.engine.runtime.sequence.entries import SequencePosition
from lockstep.errors import BadArgument, FormatTooNew, LockstepError

HEAD_VERSION = 5
OLDEST_HEAD_VERSION = 3
"""Older ones are refused. What is of this version or a later one is read, and stored again as it changes."""
HEAD = "head"
Pages = Mapping[str, bytes | None]
"""Pages by name; None removes one."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a snapshot belongs to and where it was taken."""

    fingerprint: str
    position: SequencePosition
    marks: tuple[SequencePosition, ...]
    last_out: Mapping[str, tuple[int, str]]
    """The last block of each published window, with its digest."""
    model: str = ""
    """The model that the state is of, as YAML, and below the windows whose blocks it publishes."""
    publish: tuple[str, ...] = ()
    past: Mapping[str, Any] | None = None
    """How to read what it was made of again, as plain values."""


_CHECKSUM_BYTES = 4


def seal(body: bytes) -> bytes:
    """A page with its checksum."""
    checksum: int = crc32c(body)
    return checksum.to_bytes(_CHECKSUM_BYTES, "little") + body


def unseal(page: bytes, place: str) -> bytes:
    """The content of a page that is whole."""
    body = page[_CHECKSUM_BYTES:]
    if len(page) < _CHECKSUM_BYTES or crc32c(body) != int.from_bytes(page[:_CHECKSUM_BYTES], "little"):
        raise SnapshotDamaged(place=place, reason="its checksum does not match")
    return body


def encode_head(head: Head) -> bytes:
    """The head as a page."""
    tree = {
        "version": HEAD_VERSION,
        "fingerprint": head.fingerprint,
        "position": head.position.tree(),
        "marks": _mark_trees(head.marks),
        "last_out": dict(head.last_out),
        "model": head.model,
        "publish": list(head.publish),
        "past": head.past,
    }
    return seal(msgpack.packb(tree))


def decode_head(page: bytes, fingerprint: str | None, place: str) -> Head:
    """The head of a snapshot, refused if it is of another form, or of another model if one is named."""
    tree: dict[str, Any] = msgpack.unpackb(unseal(page, place), strict_map_key=False)
    if tree["version"] > HEAD_VERSION:
        raise FormatTooNew(what=f"The snapshot {place}", found=tree["version"], known=HEAD_VERSION)
    if tree["version"] < OLDEST_HEAD_VERSION:
        raise SnapshotDamaged(place=place, reason=f"it is of version {tree['version']}, which is too old")
    if fingerprint is not None and tree["fingerprint"] != fingerprint:
        raise ModelMismatch(place=place, found=tree["fingerprint"], wanted=fingerprint)
    marks = _marks_of(tree["marks"])
    position, publish = SequencePosition.of(tree["position"]), tuple(tree["publish"])
    last_out = {path: (block, digest) for path, (block, digest) in tree["last_out"].items()}
    return Head(tree["fingerprint"], position, marks, last_out, tree["model"], publish, tree["past"])


_SENDERS = ("clients", "producers")
"""Of a mark only those that sent since the mark before: thousands are known, and there are thousands of marks."""


def _mark_trees(marks: Sequence[SequencePosition]) -> list[dict[str, Any]]:
    before, trees = SequencePosition(), []
    for mark in marks:
        changed = {name: _since(getattr(before, name), getattr(mark, name)) for name in _SENDERS}
        trees.append({**mark.tree(), **changed})
        before = mark
    return trees


def _marks_of(trees: Sequence[Mapping[str, Any]]) -> tuple[SequencePosition, ...]:
    marks: list[SequencePosition] = []
    before = SequencePosition()
    for tree in trees:
        senders = {name: _senders(getattr(before, name), tree[name]) for name in _SENDERS if name in tree}
        before = SequencePosition.of({**tree, **senders})
        marks.append(before)
    return tuple(marks)


def _since(before: Mapping[str, int], now: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """How many stand first that stood there before, in this order, and those after them."""
    earlier, kept = iter(before.items()), 0
    for each in now.items():
        if each not in earlier:  # which looks on from where it was
            break
        kept += 1
    found = kept, dict(islice(now.items(), kept, None))
    return found if list(_senders(before, found).items()) == list(now.items()) else (0, dict(now))


def _senders(before: Mapping[str, int], told: Mapping[str, int] | Sequence[Any]) -> dict[str, int]:
    """All senders of a mark: who was silent for longest is forgotten first. Earlier versions wrote all of them."""
    if isinstance(told, Mapping):
        return dict(told)
    kept, changed = told
    rest = [each for each in before.items() if each[0] not in changed]
    return {**dict(rest[len(rest) - kept :]), **changed}


MAGIC, FILE_VERSION = b"LSSN", 1
FIXED = struct.Struct("<4sHHI")
_CRC = struct.Struct("<I")
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """What stands in front of the pages."""

    name: str
    """The snapshot's, which is that of its folder."""
    belongs: str
    """The sequence log it belongs to; empty if unknown."""
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


def read_head(page: bytes, place: str) -> Head:
    """A sealed head, whatever model it is of."""
    try:
        fingerprint = msgpack.unpackb(unseal(page, place), strict_map_key=False)["fingerprint"]
        return decode_head(page, fingerprint, place)
    except LockstepError as error:
        raise SnapshotRefused(place=place, reason=error.template.format(**error.params).rstrip(".")) from error
    except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as error:
        raise SnapshotRefused(place=place, reason=f"its head can't be read ({error})") from error


def file_chunks(index: Index, head: bytes, pages: Mapping[str, bytes]) -> Iterator[bytes]:
    """The file piece by piece; large pages are not copied."""
    packed: bytes = msgpack.packb(asdict(index))
    crc = 0
    for piece in chain((FIXED.pack(MAGIC, FILE_VERSION, 0, len(packed)), packed, head), pages.values()):
        crc = extend(crc, piece)
        yield piece
    yield _CRC.pack(crc)


def page_sizes(pages: Mapping[str, bytes]) -> tuple[tuple[str, int], ...]:
    """Names and sizes of pages, as an index has them."""
    if HEAD in pages:
        raise BadArgument(name="pages", value=HEAD, reason="the head is given apart")
    return tuple((name, len(content)) for name, content in pages.items())


def check_file(path: Path) -> ShardFile:
    """A file that is whole and of a known form, else SnapshotRefused. Reads it once, in pieces."""
    with _opened(path) as file:
        return _checked(path, file)[0]


def read_file(path: Path) -> tuple[ShardFile, dict[str, bytes]]:
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
    if version != FILE_VERSION:
        raise SnapshotRefused(place=path, reason=f"it has format {version}, and this version reads {FILE_VERSION}")
    index = _index(path, file.read(packed))
    if FIXED.size + packed + index.head + sum(pages for _, pages in index.pages) + _CRC.size != size:
        raise SnapshotRefused(place=path, reason="its index does not fit its size")
    head = file.read(index.head)
    return ShardFile(index, read_head(head, str(path)), size), head


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
