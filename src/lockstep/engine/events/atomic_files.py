"""Files that appear when they are complete, and not at all if that fails.

What is not a plain file (a device, a pipe, the program's own output) is never replaced: it is written to as it is.
A symbolic link stays one: the file it names is the one that is replaced.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from lockstep.engine.errors import FileUnwritable
from lockstep.errors import SystemFailed, from_os_error

_OPENED = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/[^/]+/fd/\d+")
"""Files that are open already: other processes may write to them, so they are never replaced."""
_NAME_CHARS = 48


def is_plain(path: Path) -> bool:
    """Whether a path is, or would become, a file that may be replaced by another."""
    if _OPENED.fullmatch(str(path)):
        return False
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True


@contextmanager
def unwritable(path: str | Path) -> Iterator[None]:
    """Say in words that a file can't be written."""
    try:
        yield
    except OSError as error:
        found = from_os_error(error, str(path))
        if isinstance(found, SystemFailed):
            raise FileUnwritable(path=str(path), reason=error.strerror or str(error)) from error
        raise found from error


@contextmanager
def new_file(path: str | Path, *, sync: bool = False, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of an older one at the end; with `sync` it is on the disk by then.

    Who may read it is what `mode` says, else as it was for the older one. An error inside leaves the older one as it
    was. OSErrors of the caller's own writing are the caller's to name.
    """
    path = Path(path)
    with unwritable(path):
        is_direct = not is_plain(path)
    if is_direct:
        with _direct(path) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    part = target.with_name(f"{target.name[:_NAME_CHARS]}.{os.getpid()}.{secrets.token_hex(4)}.part")
    with unwritable(path):
        file = os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode or 0o666), "wb")
    try:
        with file:
            yield file
            with unwritable(path):
                _finish(file, sync)
        with unwritable(path):
            if mode is None:
                _keep_mode(target, part)
            part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def _direct(path: Path) -> Iterator[BinaryIO]:
    with unwritable(path):
        file: BinaryIO = path.open("ab" if path.is_file() else "wb")
    with file:
        yield file
        with unwritable(path):
            file.flush()


def _finish(file: BinaryIO, sync: bool) -> None:
    file.flush()
    if sync:
        os.fsync(file.fileno())


def _keep_mode(target: Path, part: Path) -> None:
    """Who may read a file does not change because it is written anew."""
    with suppress(FileNotFoundError):
        part.chmod(stat.S_IMODE(target.stat().st_mode))
