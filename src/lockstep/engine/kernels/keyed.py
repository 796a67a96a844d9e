"""Rows by key: the key of each has a small number, and for each number stands which row it has now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.columns import Int64s
from lockstep.engine.kernels.flow import Mask, Part
from lockstep.engine.kernels.keys import NONE, CountedKeys, KeyNumbers
from lockstep.engine.kernels.rowstore import RowStore


class KeyedRows:
    """The rows of a window, or of one of its sides. `is_counted`: none of them is ever named again by its key."""

    def __init__(
        self,
        types: Mapping[str, pa.DataType],
        keys: tuple[str, ...],
        name: str,
        place: str,
        *,
        is_counted: bool = False,
    ) -> None:
        self.keys = keys
        self.store = RowStore(types, name, place)
        self.numbers = CountedKeys() if is_counted else KeyNumbers()
        self.row = np.full(0, NONE, np.int64)
        self._where = f"{name} of {place}"

    def grow(self) -> None:
        """Room for all keys."""
        self.row = grown(self.row, self.numbers.size)

    def settle(self, given: Part, keys: Int64s, was: Int64s) -> None:
        """Keep what a loop left of a span: its rows, their keys, and the row that each of these had before."""
        base, events = self.store.next_id, np.arange(len(keys), dtype=np.int64)
        now = self.row[keys]
        came = np.flatnonzero(now == base + events)
        self.store.drop(np.unique(was[(was >= 0) & (now != was)]))
        self.store.add(given.take(came, self.store.names), base + came)
        self.numbers.give_up(unused(keys, now >= 0))

    def numbered(self, part: Part) -> Int64s:
        """The numbers of the keys of loaded rows, none of which may be there."""
        keys = self.numbers.of(part, self.keys)
        self.grow()
        if (self.row[keys] >= 0).any() or len(np.unique(keys)) < len(keys):
            raise SnapshotDamaged(place=self._where, reason="a key is there twice")
        return keys


def check_names(found: Iterable[str], kinds: Sequence[str], place: str) -> None:
    """Refuse pages that are of no kind that a window has: they are of another form of it."""
    odd = sorted(name for name in found if name.partition(".")[0] not in kinds)
    if odd:
        raise SnapshotDamaged(place=place, reason=f"{odd[0]} is not a page of a window that works on columns")


def grown(array: Int64s, size: int) -> Int64s:
    """An array with room for at least so many numbers, filled with NONE."""
    if size <= len(array):
        return array
    made = np.full(max(size, 2 * len(array), 64), NONE, np.int64)
    made[: len(array)] = array
    return made


def unused(numbers: Int64s, used: Mask) -> list[int]:
    """Each number once that is there and not in use; `used` says it for each of them."""
    loose: list[int] = np.unique(numbers[~used & (numbers >= 0)]).tolist()
    return loose
