"""A folder as a bus, with its replicas; as a history of streams; and its backup."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import lmdb

from lockstep.errors import BadConfig, Forbidden, IllegalState, NotAStore, ParentMissing, StoreBroken, StoreNotFound
from lockstep.log.batch import peek
from lockstep.log.config import StreamConfig
from lockstep.log.embedded import catalogue
from lockstep.log.embedded.bus import EmbeddedBus, OpenHistory
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import ENTRIES, LOGS, TABLES, LogRow, Tables, entry_key, log_key
from lockstep.log.embedded.transaction import entries_from
from lockstep.log.history import History
from lockstep.log.lmdb import settings
from lockstep.log.lmdb.environment import READERS_MAX, REGISTRY, Environment
from lockstep.log.lmdb.notify import FileNotifier
from lockstep.log.lmdb.replica import Mirror
from lockstep.log.lmdb.settings import FILE, Settings, StoreOptions, load, load_or_make
from lockstep.log.lmdb.store import LmdbStore
from lockstep.log.port import DROPPED_BY_BUS, Entry, Promises
from lockstep.runtime import Runtime

PIECES_AT_OPENING = 10
MAY_LOSE = {
    "fsync": "nothing, unless the disk does",
    "relaxed": "nothing when processes are killed; the last second, or the whole store, when the machine loses power",
}


def open_lmdb(
    folder: Path, options: StoreOptions, *, create: bool, runtime: Runtime, url: str, open_history: OpenHistory
) -> EmbeddedBus:
    """The bus in a folder."""
    settings = load_or_make(
        folder,
        options,
        create=create,
        identity=runtime.new_id().hex(),
        check=lambda found: _check_copies(folder, found),
    )
    with ExitStack() as undo:
        environment = REGISTRY.acquire(folder, map_bytes=settings.map_bytes, durability=settings.durability)
        undo.callback(REGISTRY.release, environment)
        if environment.map_bytes < settings.map_bytes:  # this process had it open before it was enlarged
            environment.resize(settings.map_bytes)
        mirror = _open_mirror(folder, settings)
        if mirror is not None:
            undo.callback(mirror.close)
        store = LmdbStore(environment, mirror)
        undo.pop_all()
    if mirror is not None:
        mirror.start_following(runtime, environment)
    bus = EmbeddedBus(url, store, FileNotifier(folder / "bells"), _promises(settings), runtime, open_history)
    bus.finish_deletes(PIECES_AT_OPENING)  # of a process that was killed; no more than a moment's work
    return bus


def _promises(settings: Settings) -> Promises:
    return Promises(
        durability=settings.durability,
        may_lose=MAY_LOSE[settings.durability],
        opened_by="host",
        retention=("capacity", "bytes", "age", "protect"),
        sync_replicas=int(settings.replica is not None),
        async_replicas=int(settings.async_replica is not None),
        atomic=True,
        ordered_cells=True,
        conditional=True,
        dedupe=True,
        notifies=True,
        history=True,
        copies=DROPPED_BY_BUS,
        ordered_times=True,
    )


def _open_mirror(folder: Path, settings: Settings) -> Mirror | None:
    if settings.replica is None and settings.async_replica is None:
        return None
    with ExitStack() as undo:
        copies = []
        for target in (settings.replica, settings.async_replica):
            copies.append(None if target is None else _open_copy(folder, Path(target), settings))
            if copies[-1] is not None:
                undo.callback(REGISTRY.release, copies[-1])
        undo.pop_all()
    return Mirror(*copies)


def _check_copies(folder: Path, settings: Settings) -> None:
    if settings.replica is not None and settings.replica == settings.async_replica:
        raise BadConfig(field="async_replica", value=settings.async_replica, reason="it is the replica already")
    for target in (settings.replica, settings.async_replica):
        if target is not None:
            _copy_settings(folder, Path(target), settings)


def _copy_settings(folder: Path, target: Path, settings: Settings) -> Settings:
    if target.resolve() == folder.resolve():
        raise BadConfig(field="replica", value=str(target), reason="a copy in the same folder protects nothing")
    if (target / FILE).is_file() and load(target).identity != settings.identity:
        raise BadConfig(field="replica", value=str(target), reason="it holds another store")
    options = StoreOptions(durability=settings.durability, map_bytes=settings.map_bytes)
    stored = load_or_make(target, options, create=True, identity=settings.identity)
    return stored


def _open_copy(folder: Path, target: Path, settings: Settings) -> Environment:
    stored = _copy_settings(folder, target, settings)
    return REGISTRY.acquire(target, map_bytes=stored.map_bytes, durability=stored.durability)


class LmdbHistory(History):
    """A folder of its own, which may hold the histories of many streams."""

    def __init__(self, folder: Path, stream: str, runtime: Runtime) -> None:
        settings = load_or_make(folder, StoreOptions(), create=True, identity=runtime.new_id().hex())
        environment = REGISTRY.acquire(folder, map_bytes=settings.map_bytes, durability=settings.durability)
        self._store = LmdbStore(environment)
        keep_all = StreamConfig(capacity=None)
        with ExitStack() as undo:
            undo.callback(self._store.close)
            self._info: LogInfo = self._store.write(
                lambda tables: (
                    catalogue.find(tables, stream)
                    or catalogue.add(tables, stream, keep_all, runtime.new_id().hex(), runtime.wall_ns())
                )
            )
            undo.pop_all()

    def store(self, base: int, count: int, data: bytes) -> None:
        def job(tables: Tables) -> None:
            row = catalogue.row(tables, self._info, "the history")
            stale = [entry for entry in entries_from(tables, self._info, base) if entry.base >= base]
            for entry in stale:
                tables.delete(ENTRIES, entry_key(self._info.number, entry.base))
            tables.put(ENTRIES, entry_key(self._info.number, base), data)
            stored_bytes = row.stored_bytes + len(data) - sum(len(entry.data) for entry in stale)
            first = base if stored_bytes == len(data) else row.first
            after = LogRow(first=first, next=base + count, stored_bytes=stored_bytes, append_ns=peek(data)[1])
            tables.put(LOGS, log_key(self._info.number), after.pack())

        self._store.write(job)

    def read(self, offset: int) -> Entry | None:
        with self._store.read() as tables:
            return next(entries_from(tables, self._info, offset), None)

    def next_offset(self) -> int:
        with self._store.read() as tables:
            for key, data in tables.scan_down(ENTRIES, entry_key(self._info.number, 2**64 - 1)):
                if key.startswith(entry_key(self._info.number, 0)[:4]):
                    return int.from_bytes(key[4:], "big") + peek(data)[0]
                break
        return 0

    def close(self) -> None:
        self._store.close()


_DATA = "data.mdb"


def backup(folder: Path, target: Path) -> int:
    """Copy the store in `folder` to a new or empty folder; return the bytes written.

    Writers and readers of other processes go on meanwhile. The copy is a store of its own, without replicas. Until it
    is complete it has no settings file, so that a part of one is never opened as a store.
    """
    if not folder.is_dir():
        raise StoreNotFound(path=folder)
    if REGISTRY.has(folder):
        raise IllegalState(what=f"The store {folder}", action="be copied", reason="this process has it open")
    stored = settings.load(folder)
    _make(target)
    try:
        with lmdb.open(
            str(folder), readonly=True, create=False, max_dbs=len(TABLES), max_readers=READERS_MAX,
            map_size=stored.map_bytes,  # else no more than is there now, and a writer may add to it at any moment
        ) as opened:  # fmt: skip
            opened.copy(str(target), compact=True)
    except lmdb.Error as error:
        raise StoreBroken(path=folder, reason=str(error)) from error
    _sync(target / _DATA)
    settings.save(target, replace(stored, replica=None, async_replica=None))
    return (target / _DATA).stat().st_size


def _make(target: Path) -> None:
    try:
        target.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError as error:
        raise ParentMissing(path=target, parent=target.parent) from error
    except PermissionError as error:
        raise Forbidden(path=target, action="made", reason=error.strerror) from error
    except FileExistsError as error:
        raise NotAStore(path=target, reason="it is not a folder") from error
    if any(target.iterdir()):
        raise NotAStore(path=target, reason="a backup needs a new or an empty folder")


def _sync(file: Path) -> None:
    file.chmod(0o600)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
