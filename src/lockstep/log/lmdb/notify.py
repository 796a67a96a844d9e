"""Waking readers in other processes without polling: a tiny file for each log, watched through inotify.

A writer reads one byte of the log's file after the commit; the kernel tells every process that watches the file that it
was accessed. Reading leaves the file and the disk's journal alone. A process killed between the commit and that read
wakes nobody, and where inotify can't be had nobody is woken: so every wait also looks again after a while.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from lockstep.log.embedded.bus import Notifier
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.inotify import IN_ACCESS, FileWaiter
from lockstep.log.port import Log, LogWaiter
from lockstep.runtime import logger

_OPEN_FILES_MAX = 256
_CONTENT = b"\n"


class FileNotifier(Notifier):
    """One file for each log, named by the log's identity."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def notify(self, info: LogInfo) -> None:
        try:
            with self._lock:
                self._notify(info.identity)
        except OSError as error:  # the records are committed, so this must not look as if they were not
            logger.warning(
                "Waiting readers can't be notified", extra={"action": "bell_failed", "reason": error.strerror}
            )

    def waiter(self) -> LogWaiter:
        return InotifyWaiter(self._folder)

    def forget(self, info: LogInfo) -> None:
        """Other processes' descriptors of it go when they ring enough others."""
        with self._lock:
            descriptor = self._open.pop(info.identity, None)
            if descriptor is not None:
                os.close(descriptor)
        with suppress(OSError):  # the log is deleted, and a file left behind must not look as if it were not
            (self._folder / info.identity).unlink(missing_ok=True)

    def close(self) -> None:
        if self._pid != os.getpid():
            return  # in a forked child, the lock may be held by a thread that is not there
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])

    def _notify(self, identity: str) -> None:
        descriptor = self._open.pop(identity, None)
        if descriptor is None:
            descriptor = os.open(make_notify_file(self._folder, identity), os.O_RDONLY | os.O_CLOEXEC)
        self._open[identity] = descriptor  # the last changed is last, and the first is closed first
        if len(self._open) > _OPEN_FILES_MAX:
            os.close(self._open.pop(next(iter(self._open))))
        if not os.pread(descriptor, 1, 0):
            make_notify_file(self._folder, identity)
            os.pread(descriptor, 1, 0)


def make_notify_file(folder: Path, identity: str) -> Path:
    """The bell of a log, made if it is missing. It holds one byte: reading nothing would tell nobody.

    It appears whole, for a process may be killed in between. One that is there is filled and never replaced: others
    watch this file and have it open.
    """
    path = folder / identity
    if not path.exists():
        folder.mkdir(exist_ok=True, mode=0o700)
        _link_whole(path)
    elif path.stat().st_size == 0:
        path.write_bytes(_CONTENT)
    return path


def _link_whole(path: Path) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        os.write(descriptor, _CONTENT)
        with suppress(FileExistsError):  # another process was faster
            os.link(temporary, path)
    finally:
        os.close(descriptor)
        Path(temporary).unlink()


class InotifyWaiter(FileWaiter):
    """Wakes when the notification file of a watched log is read."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def watch(self, log: Log) -> None:
        with self._state:
            if self._closed or self._inotify is None or log.identity in self._watches:
                return
            self.add_watch(log.identity, make_notify_file(self._folder, log.identity), IN_ACCESS)

    def unwatch(self, log: Log) -> None:
        self.remove_watch(log.identity)
