"""Checking a closed store on disk: the settings, the pages of the file, every batch of every log, and the totals.

Nothing is written, and the check does not stop at the first fault. Nobody may write to the store meanwhile; check a
copy if you can't be sure of that.

"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import lmdb
from lmdb.verify import VerifyError
from lmdb.verify import verify as check_pages

from lockstep.errors import BatchDamaged, FormatTooNew, IllegalState, LockstepError, StoreNotFound
from lockstep.log.batch import BatchView
from lockstep.log.embedded import catalogue
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import (
    CATALOGUE,
    ENTRIES,
    HOLDS,
    LOGS,
    META,
    PRODUCERS,
    TABLES,
    LogRow,
    Tables,
    entry_base,
    log_key,
    scan_prefix,
)
from lockstep.log.embedded.transaction import PRODUCER_ROW
from lockstep.log.lmdb import settings
from lockstep.log.lmdb.environment import REGISTRY
from lockstep.log.lmdb.tables import LmdbTables

_NUMBER_BYTES = 4
_ENTRY_KEY_BYTES = 12
_PRODUCER_KEY_BYTES = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong; `stream` and `offset` where it can be said."""

    what: str
    stream: str | None = None
    offset: int | None = None


@dataclass(slots=True)
class Findings:
    """What the check of the tables counted and found."""

    streams: int = 0
    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    faults: list[Fault] = field(default_factory=list)

    def add(self, what: str, stream: str | None = None, offset: int | None = None) -> None:
        """Note a fault, and go on."""
        self.faults.append(Fault(what, stream, offset))


def check_tables(tables: Tables, found: Findings) -> None:
    """Check the catalogue, every log in it, and that nothing belongs to no log."""
    logs = _check_catalogue(tables, found)
    known = {log_key(number) for number in [*logs, *catalogue.removed(tables)]}
    for info in logs.values():
        found.streams += 1
        _check_log(tables, info, found)
    for table in (LOGS, ENTRIES, PRODUCERS, HOLDS):
        for number in _unknown_numbers(tables, table, known):
            found.add(f"table {table} has rows of a log numbered {number}, which the catalogue does not know")


def _check_catalogue(tables: Tables, found: Findings) -> dict[int, LogInfo]:
    logs: dict[int, LogInfo] = {}
    for key, data in tables.scan(CATALOGUE, b""):
        name = key.decode(errors="replace")
        try:
            info = catalogue.decode(key.decode(), data)
        except (ValueError, KeyError, TypeError, LockstepError) as error:
            found.add(f"its catalogue entry can't be read ({error})", name)
            continue
        if info.number in logs:
            found.add(f"it has the same number as {logs[info.number].name}", name)
        logs[info.number] = info
    next_number = int(tables.get(META, catalogue.NEXT_NUMBER) or b"0")
    if logs and max(logs) >= next_number:
        found.add(f"the next log would get number {next_number}, but {max(logs)} is in use")
    return logs


def _unknown_numbers(tables: Tables, table: str, known: set[bytes]) -> list[int]:
    prefixes = {key[:_NUMBER_BYTES] for key, _ in tables.scan(table, b"")}
    return sorted(int.from_bytes(prefix, "big") for prefix in prefixes - known)


def _check_log(tables: Tables, info: LogInfo, found: Findings) -> None:
    stored = tables.get(LOGS, log_key(info.number))
    try:
        row = LogRow.unpack(stored or b"")
    except struct.error:
        found.add("its row of totals is missing or can't be read", info.name)
        row = None
    walk = _Walk(info.name, found)
    for key, data in scan_prefix(tables, ENTRIES, log_key(info.number)):
        walk.take(key, data)
    if row is not None:
        walk.compare(row)
        _check_producers(tables, info, row, found)
    for key, value in scan_prefix(tables, HOLDS, log_key(info.number)):
        if not value.isdigit():
            found.add(f"the hold of {key[_NUMBER_BYTES:]!r} is {value!r}, not an offset", info.name)


def _check_producers(tables: Tables, info: LogInfo, row: LogRow, found: Findings) -> None:
    for key, value in scan_prefix(tables, PRODUCERS, log_key(info.number)):
        if len(key) != _PRODUCER_KEY_BYTES or len(value) != PRODUCER_ROW.size:
            found.add(f"the row of producer {key[_NUMBER_BYTES:].hex()} has a wrong size", info.name)
        elif PRODUCER_ROW.unpack(value)[1] > row.next:
            found.add(f"producer {key[_NUMBER_BYTES:].hex()} is said to be ahead of the log", info.name)


class _Walk:
    """Goes through the batches of one log in the order of their keys."""

    def __init__(self, stream: str, found: Findings) -> None:
        self._stream, self._found = stream, found
        self._first: int | None = None
        self._end: int | None = None
        self._append_ns = 0
        self._bytes = 0

    def take(self, key: bytes, data: bytes) -> None:
        """The next batch."""
        if len(key) != _ENTRY_KEY_BYTES:
            self._found.add(f"an entry has the key {key.hex()}", self._stream)
            return
        base = entry_base(key)[1]
        self._check_place(base)
        self._first = base if self._first is None else self._first
        self._bytes += len(data)
        self._found.batches += 1
        self._found.stored_bytes += len(data)
        count = self._check_batch(base, data)
        # After a batch whose count can't be trusted, any next base is as good as another.
        self._end = None if count is None else base + count

    def compare(self, row: LogRow) -> None:
        """Do the totals of the log agree with what is stored?"""
        if row.stored_bytes != self._bytes:
            self._add(f"its row says {row.stored_bytes} bytes, and {self._bytes} are stored")
        if row.first > row.next:
            self._add(f"its row says that it begins at {row.first} and ends at {row.next}")
        if self._first is None:
            if row.first < row.next:
                self._add(f"its row says offsets {row.first} to {row.next}, and nothing is stored", row.first)
            return
        if self._first > row.first:
            self._add(f"records from {row.first} to {self._first} are missing", row.first)
        if self._end is not None and self._end != row.next:
            self._add(f"its row says that it ends at {row.next}, and its last batch ends at {self._end}", self._end)
        if row.append_ns < self._append_ns:
            self._add("its row has an earlier append time than its last batch")

    def _check_place(self, base: int) -> None:
        if self._end is None or base == self._end:
            return
        if base > self._end:
            self._add(f"records from {self._end} to {base} are missing", self._end)
        else:
            self._add(f"the batch begins before the one in front of it ends, at {self._end}", base)

    def _check_batch(self, base: int, data: bytes) -> int | None:
        """The number of records, or None if the batch is damaged."""
        try:
            view = BatchView(base, data, self._stream)
            columns = (view.values(), view.keys(), view.headers(), view.created())
        except BatchDamaged as error:
            self._add(f"the batch is damaged: {error.params['reason']}", base)
            return None
        except FormatTooNew as error:
            self._add(str(error), base)
            return None
        except (struct.error, ValueError) as error:
            self._add(f"the batch can't be taken apart: {error}", base)
            return None
        if any(len(column) != view.count for column in columns):
            self._add(f"the batch has {view.count} records by its header, and not in all columns", base)
        if view.append_ns < self._append_ns:
            self._add("the batch has an earlier append time than the one in front of it", base)
        self._append_ns = max(self._append_ns, view.append_ns)
        self._found.records += view.count
        return view.count

    def _add(self, what: str, offset: int | None = None) -> None:
        self._found.add(what, self._stream, offset)


def fault_lines(faults: list[Fault]) -> Iterator[str]:
    """Faults as people read them."""
    for fault in faults:
        stream = "" if fault.stream is None else f"{fault.stream}: "
        offset = "" if fault.offset is None else f"offset {fault.offset}: "
        yield f"{stream}{offset}{fault.what}"


__all__ = ["Fault", "Report", "verify"]

_WALK_S_MAX = 3600
_DATA = "data.mdb"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was looked at, and everything that is wrong with it."""

    folder: Path
    streams: int
    batches: int
    records: int
    stored_bytes: int
    faults: tuple[Fault, ...]

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.faults

    def lines(self) -> list[str]:
        """The faults as people read them."""
        return list(fault_lines(list(self.faults)))


def verify(folder: Path) -> Report:
    """Check the store in a folder. Raises only if there is no folder, or if this process has the store open."""
    if not folder.is_dir():
        raise StoreNotFound(path=folder)
    if REGISTRY.has(folder):
        raise IllegalState(what=f"The store {folder}", action="be verified", reason="this process has it open")
    faults = [*_settings_faults(folder), *_page_faults(folder)]
    if not (folder / _DATA).is_file():
        found = Findings()
    elif faults or _is_short(folder):
        found = _walk_apart(folder)
    else:
        found = walk(folder)
    return Report(
        folder=folder,
        streams=found.streams,
        batches=found.batches,
        records=found.records,
        stored_bytes=found.stored_bytes,
        faults=(*faults, *found.faults),
    )


def _settings_faults(folder: Path) -> list[Fault]:
    try:
        settings.load(folder)
    except (LockstepError, OSError) as error:
        return [Fault(f"the settings: {error}")]
    return []


def _page_faults(folder: Path) -> list[Fault]:
    if not (folder / _DATA).is_file():
        return [Fault(f"there is no {_DATA}")]
    try:
        problems: list[str] = check_pages(str(folder / _DATA), subdir=False)  # type: ignore[no-untyped-call]
    except VerifyError as error:
        problems = [str(error)]
    return [Fault(f"{_DATA}: {problem}") for problem in problems]


def _is_short(folder: Path) -> bool:
    """True if the file ends before its last page: perhaps nobody needs those pages, perhaps they were cut off."""
    with _opened(folder) as environment:
        needed: int = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    return (folder / _DATA).stat().st_size < needed


def walk(folder: Path) -> Findings:
    """Check everything that the tables hold."""
    found = Findings()
    try:
        with _opened(folder) as environment:
            _check_environment(environment, found)
    except lmdb.Error as error:
        found.add(f"{_DATA} can't be read on: {error}")
    return found


def _opened(folder: Path) -> Any:
    return lmdb.open(str(folder), readonly=True, lock=False, create=False, max_dbs=len(TABLES))


def _check_environment(environment: Any, found: Findings) -> None:
    handles = {}
    for name in TABLES:
        try:
            handles[name] = environment.open_db(name.encode(), create=False)
        except lmdb.NotFoundError:
            found.add(f"table {name} is missing")
    if len(handles) == len(TABLES):
        with environment.begin() as transaction:
            check_tables(LmdbTables(transaction, handles), found)


def _walk_apart(folder: Path) -> Findings:
    """Check the tables in a process of its own: a file with broken pages may take its reader down."""
    command = [sys.executable, "-m", __name__, str(folder)]
    done = subprocess.run(command, capture_output=True, timeout=_WALK_S_MAX, check=False)  # noqa: S603 - this program
    if done.returncode != 0:
        return Findings(faults=[Fault(f"{_DATA} can't be read: its reader ended with code {done.returncode}")])
    loaded = json.loads(done.stdout)
    return Findings(**{**loaded, "faults": [Fault(**fault) for fault in loaded["faults"]]})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(walk(Path(sys.argv[1])))))
