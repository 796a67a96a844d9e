"""Reading stored batches: those that go on from the last read in one round trip, as those from anywhere else."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from lockstep.log.batch import NO_PRODUCER, Batch, origin, peek
from lockstep.log.port import Entry
from lockstep.log.redis.keys import LogKeys, base_of, entry_id
from lockstep.log.redis.lua import Command
from lockstep.log.redis.server import Server
from lockstep.log.redis.stamping import restamped

_BATCHES_MAX = 512
_LARGEST_AT_FIRST = 64 << 10
_SEARCHED = 4096
_SEARCHED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Row:
    """The running totals of a log, as far as readers need them."""

    identity: str | None
    first: int = 0
    next: int = 0

    @classmethod
    def of(cls, reply: list[bytes | None]) -> Row:
        """From what the server answers."""
        identity, first, after = reply[:3]
        return cls(None) if identity is None else cls(identity.decode(), int(first or 0), int(after or 0))


class Reader:
    """Reads the batches of one log."""

    def __init__(self, server: Server, keys: LogKeys, name: str) -> None:
        self._server, self._keys, self._name = server, keys, name
        self.goes_on_at = 0
        """The offset behind what was read last."""
        self._largest = _LARGEST_AT_FIRST

    def row(self) -> Row:
        """The running totals now."""
        [reply] = self._server.ask(self._ask_row(), what=self._name)
        return Row.of(reply)

    def read(self, offset: int, max_bytes: int) -> tuple[Row, list[Entry]]:
        """Batches from the one that holds an offset, and the row after that.

        The row is asked for last: if it says that the offset is there and whose log it is, so it was before.
        """
        if offset == self.goes_on_at:
            row, found = self._read_on(offset, max_bytes)
            if offset < row.first or offset >= row.next or (found and found[0].base == offset):
                return row, self._cut(offset, found, max_bytes)
        row, found = self._read_from(offset, max_bytes)
        return row, self._cut(offset, found, max_bytes)

    def base(self, batch: Batch, counted: int, before: int) -> int:
        """Where a batch is that its producer sent before.

        Mostly it is where counting back leads, because an append is contiguous and only the last one is sent again.
        Others may have come in between; then it is looked for, and only if it is long gone is the count as good as any
        answer.
        """
        [there] = self._server.ask(
            ("XRANGE", self._keys.entries, entry_id(counted), entry_id(counted)), what=self._name
        )
        if any(_is_of(entry, batch) for entry in _entries(there)):
            return counted
        at = entry_id(before)
        for _ in range(_SEARCHED // _SEARCHED_AT_ONCE):
            command = ("XREVRANGE", self._keys.entries, at, "-", "COUNT", _SEARCHED_AT_ONCE)
            found = _entries(self._server.ask(command, what=self._name)[0])
            if not found:
                break
            for entry in found:
                if _is_of(entry, batch):
                    return entry.base
            at = f"({entry_id(found[-1].base)}"
        return max(counted, 0)

    def _read_on(self, offset: int, max_bytes: int) -> tuple[Row, list[Entry]]:
        """An offset where a batch begins, or the end."""
        found, row = self._server.ask(self._ask_range(entry_id(offset), max_bytes), self._ask_row(), what=self._name)
        return Row.of(row), _entries(found)

    def _read_from(self, offset: int, max_bytes: int) -> tuple[Row, list[Entry]]:
        """Any offset: it may be inside the batch before."""
        entries = self._keys.entries
        before, behind, row = self._server.ask(
            ("XREVRANGE", entries, entry_id(offset), "-", "COUNT", 1),
            self._ask_range(f"({entry_id(offset)}", max_bytes),
            self._ask_row(),
            what=self._name,
        )
        return Row.of(row), [entry for entry in _entries(before) if _may_hold(entry, offset)] + _entries(behind)

    def _cut(self, offset: int, found: list[Entry], max_bytes: int) -> list[Entry]:
        taken, size, after = list[Entry](), 0, offset
        for entry in found:
            if size >= max_bytes:
                after = entry.base
                break
            taken.append(entry)
            size += len(entry.data)
        else:
            after = _after(taken[-1], offset) if taken else offset
        self.goes_on_at = after
        if taken:
            self._largest = max(len(entry.data) for entry in taken)
        return taken

    def _ask_row(self) -> Command:
        return ("HMGET", self._keys.row, "id", "first", "next")

    def _ask_range(self, start: str, max_bytes: int) -> Command:
        """So many batches as fit, if they are as large as the largest of those before."""
        count = max(1, min(max_bytes // self._largest + 1, _BATCHES_MAX))
        return ("XRANGE", self._keys.entries, start, "+", "COUNT", count)


def _entries(reply: Any) -> list[Entry]:
    return [Entry(base_of(entry), _data(fields)) for entry, fields in reply]


def _data(fields: list[bytes]) -> bytes:
    return fields[1] if len(fields) < 4 else restamped(fields[1], int(fields[3]))


def _is_of(entry: Entry, batch: Batch) -> bool:
    return batch.producer != NO_PRODUCER and origin(entry.data) == (batch.producer, batch.sequence)


def _may_hold(entry: Entry, offset: int) -> bool:
    """Whether a batch reaches an offset; a damaged one may, and its reader must find out rather than pass it by."""
    try:
        return entry.base == offset or entry.base + peek(entry.data)[0] > offset
    except struct.error:
        return True


def _after(entry: Entry, offset: int) -> int:
    try:
        return entry.base + peek(entry.data)[0]
    except struct.error:
        return offset
