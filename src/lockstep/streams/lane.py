"""From publish() to the log: a bounded buffer, and background work that stores it batch by batch, in order.

One append is under way at a time. If its acknowledgement is lost, the same batches are sent again under the same
sequence numbers, so that nothing counts twice and nothing overtakes.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from lockstep.errors import (
    AppendUncertain,
    BufferFull,
    Closed,
    Dropped,
    ForkedProcess,
    IllegalState,
    NoRoom,
    ServerUnreachable,
    TimedOut,
    Unavailable,
)
from lockstep.log.batch import Batch, Headers
from lockstep.log.port import Log
from lockstep.runtime import Runtime, Task, logger
from lockstep.streams.metrics import PublisherMeter
from lockstep.streams.options import PublisherOptions
from lockstep.streams.packer import Load, Packer
from lockstep.streams.receipt import GRACE_S, Callback, Draft, Receipt, check_timeout
from lockstep.streams.serializers import BYTES, Serializer
from lockstep.streams.threads import SharedThread

_IDLE_S, _LEAST_WAIT_S, _STOP_S = 3600.0, 0.001, 0.05
_FAILED_KEPT = 1000

unsent: set[Lane] = set()
"""Lanes with something to send. They are flushed at exit, even if no reference to their publishers is left."""
os.register_at_fork(after_in_child=unsent.clear)  # what the parent queued is the parent's to send


class Lane:
    """Stores the records of one publisher in one log, in order, from a bounded buffer."""

    def __init__(
        self,
        log: Log,
        runtime: Runtime,
        options: PublisherOptions,
        meter: PublisherMeter,
        *,
        value: Serializer[Any] = BYTES,
        key: Serializer[Any] = BYTES,
        thread: SharedThread | None = None,
    ) -> None:
        self.log, self._runtime, self._options, self._meter = log, runtime, options, meter
        self._packer = Packer(runtime.new_id(), log.config, value, key)
        # What lingers for all of its time could not be delivered in time.
        self._linger_s = min(options.linger_s, options.delivery_timeout_s / 2)
        self._batch_records, self._batch_bytes = options.batch_records, options.batch_bytes
        self._load = Load(log.limits)
        self._buffer_records, self._buffer_bytes = options.buffer_records, options.buffer_bytes
        self._lock = threading.Lock()
        self._open: Draft | None = None
        self._opened_at = 0.0
        self._full: deque[Draft] = deque()
        self._in_hand: list[Draft] = []
        self._failed: deque[Draft] = deque()
        self._failed_before: tuple[int, BaseException] | None = None
        self._told_failing = False
        self._sending: list[tuple[Draft, Batch]] = []
        self._records = self._bytes = 0
        self._closed = self._ended = False
        self._closing_s = self._closing_end = 0.0
        self._pid = os.getpid()
        self._idle, self._lingering = True, False
        self._stepping: int | None = None
        self._ending = threading.Lock()
        self._room, self._waiter = runtime.waiter(), runtime.waiter() if thread is None else thread.waiter
        self._thread = thread
        self._task: Task = (
            runtime.spawn(f"lockstep-publish-{log.name}", self._step, self._waiter, self._on_crash)
            if thread is None
            else thread.spawn(self._step, self._on_crash)
        )

    def add(
        self, value: Any, key: Any, headers: Headers, created_ns: int, size: int, callback: Callback | None
    ) -> Receipt:
        """Queue one record."""
        self._check_process()
        with self._lock:
            if self._records >= self._buffer_records or self._bytes + size > self._buffer_bytes:
                self._make_room(size)
            if self._closed:
                raise Closed(what=f"The publisher to {self.log.name}")
            draft = self._open
            if draft is None or draft.size + size > self._batch_bytes:
                draft = self._start_draft()
            index = draft.count
            draft.values.append(value)
            draft.created.append(created_ns)  # type: ignore[union-attr]
            if key is not None or draft.keys is not None:
                draft.add_key(key)
            if headers or draft.headers is not None:
                draft.add_headers(headers)
            draft.count = count = index + 1
            draft.size = filled = draft.size + size
            self._records += 1
            self._bytes += size
            if callback is not None:
                draft.call_back(index, callback)
            if count >= self._batch_records or filled >= self._batch_bytes:
                self._close_draft()
            if self._idle:
                self._get_busy()
        return Receipt(draft, index)

    def add_many(self, chunks: Sequence[Draft]) -> None:
        """Queue whole drafts after what is queued; those joined are stored in one step."""
        self._check_process()
        records, size = sum(draft.count for draft in chunks), sum(draft.size for draft in chunks)
        with self._lock:
            self._make_room(size, records)
            if self._closed:
                raise Closed(what=f"The publisher to {self.log.name}")
            self._close_draft()
            deadline = self._deadline()
            for draft in chunks:
                draft.deadline = deadline  # its time begins when it is queued, and what is joined shares its fate
            self._full.extend(chunks)
            self._records += records
            self._bytes += size
            self._get_busy()

    def new_draft(self) -> Draft:
        """An empty draft with its delivery deadline."""
        return Draft(self.log.name, self._runtime, self._deadline(), self)

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything queued so far is stored or has failed."""
        check_timeout(timeout)
        self.check_may_wait()
        with self._lock:
            self._close_draft()
            queue = self._full or self._in_hand
            last = queue[-1] if queue else None
        self._waiter.wake()
        if last is not None:
            last.wait(timeout)

    def begin_close(self, timeout: float) -> None:
        """Accept no more records, and send what is queued."""
        if os.getpid() != self._pid:
            return  # a child inherited it; what is queued is the parent's to store
        with self._lock:
            self._closed = True
            self._closing_s, self._closing_end = timeout, self._runtime.monotonic() + timeout
        self._waiter.wake()

    def end_close(self) -> None:
        """Wait until it is closed; records that are not stored in time fail."""
        if os.getpid() != self._pid:
            return
        with self._ending:  # a second caller waits for the first
            if self._ended:
                return
            self._ended = True
            try:
                self.flush(self._time_to_close())
            except TimedOut:
                logger.warning("Closing a publisher with records unsent", extra={"action": "close_unsent"})
            finally:
                self._stop()

    @property
    def has_ended(self) -> bool:
        """True when it is closed, nothing is under way, and every failure was reported."""
        return self._ended and not self._ending.locked() and not self._failed

    @property
    def is_full(self) -> bool:
        """Whether the buffer has no room for one more record."""
        return self._records >= self._buffer_records or self._bytes >= self._buffer_bytes

    def wait_for_room(self, timeout: float) -> None:
        """Return when the buffer has shrunk, or after `timeout` seconds; drafts past their deadlines fail meanwhile."""
        with self._lock:
            self._close_draft()
        self._waiter.wake()
        self._room.wait(timeout)
        self.fail_overdue()

    def append_now(self, value: bytes, key: bytes | None, headers: Headers, created_ns: int, expected_next: int) -> int:
        """Store a record from the caller's thread, after everything queued, if the log ends where expected."""
        self.flush(self._options.delivery_timeout_s)
        if self._closed:
            raise Closed(what=f"The publisher to {self.log.name}")
        batch = self._packer.pack_single(value, key, headers, created_ns)
        return self.log.append([batch], expected_next=expected_next)[0]

    @property
    def queued(self) -> tuple[int, int]:
        """Records and bytes that wait to be stored."""
        return self._records, self._bytes

    def check_may_wait(self) -> None:
        """Raise if waiting here would be for ever: after a fork, or on the thread that stores."""
        self._check_process()
        self.check_thread()

    def check_thread(self) -> None:
        """IllegalState on the thread that stores: waiting there would never end."""
        if self._is_own_thread():
            reason = "a publish callback or serializer runs on the thread that would have to do the work"
            raise IllegalState(what=f"The publisher to {self.log.name}", action="be waited for", reason=reason)

    def fail_overdue(self) -> None:
        """Fail the drafts that are past their deadlines."""
        with self._lock:
            limit = self._runtime.monotonic() - GRACE_S
            if self._open is not None and self._open.deadline <= limit:
                self._close_draft()
            in_hand = [draft for draft in self._in_hand if draft.deadline <= limit]
            queued = []
            while self._full and self._full[0].deadline <= limit:
                queued.append(self._full.popleft())
        reason = "the delivery timeout passed, and the records may or may not be stored"
        self._settle(in_hand, repeat(None), AppendUncertain(stream=self.log.name, reason=reason))
        late = TimedOut(what=f"Publishing to {self.log.name}", seconds=self._options.delivery_timeout_s)
        self._complete(queued, late)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcess(bus=self.log.name, parent=self._pid, child=os.getpid())

    def _is_own_thread(self) -> bool:
        return self._stepping == threading.get_ident() or (self._thread is not None and self._thread.is_current)

    def _deadline(self) -> float:
        return self._runtime.monotonic() + self._options.delivery_timeout_s

    def _get_busy(self) -> None:
        self._idle = False
        unsent.add(self)
        self._waiter.wake()

    def _start_draft(self) -> Draft:
        self._close_draft()
        self._open = self.new_draft()
        self._opened_at = self._runtime.monotonic()
        return self._open

    def _close_draft(self) -> None:
        if self._open is not None:
            self._full.append(self._open)
            self._open = None
            if self._lingering:
                self._lingering = False
                self._waiter.wake()

    def _lacks_room(self, size: int, records: int) -> bool:
        """Whether there is no room; an empty buffer accepts any size, since a record can't be split."""
        is_too_much = self._records + records > self._buffer_records or self._bytes + size > self._buffer_bytes
        return is_too_much and self._records > 0 and not self._closed

    def _make_room(self, size: int, records: int = 1) -> None:
        """Called with the lock held, which is released while waiting."""
        policy, seconds, end = self._options.when_full, self._options.delivery_timeout_s, self._deadline()
        while self._lacks_room(size, records):
            if policy == "drop-oldest" and self._drop_oldest():
                continue
            if policy == "raise" or self._is_own_thread():
                raise BufferFull(stream=self.log.name, records=self._records, bytes=self._bytes)
            if self._runtime.monotonic() >= end:
                raise NoRoom(stream=self.log.name, seconds=seconds)
            self._close_draft()
            with _released(self._lock):
                self._waiter.wake()
                self._room.wait(0.05)
                self.fail_overdue()

    def _drop_oldest(self) -> bool:
        self._close_draft()
        if not self._full:
            return False  # what is being sent can't be called back
        dropped = [self._full.popleft()]
        while dropped[-1].joined:  # what is to be stored in one step is dropped in one step
            dropped.append(self._full.popleft())
        with _released(self._lock):  # callbacks are the user's, and may publish
            self._complete(dropped, Dropped(stream=self.log.name))
        return True

    def _step(self) -> float:
        self._stepping = threading.get_ident()
        try:
            return self._work()
        finally:
            self._stepping = None

    def _work(self) -> float:
        if not self._sending:
            delay = self._take()
            if not self._sending:
                return delay
        sending = self._sending
        started = self._runtime.monotonic()
        try:
            bases = self.log.append([batch for _, batch in sending])
        except (AppendUncertain, ServerUnreachable) as error:
            return self._try_again(sending[0][0], error)
        except Exception as error:  # noqa: BLE001 - handed to every receipt of the batch
            self._sent(error)
            return 0.0
        self._meter.appended(
            sum(batch.count for _, batch in sending), sum(draft.size for draft, _ in sending), len(sending)
        )
        self._meter.latency.observe(self._runtime.monotonic() - started)
        self._told_failing = False
        self._sent(None, bases)
        return 0.0

    def _take(self) -> float:
        """Pick what to send next; returns how long to wait if that is nothing."""
        self.fail_overdue()
        with self._lock:
            self._lingering = False
            linger = self._opened_at + self._linger_s - self._runtime.monotonic()
            if self._open is not None and (linger <= 0 or self._closed):
                self._close_draft()
            if not self._full and self._open is not None:
                self._lingering = True
                return max(linger, _LEAST_WAIT_S)
            if not self._full:
                self._idle = True
                unsent.discard(self)
                return _IDLE_S
            self._in_hand = taken = self._load.take(self._full)
        for draft in taken:
            self._pack(draft)
        return 0.0

    def _pack(self, draft: Draft) -> None:
        batch, refusal = None, None
        try:
            batch = self._packer.pack(draft, is_encoded=not self._options.pipeline)
        except Exception as error:  # noqa: BLE001 - what can't be packed fails its batch, not the publisher
            refusal = error
        if batch is None:
            self._complete([draft], refusal)
            return
        self._meter.compressed(batch.raw_size, len(batch.body))
        self._sending.append((draft, batch))

    def _try_again(self, first: Draft, error: Unavailable) -> float:
        first.attempts += 1
        attempts, left = first.attempts, first.deadline - self._runtime.monotonic()
        if left <= 0 or (self._closed and attempts > 8):
            self._sent(error)
            return 0.0
        logger.warning(
            "Append not acknowledged, sending again", extra={"action": "append_retry", "stream": self.log.name}
        )
        self._meter.retries += 1
        return float(min(self._options.retry_s * 2 ** (attempts - 1), self._options.retry_max_s, left))

    def _sent(self, error: BaseException | None, bases: Iterable[int | None] = repeat(None)) -> None:
        drafts, self._sending = [draft for draft, _ in self._sending], []
        self._complete(drafts, error, bases)

    def _complete(
        self, drafts: list[Draft], error: BaseException | None, bases: Iterable[int | None] = repeat(None)
    ) -> None:
        """Finish drafts that no thread works on any more."""
        for draft in drafts:
            draft.forget_payload()
        self._settle(drafts, bases, error)

    def _settle(self, drafts: list[Draft], bases: Iterable[int | None], error: BaseException | None) -> None:
        """Finish those that were not given up meanwhile: a stuck append may return when no caller waits for it."""
        with self._lock:
            mine = [(draft, base) for draft, base in zip(drafts, bases, strict=False) if not draft.settled]
            for draft, _ in mine:
                draft.settled = True
                self._records -= draft.count
                self._bytes -= draft.size
        for draft, base in mine:
            self._meter.failed += len(draft.failed) if error is None else draft.count
            if error is not None or draft.failed:
                self._note_failed(draft, error)
            draft.finish(base, error)
        if mine:
            self._room.wake()

    def refuse(self, drafts: Sequence[Draft], error: BaseException) -> None:
        """Fail drafts that were never queued."""
        for draft in drafts:
            self._note_failed(draft, error)
            draft.finish(None, error)

    def take_failures(self) -> tuple[int, BaseException] | None:
        """How many failed records were not reported, and why the first failed; they count as reported now."""
        if os.getpid() != self._pid:
            return None  # the parent's, as is the lock, which one of its threads may have held when this child was made
        with self._lock:
            failed, self._failed = self._failed, deque()
            before, self._failed_before = self._failed_before, None
        return _summed(failed, before)

    def _note_failed(self, draft: Draft, error: BaseException | None) -> None:
        reason = error or draft.first_error()
        if not self._told_failing:  # once until something is stored again: a full disk fails thousands
            self._told_failing = True
            logger.error(
                "Records were not published to %s: %s", self.log.name, reason,
                extra={"action": "publish_failed", "stream": self.log.name, "records": draft.count},
            )  # fmt: skip
        if isinstance(error, Dropped):
            return  # that is what its publisher chose
        with self._lock:
            self._failed.append(draft)
            if len(self._failed) > _FAILED_KEPT:
                self._failed_before = _summed([self._failed.popleft()], self._failed_before)

    def _time_to_close(self) -> float:
        return max(self._closing_end - self._runtime.monotonic(), 0.0)

    def _stop(self) -> None:
        try:
            self._task.stop(max(self._time_to_close(), _STOP_S))
        except TimedOut:
            logger.warning("A publisher's thread is stuck in the store", extra={"action": "close_stuck"})
        finally:
            self._meter.retire()
            closing, seconds = f"Closing the publisher to {self.log.name}", self._closing_s
            unknown = TimedOut(what=f"{closing} (the record may or may not be stored)", seconds=seconds)
            self._fail_all(unknown, TimedOut(what=closing, seconds=seconds))

    def _fail_all(self, in_hand: BaseException, queued: BaseException) -> None:
        with self._lock:
            self._close_draft()
            left, self._full = list(self._full), deque()
            unsent.discard(self)
        self._settle(self._in_hand, repeat(None), in_hand)
        self._complete(left, queued)

    def _on_crash(self, error: BaseException) -> None:
        self._closed = True
        self._fail_all(error, error)


def _summed(
    failed: Iterable[Draft], before: tuple[int, BaseException] | None = None
) -> tuple[int, BaseException] | None:
    """Failures that were not reported: their number, and the first reason."""
    count, first = before if before is not None else (0, None)
    for draft in failed:
        untold = draft.untold_failures()
        if untold:
            count, first = count + untold, first or draft.first_error()
    return None if first is None else (count, first)


@contextmanager
def _released(lock: threading.Lock) -> Iterator[None]:
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
