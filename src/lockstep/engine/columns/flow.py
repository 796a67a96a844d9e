"""What flows between windows on columns: events that point into shared rows, so that no row is copied on its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.engine.events.columns import Bytes, EventBatch, Int64s, OwnKey
from lockstep.engine.events.event import Flag, Opcode
from lockstep.engine.events.schema import Schema, Value

Numbers = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Places = tuple[Int64s, Int64s]
_PART = "part"
_MANY = 2**62
"""Codes beyond this are made dense before they are combined with others."""
_Kind = TypeVar("_Kind", bound=np.generic)

INSERT, DELETE, UPDATE_BLOCK = int(Opcode.INSERT), int(Opcode.DELETE), int(Opcode.UPDATE_BLOCK)
NORMAL, RETENTION = int(Flag.NORMAL), int(Flag.RETENTION)


def frozen(array: npt.NDArray[_Kind]) -> npt.NDArray[_Kind]:
    """The array, not to be written to: loops are compiled for such inputs only, as arrays from Arrow are so anyway."""
    view = array.view()
    view.flags.writeable = False
    return view


NO_MASK: Mask = frozen(np.zeros(0, np.bool_))
"""Stands for a mask that is true everywhere."""


class Part:
    """Rows as columns, with what was worked out from them: several windows often look at the same rows."""

    def __init__(self, columns: Mapping[str, pa.Array], length: int, whole: tuple[Part, int] | None = None) -> None:
        self.columns = dict(columns)
        self.length = length
        self._whole = whole
        self._numbers: dict[str, tuple[Numbers, Mask]] = {}
        self._codes: dict[tuple[str, ...], tuple[Int64s, list[Value | tuple[Value, ...]]]] = {}
        self.has_single_events: bool | None = None
        """Whether each block has one event, if the rows are the events of blocks; None if that was not examined."""
        self.clocks: dict[tuple[str, int], tuple[Int64s, Int64s]] = {}
        """By a time field and the clock before: the clock at each row, and numbers, see TimeRule."""
        self._own: dict[OwnKey, tuple[Part, Int64s]] = {}

    @property
    def whole(self) -> tuple[Part, int] | None:
        """The part that it is a slice of, and where it begins there."""
        return self._whole

    @classmethod
    def of(cls, batch: EventBatch) -> Part:
        """The rows of a batch; those of a slice share what is worked out from the whole."""
        if batch.whole:
            whole, start = batch.whole[0]
            return cls.of(whole).slice(start, start + len(batch))
        found: Part | None = batch.found.get(_PART)
        if found is None:
            pairs = zip(batch.schema.names, batch.columns, strict=True)
            columns = {name: column for name, column in pairs if column is not None}
            found = batch.found[_PART] = cls(columns, len(batch))
            if batch.own is not None:
                own = zip(batch.schema.names, batch.own.columns, strict=True)
                mine = {name: column for name, column in own if column is not None}
                found.set_own(batch.own.key, cls(mine, len(batch.own)), batch.own.rows)
        return found

    def numbers(self, name: str) -> tuple[Numbers, Mask]:
        """A numeric column as int64 or float64 with the mask of what is not null (NO_MASK: nothing is)."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = self._cut_numbers(name) if self._whole else as_numbers(self.columns[name])
        return found

    def _cut_numbers(self, name: str) -> tuple[Numbers, Mask]:
        assert self._whole is not None
        part, start = self._whole
        values, mask = part.numbers(name)
        stop = start + self.length
        return values[start:stop], mask if mask is NO_MASK else mask[start:stop]

    def codes(self, names: tuple[str, ...]) -> tuple[Int64s, list[Value | tuple[Value, ...]]]:
        """The rows' values of some columns as numbers into a list of the distinct ones (tuples if several columns)."""
        found = self._codes.get(names)
        if found is None:
            found = self._codes[names] = self._encode(names)
        return found

    def _encode(self, names: tuple[str, ...]) -> tuple[Int64s, list[Value | tuple[Value, ...]]]:
        if not names:
            return np.zeros(self.length, np.int64), [()]
        if self._whole is not None:
            part, start = self._whole
            codes, distinct = part.codes(names)
            return codes[start : start + self.length], distinct
        coded = [_encode_column(self.columns[name]) for name in names]
        if len(coded) == 1:
            return coded[0]
        joint, size = coded[0][0], len(coded[0][1])
        for codes, distinct in coded[1:]:
            if size * len(distinct) >= _MANY:
                joint = np.unique(joint, return_inverse=True)[1]
                size = self.length
            joint = joint * len(distinct) + codes
            size *= len(distinct)
        _, firsts, inverse = np.unique(joint, return_index=True, return_inverse=True)
        values = [[distinct[code] for code in codes[firsts].tolist()] for codes, distinct in coded]
        return inverse.astype(np.int64), list(zip(*values, strict=True))

    def slice(self, start: int, stop: int) -> Part:
        """Rows start up to stop, sharing memory and what was worked out."""
        if start == 0 and stop == self.length:
            return self
        columns = {name: column.slice(start, stop - start) for name, column in self.columns.items()}
        return Part(columns, stop - start, (self, start))

    def own(self, key: OwnKey) -> tuple[Part, Int64s] | None:
        """The rows of one shard as a part of their own, and which rows they are here; None if not known."""
        found = self._own.get(key)
        if found is None and self._whole is not None:
            whole, start = self._whole
            of_whole = whole.own(key)
            if of_whole is not None:
                mine, rows = of_whole
                low, high = np.searchsorted(rows, [start, start + self.length]).tolist()
                found = self._own[key] = mine.slice(low, high), rows[low:high] - start
        return found

    def set_own(self, key: OwnKey, mine: Part, rows: Int64s) -> None:
        """Say which rows are those of a shard."""
        self._own[key] = mine, rows

    def pick(self, rows: Int64s) -> Part:
        """Some of the rows, in order, copied with all columns and with what is known of shards."""
        made, root = self.take(rows, tuple(self.columns)), self
        while root._whole is not None:
            root = root._whole[0]
        for key in root._own:
            mine, places = self.own(key) or (made, rows)
            at, which = common(rows, places)
            made.set_own(key, mine.take(which, tuple(mine.columns)), at)
        return made

    def take(self, rows: Int64s, names: Sequence[str], coded: tuple[str, ...] = ()) -> Part:
        """Some of the rows, copied, with the codes of the columns `coded`, if there are any."""
        index = pa.array(rows)
        made = Part({name: plain(self.columns[name].take(index)) for name in names}, len(rows))
        if coded:
            codes, distinct = self.codes(coded)
            made._codes[coded] = _without_unused(codes[rows], distinct)
        return made


@dataclass(frozen=True, slots=True)
class Flow:
    """Events in order. Their rows are rows `index` of the parts put after each other; None: all of them in order."""

    schema: Schema
    block: Int64s
    opcode: Bytes
    flags: Bytes
    parts: tuple[Part, ...]
    index: Int64s | None = None
    places: Places | None = None
    """In a window divided over shards: the index of the causing event in its block, and the order below it."""
    refused: Places | None = None
    """For the output of a source: block and index in the block of the events that it refused."""

    def __len__(self) -> int:
        return len(self.block)

    @classmethod
    def of(cls, batch: EventBatch) -> Flow:
        """The events of a batch."""
        return cls(batch.schema, batch.block, batch.opcode, batch.flags, (Part.of(batch),))

    @classmethod
    def empty(cls, schema: Schema) -> Flow:
        """No events."""
        return cls.of(EventBatch.empty(schema))

    def rows(self) -> Int64s:
        """For each event the number of its row."""
        return np.arange(len(self), dtype=np.int64) if self.index is None else self.index

    def numbers(self, name: str) -> tuple[Numbers, Mask]:
        """A numeric column of all the parts' rows, and the mask of what is not null."""
        return joined_numbers([part.numbers(name) for part in self.parts], [part.length for part in self.parts])

    def pooled(self, name: str) -> pa.Array:
        """A column of all the parts' rows."""
        columns = [part.columns[name] for part in self.parts]
        return columns[0] if len(columns) == 1 else pa.concat_arrays([plain(column) for column in columns])

    def column(self, name: str) -> pa.Array:
        """A column, event by event."""
        whole = self.pooled(name)
        return plain(whole if self.index is None else whole.take(pa.array(self.index)))

    @property
    def pool_size(self) -> int:
        """How many rows the parts have."""
        return sum(part.length for part in self.parts)

    def index_in_block(self, places: Int64s) -> Int64s:
        """For some of the events, by their place, the index in their block."""
        if self.has_single_events():
            return np.zeros(len(places), np.int64)
        return places - np.searchsorted(self.block, self.block[places])

    def has_single_events(self) -> bool:
        """Whether each block has one event, as far as it is here; remembered with the rows, as windows ask again."""
        part = self.parts[0] if self.index is None and len(self.parts) == 1 else None
        if part is not None and part.has_single_events is not None:
            return part.has_single_events
        found = are_single(self.block)
        if part is not None:
            part.has_single_events = found
        return found

    def select(self, mask: Mask) -> Flow:
        """Some of the events."""
        places = None if self.places is None else (self.places[0][mask], self.places[1][mask])
        index = np.flatnonzero(mask) if self.index is None else self.index[mask]
        return replace(
            self, block=self.block[mask], opcode=self.opcode[mask], flags=self.flags[mask], index=index, places=places
        )

    def batch(self) -> EventBatch:
        """The events with their values; a column that no part has is None."""
        known = self.parts[0].columns
        columns = (self.column(name) if name in known else None for name in self.schema.names)
        return EventBatch(self.schema, self.block, self.opcode, self.flags, tuple(columns))


def are_single(block: Int64s) -> bool:
    """Whether blocks follow each other, and each has one event."""
    has_room = len(block) > 0 and int(block[-1] - block[0]) == len(block) - 1
    return has_room and bool((block[1:] > block[:-1]).all())


def common(left: Int64s, right: Int64s) -> tuple[Int64s, Int64s]:
    """Where in two rising lists the numbers stand that are in both."""
    at = np.searchsorted(left, right)
    which = np.flatnonzero(at < len(left))
    which = which[left[at[which]] == right[which]]
    return at[which], which


def _without_unused(
    codes: Int64s, distinct: list[Value | tuple[Value, ...]]
) -> tuple[Int64s, list[Value | tuple[Value, ...]]]:
    """Codes into a list of those that occur."""
    used = np.zeros(len(distinct), np.bool_)
    used[codes] = True
    return (np.cumsum(used) - 1)[codes], [distinct[place] for place in np.flatnonzero(used).tolist()]


def validity(column: pa.Array) -> Mask:
    """What is not null in a column."""
    return frozen(column.is_valid().to_numpy(zero_copy_only=False)) if column.null_count else NO_MASK


def as_numbers(column: pa.Array) -> tuple[Numbers, Mask]:
    """An Arrow column as int64 or float64, with the mask of what is not null."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    mask = validity(column)
    if mask is not NO_MASK:
        column = column.fill_null(0)
    values = column.to_numpy(zero_copy_only=False)
    return frozen(values if values.dtype == np.float64 else values.astype(np.int64, copy=False)), mask


def joined_numbers(parts: Sequence[tuple[Numbers, Mask]], lengths: Sequence[int]) -> tuple[Numbers, Mask]:
    """Columns with masks after each other."""
    if len(parts) == 1:
        return parts[0]
    values: Numbers = frozen(np.concatenate([values for values, _ in parts]))
    if all(mask is NO_MASK for _, mask in parts):
        return values, NO_MASK
    masks = [
        np.ones(length, np.bool_) if mask is NO_MASK else mask for (_, mask), length in zip(parts, lengths, strict=True)
    ]
    return values, frozen(np.concatenate(masks))


def as_column(values: Numbers, mask: Mask, kind: pa.DataType) -> pa.Array:
    """Numbers as an Arrow column, null where the mask is false."""
    column = pa.array(values, mask=None if mask is NO_MASK or mask.all() else ~mask)
    return column if column.type == kind else column.cast(kind, safe=False)


def _encode_column(column: pa.Array) -> tuple[Int64s, list[Value | tuple[Value, ...]]]:
    if not isinstance(column, pa.DictionaryArray):
        column = column.dictionary_encode(null_encoding="encode")
    return column.indices.to_numpy(zero_copy_only=False).astype(np.int64), column.dictionary.to_pylist()


def plain(column: pa.Array) -> pa.Array:
    """A column with its values where they stand, not in a dictionary."""
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
