"""Publishing: many records, one order, a receipt for each."""

from __future__ import annotations

import atexit
import itertools
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from lockstep.errors import BadRecord, RecordTooLarge
from lockstep.log.batch import Headers
from lockstep.runtime import Runtime
from lockstep.streams.lane import Lane
from lockstep.streams.options import PublisherOptions
from lockstep.streams.receipt import Callback, Draft, ManyReceipt, Receipt
from lockstep.streams.serializers import BYTES, Serializer
from lockstep.streams.shards import check_size, shard_of

HeaderPairs = Iterable[tuple[str, bytes]] | Mapping[str, bytes]
_SIZE_UNKNOWN = 256


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
        self._at_exit = _close_at_exit(self)

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
        checked = _checked_headers(headers, self.stream) if headers else ()
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
        lane = self._lane(keys[0] if keys else None)
        drafts = self._chunks(lane, values, keys)
        lane.add_many(drafts)
        return ManyReceipt(drafts)

    def publish_direct(
        self, value: Any, *, key: Any = None, headers: HeaderPairs = (), expected_last: int | None = None
    ) -> int:
        """Store a record now and return its offset, behind everything queued.

        `expected_last` (-1: an empty stream) makes it depend on the last offset: OffsetConflict if somebody was first.
        """
        if expected_last is None:
            return self.publish(value, key=key, headers=headers).result()
        value, key = self._encoded(value, key)
        checked = _checked_headers(headers, self.stream)
        self._size(value, key, checked)
        return self._lane(key).append_now(value, key, checked, self._runtime.wall_ns(), expected_last + 1)

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self._closed

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything queued so far is stored or has failed."""
        for lane in self._lanes:
            lane.flush(timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Flush and stop; whatever can't be stored in time fails. Futures always complete."""
        atexit.unregister(self._at_exit)
        self._closed = True
        for lane in self._lanes:
            lane.close(timeout)

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

    def _lane(self, key: bytes | None) -> Lane:
        if len(self._lanes) == 1:
            return self._lanes[0]
        if key is None:
            return self._lanes[next(self._turn) % len(self._lanes)]
        return self._lanes[shard_of(key, len(self._lanes))]

    def _encoded(self, value: Any, key: Any) -> tuple[Any, Any]:
        if self._value is not BYTES:
            value = self._value.encode(value)
        if type(value) is not bytes:
            value = _as_bytes("value", value, self.stream)
        if key is not None:
            if self._key is not BYTES:
                key = self._key.encode(key)
            key = _as_bytes("key", key, self.stream)
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
        largest = max(
            map(len, values) if keys is None else (len(v) + len(k or b"") for v, k in zip(values, keys, strict=True))
        )
        if largest > self._limit:
            raise RecordTooLarge(size=largest, stream=self.stream, limit=self._limit)

    def _chunks(self, lane: Lane, values: Sequence[bytes], keys: Sequence[bytes | None] | None) -> list[Draft]:
        """Cut into drafts that fill a stored batch, all joined."""
        largest = max(max(map(len, values)), 1)
        step = max(1, min(self._options.batch_records, self._options.batch_bytes // largest))
        drafts = []
        created = self._runtime.wall_ns()
        for start in range(0, len(values), step):
            draft = lane.new_draft()
            draft.values = list(values[start : start + step])
            draft.created = created
            draft.keys = None if keys is None else list(keys[start : start + step])
            draft.size = largest * len(draft.values)
            draft.encoded = True
            draft.joined = start + step < len(values)
            drafts.append(draft)
        return drafts


def _as_bytes(part: str, item: Any, stream: str) -> bytes:
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    raise BadRecord(
        stream=stream, reason=f"its {part} is {type(item).__name__}, not bytes; give the publisher a serializer"
    )


def _checked_headers(headers: HeaderPairs, stream: str) -> Headers:
    try:
        checked = tuple((name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers))
    except (TypeError, ValueError) as error:
        raise BadRecord(stream=stream, reason="its headers are not pairs of a name and bytes") from error
    for name, value in checked:
        if not isinstance(name, str) or not isinstance(value, bytes) or len(name.encode()) > 0xFFFF:
            raise BadRecord(stream=stream, reason=f"header {name!r} must be a short text with a value of bytes")
    return checked


def _close_at_exit(publisher: Publisher) -> Any:
    """Flush at the end of the program even if nobody closed the publisher; holds no reference that keeps it alive."""
    weak = weakref.ref(publisher)

    def close() -> None:
        alive = weak()
        if alive is not None:
            alive.close()

    atexit.register(close)
    return close
