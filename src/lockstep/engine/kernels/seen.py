"""The keys that an insert-only source has seen: as words if the key is one whole number, else as a set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from lockstep.engine.events.columns import Int64s
from lockstep.engine.kernels import pages
from lockstep.engine.kernels.flow import Mask, Part
from lockstep.engine.kernels.wordset import WordSet, folded

PAGE_KEYS = 65_536
"""Keys in a page; a full page never changes again."""


class Seen(ABC):
    """Keys in the order in which they came; their pages are only appended to."""

    def __init__(self) -> None:
        self._page = 0
        self._dirty = False

    @abstractmethod
    def keys_of(self, part: Part, names: tuple[str, ...]) -> Any:
        """The keys of all rows."""

    @abstractmethod
    def add(self, keys: Any, use: Mask) -> Mask:
        """Take the keys that `use` marks, in order; which of them were there already."""

    @abstractmethod
    def known(self, keys: Any) -> Mask:
        """Which keys are there already, or occur earlier among these; nothing is taken."""

    @abstractmethod
    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """New pages, and the last one."""

    @abstractmethod
    def restore(self, number: int, content: Any) -> None:
        """Take the content of a page."""


class SeenNumbers(Seen):
    """Keys that are one whole number."""

    def __init__(self) -> None:
        super().__init__()
        self._set = WordSet()
        self._fresh: list[Int64s] = []
        """The keys since the last full page: joined when a page is made, as every span brings some."""

    def keys_of(self, part: Part, names: tuple[str, ...]) -> Int64s:
        """The key column."""
        values, _ = part.numbers(names[0])
        return cast(Int64s, values)

    def add(self, keys: Any, use: Mask) -> Mask:
        """Take keys."""
        known = self._set.add(keys, use)
        taken = keys[use & ~known]
        if len(taken):
            self._fresh.append(taken)
            self._dirty = True
        return known

    def known(self, keys: Any) -> Mask:
        """Look keys up."""
        known = self._set.holds(keys)
        firsts = np.zeros(len(keys), np.bool_)
        firsts[np.unique(keys, return_index=True)[1]] = True
        return known | ~firsts

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """Full pages, then the one that is still growing."""
        while self._dirty:
            fresh = np.concatenate(self._fresh) if len(self._fresh) > 1 else self._fresh[0]
            piece, rest = fresh[:PAGE_KEYS], fresh[PAGE_KEYS:]
            yield (
                f"keys.{self._page}",
                pages.pack([len(piece), piece if len(piece) < PAGE_KEYS else None, *folded(piece)]),
            )
            self._dirty = len(rest) > 0
            self._fresh = [fresh]
            if len(piece) == PAGE_KEYS:
                self._page += 1
                self._fresh = [rest] if self._dirty else []

    def restore(self, number: int, content: Any) -> None:
        """Take a page."""
        count, growing, tags, bits = content
        self._set.add_folded(tags, bits)
        if count == PAGE_KEYS:
            self._page = max(self._page, number + 1)
        else:
            self._page, self._fresh = number, [growing]


class SeenKeys(Seen):
    """Keys of any other kind."""

    def __init__(self) -> None:
        super().__init__()
        self._set: set[Any] = set()
        self._fresh: list[Any] = []

    def keys_of(self, part: Part, names: tuple[str, ...]) -> list[Any]:
        """The values, or tuples of them."""
        columns = [part.columns[name].to_pylist() for name in names]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def add(self, keys: Any, use: Mask) -> Mask:
        """Take keys."""
        known = np.zeros(len(keys), np.bool_)
        for place in np.flatnonzero(use).tolist():
            key = keys[place]
            if key in self._set:
                known[place] = True
            else:
                self._set.add(key)
                self._fresh.append(key)
                self._dirty = True
        return known

    def known(self, keys: Any) -> Mask:
        """Look keys up."""
        met: set[Any] = set()
        known = np.zeros(len(keys), np.bool_)
        for place, key in enumerate(keys):
            known[place] = key in self._set or key in met
            met.add(key)
        return known

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """Full pages, then the one that is still growing."""
        while self._dirty:
            piece = self._fresh[:PAGE_KEYS]
            yield f"keys.{self._page}", pages.pack(piece)
            self._dirty = len(self._fresh) > PAGE_KEYS
            if len(piece) == PAGE_KEYS:
                self._page += 1
                del self._fresh[:PAGE_KEYS]

    def restore(self, number: int, content: Any) -> None:
        """Take a page."""
        keys = [tuple(key) if isinstance(key, list) else key for key in content]
        self._set.update(keys)
        if len(keys) == PAGE_KEYS:
            self._page = max(self._page, number + 1)
        else:
            self._page, self._fresh = number, keys
