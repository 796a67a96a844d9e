"""Insert-only sources on columns: keys that were seen are words or a set; rows are passed on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from lockstep.engine.columns import pages
from lockstep.engine.columns.flow import INSERT, NORMAL, UPDATE_BLOCK, Flow, Mask, Part
from lockstep.engine.columns.loops import compiled
from lockstep.engine.columns.runner import ColumnOperator, Moments, Pages, Yield
from lockstep.engine.events.columns import Bytes, Int64s
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import FieldType, Value
from lockstep.engine.model.graph import Node
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.reference.operator import BadEvent
from lockstep.engine.reference.source import details

_FINE, _OPCODE, _NULL, _KNOWN, _TRANSACTION = range(5)


class SourceColumns(ColumnOperator):
    """An insert-only source; without an index every row passes."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = cast(SourceWindow, node.window)
        self._keys = tuple(node.schema.names[place] for place in node.schema.keys)
        self._autogen = self._keys[0] if window.autogen_key else None
        self._seen: Seen | None = None
        if node.is_indexed and self._autogen is None:
            single = len(self._keys) == 1 and node.schema[self._keys[0]].type.is_integer
            self._seen = SeenNumbers() if single else SeenKeys()
        self._keys_made = 0
        self._key_kept = 0

    @property
    def checked(self) -> frozenset[str] | None:
        """The columns that it looks at in every row; None if it looks at all, as it makes new rows."""
        return frozenset(self._keys) if self._autogen is None else None

    def evaluate(self, inputs: Sequence[Flow], moments: Moments, *, emit: bool) -> Yield:
        """Check all events; those that are fine go on."""
        del emit
        (flow,) = inputs
        if not len(flow):
            return Yield(None, 0, 0)
        part = flow.parts[0]
        faults = self._faults(flow, part, moments.span.transactional)
        good = faults == _FINE
        if not good.all():
            self._refuse(flow, faults, moments)
            flow = replace(flow.select(good), refused=_positions(flow.block, ~good))
        if self._autogen is not None:
            flow = self._keyed(flow, part)
        if self.node.is_indexed:
            flow = replace(flow, flags=resolved_flags(flow.flags))
        return Yield(flow, len(flow), len(flow))

    def _faults(self, flow: Flow, part: Part, transactional: Int64s) -> Bytes:
        faults = np.zeros(len(flow), np.uint8)
        if (flow.opcode != INSERT).any():
            faults[flow.opcode != INSERT] = _OPCODE
        if self._autogen is None:
            for name in self._keys:
                if part.columns[name].null_count:
                    faults[part.columns[name].is_null().to_numpy(zero_copy_only=False) & (faults == _FINE)] = _NULL
        blocks = transactional[np.isin(transactional, flow.block)] if len(transactional) else transactional
        self._check_keys(flow, part, faults, blocks)
        return faults

    def _check_keys(self, flow: Flow, part: Part, faults: Bytes, transactional: Int64s) -> None:
        keys = None if self._seen is None else self._seen.keys_of(part, self._keys)
        start = 0
        for block in transactional.tolist():
            first, last = np.searchsorted(flow.block, [block, block + 1]).tolist()
            self._check_run(keys, faults, start, first)
            self._check_whole(keys, faults, first, last)
            start = last
        self._check_run(keys, faults, start, len(flow))

    def _check_run(self, keys: Int64s | list[object] | None, faults: Bytes, start: int, stop: int) -> None:
        if self._seen is not None and keys is not None and stop > start:
            faults[start:stop][self._seen.add(keys[start:stop], faults[start:stop] == _FINE)] = _KNOWN

    def _check_whole(self, keys: Int64s | list[object] | None, faults: Bytes, start: int, stop: int) -> None:
        """A transactional block: nothing of it is taken if something is wrong."""
        some = faults[start:stop]
        fine = np.flatnonzero(some == _FINE)
        if self._seen is not None and keys is not None:
            tried = keys[start:stop][fine] if isinstance(keys, np.ndarray) else [keys[start + place] for place in fine]
            some[fine[self._seen.known(tried)]] = _KNOWN
        if some.any():
            some[some == _FINE] = _TRANSACTION
        else:
            self._check_run(keys, faults, start, stop)

    def _keyed(self, flow: Flow, part: Part) -> Flow:
        assert self._autogen is not None
        field = self.node.schema[self._autogen]
        numbers = np.arange(self._keys_made, self._keys_made + len(flow), dtype=np.int64)
        self._keys_made += len(flow)
        keys = pa.array(numbers).cast(pa.string() if field.type is FieldType.STRING else field.type.arrow)
        columns = {name: flow.column(name) for name in part.columns if name != self._autogen}
        return replace(flow, parts=(Part({**columns, self._autogen: keys}, len(flow)),), index=None)

    def _refuse(self, flow: Flow, faults: Bytes, moments: Moments) -> None:
        places = np.flatnonzero(faults)
        _, indexes = _positions(flow.block, faults != _FINE)
        bad = flow.select(faults != _FINE)
        known = [name in bad.parts[0].columns for name in self.node.schema.names]
        columns = [
            bad.column(name).to_pylist() if there else [None] * len(places)
            for name, there in zip(self.node.schema.names, known, strict=True)
        ]
        for number, place in enumerate(places.tolist()):
            values = tuple([_value(column[number]) for column in columns])
            event = Event(Opcode(int(flow.opcode[place])), Flag(int(flow.flags[place])), values)
            reason, detail = self._words(int(faults[place]), event)
            moments.report(
                BadEvent(int(flow.block[place]), self.node.path, reason, detail, event, int(indexes[number]))
            )

    def _words(self, fault: int, event: Event) -> tuple[str, str]:
        if fault == _OPCODE and event.opcode == UPDATE_BLOCK:
            return "bad-opcode", "update blocks are made by windows, they can't come in"
        if fault == _OPCODE:
            return "bad-opcode", f"{event.opcode.name.lower()} into a window that takes inserts only"
        if fault == _NULL:
            null = next(name for name in self._keys if event.values[self.node.schema.places[name]] is None)
            return "null-key", f"{null} is null"
        reason = "duplicate-key" if fault == _KNOWN else "transaction"
        return reason, details(reason)

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """New keys, and how many were made."""
        if self._seen is not None:
            yield from self._seen.changed_pages()
        if self._keys_made != self._key_kept:
            self._key_kept = self._keys_made
            yield "last", pages.pack(self._keys_made)

    def load(self, pages_: Pages) -> None:
        """Go on from pages."""
        for name, page in pages_.items():
            kind, _, number = name.partition(".")
            if kind == "keys" and self._seen is not None:
                self._seen.restore(int(number), pages.unpack(page))
            elif kind == "last":
                self._keys_made = self._key_kept = pages.unpack(page)


def _value(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def resolved_flags(flags: Bytes) -> Bytes:
    """The flags of what leaves an index: nothing is partial any more."""
    if (flags == NORMAL).all():
        return flags
    kept = flags & ~np.uint8(Flag.PARTIAL)
    return np.where(kept == 0, np.uint8(NORMAL), kept).astype(np.uint8)


def _positions(block: Int64s, mask: Mask) -> tuple[Int64s, Int64s]:
    """Block and index in the block of some events."""
    places = np.flatnonzero(mask)
    return block[places], places - np.searchsorted(block, block[places])


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


# ruff: noqa: ANN001, ANN201 - the types are those of the arrays that a loop is called with
# mypy: disable-error-code="no-untyped-def"


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
