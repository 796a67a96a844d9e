"""How an embedded log takes batches: copies dropped, offsets given, retention kept, all in one transaction."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from lockstep.errors import OffsetConflict
from lockstep.log.batch import NO_PRODUCER, Batch, origin
from lockstep.log.embedded import retention
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import (
    ENTRIES,
    LOGS,
    PRODUCERS,
    LogRow,
    Tables,
    entry_base,
    entry_key,
    log_key,
)
from lockstep.log.history import History

PRODUCER_ROW = struct.Struct("<QQq")
PRODUCER_FORGOTTEN_NS = 3600 * 10**9
_PRODUCERS_SCANNED = 64
_ENTRIES_SCANNED = 4096


def append(
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
        base = _known_base(tables, info, batch) if dedupe and batch.producer != NO_PRODUCER else None
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


def _known_base(tables: Tables, info: LogInfo, batch: Batch) -> int | None:
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
