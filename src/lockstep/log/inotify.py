"""Waiting for changes of files without looking at them all the time, through inotify.

A change that the kernel does not tell of, as one that another machine makes in a shared folder, wakes nobody; nor does
any where inotify can't be had. So every wait ends after a while.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import threading
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from lockstep.runtime import Waiter

IN_ACCESS, IN_MOVED_TO = 0x1, 0x80
"""A file was read; a file was given its name in a folder."""
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC
_LOOK_AGAIN_WITHOUT_INOTIFY_S = 0.02
_EVENTS_BYTES = 4096
"""Some hundred events; the kernel merges equal ones, and what is left ends the next wait at once."""


class FileWaiter(Waiter):
    """A waiter that changes of files end, too."""

    LOOK_AGAIN_S = 0.5
    """How long a wait takes at most."""

    def __init__(self) -> None:
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
        limit = self.LOOK_AGAIN_S if self._inotify is not None else _LOOK_AGAIN_WITHOUT_INOTIFY_S
        with self._waiting:
            if self._closed:
                return
            for descriptor, _ in self._epoll.poll(max(0.0, min(timeout, limit))):
                self._drain(descriptor)

    def wake(self) -> None:
        with self._state:  # the number of a closed descriptor may be somebody else's already
            if not self._closed:
                os.eventfd_write(self._woken, 1)

    def fileno(self) -> int | None:
        """A descriptor that becomes readable when a wait would end."""
        return self._epoll.fileno()

    def close(self) -> None:
        """Let go of all descriptors. Ends a wait that another thread is in."""
        self.wake()
        with self._waiting, self._state:
            if self._closed:
                return
            self._closed = True
            self._epoll.close()
            os.close(self._woken)
            if self._inotify is not None:
                os.close(self._inotify)

    def add_watch(self, name: str, path: Path, events: int) -> bool:
        """Have such events of a file or folder end waits from now on; whether the kernel will tell of them."""
        with self._state:
            if self._closed or self._inotify is None:
                return False
            number = _libc().inotify_add_watch(self._inotify, os.fsencode(path), events)
            if number >= 0:
                self._watches[name] = number
            return bool(number >= 0)

    def remove_watch(self, name: str) -> None:
        """End that."""
        with self._state:
            number = self._watches.pop(name, None)
            if self._closed or number is None:
                return
            _libc().inotify_rm_watch(self._inotify, number)

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
