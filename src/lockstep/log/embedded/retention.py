"""What an embedded log may forget: by count, bytes and age, but never what a hold protects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lockstep.errors import BadArgument, StoreFull
from lockstep.log.batch import peek
from lockstep.log.embedded import catalogue
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import (
    ENTRIES,
    HOLDS,
    KEY_BYTES_MAX,
    LogRow,
    Tables,
    entry_base,
    entry_key,
    log_key,
    scan_prefix,
)

DELETES_PER_APPEND = 256  # more than are added, bounds the work of one transaction; the rest goes with the next ones


def enforce(tables: Tables, info: LogInfo, row: LogRow, now_ns: int, *, added: int = 0) -> LogRow:
    """The row after retention, with whole batches below its first offset removed."""
    limit = DELETES_PER_APPEND + added
    row = drop_due(tables, info, row, now_ns, limit)
    return _below_ceiling(tables, info, row, limit) if info.config.protect else row


def drop_due(tables: Tables, info: LogInfo, row: LogRow, now_ns: int, limit: int = DELETES_PER_APPEND) -> LogRow:
    """The row without what retention lets go by now."""
    config = info.config
    wanted = row.first
    if config.capacity is not None:
        wanted = max(wanted, row.next - config.capacity)
    if config.retain_bytes is not None or config.retain_age_s is not None:
        wanted = max(wanted, _by_bytes_and_age(tables, info, row, now_ns, limit))
    if config.protect:
        wanted = max(row.first, min([wanted, *_held(tables, info)]))
    return drop_below(tables, info, row, wanted, limit)


def _below_ceiling(tables: Tables, info: LogInfo, row: LogRow, limit: int) -> LogRow:
    """Drop all that may go before saying that there is no room: a refused append takes its deletes back with it."""
    while row.stored_bytes > info.config.protect_bytes:
        smaller = drop_below(tables, info, row, row.first, limit)
        if smaller == row:
            reason = f"groups have not confirmed enough to stay below protect_bytes = {info.config.protect_bytes}"
            raise StoreFull(stream=info.name, reason=reason)
        row = smaller
    return row


def drop_below(tables: Tables, info: LogInfo, row: LogRow, first: int, limit: int = DELETES_PER_APPEND) -> LogRow:
    """Make `first` the first readable offset; remove stored batches that end at or below it."""
    if first > row.first:
        row = replace(row, first=min(first, row.next))
    freed = 0
    keys: list[bytes] = []
    for key, data in _stored(tables, info):
        _, base = entry_base(key)
        if base + peek(data)[0] > row.first or len(keys) >= limit:
            break
        keys.append(key)
        freed += len(data)
    for key in keys:
        tables.delete(ENTRIES, key)
    return replace(row, stored_bytes=row.stored_bytes - freed)


def hold(tables: Tables, info: LogInfo, holder: str, offset: int | None, bus: str) -> None:
    """Keep everything from `offset` on for `holder`, or let go."""
    key = log_key(info.number) + holder.encode()
    if len(key) > KEY_BYTES_MAX:
        raise BadArgument(name="holder", value=holder[:40], reason="it is too long")
    if offset is None:
        tables.delete(HOLDS, key)
    else:
        catalogue.row(tables, info, bus)  # a hold on a log that was deleted would stay for ever
        tables.put(HOLDS, key, str(offset).encode())


def _held(tables: Tables, info: LogInfo) -> list[int]:
    return [int(value) for _, value in scan_prefix(tables, HOLDS, log_key(info.number))]


def _stored(tables: Tables, info: LogInfo) -> Iterator[tuple[bytes, bytes]]:
    for key, data in tables.scan(ENTRIES, entry_key(info.number, 0)):
        if entry_base(key)[0] != info.number:
            return
        yield key, data


def _by_bytes_and_age(tables: Tables, info: LogInfo, row: LogRow, now_ns: int, limit: int) -> int:
    """The first offset that fits; the newest batch always stays."""
    config = info.config
    oldest_ns = now_ns - int((config.retain_age_s or 0) * 1e9)
    kept, first = row.stored_bytes, row.first
    for looked_at, (key, data) in enumerate(_stored(tables, info)):
        _, base = entry_base(key)
        count, append_ns = peek(data)
        too_many = config.retain_bytes is not None and kept > config.retain_bytes
        too_old = config.retain_age_s is not None and append_ns < oldest_ns
        if not (too_many or too_old) or base + count >= row.next or looked_at >= limit:
            break
        kept -= len(data)
        first = base + count
    return first
