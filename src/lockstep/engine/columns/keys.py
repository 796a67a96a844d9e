"""Small numbers for keys, rows and groups, so that what is known of each stands in arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa

from lockstep.engine.columns.flow import Flow, Mask, Part
from lockstep.engine.columns.rowstore import RowStore
from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.columns import Int64s
from lockstep.engine.events.schema import Value

NONE = -1
"""The number of what is not there."""


class KeyNumbers:
    """Numbers of the keys in use; numbers of keys that are given up are used again."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._keys: list[Any] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def size(self) -> int:
        """All numbers are below it."""
        return len(self._keys)

    def of(self, part: Part, names: tuple[str, ...]) -> Int64s:
        """The number of each row's key; keys that are new get one."""
        codes, distinct = part.codes(names)
        return self._of(distinct)[codes]

    def of_complete(self, part: Part, names: tuple[str, ...]) -> Int64s:
        """The same, but NONE for a key with a null in it."""
        codes, distinct = part.codes(names)
        if len(names) == 1:
            whole = [key is not None for key in distinct]
        else:
            whole = [isinstance(key, tuple) and None not in key for key in distinct]
        if all(whole):
            return self._of(distinct)[codes]
        table = np.full(len(distinct), NONE, np.int64)
        table[np.array(whole, np.bool_)] = self._of(list(compress(distinct, whole)))
        return table[codes]

    def _of(self, keys: list[Any]) -> Int64s:
        found = list(map(self._numbers.get, keys))
        if None in found:
            # Each once: what a column names as distinct values may hold one twice.
            self._add(list(dict.fromkeys(key for key, number in zip(keys, found, strict=True) if number is None)))
            found = list(map(self._numbers.__getitem__, keys))
        return np.array(found, np.int64)

    def _add(self, keys: list[Any]) -> None:
        again = min(len(self._free), len(keys))
        for key in keys[:again]:
            number = self._free.pop()
            self._keys[number] = key
            self._numbers[key] = number
        rest = keys[again:]
        self._numbers.update(zip(rest, range(len(self._keys), len(self._keys) + len(rest)), strict=True))
        self._keys += rest

    def give_up(self, numbers: Iterable[int]) -> None:
        """Forget keys; each number may be named once."""
        for number in numbers:
            del self._numbers[self._keys[number]]
            self._keys[number] = None
            self._free.append(number)


class CountedKeys(KeyNumbers):
    """Numbers for rows none of which is ever named again: none is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0

    @property
    def size(self) -> int:
        """All numbers are below it."""
        return self._size

    def of(self, part: Part, names: tuple[str, ...]) -> Int64s:
        """The next numbers."""
        del names
        first = self._size
        self._size += part.length
        return np.arange(first, self._size, dtype=np.int64)

    def give_up(self, numbers: Iterable[int]) -> None:
        """There is nothing to forget."""


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


Key = Value | tuple[Value, ...]
PAGE = 4096
"""Groups in a page of kept state."""


class GroupTable:
    """The number of each group that exists, how many rows it has, and which numbers are free."""

    def __init__(self) -> None:
        self.numbers: dict[Key, int] = {}
        self.keys: list[Key] = []
        self.count: Int64s = np.zeros(0, np.int64)
        self.last: Int64s = np.zeros(0, np.int64)
        """Scratch of the frame loop: always -1 between batches."""
        self._free: list[int] = []

    @property
    def capacity(self) -> int:
        """How many groups the arrays have room for."""
        return len(self.count)

    def codes(self, flow: Flow, names: tuple[str, ...]) -> tuple[Int64s, Int64s]:
        """For each row of a flow's parts a code, and for each code the number of its group, new ones included."""
        tables, codes, base = [], [], 0
        for part in flow.parts:
            part_codes, distinct = part.codes(names)
            tables.append(self._numbers(distinct))
            codes.append(part_codes + base if base else part_codes)
            base += len(distinct)
        self._make_room()
        return _joined(codes), _joined(tables)

    def distinct(self, numbers: Int64s) -> Int64s:
        """Each number once, sorted."""
        marks = np.zeros(self.capacity, np.bool_)
        marks[numbers] = True
        return np.flatnonzero(marks)

    def release(self, touched: Int64s) -> None:
        """Forget those of the groups that have no rows; their numbers are free."""
        for number in touched[self.count[touched] == 0].tolist():
            del self.numbers[self.keys[number]]
            self.keys[number] = None
            self._free.append(number)

    def key_lists(self, groups: Int64s, width: int) -> list[list[Value]]:
        """The values of each key field for some groups."""
        keys: list[Any] = [self.keys[number] for number in groups.tolist()]
        if width == 1:
            return [keys]
        return [list(values) for values in zip(*keys, strict=True)] if keys else [[] for _ in range(width)]

    def restore(self, start: int, count: Int64s, members: Sequence[int], keys: Sequence[Key]) -> None:
        """Put a page of groups back: `members` are the numbers in use, with their keys."""
        stop = start + len(count)
        while len(self.keys) < stop:
            self.keys.append(None)
        self._make_room()
        self.count[start:stop] = count
        for number, key in zip(members, keys, strict=True):
            self.numbers[key] = number
            self.keys[number] = key

    def find_free(self) -> None:
        """Work out which numbers are free, after the last page was put back."""
        used = set(self.numbers.values())
        self._free = [number for number in range(len(self.keys) - 1, -1, -1) if number not in used]

    def _numbers(self, keys: Sequence[Key]) -> Int64s:
        """The numbers of some groups; those that are new get one."""
        found = list(map(self.numbers.get, keys))
        if None in found:
            found = [self._number(key) if number is None else number for key, number in zip(keys, found, strict=True)]
        return np.array(found, np.int64)

    def _number(self, key: Key) -> int:
        if self._free:
            found = self._free.pop()
            self.keys[found] = key
        else:
            found = len(self.keys)
            self.keys.append(key)
        self.numbers[key] = found
        return found

    def _make_room(self) -> None:
        if len(self.keys) <= self.capacity:
            return
        pages = -(-max(len(self.keys), 2 * self.capacity) // PAGE)
        old = self.capacity
        count, last = np.zeros(pages * PAGE, np.int64), np.full(pages * PAGE, -1, np.int64)
        count[:old] = self.count
        self.count, self.last = count, last


def _joined(arrays: Sequence[Int64s]) -> Int64s:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
