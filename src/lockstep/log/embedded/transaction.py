"""Transactions of an embedded bus: reading and changing several logs and cells in one step.

Within one transaction an append drops copies, gives offsets and enforces retention.

"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from typing import Protocol

from lockstep.errors import BadArgument, BatchDamaged, FormatTooNew, IllegalState, OffsetConflict, Trimmed
from lockstep.log.batch import NO_PRODUCER, Batch, BatchView, origin, peek
from lockstep.log.embedded import catalogue, retention
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import (
    CELLS,
    ENTRIES,
    KEY_BYTES_MAX,
    LOGS,
    PRODUCERS,
    LogRow,
    Tables,
    entry_base,
    entry_key,
    log_key,
)
from lockstep.log.history import History
from lockstep.log.port import Bounds, Entry, Promises, Transaction


class TransactionOwner(Protocol):
    """What a transaction needs to know of its bus."""

    url: str
    promises: Promises

    def history_of(self, info: LogInfo) -> History | None:
        """The history of a stream, opened once."""

    def now_ns(self) -> int:
        """The wall clock, for stamps."""


class View(Transaction):
    """A transaction that reads."""

    def __init__(self, bus: TransactionOwner, tables: Tables) -> None:
        self._bus, self._tables = bus, tables

    def read(self, log: str, offset: int) -> Iterator[Entry]:
        info = self._info(log)
        row = catalogue.row(self._tables, info, self._bus.url)
        if offset < row.first:
            raise Trimmed(offset=offset, stream=log, first=row.first)
        return entries_from(self._tables, info, offset) if offset < row.next else iter(())

    def identity(self, log: str) -> str:
        return self._info(log).identity

    def bounds(self, log: str) -> Bounds:
        row = catalogue.row(self._tables, self._info(log), self._bus.url)
        return Bounds(row.first, row.next)

    def get(self, key: bytes) -> bytes | None:
        return self._tables.get(CELLS, _cell_key(key))

    def scan(self, prefix: bytes, start: bytes | None = None, *, down: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if down:
            last = prefix + b"\xff" * (KEY_BYTES_MAX - len(prefix))
            found = self._tables.scan_down(CELLS, last if start is None else start)
        else:
            found = self._tables.scan(CELLS, prefix if start is None else start)
        return takewhile(lambda pair: pair[0].startswith(prefix), found)

    def append(self, log: str, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:  # noqa: ARG002
        raise IllegalState(what="A snapshot", action="append", reason="it is for reading")

    def hold(self, log: str, holder: str, offset: int | None) -> None:  # noqa: ARG002
        raise IllegalState(what="A snapshot", action="hold", reason="it is for reading")

    def put(self, key: bytes, value: bytes | None) -> None:  # noqa: ARG002
        raise IllegalState(what="A snapshot", action="put", reason="it is for reading")

    def _info(self, log: str) -> LogInfo:
        return catalogue.get(self._tables, log, self._bus.url)


class Changes(View):
    """A transaction that writes, and remembers which readers to wake."""

    def __init__(self, bus: TransactionOwner, tables: Tables, changed: dict[int, LogInfo]) -> None:
        super().__init__(bus, tables)
        self._changed = changed
        self._half_done: Exception | None = None

    def append(self, log: str, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:
        info = self._info(log)
        self._changed[info.number] = info
        try:
            return append_to(self._bus, self._tables, info, batches, expected_next)
        except OffsetConflict:
            raise  # found before anything was written: a caller that catches it may go on
        except Exception as error:
            self._half_done = error
            raise

    def hold(self, log: str, holder: str, offset: int | None) -> None:
        retention.hold(self._tables, self._info(log), holder, offset, self._bus.url)

    def put(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._tables.delete(CELLS, _cell_key(key))
        else:
            self._tables.put(CELLS, _cell_key(key), value)

    def check_whole(self) -> None:
        """Raise the error of a half-done append even if the work caught it: half an append must not be committed."""
        if self._half_done is not None:
            raise self._half_done


def _cell_key(key: bytes) -> bytes:
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise BadArgument(name="key", value=key[:40], reason=f"it must have 1 to {KEY_BYTES_MAX} bytes")
    return key


def append_to(
    bus: TransactionOwner, tables: Tables, info: LogInfo, batches: Sequence[Batch], expected_next: int | None
) -> list[int]:
    """Append within a transaction."""
    return append_batches(
        tables,
        info,
        catalogue.row(tables, info, bus.url),
        batches,
        now_ns=bus.now_ns(),
        expected_next=expected_next,
        history=bus.history_of(info),
        dedupe=bus.promises.dedupe,
    )


def entries_from(tables: Tables, info: LogInfo, offset: int) -> Iterator[Entry]:
    """Stored batches from the one that holds `offset`, or the next above it."""
    for key, data in _scan_from(tables, info, offset):
        number, base = entry_base(key)
        if number != info.number:
            return
        yield Entry(base, data)


def _scan_from(tables: Tables, info: LogInfo, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Rows from the batch that holds `offset`. Readers mostly ask for the start of a batch, which is copied once."""
    start = entry_key(info.number, offset)
    rows = tables.scan(ENTRIES, start)
    first = next(rows, None)
    if first is not None and first[0] == start:
        return chain((first,), rows)
    return tables.scan(ENTRIES, _start_key(tables, info, offset))


def _start_key(tables: Tables, info: LogInfo, offset: int) -> bytes:
    """The key of the batch that `offset` falls into: the last one at or below it, if it reaches that far."""
    for key, data in tables.scan_down(ENTRIES, entry_key(info.number, offset)):
        number, base = entry_base(key)
        if number == info.number and _may_hold(info, Entry(base, data), offset):
            return key
        break
    return entry_key(info.number, offset)


def _may_hold(info: LogInfo, entry: Entry, offset: int) -> bool:
    """Whether a batch reaches `offset`; a damaged one may, and its reader must find out rather than pass it by."""
    try:
        if entry.base + peek(entry.data)[0] > offset:
            return True
        BatchView(entry.base, entry.data, info.name)
    except (BatchDamaged, FormatTooNew, struct.error):
        return True
    return False


PRODUCER_ROW = struct.Struct("<QQq")
PRODUCER_FORGOTTEN_NS = 3600 * 10**9
_PRODUCERS_SCANNED = 64
_ENTRIES_SCANNED = 4096


def append_batches(
    tables: Tables,
    info: LogInfo,
    row: LogRow,
    batches: Sequence[Batch],
    *,
    now_ns: int,
    expected_next: int | None = None,
    history: History | None = None,
    dedupe: bool = True,
) -> list[int]:
    """Add batches to a log whose row was read in this transaction; returns the base offset of each."""
    if expected_next is not None and expected_next != row.next:
        raise OffsetConflict(stream=info.name, expected=expected_next - 1, actual=row.next - 1)
    stamp = max(now_ns, row.append_ns)  # append times never go back, so a time can be looked up by halving
    bases = []
    for batch in batches:
        base = _earlier_base(tables, info, batch) if dedupe and batch.producer != NO_PRODUCER else None
        if base is None:
            base = row.next
            row = _add(tables, info, row, batch, stamp, history)
        bases.append(base)
    row = retention.enforce(tables, info, row, stamp, added=len(batches))
    tables.put(LOGS, log_key(info.number), row.pack())
    return bases


def _add(tables: Tables, info: LogInfo, row: LogRow, batch: Batch, stamp: int, history: History | None) -> LogRow:
    data = batch.seal(stamp)
    if history is not None:
        history.store(row.next, batch.count, data)
    tables.put(ENTRIES, entry_key(info.number, row.next), data, reserved=info.is_group)
    after = replace(row, next=row.next + batch.count, stored_bytes=row.stored_bytes + len(data), append_ns=stamp)
    if batch.producer != NO_PRODUCER:
        _remember(tables, info, batch, after)
    return after


def _earlier_base(tables: Tables, info: LogInfo, batch: Batch) -> int | None:
    """Where this batch went if its producer sent it before."""
    stored = tables.get(PRODUCERS, log_key(info.number) + batch.producer)
    if stored is None:
        return None
    next_sequence, next_offset, _ = PRODUCER_ROW.unpack(stored)
    if batch.sequence >= next_sequence:
        return None
    counted = next_offset - (next_sequence - batch.sequence)
    return _stored_base(tables, info, batch, next_offset, counted)


def _stored_base(tables: Tables, info: LogInfo, batch: Batch, before: int, counted: int) -> int:
    """The base of a batch that is stored below `before`.

    Mostly it is where counting back leads, because an append is contiguous and only the last one is sent again. Others
    may have come in between; then it is looked for, and only if it is long gone is the count as good as any answer.
    """
    start = entry_key(info.number, before)
    for looked_at, (key, data) in enumerate(tables.scan_down(ENTRIES, start)):
        number, base = entry_base(key)
        if number != info.number or looked_at >= _ENTRIES_SCANNED:
            break
        if origin(data) == (batch.producer, batch.sequence):
            return base
    return max(counted, 0)


def _remember(tables: Tables, info: LogInfo, batch: Batch, row: LogRow) -> None:
    key = log_key(info.number) + batch.producer
    if tables.get(PRODUCERS, key) is None:
        _forget_old_producers(tables, info, key, row.append_ns)
    tables.put(PRODUCERS, key, PRODUCER_ROW.pack(batch.sequence + batch.count, row.next, row.append_ns))


def _forget_old_producers(tables: Tables, info: LogInfo, start: bytes, now_ns: int) -> None:
    """Whenever a producer is new, look at some old ones, so that the table stays as large as the busy ones need.

    Producers are random numbers, so beginning at the new one looks at another part of the table every time.
    """
    old = []
    for looked_at, (key, stored) in enumerate(tables.scan(PRODUCERS, start)):
        if looked_at >= _PRODUCERS_SCANNED or not key.startswith(log_key(info.number)):
            break
        if now_ns - PRODUCER_ROW.unpack(stored)[2] > PRODUCER_FORGOTTEN_NS:
            old.append(key)
    for key in old:
        tables.delete(PRODUCERS, key)
