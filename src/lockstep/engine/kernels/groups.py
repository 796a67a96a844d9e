"""Groups of an aggregate as small numbers, so that their state is arrays; numbers of ended groups are used again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lockstep.engine.events.columns import Int64s
from lockstep.engine.events.types import Value
from lockstep.engine.kernels.flow import Flow

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
