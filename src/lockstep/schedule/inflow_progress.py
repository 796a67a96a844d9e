"""How far an inflow has stored the records of its partitions, so that none is stored twice on a bus with transactions.

A cell for each partition holds the records that may not be committed yet: the offset and digest of the first, and the
offset after the last. It is written in the transaction that stores them. After a crash Kafka gives the records from the
first of them on again. If offset and digest are those of the cell, all up to its end are passed by. Where a group was
set back on purpose, or a topic was made anew, they differ, and the records are taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from lockstep.log.port import Bus, Transaction

Place = tuple[str, int]
"""A topic and the number of a partition."""
Mark = tuple[int, str]
"""The offset and the digest of a record."""


class PartitionMoved(Exception):
    """Another consumer has stored records of a partition since this one got it."""


@dataclass(slots=True)
class Progress:
    """What one consumer knows of its partitions."""

    bus: Bus
    scheduler: str
    group: str
    to_commit: dict[Place, int] = field(default_factory=dict)
    """Offsets after what is stored."""
    _seen: dict[Place, bytes | None] = field(default_factory=dict)
    """The cells as this consumer read them when it got the partitions, or wrote them since."""
    _first: dict[Place, Mark] = field(default_factory=dict)
    """The first record that may not be committed yet."""
    _known_to: dict[Place, int] = field(default_factory=dict)
    """Records before this offset were stored before a crash."""

    def begin(self, places: Iterable[Place]) -> None:
        """Partitions came to this consumer."""
        if self.bus.promises.atomic:
            keys = {place: self._key(place) for place in places}
            self._seen |= self.bus.atomic(lambda changes: {place: changes.get(key) for place, key in keys.items()})

    def forget(self, places: Iterable[Place]) -> None:
        """Partitions have another consumer from now on, which commits what it stores."""
        for place in places:
            for kept in (self.to_commit, self._seen, self._first, self._known_to):
                kept.pop(place, None)

    def stored(self, records: Iterable[Any]) -> None:
        """Records are stored; those before the end of an earlier crash are committed together, when all were read."""
        for record in records:
            place, after = place_of(record), record.offset() + 1
            if after >= self._known_to.get(place, 0):
                self.to_commit[place] = after

    def committed(self, place: Place) -> None:
        """What was to be committed of a partition is, or is not this consumer's any more."""
        del self.to_commit[place]
        self._first.pop(place, None)
        self._known_to.pop(place, None)

    def atomic(self, records: Sequence[Any], write: Callable[[Sequence[Any], Transaction], None]) -> list[Any]:
        """Have records written that were not stored before, in one transaction with the cells; return them."""
        by_place: dict[Place, list[Any]] = {}
        for record in records:
            by_place.setdefault(place_of(record), []).append(record)

        def work(changes: Transaction) -> tuple[list[Any], dict[Place, tuple[Mark, int, bytes | None]]]:
            fresh: list[Any] = []
            after: dict[Place, tuple[Mark, int, bytes | None]] = {}
            for place, read in by_place.items():
                first, known_to, cell = self._look(changes, place, read[0])
                new = [record for record in read if record.offset() >= known_to]
                if new:
                    cell = json.dumps([*first, new[-1].offset() + 1]).encode()
                    changes.put(self._key(place), cell)
                fresh += new
                after[place] = (first, known_to, cell)
            if fresh:
                write(fresh, changes)
            return fresh, after

        fresh, after = self.bus.atomic(work)
        for place, (first, known_to, cell) in after.items():
            self._first[place], self._known_to[place], self._seen[place] = first, known_to, cell
        return fresh

    def _look(self, changes: Transaction, place: Place, record: Any) -> tuple[Mark, int, bytes | None]:
        """The first record that may not be committed, up to where records were stored before, and the cell."""
        cell = changes.get(self._key(place))
        if place in self._seen and self._seen[place] != cell:
            reason = f"partition {place[1]} of {place[0]} has another consumer by now"
            raise PartitionMoved(reason)
        if place in self._first:
            return self._first[place], self._known_to.get(place, 0), cell
        mark = (record.offset(), _digest(record))
        if cell is None:
            return mark, 0, None
        *first, end = json.loads(cell)
        return mark, end if tuple(first) == mark else 0, cell

    def _key(self, place: Place) -> bytes:
        named = json.dumps([self.scheduler, self.group, *place]).encode()
        return b"inflow\0" + blake2b(named, digest_size=16).digest()


def place_of(record: Any) -> Place:
    """Where a record of Kafka is from."""
    return record.topic(), record.partition()


def _digest(record: Any) -> str:
    parts = json.dumps([record.timestamp()[1], len(record.key() or b"")]).encode()
    return blake2b(parts + (record.key() or b"") + (record.value() or b""), digest_size=16).hexdigest()
