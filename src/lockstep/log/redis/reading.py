"""Reading stored batches: those that go on from the last read in one round trip, as those from anywhere else."""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, replace
from typing import Any

from lockstep.errors import DataError, ServerUnreachable
from lockstep.log.batch import HEADER, NO_PRODUCER, Batch, origin, peek
from lockstep.log.port import Entry
from lockstep.log.redis.keys import LogKeys, base_of, entry_id
from lockstep.log.redis.lua import Command
from lockstep.log.redis.server import Server
from lockstep.log.redis.stamping import restamped

_BATCHES_MAX = 512
_LARGEST_AT_FIRST = 64 << 10
_SEARCHED = 4096
_SEARCHED_AT_ONCE = 64
_TRIES = 20
_TIPS_MAX = 64
"""So many readers of one handle are told if what they read last is gone."""


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


@dataclass(frozen=True, slots=True)
class _Tip:
    """The last batch that a read handed out: who reads on from its end has seen it."""

    base: int
    header: bytes
    """It holds the checksum of the batch."""
    identity: str
    losses: int
    """How many connections had been lost when it was last known to be there."""


class Reader:
    """Reads the batches of one log."""

    def __init__(self, server: Server, keys: LogKeys, name: str, identity: str) -> None:
        self._server, self._keys, self._name, self.identity = server, keys, name, identity
        self.goes_on_at = 0
        """The offset behind what was read last."""
        self._largest = _LARGEST_AT_FIRST
        self._lock = threading.Lock()
        self._tips: dict[int, _Tip] = {}

    def row(self) -> Row:
        """The running totals now."""
        [reply] = self._server.ask(self._ask_row(), what=self._name)
        return Row.of(reply)

    def read(self, offset: int, max_bytes: int) -> tuple[Row, list[Entry]]:
        """Batches from the one that holds an offset, and the row after that.

        The row is asked for last: if it says that the offset is there and whose log it is, so it was before.
        """
        for _ in range(_TRIES):
            losses = self._server.losses
            self._check_tip(offset, losses)
            row, found = self._read(offset, max_bytes)
            if losses == self._server.losses:  # else another server may have answered
                taken = self._cut(offset, found, max_bytes)
                if taken:
                    self._remember(taken[-1], losses)
                return row, taken
        raise ServerUnreachable(server=self._server.name, reason="its connections are lost again and again")

    def _read(self, offset: int, max_bytes: int) -> tuple[Row, list[Entry]]:
        if offset == self.goes_on_at:
            row, found = self._read_on(offset, max_bytes)
            if offset < row.first or offset >= row.next or (found and found[0].base == offset):
                return row, found
        return self._read_from(offset, max_bytes)

    def _check_tip(self, offset: int, losses: int) -> None:
        """After a connection was lost: what stood before an offset must still stand there.

        A primary shows a record before its replicas have it. If it fails in between, its successor gives the offset to
        another record, and whoever read on would never see that one.
        """
        with self._lock:
            tip = self._tips.get(offset)
        if tip is None or tip.losses == losses:
            return
        at = entry_id(tip.base)
        stored, reply = self._server.ask(("XRANGE", self._keys.entries, at, at), self._ask_row(), what=self._name)
        row = Row.of(reply)
        if row.identity != tip.identity or tip.base < row.first:
            return
        if [entry.data[: HEADER.size] for entry in _entries(stored)] != [tip.header]:
            raise self._taken_back(tip, offset)
        with self._lock:
            self._tips[offset] = replace(tip, losses=losses)

    def _remember(self, entry: Entry, losses: int) -> None:
        with self._lock:
            after = _after(entry, entry.base)
            self._tips.pop(after, None)
            self._tips[after] = _Tip(entry.base, entry.data[: HEADER.size], self.identity, losses)
            if len(self._tips) > _TIPS_MAX:
                del self._tips[next(iter(self._tips))]

    def _taken_back(self, tip: _Tip, offset: int) -> DataError:
        return DataError(
            reason=f"Offsets {tip.base} to {offset - 1} of stream {self._name!r} were read, and another record is there"
            f" now, or none: the primary of {self._server.name} that had it failed before its successor had it. Seek to"
            f" offset {tip.base} or before it, and read on from there."
        )

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
