"""Room to get out of a full store: deleting takes pages too, so publishers are stopped while some are left.

In the map, a part is kept from publishers. On a full disk, a file of nothing is thrown out for those who delete.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.log.embedded.tables import CELLS, ENTRIES, JOURNAL, PRODUCERS

BALLAST_BYTES = 1 << 20
_BALLAST_FILE = "ballast"
_RESERVE_BYTES = 512 << 10
_RESERVE_PART = 16
_NEARLY_FULL_BYTES = 4 << 20
_LARGE_TABLES = (ENTRIES, CELLS, PRODUCERS, JOURNAL)  # what is in the others, the reserve has room for


def left_for_publishers(transaction: Any, handles: Mapping[str, Any], map_bytes: int) -> int:
    """Bytes of the map that publishers may still take. Pages that were freed count as room."""
    reserve = max(map_bytes // _RESERVE_PART, min(_RESERVE_BYTES, map_bytes // 4))
    used = 0
    for name in _LARGE_TABLES:
        table = transaction.stat(handles[name])
        used += (table["branch_pages"] + table["leaf_pages"] + table["overflow_pages"]) * table["psize"]
    return map_bytes - reserve - used


def load_ballast(folder: Path) -> None:
    """Lay in the ballast, if it is missing and there is plenty of room."""
    path = folder / _BALLAST_FILE
    if path.exists() or disk_left(folder) < 4 * BALLAST_BYTES:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, BALLAST_BYTES)
    except OSError:
        path.unlink(missing_ok=True)  # no room for it after all, or a disk that can't: then there is none
    finally:
        os.close(descriptor)


def throw_ballast(folder: Path) -> bool:
    """Give the disk back what the ballast takes; False if it was gone already."""
    try:
        (folder / _BALLAST_FILE).unlink()
    except FileNotFoundError:
        return False
    return True


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
