"""Tables in an LMDB transaction, and how much room users may take in them.

Groups go on in a full store, and deleting takes pages too, so users are stopped while some room is left. Of the map, a
part is kept from users' records and state: half of it for the logs of groups, the rest for those who delete. On the
disk, ballast files are kept and deleted when it is full: one for groups, one for those who delete.

"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from lockstep.log.embedded.tables import CATALOGUE, CELLS, ENTRIES, JOURNAL, LOGS, PRODUCERS, Tables

_DATA = frozenset({ENTRIES, CELLS, CATALOGUE})
"""Tables that grow with what users store."""

_NOT_ASKED = -(1 << 62)

Touched = dict[tuple[str, bytes], None]


class Space(Protocol):
    """What limits how much may be stored."""

    @property
    def reserved_for_groups(self) -> int:
        """Bytes that the logs of groups may take beyond the room of users."""

    def cost(self, key: bytes, value: bytes) -> int:
        """Bytes that a row takes in the file."""

    def room(self, transaction: Any) -> int:
        """Bytes that users may still add; negative if groups use some of their reserve."""

    def full(self) -> Exception:
        """The error when they would add more."""


class LmdbTables(Tables):
    """The tables within one LMDB transaction."""

    __slots__ = ("_handles", "_transaction")

    def __init__(self, transaction: Any, handles: Mapping[str, Any]) -> None:
        self._transaction, self._handles = transaction, handles

    def get(self, table: str, key: bytes) -> bytes | None:
        value: bytes | None = self._transaction.get(key, db=self._handles[table])
        return value

    def put(self, table: str, key: bytes, value: bytes, *, reserved: bool = False) -> None:  # noqa: ARG002
        self._transaction.put(key, value, db=self._handles[table])

    def delete(self, table: str, key: bytes) -> None:
        self._transaction.delete(key, db=self._handles[table])

    def scan(self, table: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor(self._handles[table])
        found = cursor.set_range(start) if start else cursor.first()
        return cursor.iternext() if found else iter(())

    def scan_down(self, table: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor(self._handles[table])
        if not cursor.set_range(start):
            found = cursor.last()
        else:
            found = cursor.key() == start or cursor.prev()
        return cursor.iterprev() if found else iter(())


class RecordingTables(LmdbTables):
    """Tables that remember which keys changed, for a replica, and ask for room before users' data is added."""

    __slots__ = ("_left", "_space", "adds_data", "adds_group_records", "touched")

    def __init__(self, transaction: Any, handles: Mapping[str, Any], space: Space) -> None:
        super().__init__(transaction, handles)
        self.touched: Touched = {}
        self._space = space
        self._left = _NOT_ASKED
        self.adds_data = self.adds_group_records = False
        """What this transaction stores; one that stores neither may use the last room there is."""

    def put(self, table: str, key: bytes, value: bytes, *, reserved: bool = False) -> None:
        if table in _DATA:
            before = self.get(table, key) if table == CELLS else None
            added = self._space.cost(key, value) - (0 if before is None else self._space.cost(key, before))
            if added > 0:
                self._use_room(added, reserved)
        self.touched[table, key] = None
        super().put(table, key, value)

    def _use_room(self, size: int, reserved: bool) -> None:
        if reserved:
            self.adds_group_records = True
        else:
            self.adds_data = True
        least = size - (self._space.reserved_for_groups if reserved else 0)
        if self._left < least:  # counted are bounds: what was put so far may have taken less
            self._left = self._space.room(self._transaction)
        if self._left < least:
            raise self._space.full()
        self._left -= size

    def delete(self, table: str, key: bytes) -> None:
        self.touched[table, key] = None
        super().delete(table, key)


BALLAST_BYTES = 1 << 20
_BALLAST_FILE, _GROUPS_BALLAST_FILE = "ballast", "ballast.groups"
_RESERVE_BYTES = 512 << 10
_RESERVE_PART = 16
_NEARLY_FULL_BYTES = 4 << 20
_PAGE_HEADER, _NODE_HEADER, _PAGE_NUMBER, _POINTER = 16, 8, 8, 2
"""Sizes in LMDB's files."""
_LARGE_TABLES = (ENTRIES, CELLS, CATALOGUE, LOGS, PRODUCERS, JOURNAL)  # the reserve has room for the others


def reserved_bytes(map_bytes: int) -> int:
    """Bytes of the map that users' records and state may not take."""
    return max(map_bytes // _RESERVE_PART, min(_RESERVE_BYTES, map_bytes // 4))


def row_bytes(key_bytes: int, value_bytes: int, page_bytes: int) -> int:
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
    return map_bytes - reserved_bytes(map_bytes) - used


def create_ballast(folder: Path) -> None:
    """Lay in the ballast, if some is missing and there is plenty of room."""
    for name in (_BALLAST_FILE, _GROUPS_BALLAST_FILE):
        _create(folder, folder / name)


def _create(folder: Path, path: Path) -> None:
    if path.exists() or disk_left(folder) < 4 * BALLAST_BYTES:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, BALLAST_BYTES)
    except OSError:
        path.unlink(missing_ok=True)  # no room for it after all, or a disk that can't: then there is none
    finally:
        os.close(descriptor)


def delete_ballast(folder: Path, *, for_groups: bool = False) -> bool:
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
