"""What a subscriber gets: records, in batches that are taken apart only as far as they are looked at."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

from lockstep.errors import DecodeFailed, PackageMissing
from lockstep.log.batch import BatchView, Headers
from lockstep.streams.serializers import BYTES, K, Serializer, V

if TYPE_CHECKING:
    import pandas
    import pyarrow

_VALUE_SHOWN = 60


class Record(NamedTuple, Generic[V, K]):
    """One record as it was published. `value` and `key` are bytes unless the subscriber has serializers."""

    stream: str
    offset: int
    value: V
    key: K | None
    headers: Headers
    created_ns: int
    appended_ns: int

    def header(self, name: str) -> bytes | None:
        """The last header of that name, or None."""
        return next((value for found, value in reversed(self.headers) if found == name), None)

    def __repr__(self) -> str:
        parts = [f"{self.stream!r}", f"offset={self.offset}", f"value={_shown(self.value)}"]
        parts += [f"key={_shown(self.key)}"] if self.key is not None else []
        parts += [f"headers={dict(self.headers)!r}"] if self.headers else []
        return f"Record({', '.join(parts)})"


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

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.view.base + self.start

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.view.base + self.stop - 1


class RecordBatch(Generic[V, K]):
    """Records of one stream, in order. Empty when a poll timed out. Can be indexed and sliced.

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
        value: Serializer[V] = BYTES,  # type: ignore[assignment]
        key: Serializer[K] = BYTES,  # type: ignore[assignment]
    ) -> None:
        self.stream, self.gap, self.epoch = stream, gap, epoch
        self._segments, self._value, self._key = segments, value, key
        self._count = sum(segment.stop - segment.start for segment in segments)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Record[V, K]: ...

    @overload
    def __getitem__(self, index: slice) -> RecordBatch[V, K]: ...

    def __getitem__(self, index: int | slice) -> Record[V, K] | RecordBatch[V, K]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            if step != 1:
                message = "a batch can be sliced with step 1 only; use to_list() for another"
                raise ValueError(message)
            return self._part(start, stop)
        at = index + self._count if index < 0 else index
        if not 0 <= at < self._count:
            message = f"index {index} is outside of a batch of {self._count} records"
            raise IndexError(message)
        return next(iter(self._part(at, at + 1)))

    def __iter__(self) -> Iterator[Record[V, K]]:
        """Records in order. After a DecodeFailed, next() goes on with the record after the one that failed."""
        return chain.from_iterable(map(self._records, self._segments))

    def __repr__(self) -> str:
        if not self._count:
            return f"RecordBatch({self.stream!r}, empty)"
        return f"RecordBatch({self.stream!r}, {self._count} records, offsets {self.first_offset}..{self.last_offset})"

    def values(self) -> list[V]:
        """All values, without making records."""
        found: list[Any] = []
        for segment in self._segments:
            values = segment.view.values()
            found += values if segment.count == len(values) else values[segment.start : segment.stop]
        if self._value is BYTES:
            return found
        return list(self._decoded("value", self._value, found, self.offsets()))

    def offsets(self) -> list[int]:
        """All offsets."""
        return [at for s in self._segments for at in range(s.view.base + s.start, s.view.base + s.stop)]

    def raw(self) -> RecordBatch[bytes, bytes]:
        """The same records, with values and keys as bytes."""
        return RecordBatch(self.stream, self._segments, gap=self.gap, epoch=self.epoch)

    def to_list(self) -> list[Record[V, K]]:
        """All records."""
        return list(self)

    def to_arrow(self) -> pyarrow.Table:
        """A table with a column for each field of a record; objects as pyarrow understands them."""
        arrow = _imported("pyarrow")
        names = ("stream", "offset", "value", "key", "headers", "created_ns", "appended_ns")
        columns: list[list[Any]] = [list(column) for column in zip(*self, strict=True)] or [[] for _ in names]
        kinds = {
            "stream": arrow.string(),
            "offset": arrow.int64(),
            "headers": arrow.list_(arrow.struct([("name", arrow.string()), ("value", arrow.binary())])),
            "created_ns": arrow.int64(),
            "appended_ns": arrow.int64(),
        }
        kinds |= {"value": arrow.binary()} if self._value is BYTES else {}
        kinds |= {"key": arrow.binary()} if self._key is BYTES else {}
        columns[4] = [[{"name": name, "value": value} for name, value in pairs] for pairs in columns[4]]
        arrays = [arrow.array(column, kinds.get(name)) for name, column in zip(names, columns, strict=True)]
        return arrow.table(dict(zip(names, arrays, strict=True)))

    def to_pandas(self) -> pandas.DataFrame:
        """A frame with a column for each field of a record, and times as UTC timestamps."""
        frames = _imported("pandas")
        names = ("stream", "offset", "value", "key", "headers", "created_ns", "appended_ns")
        frame = frames.DataFrame.from_records(list(map(tuple, self)), columns=names)
        for name in ("created", "appended"):
            frame[name] = frames.to_datetime(frame.pop(f"{name}_ns"), unit="ns", utc=True)
        return frame

    def first(self) -> Record[V, K]:
        """The first record; IndexError if the batch is empty."""
        for record in self:
            return record
        message = "the batch is empty"
        raise IndexError(message)

    def last(self) -> Record[V, K]:
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

    def _part(self, start: int, stop: int) -> RecordBatch[V, K]:
        """Records from index `start` up to `stop`; the gap before the batch belongs to its beginning."""
        taken, passed = [], 0
        for segment in self._segments:
            low, high = max(start - passed, 0), min(stop - passed, segment.count)
            if low < high:
                taken.append(Segment(segment.view, segment.start + low, segment.start + high))
            passed += segment.count
        gap = self.gap if start == 0 else None
        return RecordBatch(self.stream, taken, gap=gap, epoch=self.epoch, value=self._value, key=self._key)

    def _records(self, segment: Segment) -> Iterator[Record[V, K]]:
        # Built from map and zip and not a generator, which would end at the first record that can't be decoded.
        make = tuple.__new__  # a Record for each of millions: skip the Python-level constructor
        records: Iterator[Any] = map(make, repeat(Record), self._columns(segment))
        if self._value is BYTES and self._key is BYTES:
            return records
        return map(decode, records, repeat(self._value), repeat(self._key))

    def _columns(self, segment: Segment) -> Iterator[tuple[Any, ...]]:
        view, part = segment.view, slice(segment.start, segment.stop)
        return zip(
            repeat(self.stream),
            range(segment.first_offset, segment.last_offset + 1),
            view.values()[part],
            view.keys()[part],
            view.headers()[part],
            view.created()[part],
            repeat(view.append_ns),
        )

    def _decoded(self, part: str, codec: Serializer[Any], items: Any, offsets: Iterable[int]) -> Iterator[Any]:
        for item, offset in zip(items, offsets, strict=True):
            yield _decode(part, codec, item, offset, self.stream)


def decode(record: Record, value: Serializer[V], key: Serializer[K]) -> Record[V, K]:
    """A record of bytes with its value and key made into objects."""
    made: Any = record
    if value is BYTES and key is BYTES:
        return made  # type: ignore[no-any-return]
    stream, offset, raw, raw_key, headers, created_ns, appended_ns = made
    item = raw if value is BYTES else _decode("value", value, raw, offset, stream)
    item_key = raw_key if key is BYTES else _decode("key", key, raw_key, offset, stream)
    return Record(stream, offset, item, item_key, headers, created_ns, appended_ns)


def _shown(item: Any) -> str:
    """A value as far as it fits into a line."""
    text = repr(item)
    return text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}... ({len(text)} characters)"


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        what = f"RecordBatch.to_{package.removeprefix('py')}()"
        raise PackageMissing(what=what, package=package) from error


def _decode(part: str, codec: Serializer[Any], item: bytes | None, offset: int, stream: str) -> Any:
    try:
        return None if item is None else codec.decode(item)
    except Exception as error:
        raise DecodeFailed(part=part, offset=offset, stream=stream, reason=repr(error)) from error
