"""From publish() to the log: a bounded buffer, and background work that stores it batch by batch, in order.

One append is under way at a time. If its acknowledgement is lost, the same batches are sent again under the same
sequence numbers, so that nothing counts twice and nothing overtakes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from lockstep.errors import (
    AppendUncertain,
    BadArgument,
    BufferFull,
    Closed,
    Dropped,
    ForkedProcess,
    TimedOut,
)
from lockstep.log import codecs
from lockstep.log.batch import NO_PRODUCER, Batch, Headers, pack
from lockstep.log.port import Log
from lockstep.runtime import Runtime, logger
from lockstep.streams.metrics import PublisherMeter
from lockstep.streams.options import PublisherOptions
from lockstep.streams.receipt import Callback, Draft, Receipt
from lockstep.streams.serializers import BYTES, Serializer
from lockstep.streams.shards import check_size

_IDLE_S = 3600.0
_LEAST_WAIT_S = 0.001
_APPEND_BYTES_MAX = 8 << 20


class Lane:
    """The way of one publisher into one log."""

    def __init__(
        self,
        log: Log,
        runtime: Runtime,
        options: PublisherOptions,
        meter: PublisherMeter,
        *,
        value: Serializer = BYTES,
        key: Serializer = BYTES,
    ) -> None:
        self.log, self._runtime, self._options, self._meter = log, runtime, options, meter
        self._codec = codecs.by_name(log.config.compression)
        self._late_value = value if options.pipeline else BYTES
        self._late_key = key if options.pipeline else BYTES
        self._producer = runtime.new_id()
        self._next_sequence = 0
        self._lock = threading.Lock()
        self._open: Draft | None = None
        self._opened_at = 0.0
        self._full: deque[Draft] = deque()
        self._sending: list[tuple[Draft, Batch]] = []
        self._last_taken: Draft | None = None
        self._records = self._bytes = 0
        self._closed = False
        self._pid = os.getpid()
        self._idle = True
        self._room = runtime.waiter()
        self._waiter = runtime.waiter()
        self._task = runtime.spawn(f"lockstep-publish-{log.name}", self._step, self._waiter, self._on_crash)

    def add(
        self, value: Any, key: Any, headers: Headers, created_ns: int, size: int, callback: Callback | None
    ) -> Receipt:
        """Queue one record."""
        if os.getpid() != self._pid:
            raise ForkedProcess(bus=self.log.name, parent=self._pid, child=os.getpid())
        with self._lock:
            if self._records >= self._options.buffer_records or self._bytes + size > self._options.buffer_bytes:
                self._make_room(size)
            if self._closed:
                raise Closed(what=f"The publisher to {self.log.name}")
            draft = self._open
            if draft is None or self._is_full(draft, size):
                draft = self._start_draft()
            index = len(draft.values)
            draft.values.append(value)
            draft.created.append(created_ns)  # type: ignore[union-attr]
            if key is not None or draft.keys is not None:
                draft.keys = _aligned(draft.keys, index, None, key)
            if headers or draft.headers is not None:
                draft.headers = _aligned(draft.headers, index, (), headers)
            draft.size += size
            self._records += 1
            self._bytes += size
            if callback is not None:
                draft.call_back(index, callback)
            if self._idle:
                self._idle = False
                self._waiter.wake()
        return Receipt(draft, index)

    def add_many(self, chunks: Sequence[Draft]) -> None:
        """Queue whole drafts behind what is queued; those joined are stored in one step."""
        if os.getpid() != self._pid:
            raise ForkedProcess(bus=self.log.name, parent=self._pid, child=os.getpid())
        records = sum(len(draft.values) for draft in chunks)
        size = sum(draft.size for draft in chunks)
        with self._lock:
            # A batch larger than the whole buffer is let in when the buffer is empty: it can't be split.
            if self._records and (
                self._records + records > self._options.buffer_records
                or self._bytes + size > self._options.buffer_bytes
            ):
                self._make_room(size, records)
            if self._closed:
                raise Closed(what=f"The publisher to {self.log.name}")
            self._close_draft()
            self._full.extend(chunks)
            self._records += records
            self._bytes += size
            self._idle = False
        self._waiter.wake()

    def new_draft(self) -> Draft:
        """An empty draft with its delivery deadline."""
        return Draft(self.log.name, self._runtime, self._runtime.monotonic() + self._options.delivery_timeout_s)

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything queued so far is stored or has failed."""
        if timeout is not None and timeout < 0:
            raise BadArgument(name="timeout", value=timeout, reason="it must not be negative")
        with self._lock:
            self._close_draft()
            last = self._full[-1] if self._full else self._last_taken
        self._waiter.wake()
        if last is not None:
            last.wait(timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Flush, then take no more. What could not be stored in time fails with TimedOut."""
        if os.getpid() != self._pid:
            return  # a child inherited it; what is queued is the parent's to store
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self.flush(timeout)
        except TimedOut:
            logger.warning("Closing a publisher with records unsent", extra={"action": "close_unsent"})
        self._task.stop()
        self._meter.retire()
        self._fail_all(TimedOut(what=f"Closing the publisher to {self.log.name}", seconds=timeout))

    def append_now(self, value: bytes, key: bytes | None, headers: Headers, created_ns: int, expected_next: int) -> int:
        """Store a record from the caller's thread, behind everything queued, if the log ends where expected."""
        self.flush(self._options.delivery_timeout_s)
        batch = pack(
            [value], producer=NO_PRODUCER, sequence=0, created_ns=created_ns, codec=self._codec,
            keys=None if key is None else [key], headers=[headers] if headers else None,
        )  # fmt: skip
        return self.log.append([batch], expected_next=expected_next)[0]

    @property
    def queued(self) -> tuple[int, int]:
        """Records and bytes that wait to be stored."""
        return self._records, self._bytes

    def _is_full(self, draft: Draft, size: int) -> bool:
        options = self._options
        return len(draft.values) >= options.batch_records or draft.size + size > options.batch_bytes

    def _start_draft(self) -> Draft:
        self._close_draft()
        self._open = self.new_draft()
        self._opened_at = self._runtime.monotonic()
        return self._open

    def _close_draft(self) -> None:
        if self._open is not None:
            self._full.append(self._open)
            self._open = None

    def _make_room(self, size: int, records: int = 1) -> None:
        """Called with the lock held, which is let go while waiting."""
        policy, options = self._options.when_full, self._options
        if policy == "raise":
            raise BufferFull(stream=self.log.name, records=self._records, bytes=self._bytes)
        end = self._runtime.monotonic() + options.delivery_timeout_s
        while self._records + records > options.buffer_records or self._bytes + size > options.buffer_bytes:
            if self._closed or not self._records:
                return
            if policy == "drop-oldest" and self._drop_oldest():
                continue
            if self._runtime.monotonic() >= end:
                raise TimedOut(
                    what=f"Waiting for room in the buffer to {self.log.name}", seconds=options.delivery_timeout_s
                )
            self._close_draft()
            self._lock.release()
            try:
                self._waiter.wake()
                self._room.wait(0.05)
            finally:
                self._lock.acquire()

    def _drop_oldest(self) -> bool:
        self._close_draft()
        if not self._full:
            return False  # what is being sent can't be called back
        dropped = [self._full.popleft()]
        while dropped[-1].joined:  # what is to be stored in one step is dropped in one step
            dropped.append(self._full.popleft())
        for draft in dropped:
            self._forget(draft)
        self._lock.release()  # callbacks are the user's, and may publish
        try:
            for draft in dropped:
                self._finish(draft, None, Dropped(stream=self.log.name))
        finally:
            self._lock.acquire()
        return True

    def _forget(self, draft: Draft) -> None:
        self._records -= len(draft.values)
        self._bytes -= draft.size

    def _step(self) -> float:
        if not self._sending:
            delay = self._take()
            if not self._sending:
                return delay
        drafts = [draft for draft, _ in self._sending]
        started = self._runtime.monotonic()
        try:
            bases = self.log.append([batch for _, batch in self._sending])
        except AppendUncertain as error:
            return self._try_again(drafts, error)
        except Exception as error:  # noqa: BLE001 - handed to every receipt of the batch
            self._complete(drafts, [None] * len(drafts), error)
            return 0.0
        self._meter.appended(sum(len(d.values) for d in drafts), sum(d.size for d in drafts), len(drafts))
        self._meter.latency.observe(self._runtime.monotonic() - started)
        self._complete(drafts, bases, None)
        return 0.0

    def _take(self) -> float:
        """Pick what to send next; returns how long to wait if that is nothing."""
        with self._lock:
            linger = self._opened_at + self._options.linger_s - self._runtime.monotonic()
            if self._open is not None and (linger <= 0 or self._closed):
                self._close_draft()
            if not self._full:
                self._idle = self._open is None
                return _IDLE_S if self._open is None else max(linger, _LEAST_WAIT_S)
            taken = self._take_drafts()
            self._last_taken = taken[-1]  # neither queued nor sent while it is being packed, and a flush waits for it
        for draft in taken:
            self._pack(draft)
        return 0.0

    def _take_drafts(self) -> list[Draft]:
        taken: list[Draft] = []
        size = 0
        while self._full and (size < _APPEND_BYTES_MAX or taken[-1].joined):
            taken.append(self._full.popleft())
            size += taken[-1].size
        return taken

    def _pack(self, draft: Draft) -> None:
        try:
            self._encode_late(draft)
            draft.sequence = self._next_sequence
            batch = pack(
                draft.values, producer=self._producer, sequence=draft.sequence, created_ns=draft.created,
                keys=draft.keys, headers=draft.headers, codec=self._codec,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - a value that can't be serialized fails its batch, not the publisher
            with self._lock:
                self._forget(draft)
            self._finish(draft, None, error)
            return
        self._next_sequence += batch.count
        self._meter.compressed(batch.raw_size, len(batch.body))
        self._sending.append((draft, batch))

    def _encode_late(self, draft: Draft) -> None:
        if draft.encoded:
            return  # this is also how a batch that is sent again stays what it was
        draft.encoded = True
        if self._late_value is not BYTES:
            draft.values = [self._late_value.encode(value) for value in draft.values]
        if self._late_key is not BYTES and draft.keys is not None:
            draft.keys = [None if key is None else self._late_key.encode(key) for key in draft.keys]
        limit, count = self.log.config.max_record_bytes, len(draft.values)
        columns = zip(draft.values, draft.keys or repeat(None, count), draft.headers or repeat((), count), strict=True)
        for value, key, headers in columns:
            check_size(value, key, headers, limit, self.log.name)

    def _try_again(self, drafts: list[Draft], error: AppendUncertain) -> float:
        for draft in drafts:
            draft.attempts += 1
        if self._runtime.monotonic() >= drafts[0].deadline or (self._closed and drafts[0].attempts > 8):
            self._complete(drafts, [None] * len(drafts), error)
            return 0.0
        logger.warning(
            "Append not acknowledged, sending again", extra={"action": "append_retry", "stream": self.log.name}
        )
        self._meter.retries += 1
        return float(min(self._options.retry_s * 2 ** (drafts[0].attempts - 1), self._options.retry_max_s))

    def _complete(self, drafts: list[Draft], bases: Sequence[int | None], error: BaseException | None) -> None:
        self._sending = []
        with self._lock:
            for draft in drafts:
                self._forget(draft)
        for draft, base in zip(drafts, bases, strict=True):
            self._finish(draft, base, error)
        self._room.wake()

    def _finish(self, draft: Draft, base: int | None, error: BaseException | None) -> None:
        if error is not None:
            self._meter.failed += len(draft.values)
        for index, callback in draft.finish(base, error):
            try:
                callback(None if base is None else base + index, error)
            except Exception:  # noqa: BLE001
                # A callback is the user's; its failure must not stop the records behind it.
                logger.exception("A publish callback failed", extra={"action": "callback_failed"})

    def _fail_all(self, error: BaseException) -> None:
        with self._lock:
            self._close_draft()
            left = [*(draft for draft, _ in self._sending), *self._full]
            self._sending, self._full = [], deque()
            self._records = self._bytes = 0
        for draft in left:
            self._finish(draft, None, error)
        self._room.wake()

    def _on_crash(self, error: BaseException) -> None:
        self._closed = True
        self._fail_all(error)


def _aligned(column: list[Any] | None, index: int, filler: Any, item: Any) -> list[Any]:
    """A column that begins only when a record needs it, filled up for those before."""
    column = [filler] * index if column is None else column
    column.append(item)
    return column
