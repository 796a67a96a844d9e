"""Sets of whole numbers that were seen: 64 neighbours share one word, so that counted keys cost next to nothing."""

# ruff: noqa: ANN001, ANN201 - the types are those of the arrays that a loop is called with
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from lockstep.engine.events.columns import Int64s
from lockstep.engine.kernels.compiled import compiled
from lockstep.engine.kernels.flow import Mask

_PIECE = 16_384
"""Keys added between two looks at the room left."""


@compiled
def find_word(tags, bits, tag):
    """The slot of a word, or the empty one where it belongs."""
    mask = len(tags) - 1
    mixed = np.uint64(tag) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(mask))
    while bits[slot] != 0 and tags[slot] != tag:
        slot = (slot + 1) & mask
    return slot


@compiled
def add_keys(tags, bits, keys, use, known):
    """Add the keys with `use`; `known` says which were there already. How many words are new."""
    fresh = 0
    slot, last = np.int64(-1), np.int64(0)
    for i in range(len(keys)):
        if not use[i]:
            continue
        tag = keys[i] >> 6
        bit = np.uint64(1) << np.uint64(keys[i] & 63)
        if slot < 0 or tag != last:  # neighbours mostly follow each other
            slot, last = find_word(tags, bits, tag), tag
        if bits[slot] == 0:
            tags[slot] = tag
            fresh += 1
        known[i] = (bits[slot] & bit) != 0
        bits[slot] |= bit
    return fresh


@compiled
def look_up(tags, bits, keys, known):
    """Which keys are there."""
    for i in range(len(keys)):
        slot = find_word(tags, bits, keys[i] >> 6)
        known[i] = (bits[slot] & (np.uint64(1) << np.uint64(keys[i] & 63))) != 0


@compiled
def add_words(tags, bits, new_tags, new_bits):
    """Add whole words; how many are new."""
    fresh = 0
    for i in range(len(new_tags)):
        if new_bits[i] == 0:
            continue
        slot = find_word(tags, bits, new_tags[i])
        if bits[slot] == 0:
            tags[slot] = new_tags[i]
            fresh += 1
        bits[slot] |= new_bits[i]
    return fresh


@compiled
def fold(keys, tags, bits):
    """Sorted keys as words; how many."""
    at = -1
    for key in keys:
        tag = key >> 6
        if at < 0 or tags[at] != tag:
            at += 1
            tags[at] = tag
        bits[at] |= np.uint64(1) << np.uint64(key & 63)
    return at + 1


class WordSet:
    """A set of 64-bit whole numbers with room for many."""

    def __init__(self) -> None:
        self._tags, self._bits = _empty_words(1024)
        self._used = 0

    def add(self, keys: Int64s, use: Mask) -> Mask:
        """Add those keys that `use` marks, in order; the mask of those that were there already."""
        known = np.zeros(len(keys), np.bool_)
        for start in range(0, len(keys), _PIECE):
            stop = min(start + _PIECE, len(keys))
            self._make_room(stop - start)
            self._used += add_keys(self._tags, self._bits, keys[start:stop], use[start:stop], known[start:stop])
        return known

    def holds(self, keys: Int64s) -> Mask:
        """Which of the keys are there."""
        known = np.zeros(len(keys), np.bool_)
        look_up(self._tags, self._bits, keys, known)
        return known

    def add_folded(self, tags: Int64s, bits: Int64s) -> None:
        """Add what `folded` made."""
        self._make_room(len(tags))
        self._used += add_words(self._tags, self._bits, tags, bits.view(np.uint64))

    def _make_room(self, more: int) -> None:
        size = len(self._tags)
        while size < 2 * (self._used + more):
            size *= 2
        if size > len(self._tags):
            tags, bits = _empty_words(size)
            add_words(tags, bits, self._tags, self._bits)
            self._tags, self._bits = tags, bits


def folded(keys: Int64s) -> tuple[Int64s, Int64s]:
    """Keys as words: what a page keeps of them."""
    tags, bits = _empty_words(len(keys))
    count = fold(np.sort(keys), tags, bits)
    return tags[:count], bits[:count].view(np.int64)


def _empty_words(size: int) -> tuple[Int64s, np.ndarray[tuple[int], np.dtype[np.uint64]]]:
    return np.zeros(size, np.int64), np.zeros(size, np.uint64)
