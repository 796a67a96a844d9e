"""What persisted snapshots need of a file system: whole files, safe from a loss of power, and errors in words."""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lockstep.engine.errors import SnapshotFolderUnusable

_PART = re.compile(r"\..+~(.+)~(\d{1,10})~[0-9a-f]+\.part", re.ASCII)
"""A file in the making: for what, by which host and process, and something random."""
_ATTEMPTS = 100
"""So often a folder is made again that other engines remove at the same moment."""
_REMOVED = "it is removed again and again while it is written to"


@contextmanager
def unusable(folder: Path) -> Iterator[None]:
    """Say in words what the file system does not let us do."""
    try:
        yield
    except OSError as error:
        raise SnapshotFolderUnusable(path=folder, reason=error.strerror or str(error)) from error


def make_folder(folder: Path, *, may_be_link: bool) -> None:
    """Make a folder that only this user may use, if it is missing; the one above it must be there."""
    with unusable(folder):
        for _ in range(_ATTEMPTS):
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                sync(folder.parent)
            with suppress(FileNotFoundError):  # another engine pruned it since: make it again
                return _check_folder(folder, folder.lstat().st_mode, may_be_link=may_be_link)
        raise SnapshotFolderUnusable(path=folder, reason=_REMOVED)


def _check_folder(folder: Path, mode: int, *, may_be_link: bool) -> None:
    if not folder.is_dir():
        raise SnapshotFolderUnusable(path=folder, reason="it is not a folder")
    if stat.S_ISLNK(mode) and not may_be_link:
        raise SnapshotFolderUnusable(path=folder, reason="it is a symbolic link")


def check_writable(folder: Path, token: str) -> None:
    """Try it: permissions alone do not tell."""
    probe = folder / f".probe~{socket.gethostname()}~{os.getpid()}~{token}.part"
    with unusable(folder):
        try:
            os.close(_create(probe))
        finally:
            probe.unlink(missing_ok=True)


def write_aside(final: Path, content: Callable[[], Iterable[bytes]], token: str) -> None:
    """Write a file under another name, and have it on the disk before it takes its own.

    The file's folder is made if it is missing. An engine that prunes removes folders that are empty, so it may be gone
    again before the file is in it: then both are made once more. A file that is pruned as soon as it has its name was
    not needed any more.
    """
    for _ in range(_ATTEMPTS):
        make_folder(final.parent, may_be_link=False)
        with unusable(final.parent), suppress(FileNotFoundError):
            _write_part(final, content(), token)
            with suppress(FileNotFoundError):
                sync(final.parent)
            return
    raise SnapshotFolderUnusable(path=final.parent, reason=_REMOVED)


def _write_part(final: Path, content: Iterable[bytes], token: str) -> None:
    part = final.with_name(f".{final.stem}~{socket.gethostname()}~{os.getpid()}~{token}.part")
    try:
        with os.fdopen(_create(part), "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        _check_replaceable(final)
        part.replace(final)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def leftovers(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Files in the making, and whether their writer is known to be dead."""
    for path in inside(folder):
        if match := _PART.fullmatch(path.name):
            yield path, _is_dead(match[1], int(match[2]))


def listed(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing if there is no folder yet."""
    with unusable(folder):
        try:
            return sorted(folder.iterdir())
        except FileNotFoundError:
            if folder.is_symlink():
                raise
            return []


def inside(folder: Path) -> list[Path]:
    """What is in a snapshot's folder; nothing if it is gone meanwhile, or not ours to look into."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def is_folder(path: Path) -> bool:
    """Whether it is a folder and no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def remove(files: Iterable[Path], folder: Path | None = None) -> None:
    """Remove files, and their folder if nothing else is in it."""
    for path in files:
        with unusable(path.parent):
            path.unlink(missing_ok=True)
    if folder is not None:
        with suppress(OSError):  # others' files are in it, or it is gone
            folder.rmdir()


def sync(folder: Path) -> None:
    """Make new and renamed files of a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _check_replaceable(final: Path) -> None:
    """Another engine may have written the same; anything else in its place is left alone."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(final.lstat().st_mode):
            raise SnapshotFolderUnusable(path=final.parent, reason=f"{final.name} in it is not a file")


def _is_dead(host: str, pid: int) -> bool:
    if host != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it lives, under another user
        return False
    return False
