"""Opening a folder as a bus, with its copies, and as a history of streams."""

from __future__ import annotations

from pathlib import Path

from lockstep.errors import BadConfig
from lockstep.log.batch import peek
from lockstep.log.config import StreamConfig
from lockstep.log.embedded import catalogue
from lockstep.log.embedded.bus import EmbeddedBus, OpenHistory, entries_from
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.embedded.tables import ENTRIES, Tables, entry_key
from lockstep.log.lmdb.bells import FileBells
from lockstep.log.lmdb.environment import REGISTRY, Environment
from lockstep.log.lmdb.replica import Mirror
from lockstep.log.lmdb.settings import Settings, Wish, load_or_make
from lockstep.log.lmdb.store import LmdbStore
from lockstep.log.port import Entry, Promises
from lockstep.runtime import Runtime

MAY_LOSE = {
    "fsync": "nothing, unless the disk does",
    "relaxed": "nothing when processes are killed; the last second, or the whole store, when the machine loses power",
}


def open_lmdb(
    folder: Path, wish: Wish, *, create: bool, runtime: Runtime, url: str, open_history: OpenHistory
) -> EmbeddedBus:
    """The bus in a folder."""
    settings = load_or_make(folder, wish, create=create, identity=runtime.new_id().hex())
    environment = REGISTRY.acquire(folder, map_bytes=settings.map_bytes, durability=settings.durability)
    mirror = _open_mirror(folder, settings)
    store = LmdbStore(environment, mirror)
    if mirror is not None:
        mirror.start_following(runtime, environment)
    return EmbeddedBus(url, store, FileBells(folder / "bells"), _promises(settings), runtime, open_history)


def _promises(settings: Settings) -> Promises:
    return Promises(
        durability=settings.durability,
        may_lose=MAY_LOSE[settings.durability],
        opened_by="host",
        retention=("capacity", "bytes", "age", "protect"),
        sync_replicas=int(settings.replica is not None),
        async_replicas=int(settings.async_replica is not None),
        atomic=True,
        conditional=True,
        dedupe=True,
        notifies=True,
    )


def _open_mirror(folder: Path, settings: Settings) -> Mirror | None:
    if settings.replica is None and settings.async_replica is None:
        return None
    targets = (settings.replica, settings.async_replica)
    return Mirror(*(None if target is None else _open_copy(folder, Path(target), settings) for target in targets))


def _open_copy(folder: Path, target: Path, settings: Settings) -> Environment:
    if target.resolve() == folder.resolve():
        raise BadConfig(field="replica", value=str(target), reason="a copy in the same folder protects nothing")
    wish = Wish(durability=settings.durability, map_bytes=settings.map_bytes)
    stored = load_or_make(target, wish, create=True, identity=settings.identity)
    if stored.identity != settings.identity:
        raise BadConfig(field="replica", value=str(target), reason="it holds another store")
    return REGISTRY.acquire(target, map_bytes=stored.map_bytes, durability=stored.durability)


class LmdbHistory:
    """See History. A folder of its own, which may hold the histories of many streams."""

    def __init__(self, folder: Path, stream: str, runtime: Runtime) -> None:
        settings = load_or_make(folder, Wish(), create=True, identity=runtime.new_id().hex())
        environment = REGISTRY.acquire(folder, map_bytes=settings.map_bytes, durability=settings.durability)
        self._store = LmdbStore(environment)
        keep_all = StreamConfig(capacity=None)
        self._info: LogInfo = self._store.write(
            lambda tables: (
                catalogue.find(tables, stream)
                or catalogue.add(tables, stream, keep_all, runtime.new_id().hex(), runtime.wall_ns())
            )
        )

    def store(self, base: int, count: int, data: bytes) -> None:  # noqa: ARG002 - the batch knows its count
        """See History."""

        def job(tables: Tables) -> None:
            above = [entry.base for entry in entries_from(tables, self._info, base)]
            for stale in above:
                tables.delete(ENTRIES, entry_key(self._info.number, stale))
            tables.put(ENTRIES, entry_key(self._info.number, base), data)

        self._store.write(job)

    def read(self, offset: int) -> Entry | None:
        """See History."""
        with self._store.read() as tables:
            return next(entries_from(tables, self._info, offset), None)

    def next_offset(self) -> int:
        """See History."""
        with self._store.read() as tables:
            for key, data in tables.scan_down(ENTRIES, entry_key(self._info.number, 2**64 - 1)):
                if key.startswith(entry_key(self._info.number, 0)[:4]):
                    return int.from_bytes(key[4:], "big") + peek(data)[0]
                break
        return 0

    def close(self) -> None:
        """See History."""
        self._store.close()
