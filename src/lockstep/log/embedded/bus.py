"""A bus on ordered tables: the same code carries the one in memory and the one on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from lockstep.errors import Closed, IllegalState, Trimmed
from lockstep.log.batch import Batch, peek
from lockstep.log.config import StreamConfig
from lockstep.log.embedded import appending, catalogue, retention
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import CELLS, ENTRIES, LOGS, Store, Tables, entry_base, entry_key, log_key
from lockstep.log.history import History
from lockstep.log.port import READ_BYTES_DEFAULT, Bounds, Entry, LogWaiter, Promises, Transaction
from lockstep.runtime import Runtime

T = TypeVar("T")


class Bells(Protocol):
    """How appends wake those who wait, within a process or across."""

    def ring(self, info: LogInfo) -> None:
        """Something was committed to this log."""

    def waiter(self) -> LogWaiter:
        """A waiter that watches nothing yet."""

    def close(self) -> None:
        """Give back what it uses."""


OpenHistory = Callable[[str, str], History]
"""Opens the history at a URL for the stream of a name."""


class EmbeddedBus:
    """See Bus. Owned by one process; many processes may each have one over the same folder."""

    def __init__(
        self,
        url: str,
        store: Store,
        bells: Bells,
        promises: Promises,
        runtime: Runtime,
        open_history: OpenHistory,
    ) -> None:
        self.url, self.promises = url, promises
        self._store, self._bells, self._runtime = store, bells, runtime
        self._open_history = open_history
        self._histories: dict[str, History] = {}
        self._closed = False

    def create(self, name: str, config: StreamConfig) -> EmbeddedLog:
        """See Bus."""
        self._check_open()
        info = self._store.write(lambda tables: self._find_or_add(tables, name, config))
        info.config.check_same(name, config)
        return self._log(info)

    def open(self, name: str) -> EmbeddedLog:
        """See Bus."""
        self._check_open()
        with self._store.read() as tables:
            info = catalogue.get(tables, name, self.url)
        return self._log(info)

    def delete(self, name: str) -> None:
        """See Bus."""
        self._check_open()
        self._store.write(lambda tables: catalogue.remove(tables, catalogue.get(tables, name, self.url)))

    def names(self) -> list[str]:
        """See Bus."""
        self._check_open()
        with self._store.read() as tables:
            return [info.name for info in catalogue.all_logs(tables)]

    def waiter(self) -> LogWaiter:
        """See Bus."""
        self._check_open()
        return self._bells.waiter()

    def atomic(self, work: Callable[[Transaction], T]) -> T:
        """See Bus."""
        self._check_open()
        rung: dict[int, LogInfo] = {}

        def job(tables: Tables) -> T:
            rung.clear()  # a job may be run again
            return work(_Changes(self, tables, rung))

        result = self._store.write(job)
        for info in rung.values():
            self._bells.ring(info)
        return result

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        """See Bus."""
        self._check_open()
        with self._store.read() as tables:
            yield _View(self, tables)

    def close(self) -> None:
        """See Bus."""
        if self._closed:
            return
        self._closed = True
        for history in self._histories.values():
            history.close()
        self._bells.close()
        self._store.close()

    def history_of(self, info: LogInfo) -> History | None:
        """The history of a stream, opened once."""
        if info.config.history is None:
            return None
        if info.name not in self._histories:
            self._histories[info.name] = self._open_history(info.config.history, info.name)
        return self._histories[info.name]

    def now_ns(self) -> int:
        """The wall clock, for stamps."""
        return self._runtime.wall_ns()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(what=f"Bus {self.url}")

    def _log(self, info: LogInfo) -> EmbeddedLog:
        self.history_of(info)  # a history that can't be opened is found now, not at the first publish
        return EmbeddedLog(self, self._store, self._bells, info)

    def _find_or_add(self, tables: Tables, name: str, config: StreamConfig) -> LogInfo:
        info = catalogue.find(tables, name)
        if info is not None:
            return info
        return catalogue.add(tables, name, config, self._runtime.new_id().hex(), self.now_ns())


class EmbeddedLog:
    """See Log."""

    def __init__(self, bus: EmbeddedBus, store: Store, bells: Bells, info: LogInfo) -> None:
        self.name, self.identity, self.config, self.info = info.name, info.identity, info.config, info
        self._bus, self._store, self._bells = bus, store, bells
        self._key = log_key(info.number)

    def append(self, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:
        """See Log."""
        bases = self._store.write(lambda tables: append_to(self._bus, tables, self.info, batches, expected_next))
        self._bells.ring(self.info)
        return bases

    def read(self, offset: int, *, max_bytes: int = READ_BYTES_DEFAULT) -> list[Entry]:
        """See Log."""
        found, size = [], 0
        with self._store.read() as tables:
            row = catalogue.row(tables, self.info, self._bus.url)
            if offset < row.first:
                return [self._from_history(offset, row.first)]
            if offset >= row.next:
                return []
            for entry in entries_from(tables, self.info, offset):
                found.append(entry)
                size += len(entry.data)
                if size >= max_bytes:
                    break
        return found

    def bounds(self) -> Bounds:
        """See Log."""
        with self._store.read() as tables:
            row = catalogue.row(tables, self.info, self._bus.url)
        history = self._bus.history_of(self.info)
        if history is not None and (oldest := history.read(0)) is not None:
            return Bounds(min(oldest.base, row.first), row.next)
        return Bounds(row.first, row.next)

    def trim(self, before: int) -> None:
        """See Log."""
        while self._store.write(lambda tables: self._trim_some(tables, before)):
            pass

    def hold(self, holder: str, offset: int | None) -> None:
        """See Log."""
        self._store.write(lambda tables: retention.hold(tables, self.info, holder, offset))

    def close(self) -> None:
        """See Log."""

    def _trim_some(self, tables: Tables, before: int) -> bool:
        row = catalogue.row(tables, self.info, self._bus.url)
        after = retention.drop_below(tables, self.info, row, before)
        tables.put(LOGS, self._key, after.pack())
        return row.stored_bytes - after.stored_bytes > 0

    def _from_history(self, offset: int, first: int) -> Entry:
        history = self._bus.history_of(self.info)
        entry = None if history is None else history.read(offset)
        if entry is None or entry.base >= first:
            raise Trimmed(offset=offset, stream=self.name, first=first)
        return entry


class _View:
    """A transaction that reads."""

    def __init__(self, bus: EmbeddedBus, tables: Tables) -> None:
        self._bus, self._tables = bus, tables

    def read(self, log: str, offset: int) -> Iterator[Entry]:
        """See Transaction."""
        return entries_from(self._tables, self._info(log), offset)

    def bounds(self, log: str) -> Bounds:
        """See Transaction."""
        row = catalogue.row(self._tables, self._info(log), self._bus.url)
        return Bounds(row.first, row.next)

    def get(self, key: bytes) -> bytes | None:
        """See Transaction."""
        return self._tables.get(CELLS, key)

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


class _Changes(_View):
    """A transaction that writes, and remembers whom to wake."""

    def __init__(self, bus: EmbeddedBus, tables: Tables, rung: dict[int, LogInfo]) -> None:
        super().__init__(bus, tables)
        self._rung = rung

    def append(self, log: str, batches: Sequence[Batch], *, expected_next: int | None = None) -> list[int]:
        """See Transaction."""
        info = self._info(log)
        self._rung[info.number] = info
        return append_to(self._bus, self._tables, info, batches, expected_next)

    def hold(self, log: str, holder: str, offset: int | None) -> None:
        """See Transaction."""
        retention.hold(self._tables, self._info(log), holder, offset)

    def put(self, key: bytes, value: bytes | None) -> None:
        """See Transaction."""
        if value is None:
            self._tables.delete(CELLS, key)
        else:
            self._tables.put(CELLS, key, value)


def append_to(
    bus: EmbeddedBus, tables: Tables, info: LogInfo, batches: Sequence[Batch], expected_next: int | None
) -> list[int]:
    """Append within a transaction."""
    row = catalogue.row(tables, info, bus.url)
    history = bus.history_of(info)
    return appending.append(
        tables, info, row, batches, now_ns=bus.now_ns(), expected_next=expected_next, history=history
    )


def entries_from(tables: Tables, info: LogInfo, offset: int) -> Iterator[Entry]:
    """Stored batches from the one that holds `offset`, or the next above it."""
    for key, data in tables.scan(ENTRIES, _start_key(tables, info, offset)):
        number, base = entry_base(key)
        if number != info.number:
            return
        yield Entry(base, data)


def _start_key(tables: Tables, info: LogInfo, offset: int) -> bytes:
    """The key of the batch that `offset` falls into: the last one at or below it, if it reaches that far."""
    for key, data in tables.scan_down(ENTRIES, entry_key(info.number, offset)):
        number, base = entry_base(key)
        if number == info.number and base + peek(data)[0] > offset:
            return key
        break
    return entry_key(info.number, offset)
