"""What a subscriber gets: records, in batches that are taken apart only as far as they are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

from lockstep.errors import DecodeFailed
from lockstep.log.batch import BatchView, Headers
from lockstep.streams.serializers import BYTES, Serializer


class Record(NamedTuple):
    """One record as it was published. `value` and `key` are bytes unless the subscriber has serializers."""

    stream: str
    offset: int
    value: Any
    key: Any
    headers: Headers
    created_ns: int
    appended_ns: int

    def header(self, name: str) -> bytes | None:
        """The last header of that name, or None."""
        return next((value for found, value in reversed(self.headers) if found == name), None)


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that were gone before they could be read: offsets from `first` up to, not including, `resumed`."""

    stream: str
    first: int
    resumed: int

    @property
    def count(self) -> int:
        """How many offsets lie in the gap."""
        return self.resumed - self.first


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a stored batch: its records from index `start` up to `stop`."""

    view: BatchView
    start: int
    stop: int

    def cut(self, count: int) -> tuple[Segment, Segment]:
        """The first `count` records, and the rest."""
        middle = self.start + count
        return Segment(self.view, self.start, middle), Segment(self.view, middle, self.stop)

    @property
    def count(self) -> int:
        """How many records."""
        return self.stop - self.start


class RecordBatch:
    """Records of one stream, in order. Empty when a poll timed out.

    `values()` makes all values in one go and is the fast way; iterating makes a Record for each.
    """

    __slots__ = ("_count", "_key", "_segments", "_value", "epoch", "gap", "stream")

    def __init__(
        self,
        stream: str,
        segments: list[Segment],
        *,
        gap: Gap | None = None,
        epoch: int | None = None,
        value: Serializer = BYTES,
        key: Serializer = BYTES,
    ) -> None:
        self.stream, self.gap, self.epoch = stream, gap, epoch
        self._segments, self._value, self._key = segments, value, key
        self._count = sum(segment.stop - segment.start for segment in segments)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        make = tuple.__new__  # a Record for each of millions: skip the Python-level constructor
        for segment in self._segments:
            yield from map(make, repeat(Record), self._columns(segment))

    def __repr__(self) -> str:
        if not self._count:
            return f"RecordBatch({self.stream!r}, empty)"
        return f"RecordBatch({self.stream!r}, {self._count} records, offsets {self.first_offset}..{self.last_offset})"

    def values(self) -> list[Any]:
        """All values, without making records."""
        found: list[Any] = []
        for segment in self._segments:
            values = segment.view.values()
            found += values if segment.count == len(values) else values[segment.start : segment.stop]
        if self._value is BYTES:
            return found
        offsets = [at for s in self._segments for at in range(s.view.base + s.start, s.view.base + s.stop)]
        return list(self._decoded("value", self._value, found, offsets))

    def raw(self) -> RecordBatch:
        """The same records, with values and keys as bytes."""
        return RecordBatch(self.stream, self._segments, gap=self.gap, epoch=self.epoch)

    def to_list(self) -> list[Record]:
        """All records."""
        return list(self)

    def first(self) -> Record:
        """The first record; IndexError if the batch is empty."""
        for record in self:
            return record
        message = "the batch is empty"
        raise IndexError(message)

    def last(self) -> Record:
        """The last record; IndexError if the batch is empty."""
        if not self._segments:
            message = "the batch is empty"
            raise IndexError(message)
        last = self._segments[-1]
        tail = RecordBatch(
            self.stream, [Segment(last.view, last.stop - 1, last.stop)], value=self._value, key=self._key
        )
        return tail.first()

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        segment = self._segments[0]
        return segment.view.base + segment.start

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        segment = self._segments[-1]
        return segment.view.base + segment.stop - 1

    def _columns(self, segment: Segment) -> Iterator[tuple[Any, ...]]:
        view, part = segment.view, slice(segment.start, segment.stop)
        values: Any = view.values()[part]
        keys: Any = view.keys()[part]
        offsets = range(view.base + segment.start, view.base + segment.stop)
        if self._value is not BYTES:
            values = self._decoded("value", self._value, values, offsets)
        if self._key is not BYTES:
            keys = self._decoded("key", self._key, keys, offsets)
        return zip(
            repeat(self.stream),
            offsets,
            values,
            keys,
            view.headers()[part],
            view.created()[part],
            repeat(view.append_ns),
        )

    def _decoded(self, part: str, codec: Serializer, items: Any, offsets: Iterable[int]) -> Iterator[Any]:
        for item, offset in zip(items, offsets, strict=True):
            yield _decode(part, codec, item, offset, self.stream)


def decode(record: Record, value: Serializer, key: Serializer) -> Record:
    """A record of bytes with its value and key made into objects."""
    if value is BYTES and key is BYTES:
        return record
    return record._replace(
        value=_decode("value", value, record.value, record.offset, record.stream),
        key=_decode("key", key, record.key, record.offset, record.stream),
    )


def _decode(part: str, codec: Serializer, item: bytes | None, offset: int, stream: str) -> Any:
    try:
        return None if item is None else codec.decode(item)
    except Exception as error:
        raise DecodeFailed(part=part, offset=offset, stream=stream, reason=repr(error)) from error
