"""Tables in an LMDB transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from lockstep.log.embedded.tables import ENTRIES

Touched = dict[tuple[str, bytes], None]


class Space(Protocol):
    """What limits how much may be stored."""

    def room(self, transaction: Any) -> int:
        """Bytes that publishers may still add."""

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

    def put(self, table: str, key: bytes, value: bytes) -> None:
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
    """Tables that remember which keys changed, for a replica, and ask for room before they add records."""

    __slots__ = ("_left", "_space", "touched")

    def __init__(self, transaction: Any, handles: Mapping[str, Any], space: Space) -> None:
        super().__init__(transaction, handles)
        self.touched: Touched = {}
        self._space = space
        self._left: int | None = None

    @property
    def adds_records(self) -> bool:
        """True if this transaction stores batches; one that only deletes may use the last room there is."""
        return self._left is not None

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """See Tables."""
        if table == ENTRIES:
            left = self._space.room(self._transaction) if self._left is None else self._left
            self._left = left - len(key) - len(value)
            if self._left < 0:
                raise self._space.full()
        self.touched[table, key] = None
        super().put(table, key, value)

    def delete(self, table: str, key: bytes) -> None:
        """See Tables."""
        self.touched[table, key] = None
        super().delete(table, key)
