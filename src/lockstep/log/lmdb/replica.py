"""A second copy of a store in another folder: one in step with every commit, one that follows later.

Every commit has a number. The synchronous copy is committed first, with the list of keys that changed; then the store
itself, and only then does anybody see the records. A crash between the two leaves the copy one commit ahead: the next
writer takes those keys over from the copy. The asynchronous copy replays the keys listed in the store's journal.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterable
from contextlib import suppress

import lmdb

from lockstep.errors import LockstepError, StoreBroken, StoreFull
from lockstep.log.embedded.tables import JOURNAL, META, TABLES, Tables
from lockstep.log.lmdb.environment import REGISTRY, Environment
from lockstep.log.lmdb.tables import RecordingTables, Touched
from lockstep.runtime import Runtime, Task, logger

COMMIT = b"commit"
_MIRRORED = b"mirrored"
_LAST = b"last"
_COPY_CHUNK = 4096
_JOURNAL_MAX = 10_000
_FOLLOW_S = 0.1
_TRY_AGAIN_S = 5.0


def commit_number(tables: Tables) -> int:
    """How many commits a store has seen."""
    return int(tables.get(META, COMMIT) or b"0")


class Mirror:
    """The copies of one store, as one process keeps them."""

    def __init__(self, sync: Environment | None, following: Environment | None) -> None:
        self._sync, self._following = sync, following
        self._task: Task | None = None
        self._lock_file: int | None = None
        self._copying = threading.Lock()
        self._stepping = threading.Lock()
        self._to_release = self.copies
        self._leaving = self._position_was_unreadable = False
        self._failed_with = ""

    @property
    def is_synchronous(self) -> bool:
        """True if a copy is committed before the store."""
        return self._sync is not None

    @property
    def copies(self) -> list[Environment]:
        """Those that there are."""
        return [copy for copy in (self._sync, self._following) if copy is not None]

    def catch_up(self, primary: Environment) -> None:
        """Bring the synchronous copy to where the store is: redo, or copy everything."""
        if self._sync is None:
            return
        with primary.failing_clearly(), primary.begin_write() as transaction:
            tables = primary.tables(transaction)
            ahead = self._position(self._sync) - commit_number(tables)
            if ahead == 1:
                self._take_over_last(tables)
            elif ahead > 1:
                self._refuse(ahead)
            elif ahead < 0:
                copy_all(tables, self._sync)

    def in_step(self, number: int) -> bool:
        """Before a commit: does the synchronous copy stand at the same number as the store?"""
        return self._sync is None or self._position(self._sync) == number

    def commit(self, number: int, tables: RecordingTables) -> None:
        """Write the changes of commit `number` to the copy, or into the journal, before the store itself commits."""
        changed = [*tables.touched]
        if self._following is not None:
            tables.put(JOURNAL, _journal_key(number), _encode(changed))
            self._shorten_journal(tables, number)
        if self._sync is None:
            return
        with self._sync.failing_clearly(), self._sync.begin_write() as transaction:
            copy = self._sync.tables(transaction)
            apply_keys(changed, tables, copy)
            copy.put(META, _LAST, _encode(changed))
            copy.put(META, _MIRRORED, str(number).encode())

    def start_following(self, runtime: Runtime, primary: Environment) -> None:
        """Feed the asynchronous copy in the background, if no other process does."""
        if self._following is None:
            return
        self._to_release.append(REGISTRY.share(primary))  # closing what the follower still reads would end the process
        waiter = runtime.waiter()
        self._task = runtime.spawn("lockstep-replica", lambda: self._step(primary), waiter, _log_crash)

    def lag(self, primary: Environment) -> int:
        """Commits that the asynchronous copy is behind."""
        if self._following is None:
            return 0
        with primary.read() as tables:
            return commit_number(tables) - self._position(self._following)

    def close(self) -> None:
        """Stop following; give the folders back. If the follower is too slow for that, it does so when it ends."""
        try:
            if self._task is not None:
                self._task.stop()
        finally:
            self._leaving = True
            if self._stepping.acquire(blocking=False):
                self._stepping.release()
                self._give_back()

    def _give_back(self) -> None:
        lock_file, self._lock_file = self._lock_file, None
        if lock_file is not None:
            os.close(lock_file)
        with suppress(IndexError):  # each is given back once, by the first caller
            while True:
                REGISTRY.release(self._to_release.pop())

    def _step(self, primary: Environment) -> float | None:
        try:
            with self._stepping:
                return None if self._leaving else self._follow(primary)
        finally:
            if self._leaving:
                self._give_back()

    def _follow(self, primary: Environment) -> float:
        """Follow as far as there is something; how long to wait. What fails is tried again: till then the lag shows."""
        try:
            if self._lock_file is None and not self._become_follower():
                return _TRY_AGAIN_S
            while self.follow_once(primary):
                pass
        except StoreFull as error:  # room may come back
            if self._following is not None and self._following.make_room():
                return _FOLLOW_S
            logger.error("The replica is full", extra={"action": "replica_full", "reason": str(error)})
        except (LockstepError, lmdb.Error, OSError, ValueError) as error:
            self._report_failure(error)
        else:
            self._failed_with = ""
            return _FOLLOW_S
        return _TRY_AGAIN_S

    def _report_failure(self, error: Exception) -> None:
        """Once for each reason."""
        if self._failed_with != str(error):
            self._failed_with = str(error)
            logger.error("The replica can't follow", exc_info=error, extra={"action": "replica_failed"})

    def follow_once(self, primary: Environment) -> bool:
        """Bring the asynchronous copy forward by some commits; False when it has them all."""
        assert self._following is not None
        with self._copying, self._following.failing_clearly(), primary.read() as tables:
            at, end = self._position(self._following), commit_number(tables)
            if at == end:
                return False
            lists = [tables.get(JOURNAL, _journal_key(number)) for number in range(at + 1, end + 1)[:_JOURNAL_MAX]]
            if end - at > _JOURNAL_MAX or None in lists:
                copy_all(tables, self._following)
                return True
            changed: Touched = dict.fromkeys(pair for item in lists if item is not None for pair in _decode(item))
            with self._following.begin_write() as transaction:
                copy = self._following.tables(transaction)
                apply_keys(changed, tables, copy)
                copy.put(META, COMMIT, str(end).encode())
                copy.put(META, _MIRRORED, str(end).encode())
        return True

    def _become_follower(self) -> bool:
        assert self._following is not None
        descriptor = os.open(self._following.path / "follower.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock_file = descriptor
        return True

    def _shorten_journal(self, tables: Tables, number: int) -> None:
        """Drop what the copy has, and what is so old that a copy without it is quicker to make anew."""
        assert self._following is not None
        done = _journal_key(max(self._followed(), number - _JOURNAL_MAX))
        old: list[bytes] = []
        for key, _ in tables.scan(JOURNAL, b""):
            if key > done or len(old) >= 64:
                break
            old.append(key)
        for key in old:
            tables.delete(JOURNAL, key)

    def _followed(self) -> int:
        """How far the asynchronous copy is; nowhere if it can't tell, for the store goes on without it."""
        assert self._following is not None
        try:
            return self._position(self._following)
        except (LockstepError, lmdb.Error, ValueError) as error:
            if not self._position_was_unreadable:
                logger.error("The replica can't be read", extra={"action": "replica_unreadable", "reason": str(error)})
            self._position_was_unreadable = True
            return 0

    def _take_over_last(self, tables: Tables) -> None:
        """The copy is one commit ahead: its writer died before the store committed. Nobody was told; nobody is hurt."""
        assert self._sync is not None
        with self._sync.read() as copy:
            apply_keys(_decode(copy.get(META, _LAST) or b"[]"), copy, tables)
        logger.warning("Took over a commit from the replica", extra={"action": "replica_redo"})

    def _refuse(self, ahead: int) -> None:
        assert self._sync is not None
        raise StoreBroken(path=self._sync.path, reason=f"the replica is {ahead} commits ahead of the store it copies")

    @staticmethod
    def _position(environment: Environment) -> int:
        with environment.read() as tables:
            at = commit_number(tables)
            mirrored = int(tables.get(META, _MIRRORED) or b"0")
        if at != mirrored:
            raise StoreBroken(path=environment.path, reason="the replica was written to on its own and differs now")
        return at


def apply_keys(keys: Iterable[tuple[str, bytes]], source: Tables, target: Tables) -> None:
    """Make the target equal to the source in these keys."""
    for table, key in keys:
        if table == JOURNAL:
            continue
        value = source.get(table, key)
        if value is None:
            target.delete(table, key)
        else:
            target.put(table, key, value)


def copy_all(source: Tables, copy: Environment) -> None:
    """Make a copy from nothing; a crash in between leaves it at commit 0, to be copied again."""
    with copy.failing_clearly():
        _copy_all(source, copy)


def _copy_all(source: Tables, copy: Environment) -> None:
    with copy.begin_write() as transaction:
        for name in TABLES:
            transaction.drop(copy.handles[name], delete=False)
    for name in TABLES:
        if name != JOURNAL:
            _copy_table(name, source, copy)
    with copy.begin_write() as transaction:
        tables = copy.tables(transaction)
        for key in (COMMIT, _MIRRORED):
            tables.put(META, key, str(commit_number(source)).encode())


def _copy_table(name: str, source: Tables, copy: Environment) -> None:
    chunk: list[tuple[bytes, bytes]] = []

    def flush() -> None:
        with copy.begin_write() as transaction:
            tables = copy.tables(transaction)
            for key, value in chunk:
                tables.put(name, key, value)
        chunk.clear()

    for key, value in source.scan(name, b""):
        if name == META and key in (COMMIT, _MIRRORED):
            continue
        chunk.append((key, value))
        if len(chunk) >= _COPY_CHUNK:
            flush()
    flush()


def _journal_key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _encode(keys: Iterable[tuple[str, bytes]]) -> bytes:
    return json.dumps([[table, key.hex()] for table, key in keys]).encode()


def _decode(data: bytes) -> list[tuple[str, bytes]]:
    return [(table, bytes.fromhex(key)) for table, key in json.loads(data)]


def _log_crash(error: BaseException) -> None:
    logger.error("The asynchronous replica stopped", exc_info=error, extra={"action": "replica_failed"})
