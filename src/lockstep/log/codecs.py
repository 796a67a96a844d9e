"""Compression of batches. The codec's number is part of the stored format and never changes its meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cramjam

from lockstep.errors import BadConfig


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


def by_name(name: str) -> Codec:
    """The codec a configuration names."""
    if name not in _BY_NAME:
        raise BadConfig(field="compression", value=name, reason=f"choose one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def by_number(number: int) -> Codec | None:
    """The codec a stored batch names, or None if this version has no such codec."""
    return _BY_NUMBER.get(number)
