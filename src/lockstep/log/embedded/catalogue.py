"""Which logs an embedded bus has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.errors import BadName, StreamNotFound
from lockstep.log.config import StreamConfig
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
_NAME_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class LogInfo:
    """What the catalogue says about a log. Numbers are never used twice."""

    name: str
    number: int
    identity: str
    config: StreamConfig
    created_ns: int


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
    info = LogInfo(name, number, identity, config, created_ns)
    settings = {"number": number, "identity": identity, "created_ns": created_ns, "config": config.to_dict()}
    tables.put(CATALOGUE, name.encode(), json.dumps(settings).encode())
    tables.put(LOGS, log_key(number), LogRow().pack())
    return info


def remove(tables: Tables, info: LogInfo) -> None:
    """Forget a log and everything it holds."""
    prefix = log_key(info.number)
    for table in (ENTRIES, PRODUCERS, HOLDS):
        for key in [key for key, _ in scan_prefix(tables, table, prefix)]:
            tables.delete(table, key)
    tables.delete(LOGS, prefix)
    tables.delete(CATALOGUE, info.name.encode())


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
    return LogInfo(name, stored["number"], stored["identity"], config, stored["created_ns"])
