"""Numbers for keys: each key that is in use has a small number, so that what is known of it stands in arrays.

Numbers are of no meaning outside: they are not kept, and given out anew when state is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Any

import numpy as np

from lockstep.engine.events.columns import Int64s
from lockstep.engine.kernels.flow import Part

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
