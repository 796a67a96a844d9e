"""Records travel in batches: one stored value, one header, one checksum, columns of values, keys, headers and times.

Header, 64 bytes, little endian:

    magic "LS" | version u8 | codec u8 | crc32c u32 | count u32 | raw size u32 | flags u16 | - u16 | value size u32
    producer 16 bytes | sequence u64 | append time i64 ns | create time i64 ns

The checksum covers the stored body and then the header without the checksum field, so that the append time can be
stamped late without touching the body again. Body columns, each only if its flag is set, compressed as one:

    value sizes u32[n] (VARIED) | create times i64[n] (TIMES) | key sizes i32[n], keys (KEYS; -1: no key)
    header sizes u32[n], headers (HEADERS) | values

The number of a codec is part of the stored format and never changes its meaning.

"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

import cramjam
from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from lockstep.errors import BadArgument, BadConfig, BatchDamaged, FormatTooNew


@dataclass(frozen=True, slots=True)
class Codec:
    """One way to make bytes smaller and get them back; `decompress` is told the exact size to expect."""

    name: str
    number: int
    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], bytes]


def _plain(data: bytes) -> bytes:
    return data


CODECS = (
    Codec("none", 0, _plain, lambda data, _: data),
    Codec(
        "lz4",
        1,
        lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
        lambda data, size: bytes(cramjam.lz4.decompress_block(data, output_len=size)),
    ),
    Codec(
        "zstd",
        2,
        lambda data: bytes(cramjam.zstd.compress(data, level=1)),
        lambda data, size: bytes(cramjam.zstd.decompress(data, output_len=size)),
    ),
    Codec(
        "gzip",
        3,
        lambda data: bytes(cramjam.gzip.compress(data, level=6)),
        lambda data, size: bytes(cramjam.gzip.decompress(data, output_len=size)),
    ),
    Codec(
        "snappy",
        4,
        lambda data: bytes(cramjam.snappy.compress_raw(data)),
        lambda data, size: bytes(cramjam.snappy.decompress_raw(data, output_len=size)),
    ),
)
_BY_NAME = {codec.name: codec for codec in CODECS}
_BY_NUMBER = {codec.number: codec for codec in CODECS}


def codec_by_name(name: str) -> Codec:
    """The codec a configuration names."""
    if name not in _BY_NAME:
        raise BadConfig(field="compression", value=name, reason=f"choose one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def codec_by_number(number: int) -> Codec | None:
    """The codec a stored batch names, or None if this version has no such codec."""
    return _BY_NUMBER.get(number)


VERSION = 1
MAGIC = b"LS"
HEADER = struct.Struct("<2sBBIIIHHI16sQqq")
_CRC = slice(4, 8)
_PRODUCER_BYTES = 16
NO_PRODUCER = bytes(_PRODUCER_BYTES)
"""The producer of a batch that is sent once and never again: no copy of it is looked for or remembered."""
RAW_BYTES_MAX = 256 * 1024 * 1024
_HEADER_NAME_BYTES_MAX = 65_535
_HEADER = struct.Struct("<HI")

VARIED, TIMES, KEYS, HEADERS = 1, 2, 4, 8

Headers = tuple[tuple[str, bytes], ...]
Upgrade = Callable[[bytes], bytes]
UPGRADES: Mapping[int, Upgrade] = {}
"""For every older version the step to the next one. Version 1 is the first, so there is none yet."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records on their way to a log: packed, but without offset and append time."""

    count: int
    producer: bytes
    sequence: int
    codec: int
    flags: int
    raw_size: int
    value_size: int
    created_ns: int
    body: bytes
    body_crc: int

    @property
    def size(self) -> int:
        """Bytes it takes in the log."""
        return HEADER.size + len(self.body)

    def seal(self, append_ns: int) -> bytes:
        """The bytes to store, stamped with the time of the append."""
        header = HEADER.pack(
            MAGIC, VERSION, self.codec, 0, self.count, self.raw_size, self.flags, 0, self.value_size,
            self.producer, self.sequence, append_ns, self.created_ns,
        )  # fmt: skip
        before, after = header[: _CRC.start], header[_CRC.stop :]
        crc = crc32c_extend(self.body_crc, before + after)
        return b"".join((before, crc.to_bytes(4, "little"), after, self.body))


def pack(
    values: Sequence[bytes],
    *,
    producer: bytes,
    sequence: int,
    created_ns: int | Sequence[int],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    codec: Codec = CODECS[0],
) -> Batch:
    """Pack records into one batch. Columns that are empty or all the same take no room."""
    _check_columns(len(values), producer, created_ns, keys, headers)
    flags, columns = 0, []
    sizes = list(map(len, values))
    uniform = sizes.count(sizes[0]) == len(sizes)
    if not uniform:
        flags |= VARIED
        columns.append(struct.pack(f"<{len(sizes)}I", *sizes))
    if not isinstance(created_ns, int):
        flags |= TIMES
        columns.append(struct.pack(f"<{len(sizes)}q", *created_ns))
    if keys is not None:
        flags |= KEYS
        columns += [_pack_sizes("i", [-1 if key is None else len(key) for key in keys]), *filter(None, keys)]
    if headers is not None:
        flags |= HEADERS
        blobs = [_pack_headers(pairs) for pairs in headers]
        columns += [_pack_sizes("I", list(map(len, blobs))), *blobs]
    raw = b"".join((*columns, *values))
    if len(raw) > RAW_BYTES_MAX:
        raise BadArgument(name="values", value=f"{len(raw)} bytes", reason=f"a batch holds at most {RAW_BYTES_MAX}")
    body = codec.compress(raw)
    return Batch(
        len(values), producer, sequence, codec.number, flags, len(raw), sizes[0] if uniform else 0,
        created_ns if isinstance(created_ns, int) else created_ns[0], body, crc32c(body),
    )  # fmt: skip


def _check_columns(
    count: int,
    producer: bytes,
    created_ns: int | Sequence[int],
    keys: Sequence[bytes | None] | None,
    headers: Sequence[Headers] | None,
) -> None:
    """Refuse what would be stored and could not be read back as it was."""
    if count == 0:
        raise BadArgument(name="values", value=[], reason="a batch has at least one record")
    if len(producer) != _PRODUCER_BYTES:
        raise BadArgument(name="producer", value=producer, reason=f"it has {_PRODUCER_BYTES} bytes")
    times = None if isinstance(created_ns, int) else created_ns
    for name, column in (("created_ns", times), ("keys", keys), ("headers", headers)):
        if column is not None and len(column) != count:
            raise BadArgument(name=name, value=f"{len(column)} items", reason=f"there are {count} values")


def _pack_sizes(code: str, sizes: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(sizes)}{code}", *sizes)


def _pack_headers(pairs: Headers) -> bytes:
    return b"".join([part for name, value in pairs for part in (_header_start(name, len(value)), value)])


@lru_cache(maxsize=4096)
def _header_start(name: str, value_size: int) -> bytes:
    """What comes before the value of a header."""
    raw = name.encode()
    if len(raw) > _HEADER_NAME_BYTES_MAX:
        reason = f"a name has at most {_HEADER_NAME_BYTES_MAX} bytes"
        raise BadArgument(name="headers", value=f"{name[:20]}...", reason=reason)
    return _HEADER.pack(len(raw), value_size) + raw


class BatchView:
    """A stored batch, checked when made and taken apart only as far as it is looked at."""

    __slots__ = (
        "_flags", "_raw", "_value_size", "append_ns", "base", "count", "created_ns", "producer", "sequence", "stream",
    )  # fmt: skip

    base: int
    count: int
    producer: bytes
    sequence: int
    append_ns: int
    created_ns: int
    stream: str
    _flags: int
    _value_size: int
    _raw: bytes

    def __init__(self, base: int, data: bytes, stream: str, upgrades: Mapping[int, Upgrade] = UPGRADES) -> None:
        data = _current(data, base, stream, upgrades)
        (_, _, codec, crc, self.count, raw_size, self._flags, _, self._value_size, self.producer, self.sequence,
         self.append_ns, self.created_ns) = HEADER.unpack_from(data)  # fmt: skip
        self.base, self.stream = base, stream
        body = data[HEADER.size :]
        if crc32c_extend(crc32c(body), data[: _CRC.start] + data[_CRC.stop : HEADER.size]) != crc:
            raise BatchDamaged(offset=base, stream=stream, reason="its checksum does not match")
        self._raw = self._unpacked(codec, body, raw_size)

    def _unpacked(self, number: int, body: bytes, raw_size: int) -> bytes:
        codec = codec_by_number(number)
        if codec is None:
            raise FormatTooNew(
                what=f"The batch at offset {self.base} of {self.stream}", found=f"codec {number}", known=4
            )
        if raw_size > RAW_BYTES_MAX:
            raise BatchDamaged(offset=self.base, stream=self.stream, reason=f"it claims {raw_size} bytes")
        try:
            raw = codec.decompress(body, raw_size)
        except cramjam.DecompressionError as error:
            raise BatchDamaged(offset=self.base, stream=self.stream, reason=str(error)) from error
        if len(raw) != raw_size:
            raise BatchDamaged(offset=self.base, stream=self.stream, reason="its size does not match")
        return raw

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.base + self.count

    @property
    def raw(self) -> bytes:
        """The columns of all records, unpacked."""
        return self._raw

    def values(self) -> tuple[bytes, ...]:
        """All values, made in one go."""
        if self._flags & VARIED:
            sizes = struct.unpack_from(f"<{self.count}I", self._raw)
            return _slices(self._raw, sizes, len(self._raw) - sum(sizes))
        start = len(self._raw) - self.count * self._value_size
        return _columns(self._value_size, self.count).unpack_from(self._raw, start)

    def keys(self) -> tuple[bytes | None, ...]:
        """All keys; None where a record has none."""
        if not self._flags & KEYS:
            return (None,) * self.count
        start = self._keys_at()
        sizes = struct.unpack_from(f"<{self.count}i", self._raw, start)
        blobs = _slices(self._raw, [max(size, 0) for size in sizes], start + 4 * self.count)
        return tuple(None if size < 0 else blob for size, blob in zip(sizes, blobs, strict=True))

    def headers(self) -> tuple[Headers, ...]:
        """The headers of all records."""
        if not self._flags & HEADERS:
            return ((),) * self.count
        start = self._headers_at()
        sizes = struct.unpack_from(f"<{self.count}I", self._raw, start)
        return tuple(map(_unpack_headers, _slices(self._raw, sizes, start + 4 * self.count)))

    def created(self) -> tuple[int, ...]:
        """The create times of all records, in nanoseconds since 1970."""
        if not self._flags & TIMES:
            return (self.created_ns,) * self.count
        return struct.unpack_from(f"<{self.count}q", self._raw, self._times_at())

    def _times_at(self) -> int:
        return 4 * self.count if self._flags & VARIED else 0

    def _keys_at(self) -> int:
        return self._times_at() + (8 * self.count if self._flags & TIMES else 0)

    def _headers_at(self) -> int:
        start = self._keys_at()
        if not self._flags & KEYS:
            return start
        sizes = struct.unpack_from(f"<{self.count}i", self._raw, start)
        return int(start + 4 * self.count + sum(size for size in sizes if size > 0))


def peek(data: bytes | memoryview) -> tuple[int, int]:
    """Count and append time of a stored batch, without checking it."""
    fields = HEADER.unpack_from(data)
    return fields[4], fields[11]


def origin(data: bytes) -> tuple[bytes, int]:
    """Producer and sequence of a stored batch, without checking it."""
    fields = HEADER.unpack_from(data)
    return fields[9], fields[10]


def _current(data: bytes, base: int, stream: str, upgrades: Mapping[int, Upgrade]) -> bytes:
    """The bytes in this version's format: older ones go up one version at a time, newer ones stop the reader."""
    if len(data) < 4 or data[:2] != MAGIC:
        raise BatchDamaged(offset=base, stream=stream, reason="it does not begin like a batch")
    while data[2] < VERSION:
        if data[2] not in upgrades:
            raise BatchDamaged(offset=base, stream=stream, reason=f"nothing reads format {data[2]}")
        data = upgrades[data[2]](data)
    if data[2] > VERSION:
        raise FormatTooNew(what=f"The batch at offset {base} of {stream}", found=data[2], known=VERSION)
    if len(data) < HEADER.size:
        raise BatchDamaged(offset=base, stream=stream, reason="it is shorter than its header")
    return data


@lru_cache(maxsize=128)
def _columns(size: int, count: int) -> struct.Struct:
    # One unpack makes all values in C; batches of a busy stream have the same shape again and again.
    return struct.Struct(f"{size}s" * count)


def _slices(data: bytes, sizes: Sequence[int], start: int) -> tuple[bytes, ...]:
    return tuple([data[a:b] for a, b in pairwise(accumulate(sizes, initial=start))])


def _unpack_headers(blob: bytes) -> Headers:
    pairs, at = [], 0
    while at < len(blob):
        name_size, value_size = _HEADER.unpack_from(blob, at)
        name_end = at + 6 + name_size
        pairs.append((blob[at + 6 : name_end].decode(), blob[name_end : name_end + value_size]))
        at = name_end + value_size
    return tuple(pairs)
