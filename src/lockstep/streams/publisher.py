"""Publishing: many records, one order, a receipt for each."""

from __future__ import annotations

import atexit
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Generic

from lockstep.errors import BadRecord, LockstepError, PublishFailed, RecordTooLarge
from lockstep.log.batch import Headers
from lockstep.runtime import Runtime, release_when_dropped
from lockstep.streams import arguments
from lockstep.streams.lane import Lane, unsent
from lockstep.streams.options import PublisherOptions
from lockstep.streams.receipt import Callback, Draft, ManyReceipt, Receipt, check_timeout
from lockstep.streams.serializers import BYTES, K, Serializer, V
from lockstep.streams.shards import HeaderPairs, check_size, checked_bytes, checked_headers, shard_of

Cut = tuple[int, int, int]
"""Start, end and bytes of a part of many records."""
_SIZE_UNKNOWN = 256
_CLOSE_S = 30.0


class Publisher(Generic[V, K]):
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
        value: Serializer[V] = BYTES,  # type: ignore[assignment]
        key: Serializer[K] = BYTES,  # type: ignore[assignment]
    ) -> None:
        self.stream = stream
        self._lanes, self._runtime, self._options = lanes, runtime, options
        self._value, self._key = value, key
        self._limit = lanes[0].log.config.max_record_bytes
        self._is_plain = len(lanes) == 1 and value is BYTES and not options.pipeline
        self._turn = itertools.count()
        self._partitioner = lanes[0].log.config.partitioner
        self._closed = False
        self._finalizer = release_when_dropped(
            self, runtime, f"The publisher to {stream}", partial(close_lanes, lanes, _CLOSE_S)
        )

    def publish(
        self,
        value: V,
        *,
        key: K | None = None,
        headers: HeaderPairs = (),
        created_ns: int | None = None,
        callback: Callback | None = None,
    ) -> Receipt:
        """Queue a record and return its future at once. Order among all records of this publisher is kept.

        `callback(offset, error)` is called exactly once, from a background thread; no polling is needed.
        """
        if created_ns is not None:
            created_ns = arguments.time_ns("created_ns", created_ns)
        if callback is not None:
            arguments.function("callback", callback)
        raw: Any = value
        if self._is_plain and type(raw) is bytes and key is None and not headers and len(raw) <= self._limit:
            # Nothing to encode, choose or refuse: what most records are takes the short way.
            created = self._runtime.wall_ns() if created_ns is None else created_ns
            return self._lanes[0].add(raw, None, (), created, len(raw), callback)
        raw_key: Any = key
        if not self._options.pipeline:
            raw, raw_key = self._encoded(value, key)
        checked = checked_headers(headers, self.stream) if headers else ()
        # With a pipeline it is serialized in the background, and measured there.
        size = _SIZE_UNKNOWN if self._options.pipeline else self._size(raw, raw_key, checked)
        created = self._runtime.wall_ns() if created_ns is None else created_ns
        return self._lane(raw_key).add(raw, raw_key, checked, created, size, callback)

    def publish_many(self, values: Iterable[V], *, keys: Iterable[K | None] | None = None) -> ManyReceipt:
        """Queue many records that are stored in one step: all of them or none. The fast way.

        On a stream with shards each record goes to the shard of its key, and it is all or none within each shard.
        """
        values = arguments.several("values", values)
        keys = None if keys is None else arguments.several("keys", keys)
        if not values and not keys:
            return ManyReceipt([])
        raw: Any = values
        raw_keys: Any = keys
        if self._value is not BYTES:
            raw = [self._value.encode(value) for value in values]
        if keys is not None and self._key is not BYTES:
            raw_keys = [None if key is None else self._key.encode(key) for key in keys]
        self._check_many(raw, raw_keys)
        sizes = list(map(len, raw)) if keys is None else list(map(_size_of_pair, raw, raw_keys))
        largest = max(sizes)
        if largest > self._limit:
            raise RecordTooLarge(size=largest, stream=self.stream, limit=self._limit)
        if keys is None or len(self._lanes) == 1:
            lane = self._lane(None)
            drafts = self._chunks(lane, raw, raw_keys, _cuts(sizes, largest, self._options))
            lane.add_many(drafts)
            return ManyReceipt(drafts)
        return self._publish_to_shards(raw, raw_keys, sizes)

    def _publish_to_shards(
        self, values: Sequence[bytes], keys: Sequence[bytes | None], sizes: Sequence[int]
    ) -> ManyReceipt:
        places: dict[Lane, list[int]] = {}
        without_key: Lane | None = None
        for place, key in enumerate(keys):
            if key is None:  # those take one turn together
                without_key = lane = without_key or self._lane(None)
            else:
                lane = self._lane(key)
            places.setdefault(lane, []).append(place)
        drafts: list[Draft] = []
        for lane, mine in places.items():
            its_sizes = [sizes[place] for place in mine]
            its_drafts = self._chunks(
                lane, [values[place] for place in mine], [keys[place] for place in mine],
                _cuts(its_sizes, max(its_sizes), self._options),
            )  # fmt: skip
            try:
                lane.add_many(its_drafts)
            except LockstepError as error:
                if not drafts:
                    raise
                lane.refuse(its_drafts, error)  # other shards have theirs already: the receipt tells
            drafts += its_drafts
        return ManyReceipt(drafts, [place for mine in places.values() for place in mine])

    def publish_direct(
        self, value: V, *, key: K | None = None, headers: HeaderPairs = (), expected_last: int | None = None
    ) -> int:
        """Store a record now, after everything that is queued, and return its offset.

        `expected_last` (-1: an empty stream) stores it only if that is the last offset, else OffsetConflict.
        """
        for lane in self._lanes:
            lane.check_may_wait()  # before anything is queued, and for all: which one it will be is not known yet
        if expected_last is not None:
            expected_last = arguments.integer("expected_last", expected_last, least=-1)
        if expected_last is None:
            return self.publish(value, key=key, headers=headers).result()
        raw, raw_key = self._encoded(value, key)
        checked = checked_headers(headers, self.stream)
        self._size(raw, raw_key, checked)
        return self._lane(raw_key).append_now(raw, raw_key, checked, self._runtime.wall_ns(), expected_last + 1)

    @property
    def options(self) -> PublisherOptions:
        """How it buffers and sends."""
        return self._options

    def _wait_for_room(self, timeout: float) -> None:
        """Return when something left a full buffer, or after `timeout` seconds."""
        full = [lane for lane in self._lanes if lane.is_full]
        (full or self._lanes)[0].wait_for_room(timeout)

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self._closed

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything queued so far is stored.

        PublishFailed if records failed since the last flush and nobody looked at their receipts or got a callback.
        """
        check_timeout(timeout)
        end = None if timeout is None else self._runtime.monotonic() + timeout
        for lane in self._lanes:
            lane.flush(None if end is None else max(end - self._runtime.monotonic(), 0.0))
        self._raise_failures()

    def close(self, timeout: float = _CLOSE_S) -> None:
        """Flush and stop; whatever can't be stored in time fails. Futures always complete.

        PublishFailed as in flush, after everything is closed.
        """
        if self._finalizer is not None:
            self._finalizer.detach()
        close_lanes(self._lanes, arguments.seconds("timeout", timeout))
        self._closed = True
        self._raise_failures()

    def _raise_failures(self) -> None:
        raise_failures(self._lanes, self.stream)

    def _close_after(self, error: BaseException | None) -> None:
        """Close at the end of a with block; an error that ended the block is the one to be seen."""
        try:
            self.close()
        except PublishFailed:
            if error is None:
                raise

    def __repr__(self) -> str:
        queued = sum(lane.queued[0] for lane in self._lanes)
        state = "closed" if self._closed else f"{queued} records queued"
        return f"<Publisher to {self.stream!r}, {state}>"

    def __enter__(self) -> Publisher[V, K]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close_after(error)

    async def __aenter__(self) -> Publisher[V, K]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self._close_after, error)

    def _lane(self, key: Any) -> Lane:
        if len(self._lanes) == 1:
            return self._lanes[0]
        if key is None:
            return self._lanes[next(self._turn) % len(self._lanes)]
        raw = key if isinstance(key, bytes) else self._key.encode(key)  # with a pipeline the key is still an object
        return self._lanes[shard_of(raw, len(self._lanes), self._partitioner)]

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


def close_lanes(lanes: Sequence[Lane], timeout: float = _CLOSE_S) -> None:
    """Close lanes within one timeout; a lane that is stuck keeps no other from sending."""
    for lane in lanes:
        lane.check_thread()
    with ExitStack() as ends:
        for lane in lanes:
            ends.callback(lane.end_close)
            lane.begin_close(timeout)


def raise_failures(lanes: Sequence[Lane], stream: str) -> None:
    """Raise PublishFailed if records failed and no caller was notified."""
    found = [failures for lane in lanes if (failures := lane.take_failures()) is not None]
    if found:
        first = found[0][1]
        raise PublishFailed(count=sum(failed for failed, _ in found), stream=stream, reason=first) from first


@atexit.register
def _send_the_rest() -> None:
    """Send what is queued when the program ends, for publishers that were not closed."""
    close_lanes(list(unsent))
