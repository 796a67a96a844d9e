"""The store of an embedded bus: ordered tables of bytes with transactions, and the layout of their rows.

| table     | key                       | value                                        |
| --------- | ------------------------- | -------------------------------------------- |
| catalogue | log name                  | JSON: number, identity, config, create time  |
| logs      | log number                | first, next, bytes, last append time         |
| entries   | log number, base offset   | a stored batch                               |
| producers | log number, producer      | next sequence, next offset, append time      |
| holds     | log number, holder        | offset                                       |
| cells     | any                       | any: small state of users                    |
| meta      | name                      | commit number, next log number, deleted logs |
| journal   | commit number             | keys changed, for a replica                  |
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lockstep.errors import IllegalState

T = TypeVar("T")

CATALOGUE, LOGS, ENTRIES, PRODUCERS = "catalogue", "logs", "entries", "producers"
HOLDS, CELLS, META, JOURNAL = "holds", "cells", "meta", "journal"
TABLES = (CATALOGUE, LOGS, ENTRIES, PRODUCERS, HOLDS, CELLS, META, JOURNAL)

KEY_BYTES_MAX = 511  # what LMDB takes, so that a bus in memory takes no more

_NUMBER = struct.Struct(">I")
_ENTRY_KEY = struct.Struct(">IQ")
_ROW = struct.Struct("<QQQq")


class Tables(Protocol):
    """One transaction over the tables; keys are ordered as bytes."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value, or None."""

    def put(self, table: str, key: bytes, value: bytes, *, reserved: bool = False) -> None:
        """Set a value. `reserved`: it may use the room that a full store keeps for the logs of groups."""

    def delete(self, table: str, key: bytes) -> None:
        """Remove a key; nothing happens if it is not there."""

    def scan(self, table: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs from the first key at or after `start`, upward. Change nothing while scanning."""

    def scan_down(self, table: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs from the last key at or before `start`, downward. Change nothing while scanning."""


class Store(Protocol):
    """Tables with transactions; writers one after the other, readers undisturbed."""

    def read(self) -> AbstractContextManager[Tables]:
        """A consistent view. Keep it short: don't wait and don't run a user's code inside."""

    def write(self, job: Callable[[Tables], T]) -> T:
        """Run the job and make it durable as promised; if it raises, nothing happened. A job may be run again."""

    def close(self) -> None:
        """Release its resources."""


def nested_write() -> IllegalState:
    """The error for a job that writes to its own store other than through its tables."""
    reason = "it is inside a transaction or snapshot of the same bus: write through that, or after it"
    return IllegalState(what="The bus", action="be written to", reason=reason)


@dataclass(frozen=True, slots=True)
class LogRow:
    """The running totals of one log."""

    first: int = 0
    next: int = 0
    stored_bytes: int = 0
    append_ns: int = 0

    def pack(self) -> bytes:
        """As stored."""
        return _ROW.pack(self.first, self.next, self.stored_bytes, self.append_ns)

    @classmethod
    def unpack(cls, data: bytes) -> LogRow:
        """From storage."""
        return cls(*_ROW.unpack(data))


def log_key(number: int) -> bytes:
    """Key of a log's row, and what all its other keys begin with."""
    return _NUMBER.pack(number)


def entry_key(number: int, base: int) -> bytes:
    """Key of a stored batch."""
    return _ENTRY_KEY.pack(number, base)


def entry_base(key: bytes) -> tuple[int, int]:
    """Log number and base offset of an entry's key."""
    number, base = _ENTRY_KEY.unpack(key)
    return number, base


def scan_prefix(tables: Tables, table: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Pairs whose key begins with `prefix`, in order."""
    for key, value in tables.scan(table, prefix):
        if not key.startswith(prefix):
            return
        yield key, value
