"""Waking readers in other processes without polling: a tiny file for each log, watched through inotify.

Whoever appended reads one byte of the log's bell, after the commit; the kernel tells everybody who watches that the
file was accessed. Reading leaves the file and the disk's journal alone. A process killed between commit and bell wakes
nobody, and where inotify can't be had nobody is woken: so every wait also looks again after a while.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import tempfile
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.port import Log, LogWaiter
from lockstep.runtime import logger

_IN_ACCESS = 0x1
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC
_LOOK_AGAIN_S = 0.5
_LOOK_AGAIN_WITHOUT_INOTIFY_S = 0.02
_EVENTS_BYTES = 4096
"""Some hundred events; the kernel merges equal ones, and what is left ends the next wait at once."""
_OPEN_BELLS_MAX = 256
_BELL = b"\n"


class FileBells:
    """See Bells. One file for each log, named by the log's identity."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def ring(self, info: LogInfo) -> None:
        """See Bells."""
        try:
            with self._lock:
                self._ring(info.identity)
        except OSError as error:  # the records are committed, so this must not look as if they were not
            logger.warning("A bell can't be rung", extra={"action": "bell_failed", "reason": error.strerror})

    def waiter(self) -> LogWaiter:
        """See Bells."""
        return InotifyWaiter(self._folder)

    def forget(self, info: LogInfo) -> None:
        """See Bells. Other processes' descriptors of it go when they ring enough others."""
        with self._lock:
            descriptor = self._open.pop(info.identity, None)
            if descriptor is not None:
                os.close(descriptor)
        with suppress(OSError):  # the log is deleted, and a file left behind must not look as if it were not
            (self._folder / info.identity).unlink(missing_ok=True)

    def close(self) -> None:
        """See Bells."""
        if self._pid != os.getpid():
            return  # in a forked child, the lock may be held by a thread that is not there
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])

    def _ring(self, identity: str) -> None:
        descriptor = self._open.pop(identity, None)
        if descriptor is None:
            descriptor = os.open(make_bell(self._folder, identity), os.O_RDONLY | os.O_CLOEXEC)
        self._open[identity] = descriptor  # the last rung is last, and the first is closed first
        if len(self._open) > _OPEN_BELLS_MAX:
            os.close(self._open.pop(next(iter(self._open))))
        if not os.pread(descriptor, 1, 0):
            make_bell(self._folder, identity)
            os.pread(descriptor, 1, 0)


def make_bell(folder: Path, identity: str) -> Path:
    """The bell of a log, made if it is missing. It holds one byte: reading nothing would tell nobody.

    It appears whole, for a process may be killed in between. One that is there is filled and never replaced: others
    watch this file and have it open.
    """
    path = folder / identity
    if not path.exists():
        folder.mkdir(exist_ok=True, mode=0o700)
        _link_whole(path)
    elif path.stat().st_size == 0:
        path.write_bytes(_BELL)
    return path


def _link_whole(path: Path) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        os.write(descriptor, _BELL)
        with suppress(FileExistsError):  # another process was faster
            os.link(temporary, path)
    finally:
        os.close(descriptor)
        Path(temporary).unlink()


class InotifyWaiter:
    """See LogWaiter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closed = False
        self._waiting = threading.Lock()
        self._state = threading.RLock()  # a signal's handler may wake whom it interrupted
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._inotify = _inotify_init()
        self._watches: dict[str, int] = {}
        # An epoll descriptor becomes readable when one of its members does: event loops can watch it as one file.
        self._epoll = select.epoll()
        self._epoll.register(self._woken, select.EPOLLIN)
        if self._inotify is not None:
            self._epoll.register(self._inotify, select.EPOLLIN)

    def wait(self, timeout: float) -> None:
        """See Waiter."""
        limit = _LOOK_AGAIN_S if self._inotify is not None else _LOOK_AGAIN_WITHOUT_INOTIFY_S
        with self._waiting:
            if self._closed:
                return
            for descriptor, _ in self._epoll.poll(max(0.0, min(timeout, limit))):
                self._drain(descriptor)

    def wake(self) -> None:
        """See Waiter."""
        with self._state:  # the number of a closed descriptor may be somebody else's already
            if not self._closed:
                os.eventfd_write(self._woken, 1)

    def watch(self, log: Log) -> None:
        """See LogWaiter."""
        with self._state:
            if self._closed or self._inotify is None or log.identity in self._watches:
                return
            path = os.fsencode(make_bell(self._folder, log.identity))
            number = _libc().inotify_add_watch(self._inotify, path, _IN_ACCESS)
            if number >= 0:
                self._watches[log.identity] = number

    def unwatch(self, log: Log) -> None:
        """See LogWaiter."""
        with self._state:
            number = self._watches.pop(log.identity, None)
            if self._closed or number is None:
                return
            _libc().inotify_rm_watch(self._inotify, number)

    def fileno(self) -> int | None:
        """See LogWaiter."""
        return self._epoll.fileno()

    def close(self) -> None:
        """See LogWaiter. Ends a wait that another thread is in."""
        self.wake()
        with self._waiting, self._state:
            if self._closed:
                return
            self._closed = True
            self._epoll.close()
            os.close(self._woken)
            if self._inotify is not None:
                os.close(self._inotify)

    def _drain(self, descriptor: int) -> None:
        with suppress(BlockingIOError):  # a fork shares it, and may have been faster
            os.read(descriptor, 8 if descriptor == self._woken else _EVENTS_BYTES)


def _inotify_init() -> int | None:
    """A new inotify descriptor, or None where there is none to be had: waiting then looks again after short pauses."""
    library = _libc()
    if not hasattr(library, "inotify_init1"):
        return None
    descriptor = library.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if descriptor >= 0:
        return int(descriptor)
    if ctypes.get_errno() in (errno.EMFILE, errno.ENFILE, errno.ENOSYS, errno.EPERM, errno.EACCES):
        return None
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
