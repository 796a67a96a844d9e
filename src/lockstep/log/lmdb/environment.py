"""LMDB environments of this process: each folder is open once, shared by all who ask, and never across a fork."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from weakref import ref

import lmdb

from lockstep.errors import Forbidden, ForkedProcess, IllegalState, NotAStore, StoreBroken, StoreFull
from lockstep.log.embedded.tables import TABLES
from lockstep.log.lmdb.settings import FILE, load
from lockstep.log.lmdb.tables import (
    LmdbTables,
    create_ballast,
    is_nearly_full,
    left_for_users,
    reserved_bytes,
    row_bytes,
)
from lockstep.runtime import logger

READERS_MAX = 2048
READER_CHECK_S = 5.0
RELAXED_SYNC_S = 1.0
_RESIZE_WAITS_S, _BRIEFLY_S, _RESIZES_MAX = 2.0, 0.1, 10
_GROWS = "other processes enlarge its map again and again"
_IN_USE = "another process enlarged its map, and this one has a view or a transaction open; close it first"
_FORK_WAITS_S, _CLOSE_WAITS_S = 1.0, 2.0
_WRITER_WAITS_S = 30.0


class Environment:
    """One open LMDB folder."""

    def __init__(self, path: Path, *, map_bytes: int, durability: str) -> None:
        self.path, self.durability = path, durability
        self.pid = os.getpid()
        self.users = 0
        self.broken: str | None = None
        self.writing: int | None = None
        self.gate = threading.Lock()
        """Held while something is written, and while the process forks."""
        self.map_bytes = map_bytes
        self._lock = threading.Lock()
        self._door = threading.Condition(self._lock)
        self.inside: dict[int, ref[object]] = {}
        """By id: views and writes that have a transaction open, or are about to; while there are none, the map may be
        exchanged. References are weak: one that a signal interrupts has to be freed, as that ends its transaction. A
        `__del__` that counts it out would swallow the next signal."""
        self.is_resizing = False
        self._checked_at = self._synced_at = time.monotonic()
        try:
            self.lmdb = lmdb.open(
                str(path), map_size=map_bytes, max_dbs=len(TABLES), max_readers=READERS_MAX, mode=0o600,
                sync=durability == "fsync", metasync=durability == "fsync",
            )  # fmt: skip
        except lmdb.Error as error:
            raise _open_error(path, error) from error
        try:
            self.lmdb.reader_check()
            self.handles = {name: self.lmdb.open_db(name.encode()) for name in TABLES}
            self._page_bytes = int(self.lmdb.stat()["psize"])
        except lmdb.Error as error:
            self.lmdb.close()
            raise _open_error(path, error) from error
        create_ballast(path)

    def read(self) -> ReadView:
        """A consistent view; use it in a with statement."""
        self.check_process()
        return ReadView(self)

    def begin_write(self) -> WriteTransaction:
        """A write transaction, after all other writers of all processes; use it in a with statement, or abort it."""
        self.check_process()
        if self.broken is not None:
            raise StoreBroken(path=self.path, reason=self.broken)
        writing = WriteTransaction(self)
        writing.transaction = self.begin(writing, write=True)
        return writing

    def begin(self, owner: object, *, write: bool = False) -> Any:
        """An LMDB transaction; `left` has to be called when it has ended. The map is as large as others made it."""
        for _ in range(_RESIZES_MAX):
            self.inside[id(owner)] = ref(owner)
            try:
                if self.is_resizing:
                    self._step_aside(owner)
                return self.lmdb.begin(write=write)
            except lmdb.MapResizedError:
                self.left(owner)
            except BaseException:
                self.left(owner)
                raise
            self.resize()
        raise self._unusable(_GROWS)

    def left(self, owner: object) -> None:
        """A transaction has ended."""
        self.inside.pop(id(owner), None)
        if self.is_resizing:
            with self._lock:
                self._door.notify_all()

    def _step_aside(self, owner: object) -> None:
        while self.is_resizing:
            self.left(owner)
            with self._lock:
                while self.is_resizing:
                    self._door.wait()
            self.inside[id(owner)] = ref(owner)

    def _is_in_use(self) -> bool:
        return any(owner() is not None for owner in list(self.inside.values()))

    def resize(self, map_bytes: int = 0, *, within_s: float = _RESIZE_WAITS_S) -> None:
        """Take over a larger map; 0: as large as another process has made it. Waits until no transaction is open."""
        with self._lock:
            while self.is_resizing:
                self._door.wait()
            self.is_resizing = True
            try:
                if not self._door.wait_for(lambda: not self._is_in_use(), within_s):
                    raise self._unusable(_IN_USE)
                self.lmdb.set_mapsize(map_bytes)
                self.map_bytes = int(self.lmdb.info()["map_size"])
            finally:
                self.is_resizing = False
                self._door.notify_all()
        logger.info("The map of %s has %d bytes now", self.path, self.map_bytes, extra={"action": "map_enlarged"})

    def make_room(self) -> bool:
        """Find room that this process does not know of: what killed readers keep, and a map that was enlarged."""
        has_room = bool(self.lmdb.reader_check())
        wanted = load(self.path).map_bytes if (self.path / FILE).is_file() else 0
        if wanted > self.map_bytes:
            with suppress(IllegalState):  # a view is open: the next one who needs room tries again
                self.resize(wanted, within_s=_BRIEFLY_S)
                has_room = True
        return has_room

    def forget_transactions(self) -> None:
        """In a forked child: those of the parent, and its locks, do not count."""
        self.gate, self._lock = threading.Lock(), threading.Lock()
        self._door, self.inside, self.is_resizing = threading.Condition(self._lock), {}, False

    def _unusable(self, reason: str) -> IllegalState:
        return IllegalState(what=f"The store {self.path}", action="be used", reason=reason)

    def tables(self, transaction: Any) -> LmdbTables:
        """The tables as a transaction sees them."""
        return LmdbTables(transaction, self.handles)

    def cost(self, key: bytes, value: bytes) -> int:
        """Bytes that a row takes in the file."""
        return row_bytes(len(key), len(value), self._page_bytes)

    def room(self, transaction: Any) -> int:
        """Bytes that users may still add; negative if groups use some of their reserve."""
        return left_for_users(transaction, self.handles, self.map_bytes)

    @property
    def reserved_for_groups(self) -> int:
        """Bytes that the logs of groups may take beyond that."""
        return reserved_bytes(self.map_bytes) // 2

    def after_commit(self) -> None:
        """Housekeeping that some writer has to do now and then."""
        try:
            self._keep_house(time.monotonic())
        except lmdb.Error as error:  # what was committed stays acknowledged; nothing more is written to such a disk
            failure = self.failure(error)
            self.broken = str(failure)
            logger.error("The store can't be looked after", extra={"action": "store_broken", "reason": str(failure)})
        except OSError as error:  # of the ballast: somebody has to try again later, and what was committed stays so
            logger.warning("The ballast can't be laid in", extra={"action": "ballast_failed", "reason": str(error)})

    def _keep_house(self, now: float) -> None:
        if now - self._checked_at > READER_CHECK_S:
            self._checked_at = now
            create_ballast(self.path)
            self.lmdb.reader_check()  # the pinned view of a killed reader would make the file grow for ever
        if self.durability == "relaxed" and now - self._synced_at > RELAXED_SYNC_S:
            self._synced_at = now
            self.lmdb.sync(True)

    def check_process(self) -> None:
        """Raise in a child that inherited this object through fork."""
        if self.pid != os.getpid():
            raise ForkedProcess(bus=f"lmdb:{self.path}", parent=self.pid, child=os.getpid())

    def failure(self, error: lmdb.Error) -> Exception:
        """What an LMDB error means to the caller; one that leaves the file in doubt stops all later writes."""
        text = str(error)
        if isinstance(error, lmdb.MapFullError):
            return self.full()
        full = isinstance(error, lmdb.DiskError) or "No space" in text or "too large" in text
        # What LMDB says when a write comes out short, as the last one on a disk does.
        short = "Input/output error" in text and is_nearly_full(self.path)
        if full or short:
            return StoreFull(stream=f"lmdb:{self.path}", reason=f"the disk is full ({text})")
        if isinstance(error, lmdb.TxnFullError):
            return StoreFull(stream=f"lmdb:{self.path}", reason="one transaction can't hold that much")
        self.broken = text
        return StoreBroken(path=self.path, reason=text)

    def full(self) -> StoreFull:
        """The error for a map without room."""
        return StoreFull(stream=f"lmdb:{self.path}", reason=f"its map of {self.map_bytes} bytes is full")

    @contextmanager
    def failing_clearly(self) -> Iterator[None]:
        """Turn LMDB's errors into ours, with the name of this folder."""
        try:
            yield
        except lmdb.Error as error:
            raise self.failure(error) from error

    def close(self) -> bool:
        """Close the folder for this process, after the write that is under way; whether it could be closed.

        LMDB's binding would take the transaction away from the thread that writes, and then wait until the transaction
        is freed. The error that the writer gets refers to it: as long as somebody keeps that error, closing would wait.
        """
        own = self.writing == threading.get_ident()
        if not own and not self.gate.acquire(timeout=_WRITER_WAITS_S):
            what = {"action": "store_left_open", "path": str(self.path), "waited_s": _WRITER_WAITS_S}
            logger.error("The store stays open: a write to it does not end", extra=what)
            return False
        try:
            if self.durability == "relaxed":
                self.lmdb.sync(True)
            self.lmdb.close()
        finally:
            if not own:
                self.gate.release()
        return True


class ReadView:
    """A read transaction as a context manager; slim, because every poll makes one."""

    __slots__ = ("__weakref__", "_environment", "_transaction")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def __enter__(self) -> LmdbTables:
        environment = self._environment
        try:
            self._transaction = environment.begin(self)
        except lmdb.ReadersFullError:
            environment.lmdb.reader_check()
            self._transaction = environment.begin(self)
        return LmdbTables(self._transaction, environment.handles)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._transaction.abort()
        self._environment.left(self)
        if isinstance(error, lmdb.Error):
            raise self._environment.failure(error) from error


class WriteTransaction:
    """A write transaction as a context manager: committed at the end, unless there is an error."""

    __slots__ = ("__weakref__", "_environment", "transaction")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.transaction: Any = None

    def __enter__(self) -> Any:
        return self.transaction

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.transaction.__exit__(kind, error, at)
        finally:
            self._environment.left(self)

    def abort(self) -> None:
        """End it without a change."""
        self.transaction.abort()
        self._environment.left(self)


class Registry:
    """LMDB must not open a folder twice in one process, so all who open one share it."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], Environment] = {}
        self._inherited: dict[tuple[int, int], Any] = {}
        self._stopped: list[Environment] = []
        self._lock = threading.Lock()

    def acquire(self, path: Path, *, map_bytes: int, durability: str) -> Environment:
        """The environment of a folder, opened if need be; give it back with release."""
        status = path.stat()
        key = (status.st_dev, status.st_ino)
        with self._lock:
            if key in self._inherited:
                _close_inherited(path, self._inherited[key])
                del self._inherited[key]
            if key not in self._open:
                self._open[key] = Environment(path, map_bytes=map_bytes, durability=durability)
            self._open[key].users += 1
            return self._open[key]

    def share(self, environment: Environment) -> Environment:
        """One more user of an open environment, who gives it back with release."""
        with self._lock:
            environment.users += 1
            return environment

    def has(self, path: Path) -> bool:
        """Does this process have the folder open?"""
        status = path.stat()
        return (status.st_dev, status.st_ino) in self._open

    def release(self, environment: Environment) -> None:
        """Close the environment when nobody uses it any more."""
        if environment.pid != os.getpid():
            return  # a child may forget what it inherited, but must leave the parent's locks alone
        with self._lock:
            environment.users -= 1
            if environment.users == 0 and environment.close():  # else who opens it next gets this one again
                self._open = {key: value for key, value in self._open.items() if value is not environment}

    def before_fork(self) -> None:
        """Let writers finish, if they do so soon: a child could not close what a thread of the parent was using."""
        for environment in list(self._open.values()):
            if environment.writing != threading.get_ident() and environment.gate.acquire(timeout=_FORK_WAITS_S):
                self._stopped.append(environment)

    def after_fork_in_parent(self) -> None:
        """Let them go on."""
        while self._stopped:
            self._stopped.pop().gate.release()

    def after_fork_in_child(self) -> None:
        """Forget what was inherited; it is closed when the child opens the same folder.

        Not here, and never by the collector: closing waits for calls under way, and their threads do not exist here.
        """
        self._lock, self._stopped = threading.Lock(), []
        for key, environment in self._open.items():
            environment.forget_transactions()
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(environment.lmdb))
            self._inherited[key] = environment.lmdb
        self._open = {}


def _close_inherited(path: Path, inherited: Any) -> None:
    """Close what a child inherited, in a thread of its own because it may never return."""
    closing = threading.Thread(target=inherited.close, name="lockstep-close-inherited", daemon=True)
    closing.start()
    closing.join(_CLOSE_WAITS_S)
    if closing.is_alive():
        reason = "a thread of the parent was using it when this process was forked; spawn the child, or fork earlier"
        raise IllegalState(what=f"The store {path}", action="be opened in a forked child", reason=reason)


REGISTRY = Registry()
os.register_at_fork(
    before=REGISTRY.before_fork,
    after_in_parent=REGISTRY.after_fork_in_parent,
    after_in_child=REGISTRY.after_fork_in_child,
)


def _open_error(path: Path, error: lmdb.Error) -> Exception:
    if isinstance(error, lmdb.ReadonlyError) or "Permission denied" in str(error):
        return Forbidden(path=path, action="opened", reason=str(error))
    if isinstance(error, (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.CorruptedError)):
        return NotAStore(path=path, reason=str(error))
    return StoreBroken(path=path, reason=str(error))
