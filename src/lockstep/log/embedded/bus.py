"""A bus on ordered tables: the same code carries the one in memory and the one on disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from lockstep.errors import Closed, ForkedProcess, StoreFull, Trimmed, Unavailable
from lockstep.log.batch import Batch
from lockstep.log.config import StreamConfig
from lockstep.log.embedded import catalogue, retention
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import LOGS, LogRow, Store, Tables, log_key
from lockstep.log.embedded.transaction import Changes, View, append_to, entries_from
from lockstep.log.history import History
from lockstep.log.port import DENSE, READ_BYTES_DEFAULT, Bounds, Bus, Entry, Log, LogWaiter, Promises, Transaction
from lockstep.runtime import Runtime, logger, release_when_dropped

T = TypeVar("T")

BETWEEN_PIECES_S = 0.001


class Notifier(Protocol):
    """Wakes waiting readers after an append, within a process or across processes."""

    def notify(self, info: LogInfo) -> None:
        """Wake the readers of this log: something was committed."""

    def waiter(self) -> LogWaiter:
        """A waiter that watches nothing yet."""

    def forget(self, info: LogInfo) -> None:
        """Release what belongs to a log that was deleted."""

    def close(self) -> None:
        """Release its resources."""


OpenHistory = Callable[[str, str], History]
"""Opens the history at a URL for the stream with a name."""


class EmbeddedBus(Bus):
    """A bus over ordered tables. Owned by one process; many processes may each have one over the same folder."""

    def __init__(
        self,
        url: str,
        store: Store,
        notifier: Notifier,
        promises: Promises,
        runtime: Runtime,
        open_history: OpenHistory,
    ) -> None:
        self.url, self.promises = url, promises
        self._store, self._notifier, self._runtime = store, notifier, runtime
        self._open_history = open_history
        self.own_histories: Mapping[str, OpenHistory] = {}
        """Histories of the user's own, by the scheme of their URL."""
        self._histories: dict[tuple[str, str], History] = {}
        self._opening = threading.Lock()
        self._pid = os.getpid()
        self._closed = False
        self._finalizer = release_when_dropped(
            self, runtime, f"The connection to {url}", partial(_release, self._histories, notifier, store)
        )

    def create(self, name: str, config: StreamConfig) -> EmbeddedLog:
        self.check_open()
        catalogue.check_name(name)
        with self._store.read() as tables:
            info = catalogue.find(tables, name)
        if info is None:
            history = self._history(config.history, name)
            info = self._store.write(lambda tables: self._find_or_add(tables, name, config, history))
        info.config.check_same(name, config)
        return self._log(info)

    def open(self, name: str) -> EmbeddedLog:
        self.check_open()
        with self._store.read() as tables:
            info = catalogue.get(tables, name, self.url)
        return self._log(info)

    def create_many(self, names: Sequence[str], config: StreamConfig) -> None:
        """Create those of many logs that are missing, in one transaction."""
        self.check_open()
        for name in names:
            catalogue.check_name(name)
        histories = [self._history(config.history, name) for name in names]

        def job(tables: Tables) -> None:
            for name, history in zip(names, histories, strict=True):
                self._find_or_add(tables, name, config, history)

        self._store.write(job)

    def alter(self, name: str, config: StreamConfig) -> EmbeddedLog:
        self.check_open()

        def job(tables: Tables) -> LogInfo:
            info = catalogue.get(tables, name, self.url)
            info.config.check_alterable(name, config)
            return catalogue.alter(tables, info, config)

        return self._log(self._store.write(job))

    def delete(self, name: str) -> None:
        self.check_open()
        self._notifier.forget(self._store.write(lambda tables: self._remove(tables, name)))
        self.finish_deletes()

    def finish_deletes(self, pieces_max: int | None = None) -> bool:
        """Remove what deleted logs still hold, also after a crash; return False if there was nothing.

        Piece by piece, so that other writers get their turn. What is left because of an error costs only space, and is
        removed when the bus is opened again, when another log is deleted, or when space is needed.
        """
        pieces = 0
        try:
            while self._has_removed_logs() and (pieces_max is None or pieces < pieces_max):
                self._runtime.waiter().wait(BETWEEN_PIECES_S)  # locks are not fair: without it nobody else gets in
                self._store.write(catalogue.remove_piece)
                pieces += 1
        except Unavailable as error:
            reason = str(error)
            logger.warning("A deleted log still takes space", extra={"action": "delete_unfinished", "reason": reason})
        return pieces > 0

    def names(self) -> list[str]:
        self.check_open()
        with self._store.read() as tables:
            return catalogue.all_names(tables)

    def waiter(self) -> LogWaiter:
        self.check_open()
        return self._notifier.waiter()

    def atomic(self, work: Callable[[Transaction], T]) -> T:
        self.check_open()
        changed: dict[int, LogInfo] = {}

        def job(tables: Tables) -> T:
            changed.clear()  # a job may be run again
            changes = Changes(self, tables, changed)
            result = work(changes)
            changes.check_whole()
            return result

        result = self._store.write(job)
        for info in changed.values():
            self._notifier.notify(info)
        return result

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        self.check_open()
        with self._store.read() as tables:
            yield View(self, tables)

    def close(self) -> None:
        if self._pid != os.getpid():
            return  # a child may forget what it inherited, but must leave the parent's locks alone
        with self._opening:
            if self._closed:
                return
            self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        _release(self._histories, self._notifier, self._store)

    def history_of(self, info: LogInfo) -> History | None:
        """The history of a stream, opened once."""
        return self._history(info.config.history, info.name)

    def now_ns(self) -> int:
        """The wall clock, for stamps."""
        return self._runtime.wall_ns()

    def check_open(self) -> None:
        """Raise Closed after close, and ForkedProcess in a child that inherited it."""
        if self._pid != os.getpid():
            raise ForkedProcess(bus=self.url, parent=self._pid, child=os.getpid())
        if self._closed:
            raise Closed(what=f"Bus {self.url}")

    def _history(self, url: str | None, stream: str) -> History | None:
        if url is None:
            return None
        history = self._histories.get((url, stream))
        return self._open_once(url, stream) if history is None else history

    def _open_once(self, url: str, stream: str) -> History:
        with self._opening:
            self.check_open()  # one opened after close would never be closed
            if (url, stream) not in self._histories:
                opener = self.own_histories.get(url.partition(":")[0], self._open_history)
                self._histories[url, stream] = opener(url, stream)
            return self._histories[url, stream]

    def _remove(self, tables: Tables, name: str) -> LogInfo:
        info = catalogue.get(tables, name, self.url)
        catalogue.remove(tables, info)
        catalogue.remove_piece(tables)
        return info

    def _has_removed_logs(self) -> bool:
        with self._store.read() as tables:
            return bool(catalogue.removed(tables))

    def _log(self, info: LogInfo) -> EmbeddedLog:
        self.history_of(info)  # a history that can't be opened is found now, not at the first publish
        return EmbeddedLog(self, self._store, self._notifier, info)

    def _find_or_add(self, tables: Tables, name: str, config: StreamConfig, history: History | None) -> LogInfo:
        info = catalogue.find(tables, name)
        if info is not None:
            return info
        info = catalogue.add(tables, name, config, self._runtime.new_id().hex(), self.now_ns())
        if history is not None:  # a log made anew over an old history goes on after what is stored there
            start = history.next_offset()
            tables.put(LOGS, log_key(info.number), LogRow(first=start, next=start).pack())
        return info


def _release(histories: Mapping[tuple[str, str], History], notifier: Notifier, store: Store) -> None:
    for history in histories.values():
        history.close()
    notifier.close()
    store.close()


class EmbeddedLog(Log):
    """A log in the tables of an embedded bus."""

    def __init__(self, bus: EmbeddedBus, store: Store, notifier: Notifier, info: LogInfo) -> None:
        self.name, self.identity, self.config, self.info = info.name, info.identity, info.config, info
        self._bus, self._store, self._notifier = bus, store, notifier
        self.limits = DENSE
        self._key = log_key(info.number)

    def append(self, batches: Sequence[Batch], *, expected_next: int | None = None, wake: bool = True) -> list[int]:
        self._bus.check_open()
        try:
            bases = self._append(batches, expected_next)
        except StoreFull:
            if not self._make_room():
                raise
            bases = self._append(batches, expected_next)
        if wake:
            self._notifier.notify(self.info)
        return bases

    def read(self, offset: int, *, max_bytes: int = READ_BYTES_DEFAULT) -> list[Entry]:
        self._bus.check_open()
        found, size = [], 0
        with self._store.read() as tables:
            row = catalogue.row(tables, self.info, self._bus.url)
            if offset < row.first:
                return [self._from_history(offset, row.first, catalogue.trimmed(tables, self.info))]
            if offset >= row.next:
                return []
            for entry in entries_from(tables, self.info, offset):
                found.append(entry)
                size += len(entry.data)
                if size >= max_bytes:
                    break
        return found

    def reread(self, offset: int) -> Entry | None:
        """Every read asks the store."""
        return next(iter(self.read(offset, max_bytes=1)), None)

    def bounds(self) -> Bounds:
        self._bus.check_open()
        with self._store.read() as tables:
            info = catalogue.current(tables, self.info, self._bus.url)
            row = catalogue.row(tables, info, self._bus.url)
            trimmed = catalogue.trimmed(tables, info)
        self._adopt(info)
        history = self._bus.history_of(self.info)
        if history is not None and (oldest := history.read(trimmed)) is not None:
            return Bounds(min(max(oldest.base, trimmed), row.first), row.next)
        return Bounds(row.first, row.next)

    def stored_bytes(self) -> int:
        """Bytes of the stored batches, without those in a history."""
        self._bus.check_open()
        with self._store.read() as tables:
            return catalogue.row(tables, self.info, self._bus.url).stored_bytes

    def trim(self, before: int) -> None:
        self._bus.check_open()
        while self._store.write(lambda tables: self._trim_some(tables, before)):
            pass

    def hold(self, holder: str, offset: int | None) -> None:
        self._bus.check_open()
        self._store.write(lambda tables: retention.hold(tables, self.info, holder, offset, self._bus.url))

    def close(self) -> None:
        """Does nothing: the store belongs to the bus."""

    def _adopt(self, info: LogInfo) -> None:
        """Use the configuration that another handle or process has set."""
        if info is not self.info:
            self.info, self.config = info, info.config

    def _append(self, batches: Sequence[Batch], expected_next: int | None) -> list[int]:
        def job(tables: Tables) -> tuple[list[int], LogInfo]:
            info = catalogue.current(tables, self.info, self._bus.url)
            return append_to(self._bus, tables, info, batches, expected_next), info

        bases, info = self._store.write(job)
        self._adopt(info)
        return bases

    def _make_room(self) -> bool:
        """Drop what retention lets go by now: a refused append takes its own deletes back with it."""
        freed = self._bus.finish_deletes()
        while self._store.write(self._drop_due):
            freed = True
        return freed

    def _drop_due(self, tables: Tables) -> bool:
        info = catalogue.current(tables, self.info, self._bus.url)
        row = catalogue.row(tables, info, self._bus.url)
        after = retention.drop_due(tables, info, row, self._bus.now_ns())
        if after != row:
            tables.put(LOGS, self._key, after.pack())
        return after.stored_bytes < row.stored_bytes

    def _trim_some(self, tables: Tables, before: int) -> bool:
        row = catalogue.row(tables, self.info, self._bus.url)
        if self.config.history is not None:
            catalogue.set_trimmed(tables, self.info, min(before, row.next))
        after = retention.drop_below(tables, self.info, row, before)
        tables.put(LOGS, self._key, after.pack())
        return row.stored_bytes - after.stored_bytes > 0

    def _from_history(self, offset: int, first: int, trimmed: int) -> Entry:
        """The batch that holds an offset which the stream itself no longer has. A hole in the history is a gap."""
        history = self._bus.history_of(self.info)
        entry = None if history is None else history.read(max(offset, trimmed))
        if entry is None or offset < trimmed or entry.base > offset:
            readable = first if entry is None else min(max(entry.base, trimmed), first)
            raise Trimmed(offset=offset, stream=self.name, first=readable)
        return entry
