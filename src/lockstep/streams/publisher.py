"""Publishing: many records, one order, a receipt for each."""

from __future__ import annotations

import atexit
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from lockstep.errors import BadRecord, RecordTooLarge
from lockstep.log.batch import Headers
from lockstep.runtime import Runtime
from lockstep.streams.lane import Lane, unsent
from lockstep.streams.options import PARTITIONERS, PublisherOptions
from lockstep.streams.receipt import Callback, Draft, ManyReceipt, Receipt, check_timeout
from lockstep.streams.serializers import BYTES, Serializer
from lockstep.streams.shards import HeaderPairs, check_size, checked_bytes, checked_headers

Cut = tuple[int, int, int]
"""Start, end and bytes of a part of many records."""
_SIZE_UNKNOWN = 256
_CLOSE_S = 30.0


class Publisher:
    """Writes to one stream. Safe to share between threads.

    with bus.publisher("orders") as publisher:
        receipt = publisher.publish(b"...", key=b"customer-7")
        receipt.result()
    """

    def __init__(
        self,
        stream: str,
        lanes: Sequence[Lane],
        runtime: Runtime,
        options: PublisherOptions,
        *,
        value: Serializer = BYTES,
        key: Serializer = BYTES,
    ) -> None:
        self.stream = stream
        self._lanes, self._runtime, self._options = lanes, runtime, options
        self._value, self._key = value, key
        self._limit = lanes[0].log.config.max_record_bytes
        self._is_plain = len(lanes) == 1 and value is BYTES and not options.pipeline
        self._turn = itertools.count()
        self._closed = False

    def publish(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: HeaderPairs = (),
        created_ns: int | None = None,
        callback: Callback | None = None,
    ) -> Receipt:
        """Queue a record and return its future at once. Order among all records of this publisher is kept.

        `callback(offset, error)` is called exactly once, from a background thread; nobody has to poll for it.
        """
        if self._is_plain and type(value) is bytes and key is None and not headers and len(value) <= self._limit:
            # Nothing to encode, choose or refuse: what most records are takes the short way.
            created = self._runtime.wall_ns() if created_ns is None else created_ns
            return self._lanes[0].add(value, None, (), created, len(value), callback)
        if not self._options.pipeline:
            value, key = self._encoded(value, key)
        checked = checked_headers(headers, self.stream) if headers else ()
        # With a pipeline it is serialized in the background, and measured there.
        size = _SIZE_UNKNOWN if self._options.pipeline else self._size(value, key, checked)
        created = self._runtime.wall_ns() if created_ns is None else created_ns
        return self._lane(key).add(value, key, checked, created, size, callback)

    def publish_many(self, values: Sequence[Any], *, keys: Sequence[Any] | None = None) -> ManyReceipt:
        """Queue many records that are stored in one step: all of them or none. The fast way.

        On a stream with shards all of them go to the shard of the first key.
        """
        if not values:
            return ManyReceipt([])
        if self._value is not BYTES:
            values = [self._value.encode(value) for value in values]
        if keys is not None and self._key is not BYTES:
            keys = [None if key is None else self._key.encode(key) for key in keys]
        self._check_many(values, keys)
        sizes = list(map(len, values)) if keys is None else list(map(_size_of_pair, values, keys))
        largest = max(sizes)
        if largest > self._limit:
            raise RecordTooLarge(size=largest, stream=self.stream, limit=self._limit)
        lane = self._lane(keys[0] if keys else None)
        drafts = self._chunks(lane, values, keys, _cuts(sizes, largest, self._options))
        lane.add_many(drafts)
        return ManyReceipt(drafts)

    def publish_direct(
        self, value: Any, *, key: Any = None, headers: HeaderPairs = (), expected_last: int | None = None
    ) -> int:
        """Store a record now and return its offset, behind everything queued.

        `expected_last` (-1: an empty stream) makes it depend on the last offset: OffsetConflict if somebody was first.
        """
        for lane in self._lanes:
            lane.check_may_wait()  # before anything is queued, and for all: which one it will be is not known yet
        if expected_last is None:
            return self.publish(value, key=key, headers=headers).result()
        value, key = self._encoded(value, key)
        checked = checked_headers(headers, self.stream)
        self._size(value, key, checked)
        return self._lane(key).append_now(value, key, checked, self._runtime.wall_ns(), expected_last + 1)

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self._closed

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything queued so far is stored or has failed."""
        check_timeout(timeout)
        end = None if timeout is None else self._runtime.monotonic() + timeout
        for lane in self._lanes:
            lane.flush(None if end is None else max(end - self._runtime.monotonic(), 0.0))

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Flush and stop; whatever can't be stored in time fails. Futures always complete."""
        _close_together(self._lanes, timeout)
        self._closed = True

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def _lane(self, key: Any) -> Lane:
        if len(self._lanes) == 1:
            return self._lanes[0]
        if key is None:
            return self._lanes[next(self._turn) % len(self._lanes)]
        raw = key if isinstance(key, bytes) else self._key.encode(key)  # with a pipeline the key is still an object
        return self._lanes[PARTITIONERS[self._options.partitioner](raw, len(self._lanes))]

    def _encoded(self, value: Any, key: Any) -> tuple[Any, Any]:
        if self._value is not BYTES:
            value = self._value.encode(value)
        if type(value) is not bytes:
            value = checked_bytes("value", value, self.stream)
        if key is not None:
            if self._key is not BYTES:
                key = self._key.encode(key)
            key = checked_bytes("key", key, self.stream)
        return value, key

    def _size(self, value: Any, key: Any, headers: Headers) -> int:
        return check_size(value, key, headers, self._limit, self.stream)

    def _check_many(self, values: Sequence[Any], keys: Sequence[Any] | None) -> None:
        if not set(map(type, values)) <= {bytes}:
            raise BadRecord(stream=self.stream, reason="publish_many takes values of type bytes")
        if keys is not None and len(keys) != len(values):
            raise BadRecord(stream=self.stream, reason=f"{len(keys)} keys for {len(values)} values")
        if keys is not None and not set(map(type, keys)) <= {bytes, type(None)}:
            raise BadRecord(stream=self.stream, reason="keys must be bytes or None")

    def _chunks(
        self, lane: Lane, values: Sequence[bytes], keys: Sequence[bytes | None] | None, cuts: Iterable[Cut]
    ) -> list[Draft]:
        """Cut into drafts that fill a stored batch, all joined."""
        drafts = []
        created = self._runtime.wall_ns()
        for start, end, size in cuts:
            draft = lane.new_draft()
            draft.values = list(values[start:end])
            draft.count = end - start
            draft.created = created
            draft.keys = None if keys is None else list(keys[start:end])
            draft.size = size
            draft.encoded = True
            draft.joined = end < len(values)
            drafts.append(draft)
        return drafts


def _size_of_pair(value: bytes, key: bytes | None) -> int:
    return len(value) if key is None else len(value) + len(key)


def _cuts(sizes: list[int], largest: int, options: PublisherOptions) -> Iterator[Cut]:
    """Parts that fit into a batch; a size above that is a part of its own."""
    count, total, most_bytes = len(sizes), sum(sizes), options.batch_bytes
    if total == largest * count:  # all the same: nothing to look for
        step = max(1, min(options.batch_records, most_bytes // max(largest, 1)))
        for start in range(0, count, step):
            end = min(start + step, count)
            yield start, end, largest * (end - start)
        return
    before = list(itertools.accumulate(sizes, initial=0))
    start = 0
    while start < count:
        fitting = bisect_right(before, before[start] + most_bytes, start) - 1
        end = min(max(fitting, start + 1), start + options.batch_records)
        yield start, end, before[end] - before[start]
        start = end


def _close_together(lanes: Sequence[Lane], timeout: float) -> None:
    """Close lanes within one timeout; a lane that is stuck keeps no other from sending."""
    for lane in lanes:
        lane.check_thread()
    with ExitStack() as ends:
        for lane in lanes:
            ends.callback(lane.end_close)
            lane.begin_close(timeout)


@atexit.register
def _send_the_rest() -> None:
    """What was queued when the program ends, by publishers that nobody closed."""
    _close_together(list(unsent), _CLOSE_S)
