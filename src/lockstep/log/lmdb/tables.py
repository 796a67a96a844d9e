"""Tables in an LMDB transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from lockstep.log.embedded.tables import CATALOGUE, CELLS, ENTRIES

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


class LmdbTables:
    """See Tables."""

    __slots__ = ("_handles", "_transaction")

    def __init__(self, transaction: Any, handles: Mapping[str, Any]) -> None:
        self._transaction, self._handles = transaction, handles

    def get(self, table: str, key: bytes) -> bytes | None:
        """See Tables."""
        value: bytes | None = self._transaction.get(key, db=self._handles[table])
        return value

    def put(self, table: str, key: bytes, value: bytes, *, reserved: bool = False) -> None:  # noqa: ARG002
        """See Tables."""
        self._transaction.put(key, value, db=self._handles[table])

    def delete(self, table: str, key: bytes) -> None:
        """See Tables."""
        self._transaction.delete(key, db=self._handles[table])

    def scan(self, table: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See Tables."""
        cursor = self._transaction.cursor(self._handles[table])
        found = cursor.set_range(start) if start else cursor.first()
        return cursor.iternext() if found else iter(())

    def scan_down(self, table: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See Tables."""
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
        """See Tables."""
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
        """See Tables."""
        self.touched[table, key] = None
        super().delete(table, key)
