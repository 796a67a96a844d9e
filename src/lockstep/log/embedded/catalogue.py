"""Which logs an embedded bus has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lockstep.errors import BadName, StreamNotFound
from lockstep.log.config import GROUP_LOG_PREFIX, StreamConfig
from lockstep.log.embedded.tables import (
    CATALOGUE,
    ENTRIES,
    HOLDS,
    LOGS,
    META,
    PRODUCERS,
    LogRow,
    Tables,
    log_key,
    scan_prefix,
)

NEXT_NUMBER = b"next-log-number"
PIECE_ROWS, PIECE_BYTES = 2000, 8 << 20
"""So much of a deleted log is removed in one transaction, so that other writers need not wait for all of it."""
_DELETED = b"deleted-"
_NUMBER_DIGITS = 10
_NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class LogInfo:
    """What the catalogue says about a log. Numbers are never used twice."""

    name: str
    number: int
    identity: str
    config: StreamConfig
    created_ns: int
    entry: bytes = field(default=b"", compare=False, repr=False)
    """As it is stored, to see whether it was altered."""

    @property
    def is_group(self) -> bool:
        """Whether it is the log of a group, for which a full store keeps room."""
        return self.name.startswith(GROUP_LOG_PREFIX)


def check_name(name: str) -> None:
    """Raise BadName for a name that can't be a key. What streams may be called is decided above, and is stricter."""
    if not 0 < len(name.encode()) <= _NAME_BYTES_MAX:
        raise BadName(what="Log", name=name)


def find(tables: Tables, name: str) -> LogInfo | None:
    """The log of that name, or None."""
    data = tables.get(CATALOGUE, name.encode()) if 0 < len(name.encode()) <= _NAME_BYTES_MAX else None
    return None if data is None else decode(name, data)


def get(tables: Tables, name: str, bus: str) -> LogInfo:
    """The log of that name, or StreamNotFound."""
    info = find(tables, name)
    if info is None:
        raise StreamNotFound(name=name, bus=bus)
    return info


def add(tables: Tables, name: str, config: StreamConfig, identity: str, created_ns: int) -> LogInfo:
    """Make a log; the name must be free."""
    number = int(tables.get(META, NEXT_NUMBER) or b"0")
    tables.put(META, NEXT_NUMBER, str(number + 1).encode())
    info = _put(tables, LogInfo(name, number, identity, config, created_ns))
    tables.put(LOGS, log_key(number), LogRow().pack())
    return info


def alter(tables: Tables, info: LogInfo, config: StreamConfig) -> LogInfo:
    """Give a log another configuration."""
    return _put(tables, replace(info, config=config))


def current(tables: Tables, info: LogInfo, bus: str) -> LogInfo:
    """A log as it is now, cheaply if it was not altered; StreamNotFound if it was deleted, or deleted and made anew."""
    data = tables.get(CATALOGUE, info.name.encode())
    if data == info.entry:
        return info
    found = None if data is None else decode(info.name, data)
    if found is None or found.number != info.number:
        raise StreamNotFound(name=info.name, bus=bus)
    return found


def remove(tables: Tables, info: LogInfo) -> None:
    """Forget a log, for good. Its number is noted until remove_piece has removed everything that it holds."""
    tables.delete(LOGS, log_key(info.number))
    tables.delete(META, _trimmed_key(info))
    tables.delete(CATALOGUE, info.name.encode())
    tables.put(META, _deleted_key(info.number), info.name.encode())


def removed(tables: Tables) -> list[int]:
    """The numbers of deleted logs that have not been removed to the last row."""
    return [int(key[len(_DELETED) :]) for key, _ in scan_prefix(tables, META, _DELETED)]


def remove_piece(tables: Tables) -> None:
    """Remove some rows of a deleted log, if there is one; with the last of them, the note that it was deleted."""
    numbers = removed(tables)
    if not numbers:
        return
    prefix = log_key(numbers[0])
    for table, key in list(_piece(tables, prefix)):
        tables.delete(table, key)
    if next(_piece(tables, prefix), None) is None:
        tables.delete(META, _deleted_key(numbers[0]))


def _piece(tables: Tables, prefix: bytes) -> Iterator[tuple[str, bytes]]:
    """The first rows of a log, by table and key."""
    rows = size = 0
    for table in (ENTRIES, PRODUCERS, HOLDS):
        for key, value in scan_prefix(tables, table, prefix):
            yield table, key
            rows, size = rows + 1, size + len(value)
            if rows >= PIECE_ROWS or size >= PIECE_BYTES:
                return


def all_names(tables: Tables) -> list[str]:
    """The names of all logs, in order."""
    return [key.decode() for key, _ in tables.scan(CATALOGUE, b"")]


def trimmed(tables: Tables, info: LogInfo) -> int:
    """Below what a log with a history was trimmed: the history still has it, and nobody may read it."""
    return int(tables.get(META, _trimmed_key(info)) or b"0") if info.config.history is not None else 0


def set_trimmed(tables: Tables, info: LogInfo, before: int) -> None:
    """Trim below `before`; never goes back."""
    if before > trimmed(tables, info):
        tables.put(META, _trimmed_key(info), str(before).encode())


def _deleted_key(number: int) -> bytes:
    return _DELETED + str(number).zfill(_NUMBER_DIGITS).encode()


def _trimmed_key(info: LogInfo) -> bytes:
    return b"trimmed-" + str(info.number).encode()


def all_logs(tables: Tables) -> Iterator[LogInfo]:
    """Every log, by name."""
    for key, data in tables.scan(CATALOGUE, b""):
        yield decode(key.decode(), data)


def row(tables: Tables, info: LogInfo, bus: str) -> LogRow:
    """The running totals of a log; StreamNotFound if it was deleted meanwhile."""
    data = tables.get(LOGS, log_key(info.number))
    if data is None:
        raise StreamNotFound(name=info.name, bus=bus)
    return LogRow.unpack(data)


def decode(name: str, data: bytes) -> LogInfo:
    """An entry of the catalogue."""
    stored = json.loads(data)
    config = StreamConfig.from_dict(stored["config"])
    return LogInfo(name, stored["number"], stored["identity"], config, stored["created_ns"], data)


def _put(tables: Tables, info: LogInfo) -> LogInfo:
    settings = {
        "number": info.number,
        "identity": info.identity,
        "created_ns": info.created_ns,
        "config": info.config.to_dict(),
    }
    entry = json.dumps(settings).encode()
    tables.put(CATALOGUE, info.name.encode(), entry, reserved=info.is_group)
    return replace(info, entry=entry)
