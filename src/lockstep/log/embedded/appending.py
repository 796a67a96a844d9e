"""How an embedded log takes batches: copies dropped, offsets given, retention kept, all in one transaction."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from lockstep.errors import OffsetConflict
from lockstep.log.batch import Batch
from lockstep.log.embedded import retention
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import ENTRIES, LOGS, PRODUCERS, LogRow, Tables, entry_key, log_key, scan_prefix
from lockstep.log.history import History

_PRODUCER = struct.Struct("<QQq")
PRODUCER_FORGOTTEN_NS = 3600 * 10**9
_PRODUCERS_SCANNED = 64


def append(
    tables: Tables,
    info: LogInfo,
    row: LogRow,
    batches: Sequence[Batch],
    *,
    now_ns: int,
    expected_next: int | None = None,
    history: History | None = None,
) -> list[int]:
    """Add batches to a log whose row was read in this transaction; returns the base offset of each."""
    row = _not_behind_history(row, history)
    if expected_next is not None and expected_next != row.next:
        raise OffsetConflict(stream=info.name, expected=expected_next - 1, actual=row.next - 1)
    stamp = max(now_ns, row.append_ns)  # append times never go back, so a time can be looked up by halving
    bases = []
    for batch in batches:
        base = _known_base(tables, info, batch)
        if base is None:
            base = row.next
            row = _add(tables, info, row, batch, stamp, history)
        bases.append(base)
    row = retention.enforce(tables, info, row, stamp)
    tables.put(LOGS, log_key(info.number), row.pack())
    return bases


def _not_behind_history(row: LogRow, history: History | None) -> LogRow:
    """A log made anew over an old history goes on after what is stored there."""
    if history is None or history.next_offset() <= row.next:
        return row
    return replace(row, first=history.next_offset(), next=history.next_offset())


def _add(tables: Tables, info: LogInfo, row: LogRow, batch: Batch, stamp: int, history: History | None) -> LogRow:
    data = batch.seal(stamp)
    if history is not None:
        history.store(row.next, batch.count, data)
    tables.put(ENTRIES, entry_key(info.number, row.next), data)
    after = replace(row, next=row.next + batch.count, stored_bytes=row.stored_bytes + len(data), append_ns=stamp)
    _remember(tables, info, batch, after)
    return after


def _known_base(tables: Tables, info: LogInfo, batch: Batch) -> int | None:
    """Where this batch went if its producer sent it before.

    A producer has one append unacknowledged, and one append is contiguous here, so counting back from its end is exact.
    """
    stored = tables.get(PRODUCERS, log_key(info.number) + batch.producer)
    if stored is None:
        return None
    next_sequence, next_offset, _ = _PRODUCER.unpack(stored)
    if batch.sequence >= next_sequence:
        return None
    return int(next_offset - (next_sequence - batch.sequence))


def _remember(tables: Tables, info: LogInfo, batch: Batch, row: LogRow) -> None:
    key = log_key(info.number) + batch.producer
    if tables.get(PRODUCERS, key) is None:
        _forget_old_producers(tables, info, row.append_ns)
    tables.put(PRODUCERS, key, _PRODUCER.pack(batch.sequence + batch.count, row.next, row.append_ns))


def _forget_old_producers(tables: Tables, info: LogInfo, now_ns: int) -> None:
    """Whenever a producer is new, look at some old ones, so that the table stays as large as the busy ones need."""
    old = []
    for looked_at, (key, stored) in enumerate(scan_prefix(tables, PRODUCERS, log_key(info.number))):
        if looked_at >= _PRODUCERS_SCANNED:
            break
        if now_ns - _PRODUCER.unpack(stored)[2] > PRODUCER_FORGOTTEN_NS:
            old.append(key)
    for key in old:
        tables.delete(PRODUCERS, key)
