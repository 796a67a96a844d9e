"""Which shard a key belongs to: a setting of the stream, so that every writer chooses alike.

`crc32` is what librdkafka does, and the default; `murmur2` is for topics that Java programs write.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

_SEED = 0x9747B28C
_M, _R = 0x5BD1E995, 24
_U32, _POSITIVE = 0xFFFFFFFF, 0x7FFFFFFF


def java(key: bytes, partitions: int) -> int:
    """The partition that the Java client chooses for a key: murmur2."""
    return (murmur2(key) & _POSITIVE) % partitions


def librdkafka(key: bytes, partitions: int) -> int:
    """The partition that librdkafka's `consistent` partitioner chooses for a key: CRC-32."""
    return zlib.crc32(key) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with the seed that Kafka gives it."""
    value = (_SEED ^ len(data)) & _U32
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _M & _U32
        part = (part ^ part >> _R) * _M & _U32
        value = (value * _M & _U32) ^ part
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _U32
    value = (value ^ value >> 13) * _M & _U32
    return value ^ value >> 15


PARTITIONERS: Mapping[str, Callable[[bytes, int], int]] = {"crc32": librdkafka, "murmur2": java}
"""By the name that a stream's settings give."""
