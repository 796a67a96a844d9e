"""Reading and changing several logs and cells of an embedded bus in one step."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from typing import Protocol

from lockstep.errors import BadArgument, BatchDamaged, FormatTooNew, IllegalState, OffsetConflict, Trimmed
from lockstep.log.batch import Batch, BatchView, peek
from lockstep.log.embedded import appending, catalogue, retention
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import CELLS, ENTRIES, KEY_BYTES_MAX, Tables, entry_base, entry_key
from lockstep.log.history import History
from lockstep.log.port import Bounds, Entry, Promises


class Surroundings(Protocol):
    """What a transaction needs to know of its bus."""

    url: str
    promises: Promises

    def history_of(self, info: LogInfo) -> History | None:
        """The history of a stream, opened once."""

    def now_ns(self) -> int:
        """The wall clock, for stamps."""


class View:
    """A transaction that reads."""

    def __init__(self, bus: Surroundings, tables: Tables) -> None:
        self._bus, self._tables = bus, tables

    def read(self, log: str, offset: int) -> Iterator[Entry]:
        """See Transaction."""
        info = self._info(log)
        row = catalogue.row(self._tables, info, self._bus.url)
        if offset < row.first:
            raise Trimmed(offset=offset, stream=log, first=row.first)
        return entries_from(self._tables, info, offset) if offset < row.next else iter(())

    def identity(self, log: str) -> str:
        """See Transaction."""
        return self._info(log).identity

    def bounds(self, log: str) -> Bounds:
        """See Transaction."""
        row = catalogue.row(self._tables, self._info(log), self._bus.url)
        return Bounds(row.first, row.next)

    def get(self, key: bytes) -> bytes | None:
        """See Transaction."""
        return self._tables.get(CELLS, _cell_key(key))

    def scan(self, prefix: bytes, start: bytes | None = None, *, down: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """See Transaction."""
        if down:
            last = prefix + b"\xff" * (KEY_BYTES_MAX - len(prefix))
            found = self._tables.scan_down(CELLS, last if start is None else start)
        else:
            found = self._tables.scan(CELLS, prefix if start is None else start)
        return takewhile(lambda pair: pair[0].startswith(prefix), found)

    def append(self, log: str, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:  # noqa: ARG002
        """See Transaction."""
        raise IllegalState(what="A snapshot", action="append", reason="it is for reading")

    def hold(self, log: str, holder: str, offset: int | None) -> None:  # noqa: ARG002
        """See Transaction."""
        raise IllegalState(what="A snapshot", action="hold", reason="it is for reading")

    def put(self, key: bytes, value: bytes | None) -> None:  # noqa: ARG002
        """See Transaction."""
        raise IllegalState(what="A snapshot", action="put", reason="it is for reading")

    def _info(self, log: str) -> LogInfo:
        return catalogue.get(self._tables, log, self._bus.url)


class Changes(View):
    """A transaction that writes, and remembers whom to wake."""

    def __init__(self, bus: Surroundings, tables: Tables, rung: dict[int, LogInfo]) -> None:
        super().__init__(bus, tables)
        self._rung = rung
        self._half_done: Exception | None = None

    def append(self, log: str, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:
        """See Transaction."""
        info = self._info(log)
        self._rung[info.number] = info
        try:
            return append_to(self._bus, self._tables, info, batches, expected_next)
        except OffsetConflict:
            raise  # found before anything was written: whoever catches it may go on
        except Exception as error:
            self._half_done = error
            raise

    def hold(self, log: str, holder: str, offset: int | None) -> None:
        """See Transaction."""
        retention.hold(self._tables, self._info(log), holder, offset, self._bus.url)

    def put(self, key: bytes, value: bytes | None) -> None:
        """See Transaction."""
        if value is None:
            self._tables.delete(CELLS, _cell_key(key))
        else:
            self._tables.put(CELLS, _cell_key(key), value)

    def check_whole(self) -> None:
        """Raise what stopped an append half way, even if the work caught it: half an append must not be committed."""
        if self._half_done is not None:
            raise self._half_done


def _cell_key(key: bytes) -> bytes:
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise BadArgument(name="key", value=key[:40], reason=f"it must have 1 to {KEY_BYTES_MAX} bytes")
    return key


def append_to(
    bus: Surroundings, tables: Tables, info: LogInfo, batches: Sequence[Batch], expected_next: int | None
) -> list[int]:
    """Append within a transaction."""
    return appending.append(
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
