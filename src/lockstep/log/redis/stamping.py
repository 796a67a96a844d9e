"""Append times that never go back.

A batch is sealed with the time of whoever appends it. If the log has seen a later time by then, the server notes that
one beside the batch, and readers put it in: everybody reads the same bytes, and no append has to be sent twice for it.
"""

from __future__ import annotations

import struct

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from lockstep.log.batch import HEADER

_CRC = slice(4, 8)
_APPEND_NS = slice(HEADER.size - 16, HEADER.size - 8)


def stamp(ns: int) -> str:
    """A time as the scripts compare it."""
    return f"{ns:020d}"


def restamped(data: bytes, append_ns: int) -> bytes:
    """The stored batch with another append time; as it is if it is damaged, so that its reader finds out."""
    if len(data) < HEADER.size:
        return data
    body_crc = crc32c(data[HEADER.size :])
    if crc32c_extend(body_crc, _covered(data[: HEADER.size])) != int.from_bytes(data[_CRC], "little"):
        return data
    header = bytearray(data[: HEADER.size])
    header[_APPEND_NS] = struct.pack("<q", append_ns)
    header[_CRC] = crc32c_extend(body_crc, _covered(bytes(header))).to_bytes(4, "little")
    return bytes(header) + data[HEADER.size :]


def _covered(header: bytes) -> bytes:
    return header[: _CRC.start] + header[_CRC.stop :]
