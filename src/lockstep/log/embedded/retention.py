"""What an embedded log may forget: by count, bytes and age, but never what a hold protects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lockstep.errors import StoreFull
from lockstep.log.batch import peek
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import ENTRIES, HOLDS, LogRow, Tables, entry_base, entry_key, log_key, scan_prefix

DELETES_PER_APPEND = 256  # bounds the work of one transaction; what is left goes with the next ones


def enforce(tables: Tables, info: LogInfo, row: LogRow, now_ns: int) -> LogRow:
    """The row after retention, with whole batches below its first offset removed."""
    config = info.config
    wanted = row.first
    if config.capacity is not None:
        wanted = max(wanted, row.next - config.capacity)
    if config.retain_bytes is not None or config.retain_age_s is not None:
        wanted = max(wanted, _by_bytes_and_age(tables, info, row, now_ns))
    if config.protect:
        wanted = max(row.first, min([wanted, *_held(tables, info)]))
        if row.stored_bytes > config.protect_bytes:
            reason = f"groups have not confirmed enough to stay below protect_bytes = {config.protect_bytes}"
            raise StoreFull(stream=info.name, reason=reason)
    return drop_below(tables, info, row, wanted)


def drop_below(tables: Tables, info: LogInfo, row: LogRow, first: int) -> LogRow:
    """Make `first` the first readable offset; remove stored batches that end at or below it."""
    if first > row.first:
        row = replace(row, first=min(first, row.next))
    freed = 0
    keys: list[bytes] = []
    for key, data in _stored(tables, info):
        _, base = entry_base(key)
        if base + peek(data)[0] > row.first or len(keys) >= DELETES_PER_APPEND:
            break
        keys.append(key)
        freed += len(data)
    for key in keys:
        tables.delete(ENTRIES, key)
    return replace(row, stored_bytes=row.stored_bytes - freed)


def hold(tables: Tables, info: LogInfo, holder: str, offset: int | None) -> None:
    """Keep everything from `offset` on for `holder`, or let go."""
    key = log_key(info.number) + holder.encode()
    if offset is None:
        tables.delete(HOLDS, key)
    else:
        tables.put(HOLDS, key, str(offset).encode())


def _held(tables: Tables, info: LogInfo) -> list[int]:
    return [int(value) for _, value in scan_prefix(tables, HOLDS, log_key(info.number))]


def _stored(tables: Tables, info: LogInfo) -> Iterator[tuple[bytes, bytes]]:
    for key, data in tables.scan(ENTRIES, entry_key(info.number, 0)):
        if entry_base(key)[0] != info.number:
            return
        yield key, data


def _by_bytes_and_age(tables: Tables, info: LogInfo, row: LogRow, now_ns: int) -> int:
    """The first offset that fits; the newest batch always stays."""
    config = info.config
    oldest_ns = now_ns - int((config.retain_age_s or 0) * 1e9)
    kept, first = row.stored_bytes, row.first
    for looked_at, (key, data) in enumerate(_stored(tables, info)):
        _, base = entry_base(key)
        count, append_ns = peek(data)
        too_many = config.retain_bytes is not None and kept > config.retain_bytes
        too_old = config.retain_age_s is not None and append_ns < oldest_ns
        if not (too_many or too_old) or base + count >= row.next or looked_at >= DELETES_PER_APPEND:
            break
        kept -= len(data)
        first = base + count
    return first
