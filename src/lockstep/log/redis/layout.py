"""How a bus is stored on Redis: which keys it uses, the entries of its catalogue, and append times.

| key                  | kind   | holds                                                                     |
| -------------------- | ------ | ------------------------------------------------------------------------- |
| {PREFIX}:streams     | hash   | name: JSON with identity and configuration                                |
| {PREFIX}:log:NAME    | stream | a batch each: id 0-(base offset + 1), field b, and t if its time was      |
|                      |        | late; after the letter b is the checksum of the batch before it           |
| {PREFIX}:row:NAME    | hash   | id, first, next, bytes, ns, ver (its last change), born (its first one),  |
|                      |        | tip: next, and after it the checksum of the last batch                    |
| {PREFIX}:sizes:NAME  | list   | for each batch: offset after it, bytes, append time, change               |
| {PREFIX}:seen:NAME   | hash   | producer: next sequence, offset after its last batch, append time         |
| {PREFIX}:holds:NAME  | hash   | holder: offset                                                            |
| {PREFIX}:cells       | hash   | small state of users                                                      |
| {PREFIX}:undo        | stream | what cells held before, for some seconds                                  |
| {PREFIX}:changes     | number | counts up with every change                                               |
| {PREFIX}:bell:NAME   | channel| one message after each append                                             |

The braces put all of them into one slot of a Redis Cluster, so that one script may use them together.

Append times never go back. A batch is sealed with the time of its writer. If the log has seen a later time by
then, the server notes that one beside the batch, and readers put it in: everybody reads the same bytes, and no append
has to be sent twice for it.

"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import lru_cache

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from lockstep.errors import BadName
from lockstep.log.batch import HEADER
from lockstep.log.config import StreamConfig

PREFIX_DEFAULT = "lockstep"


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of one log."""

    row: str
    entries: str
    sizes: str
    seen: str
    holds: str
    channel: str

    @property
    def stored(self) -> tuple[str, str, str, str, str]:
        """Those that hold something, in the order in which the scripts take them."""
        return self.row, self.entries, self.sizes, self.seen, self.holds


class Keys:
    """The keys of one bus."""

    def __init__(self, prefix: str) -> None:
        self._base = f"{{{prefix or PREFIX_DEFAULT}}}:"
        self.catalogue = self._base + "streams"
        self.changes = self._base + "changes"
        self.cells = self._base + "cells"
        self.undo = self._base + "undo"

    def log(self, name: str) -> LogKeys:
        """The keys of the log with a name."""
        kinds = ("row", "log", "sizes", "seen", "holds", "bell")
        return LogKeys(*(f"{self._base}{kind}:{name}" for kind in kinds))


def entry_id(offset: int) -> str:
    """The id of the batch with this base offset; ids begin with 1."""
    return f"0-{offset + 1}"


def base_of(entry: bytes) -> int:
    """The base offset of the batch with this id."""
    return int(entry[2:]) - 1


_NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """The catalogue entry of a log."""

    identity: str
    config: StreamConfig


def check_name(name: str) -> None:
    """Raise BadName for what no log may be called. What streams may be called is decided above, and is stricter."""
    if not 0 < len(name.encode()) <= _NAME_BYTES_MAX:
        raise BadName(what="Log", name=name)


def encode_entry(stored: CatalogueEntry, created_ns: int) -> bytes:
    """Encode an entry for the server."""
    settings = {"identity": stored.identity, "created_ns": created_ns, "config": stored.config.to_dict()}
    return json.dumps(settings).encode()


def altered_entry(entry: bytes, config: StreamConfig) -> bytes:
    """An encoded entry with another configuration."""
    return json.dumps({**json.loads(entry), "config": config.to_dict()}).encode()


@lru_cache(maxsize=1024)
def decode_entry(entry: bytes) -> CatalogueEntry:
    """Decode an entry from the server; cached, because transactions read the same ones often."""
    found = json.loads(entry)
    return CatalogueEntry(found["identity"], StreamConfig.from_dict(found["config"]))


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
