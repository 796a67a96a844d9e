"""Reading stored batches: those that go on from the last read in one round trip, as those from anywhere else."""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lockstep.errors import ServerUnreachable, TakenBack
from lockstep.log.batch import HEADER, NO_PRODUCER, Batch, origin, peek
from lockstep.log.port import Entry
from lockstep.log.redis.client import RedisClient
from lockstep.log.redis.layout import LogKeys, base_of, entry_id, restamped
from lockstep.log.redis.scripts import Command

_BATCHES_MAX = 512
_LARGEST_AT_FIRST = 64 << 10
_SEARCHED = 4096
_SEARCHED_AT_ONCE = 64
_TRIES = 20
_CHECKSUM = slice(4, 8)
_CHECKSUM_BYTES = 4
_TIPS_MAX = 64
"""How many readers of one handle can be told that what they read last is gone."""


@dataclass(frozen=True, slots=True)
class Row:
    """The running totals of a log, as far as readers need them."""

    identity: str | None
    first: int = 0
    next: int = 0
    tip: bytes = b""
    """The checksum of the last batch; nothing if it is not known."""

    @classmethod
    def of(cls, reply: list[bytes | None]) -> Row:
        """From the answer of the server."""
        identity, first, after, tip = reply
        if identity is None:
            return cls(None)
        checksum = tip[-_CHECKSUM_BYTES:] if tip is not None and tip[:-_CHECKSUM_BYTES] == after else b""
        return cls(identity.decode(), int(first or 0), int(after or 0), checksum)


class _Found(NamedTuple):
    """Batches, and the fields as which they are stored."""

    entries: list[Entry]
    fields: list[list[bytes]]

    @classmethod
    def of(cls, reply: Any) -> _Found:
        """From the answer of the server."""
        return cls([Entry(base_of(entry), _data(fields)) for entry, fields in reply], [fields for _, fields in reply])

    @property
    def before(self) -> bytes:
        """The checksum of the batch before the first; nothing if it is not known."""
        return self.fields[0][0][1:]

    def checksum(self, index: int) -> bytes:
        """The checksum of a batch as it is stored."""
        return self.fields[index][1][_CHECKSUM]


@dataclass(frozen=True, slots=True)
class _Tip:
    """The last batch that a read returned: a reader that goes on from its end has seen it."""

    base: int
    header: bytes
    checksum: bytes
    """As it was stored: that in the header may be of another append time."""
    identity: str
    losses: int
    """How many connections had been lost when it was last known to be there."""


class Reader:
    """Reads the batches of one log."""

    def __init__(self, client: RedisClient, keys: LogKeys, name: str, identity: str) -> None:
        self._client, self._keys, self._name, self.identity = client, keys, name, identity
        self.goes_on_at = 0
        """The offset after what was read last."""
        self._largest = _LARGEST_AT_FIRST
        self._lock = threading.Lock()
        self._tips: dict[int, _Tip] = {}

    def row(self) -> Row:
        """The running totals now."""
        [reply] = self._client.ask(self._ask_row(), what=self._name)
        return Row.of(reply)

    def read(self, offset: int, max_bytes: int) -> tuple[Row, list[Entry]]:
        """Batches from the one that holds an offset, and the row after that.

        The row is asked for last: if it says that the offset is there and whose log it is, so it was before.
        """
        for _ in range(_TRIES):
            losses = self._client.losses
            with self._lock:
                tip = self._tips.get(offset)
            if tip is not None and tip.losses != losses:
                self._check_tip(tip, offset, losses)
            row, found = self._read(offset, max_bytes)
            if losses == self._client.losses:  # else another server may have answered
                if tip is not None:
                    self._check_follows(tip, offset, row, found)
                taken = self._cut(offset, found.entries, max_bytes)
                if taken:
                    self._remember(taken[-1], found.checksum(len(taken) - 1), losses)
                return row, taken
        raise ServerUnreachable(server=self._client.name, reason="its connections are lost again and again")

    def _read(self, offset: int, max_bytes: int) -> tuple[Row, _Found]:
        if offset == self.goes_on_at:
            row, found = self._read_on(offset, max_bytes)
            if offset < row.first or offset >= row.next or (found.entries and found.entries[0].base == offset):
                return row, found
        return self._read_from(offset, max_bytes)

    def _check_tip(self, tip: _Tip, offset: int, losses: int) -> None:
        """After a connection was lost: what stood before an offset must still stand there.

        A primary shows a record before its replicas have it. If it fails in between, its successor gives the offset to
        another record, and a reader that goes on would never see that one.
        """
        at = entry_id(tip.base)
        stored, reply = self._client.ask(("XRANGE", self._keys.entries, at, at), self._ask_row(), what=self._name)
        row = Row.of(reply)
        if row.identity != tip.identity or tip.base < row.first:
            return
        if [entry.data[: HEADER.size] for entry in _Found.of(stored).entries] != [tip.header]:
            raise self._taken_back(tip, offset)
        with self._lock:
            self._tips[offset] = replace(tip, losses=losses)

    def _check_follows(self, tip: _Tip, offset: int, row: Row, found: _Found) -> None:
        """What was read now must go on from what was read before it.

        A primary that is made a replica keeps its connections, so nothing else tells that it took over other records.
        """
        if row.identity != tip.identity or offset < row.first:
            return
        is_inside = bool(found.entries) and found.entries[0].base < offset  # of another one, as that one ends here
        if found.entries:
            before = found.before
        else:
            before = row.tip if row.next == offset else b""
        if is_inside or before not in (b"", tip.checksum):
            raise self._taken_back(tip, offset)

    def _remember(self, entry: Entry, checksum: bytes, losses: int) -> None:
        with self._lock:
            after = _after(entry, entry.base)
            self._tips.pop(after, None)
            self._tips[after] = _Tip(entry.base, entry.data[: HEADER.size], checksum, self.identity, losses)
            if len(self._tips) > _TIPS_MAX:
                del self._tips[next(iter(self._tips))]

    def _taken_back(self, tip: _Tip, offset: int) -> TakenBack:
        reason = f"another server became the primary of {self._client.name} before it had them"
        what = f"Offsets {tip.base} to {offset - 1}"
        return TakenBack(what=what, stream=self._name, reason=reason, offset=tip.base)

    def base(self, batch: Batch, counted: int, before: int) -> int:
        """Where a batch is that its producer sent before.

        Mostly it is where counting back leads, because an append is contiguous and only the last one is sent again.
        Others may have come in between; then it is view for, and only if it is long gone is the count as good as any
        answer.
        """
        [there] = self._client.ask(
            ("XRANGE", self._keys.entries, entry_id(counted), entry_id(counted)), what=self._name
        )
        if any(_is_of(entry, batch) for entry in _Found.of(there).entries):
            return counted
        at = entry_id(before)
        for _ in range(_SEARCHED // _SEARCHED_AT_ONCE):
            command = ("XREVRANGE", self._keys.entries, at, "-", "COUNT", _SEARCHED_AT_ONCE)
            found = _Found.of(self._client.ask(command, what=self._name)[0]).entries
            if not found:
                break
            for entry in found:
                if _is_of(entry, batch):
                    return entry.base
            at = f"({entry_id(found[-1].base)}"
        return max(counted, 0)

    def _read_on(self, offset: int, max_bytes: int) -> tuple[Row, _Found]:
        """An offset where a batch begins, or the end."""
        found, row = self._client.ask(self._ask_range(entry_id(offset), max_bytes), self._ask_row(), what=self._name)
        return Row.of(row), _Found.of(found)

    def _read_from(self, offset: int, max_bytes: int) -> tuple[Row, _Found]:
        """Any offset: it may be inside the batch before."""
        entries = self._keys.entries
        before, after, row = self._client.ask(
            ("XREVRANGE", entries, entry_id(offset), "-", "COUNT", 1),
            self._ask_range(f"({entry_id(offset)}", max_bytes),
            self._ask_row(),
            what=self._name,
        )
        holding = [one for one in before if _may_hold(_Found.of([one]).entries[0], offset)]
        return Row.of(row), _Found.of(holding + after)

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
        return ("HMGET", self._keys.row, "id", "first", "next", "tip")

    def _ask_range(self, start: str, max_bytes: int) -> Command:
        """So many batches as fit, if they are as large as the largest of those before."""
        count = max(1, min(max_bytes // self._largest + 1, _BATCHES_MAX))
        return ("XRANGE", self._keys.entries, start, "+", "COUNT", count)


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
