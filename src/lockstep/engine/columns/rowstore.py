"""Rows that are state, by numbers that rise as they come: chunks of columns, of which a snapshot takes what changed.

Rows are added at the end and taken out anywhere. A chunk never changes, but for the list of its rows that are gone.
When more than half of them are, the others are put together anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa

from lockstep.engine.columns import pages
from lockstep.engine.columns.flow import Mask, Part
from lockstep.engine.errors import SnapshotDamaged
from lockstep.engine.events.columns import Int64s

CHUNK = 8_192
"""Rows in a chunk at most."""


@dataclass(slots=True)
class Chunk:
    """Rows with their numbers, which rise, and which of them are still there."""

    part: Part
    ids: Int64s
    there: Mask
    count: int

    def rest(self) -> tuple[Part, Int64s]:
        """The rows that are there."""
        rows = np.flatnonzero(self.there)
        return self.part.take(rows, tuple(self.part.columns)), self.ids[rows]


class RowStore:
    """The rows of a window, or of one of its sides: columns of some types.

    `place` says in errors whose rows they are; its pages are called `name.N` and `name.N.gone`.
    """

    def __init__(self, types: Mapping[str, pa.DataType], name: str, place: str) -> None:
        self.names = tuple(types)
        self._types = dict(types)
        self._name, self._place = name, place
        self._chunks: dict[int, Chunk] = {}
        self._changed: set[int] = set()
        self._thinned: set[int] = set()
        self._gone_kept: set[int] = set()
        """Chunks with a page of rows that are gone."""
        self.next_id = 0
        """Above the numbers of all rows."""

    def __len__(self) -> int:
        return sum(chunk.count for chunk in self._chunks.values())

    def add(self, part: Part, ids: Int64s) -> None:
        """Rows came, with numbers above all others."""
        if not len(ids):
            return
        self.next_id = int(ids[-1]) + 1
        start = 0
        last = next(reversed(self._chunks), None)
        if last is not None:
            room = CHUNK - len(self._chunks[last].ids)
            # A long chunk is not copied for a few rows more, nor is a page of many rows written for each of them.
            if room > 0 and len(self._chunks[last].ids) < CHUNK // 2:
                start = min(room, len(ids))
                self._put(last, *_joined(self._chunks[last].rest(), (_cut(part, 0, start, self.names), ids[:start])))
        for at in range(start, len(ids), CHUNK):
            stop = min(at + CHUNK, len(ids))
            number = next(reversed(self._chunks), -1) + 1
            self._put(number, _cut(part, at, stop, self.names), ids[at:stop].copy())

    def drop(self, ids: Int64s) -> None:
        """Rows are gone; each of them is there."""
        if not len(ids):
            return
        ids = np.sort(ids)
        thin = []
        for number, low, high in self._ranges(ids):
            chunk = self._chunks[number]
            chunk.there[np.searchsorted(chunk.ids, ids[low:high])] = False
            chunk.count -= high - low
            self._thinned.add(number)
            if 2 * chunk.count < len(chunk.ids):
                thin.append(number)
        for number in thin:
            self._compact(number)

    def take(self, ids: Int64s) -> Part:
        """The rows with these numbers, which rise."""
        parts = []
        for number, low, high in self._ranges(ids):
            chunk = self._chunks[number]
            parts.append(chunk.part.take(np.searchsorted(chunk.ids, ids[low:high]), self.names))
        return Part({name: self._whole(parts, name) for name in self.names}, len(ids))

    def all(self) -> Iterator[tuple[Part, Int64s]]:
        """All rows in the order in which they came, in pieces."""
        for chunk in self._chunks.values():
            yield chunk.rest()

    def _whole(self, parts: Sequence[Part], name: str) -> pa.Array:
        columns = [part.columns[name] for part in parts]
        return pa.concat_arrays(columns) if columns else pa.array([], self._types[name])

    def _ranges(self, ids: Int64s) -> list[tuple[int, int, int]]:
        """The chunks of some rising numbers, and where those of each begin and end."""
        numbers = list(self._chunks)
        lasts = np.array([self._chunks[number].ids[-1] for number in numbers], np.int64)
        stops = np.searchsorted(ids, lasts, "right").tolist()
        starts = [0, *stops][: len(stops)]
        return [each for each in zip(numbers, starts, stops, strict=True) if each[1] < each[2]]

    def _put(self, number: int, part: Part, ids: Int64s) -> None:
        self._chunks[number] = Chunk(part, ids, np.ones(len(ids), np.bool_), len(ids))
        self._changed.add(number)

    def _compact(self, number: int) -> None:
        """Put the rest of a chunk together anew, with its neighbour before if that has few rows, too."""
        chunk = self._chunks.get(number)
        if chunk is None:
            return
        self._changed.add(number)
        if not chunk.count:
            del self._chunks[number]
            return
        before = self._before(number)
        if before is not None and self._chunks[before].count + chunk.count <= CHUNK // 2:
            self._put(before, *_joined(self._chunks[before].rest(), chunk.rest()))
            del self._chunks[number]
        else:
            self._put(number, *chunk.rest())

    def _before(self, number: int) -> int | None:
        """The chunk before: numbers are in order, and few are left out."""
        numbers = list(self._chunks)
        place = int(np.searchsorted(np.array(numbers, np.int64), number))
        return numbers[place - 1] if place else None

    def changed_pages(self) -> Iterator[tuple[str, bytes | None]]:
        """Chunks that are new or gone, and the rows that are gone of others."""
        for number in sorted(self._changed):
            chunk = self._chunks.get(number)
            page = None if chunk is None else pages.pack([chunk.ids, pages.pack_columns(chunk.part)])
            yield f"{self._name}.{number}", page
        for number in sorted(self._thinned | (self._changed & self._gone_kept)):
            chunk = self._chunks.get(number)
            page = None
            if chunk is not None and chunk.count < len(chunk.ids):
                page = pages.pack(np.packbits(~chunk.there))
                self._gone_kept.add(number)
            else:
                self._gone_kept.discard(number)
            yield f"{self._name}.{number}.gone", page
        self._changed.clear()
        self._thinned.clear()

    def load(self, found: Mapping[str, bytes]) -> None:
        """Put the chunks back; what does not fit together is refused."""
        matched = [re.fullmatch(rf"{self._name}\.(\d+)(\.gone)?", name) for name in found]
        numbers = sorted(int(each[1]) for each in matched if each and not each[2])
        if not {int(each[1]) for each in matched if each} <= set(numbers):
            self._refuse("rows are gone of a page that is not there")
        last = -1
        for number in numbers:
            ids, columns = self._content(found[f"{self._name}.{number}"], number, last)
            last = int(ids[-1])
            there = self._there(found.get(f"{self._name}.{number}.gone"), number, len(ids))
            if f"{self._name}.{number}.gone" in found:
                self._gone_kept.add(number)
            self._chunks[number] = Chunk(columns, ids, there, int(np.count_nonzero(there)))
        self.next_id = last + 1

    def _content(self, page: bytes, number: int, last: int) -> tuple[Int64s, Part]:
        try:
            ids, packed = pages.unpack(page)
            part = pages.unpack_columns(packed, len(ids))
        except (ValueError, TypeError, LookupError, pa.ArrowException) as error:
            self._refuse(f"its page {self._name}.{number} is broken: {error}")
        if not _are_rising(ids, last):
            self._refuse(f"the numbers of its page {self._name}.{number} do not rise")
        types = {name: column.type for name, column in part.columns.items()}
        if types != self._types or any(len(column) != len(ids) for column in part.columns.values()):
            self._refuse(f"its page {self._name}.{number} does not have the fields of the window")
        return ids, part

    def _there(self, page: bytes | None, number: int, size: int) -> Mask:
        if page is None:
            return np.ones(size, np.bool_)
        bits = pages.unpack(page)
        if not isinstance(bits, np.ndarray) or bits.dtype != np.uint8 or len(bits) != -(-size // 8):
            self._refuse(f"its page {self._name}.{number}.gone does not fit its rows")
        return ~np.unpackbits(bits, count=size).astype(np.bool_)

    def _refuse(self, reason: str) -> NoReturn:
        raise SnapshotDamaged(place=self._place, reason=reason)


def _are_rising(ids: object, last: int) -> bool:
    if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1 or not len(ids):
        return False
    return int(ids[0]) > last and bool((ids[1:] > ids[:-1]).all())


def _cut(part: Part, start: int, stop: int, names: tuple[str, ...]) -> Part:
    """Rows copied: a slice would keep all of the span in memory."""
    return part.take(np.arange(start, stop, dtype=np.int64), names)


def _joined(one: tuple[Part, Int64s], other: tuple[Part, Int64s]) -> tuple[Part, Int64s]:
    (left, left_ids), (right, right_ids) = one, other
    columns = {name: pa.concat_arrays([left.columns[name], right.columns[name]]) for name in left.columns}
    return Part(columns, left.length + right.length), np.concatenate([left_ids, right_ids])
