"""Room to work in a full store: groups go on, and deleting takes pages too, so users are stopped while some are left.

In the map, a part is kept from users' records and state: half of it for the logs of groups, the rest for those who
delete. On a full disk, files of nothing are thrown out: one for groups, one for those who delete.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.log.embedded.tables import CATALOGUE, CELLS, ENTRIES, JOURNAL, LOGS, PRODUCERS

BALLAST_BYTES = 1 << 20
_BALLAST_FILE, _GROUPS_BALLAST_FILE = "ballast", "ballast.groups"
_RESERVE_BYTES = 512 << 10
_RESERVE_PART = 16
_NEARLY_FULL_BYTES = 4 << 20
_PAGE_HEADER, _NODE_HEADER, _PAGE_NUMBER, _POINTER = 16, 8, 8, 2
"""Sizes in LMDB's files."""
_LARGE_TABLES = (ENTRIES, CELLS, CATALOGUE, LOGS, PRODUCERS, JOURNAL)  # the reserve has room for the others


def reserve(map_bytes: int) -> int:
    """Bytes of the map that users' records and state may not take."""
    return max(map_bytes // _RESERVE_PART, min(_RESERVE_BYTES, map_bytes // 4))


def cost(key_bytes: int, value_bytes: int, page_bytes: int) -> int:
    """Bytes of the file that a row takes at the most, once it is stored.

    A value that does not fit into half a page gets whole pages of its own, with one header before them. Others share
    pages, of which at least a half is used: a page that is full is split in two.
    """
    node = _NODE_HEADER + key_bytes + value_bytes
    if node <= (page_bytes - _PAGE_HEADER) // 2 - _POINTER:
        return 2 * (node + _POINTER)
    pages = -(-(_PAGE_HEADER + value_bytes) // page_bytes)
    return pages * page_bytes + 2 * (_NODE_HEADER + key_bytes + _PAGE_NUMBER + _POINTER)


def left_for_users(transaction: Any, handles: Mapping[str, Any], map_bytes: int) -> int:
    """Bytes of the map that users may still take.

    Pages that were freed count as room, also those that an open view still keeps: LMDB does not tell how many they are.
    """
    used = 0
    for name in _LARGE_TABLES:
        table = transaction.stat(handles[name])
        used += (table["branch_pages"] + table["leaf_pages"] + table["overflow_pages"]) * table["psize"]
    return map_bytes - reserve(map_bytes) - used


def load_ballast(folder: Path) -> None:
    """Lay in the ballast, if some is missing and there is plenty of room."""
    for name in (_BALLAST_FILE, _GROUPS_BALLAST_FILE):
        _load(folder, folder / name)


def _load(folder: Path, path: Path) -> None:
    if path.exists() or disk_left(folder) < 4 * BALLAST_BYTES:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, BALLAST_BYTES)
    except OSError:
        path.unlink(missing_ok=True)  # no room for it after all, or a disk that can't: then there is none
    finally:
        os.close(descriptor)


def throw_ballast(folder: Path, *, for_groups: bool = False) -> bool:
    """Give the disk back what the ballast takes, or only that of groups; False if it was gone already."""
    names = (_GROUPS_BALLAST_FILE,) if for_groups else (_BALLAST_FILE, _GROUPS_BALLAST_FILE)
    thrown = False
    for name in names:
        try:
            (folder / name).unlink()
            thrown = True
        except FileNotFoundError:
            continue
    return thrown


def is_nearly_full(folder: Path) -> bool:
    """Whether a write that came out short did so for lack of room."""
    return disk_left(folder) < _NEARLY_FULL_BYTES


def disk_left(folder: Path) -> int:
    """Bytes that the files of a folder may still grow by: what the disk has, and what this process may write."""
    status = os.statvfs(folder)
    left = status.f_bavail * status.f_frsize
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    data = folder / "data.mdb"
    if limit == resource.RLIM_INFINITY or not data.exists():
        return left
    return min(left, limit - data.stat().st_size)
