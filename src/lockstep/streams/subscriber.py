"""Reading streams: alone from a position of one's own, or in a group that shares them and remembers."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Generic

from lockstep.errors import BadArgument, BadOffset, Closed, FormatTooNew, IllegalState, LockstepError
from lockstep.log.offsets import step_back, step_forward
from lockstep.log.port import Log, LogWaiter
from lockstep.runtime import Runtime, release_when_dropped
from lockstep.streams import arguments
from lockstep.streams.aio import wait_async
from lockstep.streams.cursor import Cursor, first_at
from lockstep.streams.cursors import Following, MayHandOut, Reading, RecordsInTurn
from lockstep.streams.lag import LagProbe
from lockstep.streams.member import GroupMember
from lockstep.streams.metrics import SubscriberMeter
from lockstep.streams.options import SubscriberOptions
from lockstep.streams.record import Record, RecordBatch
from lockstep.streams.serializers import BYTES, K, Serializer, V
from lockstep.streams.threads import Process

_WAIT_SLICE_S = 1.0

ReadBatch = Callable[[int, int, MayHandOut, dict[str, int]], RecordBatch[Any, Any] | None]


class Subscriber(Generic[V, K]):
    """Reads one stream or several; every poll returns records of one of them. Use it from one thread.

    for record in bus.subscriber("orders", initial="earliest"):
        ...
    """

    def __init__(
        self,
        logs: Sequence[Log],
        waiter: LogWaiter,
        runtime: Runtime,
        options: SubscriberOptions,
        meter: SubscriberMeter,
        *,
        positions: Mapping[str, int] | None = None,
        member: GroupMember | None = None,
        seats: Mapping[str, Log] | None = None,
        group: str | None = None,
        dedupe: bool = False,
        value: Serializer[V] = BYTES,  # type: ignore[assignment]
        key: Serializer[K] = BYTES,  # type: ignore[assignment]
    ) -> None:
        self.group = group
        self.options, self._meter = options, meter
        self._logs = {log.name: log for log in logs}
        self._waiter, self._runtime, self._member = waiter, runtime, member
        self._seats = {} if seats is None else dict(seats)
        self._reading = Reading(options, meter, group=group, dedupe=dedupe, value=value, key=key)
        self._cursors = self._reading.cursors
        self._following = Following(member, self._reading, self._seats, options, meter) if member is not None else None
        self._attached = False
        self._confirmable: Callable[[str], int | None] | None = None
        self._closed = self._released = False
        self._process = Process("The subscriber")
        self._polling = threading.RLock()
        meter.probe, meter.lease_age = LagProbe(self._cursors, runtime), member.lease_age if member else lambda: None
        for name, position in (positions or {}).items():
            self._reading.begin(self._logs[name], position)
        for log in logs:
            waiter.watch(log)
        self._finalizer = release_when_dropped(
            self, runtime, repr(self), partial(_release, meter, waiter, logs, member), warn=member is not None
        )

    def poll(
        self, timeout: float = 0.0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> RecordBatch[V, K]:
        """The next records, or an empty batch after `timeout` seconds. With records there, it never waits.

        All of them are handed out at once: confirm() covers the whole batch.
        """
        records, size = self.options.max_records, self.options.max_bytes
        if max_records is not None:
            records = arguments.integer("max_records", max_records, least=1)
        if max_bytes is not None:
            size = arguments.integer("max_bytes", max_bytes, least=1)
        return self._poll(self._reading.next_batch, arguments.seconds("timeout", timeout), records, size)

    def _poll(self, read: ReadBatch, timeout: float, max_records: int, max_bytes: int) -> RecordBatch[V, K]:
        end = self._runtime.monotonic() + timeout
        failed = False
        while True:
            self._check_open()
            if not failed:
                try:
                    batch = self._poll_once(read, max_records, max_bytes)
                except LockstepError as error:
                    batch, failed = None, True  # told once; the rest of the time is waited out, so nothing spins
                    self._read_failed(error)
            left = end - self._runtime.monotonic()
            if batch is not None or left <= 0:
                return batch if batch is not None else RecordBatch("", [])
            self._waiter.wait(min(left, _WAIT_SLICE_S))

    async def apoll(
        self, timeout: float = 0.0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> RecordBatch[V, K]:
        """As poll, waiting in an event loop; reading itself blocks it. connect_async() does not."""
        end = self._runtime.monotonic() + arguments.seconds("timeout", timeout)
        while True:
            batch = self.poll(0.0, max_records=max_records, max_bytes=max_bytes)
            left = end - self._runtime.monotonic()
            if batch or batch.gap is not None or left <= 0:
                return batch
            await wait_async(self._waiter, min(left, _WAIT_SLICE_S))

    def records(self, idle_s: float | None = None) -> Iterator[Record[V, K]]:
        """Records one by one, until closed, or until none came for `idle_s` seconds.

        The position is after the last record handed out: confirm() covers that one and those before it, and a new
        loop after a break gets the next. A record that can't be decoded is raised once as DecodeFailed; it counts
        as handed out, and the next record is the one after it.
        """
        return _Records(self, None if idle_s is None else arguments.seconds("idle_s", idle_s))

    def __iter__(self) -> Iterator[Record[V, K]]:
        return self.records()

    def __aiter__(self) -> AsyncIterator[Record[V, K]]:
        return _AsyncRecords(self)

    def _in_turn(self, timeout: float) -> RecordsInTurn | None:
        """The next records, to be handed out one by one; None after `timeout` seconds without any."""
        batch = self._poll(self._reading.peek_batch, timeout, self.options.max_records, self.options.max_bytes)
        return self._reading.one_by_one(batch) if batch else None

    def _peek(self, max_records: int, max_bytes: int) -> RecordBatch[V, K]:
        """As poll without waiting, and nothing is handed out yet: the position stays."""
        return self._poll(self._reading.peek_batch, 0.0, max_records, max_bytes)

    def _is_next(self, batch: RecordBatch[V, K]) -> bool:
        """Whether records that were peeked at are still the next ones of their stream."""
        cursor = self._cursors.get(batch.stream)
        is_here = cursor is not None and not cursor.paused and cursor.position == batch.first_offset
        return is_here and batch.epoch == self.epoch(batch.stream) and self._may_hand_out(batch.stream)

    def _hand_out(self, batch: RecordBatch[V, K]) -> None:
        """Move the position after a batch that was peeked at."""
        self._reading.hand_out(batch)

    def _one_by_one(self, batch: RecordBatch[V, K]) -> RecordsInTurn:
        """The records of a batch that was peeked at; the position moves with each."""
        return self._reading.one_by_one(batch)

    def _goes_on(self, stream: str) -> bool:
        """Asked for the next record of a batch in a group: whether it may still be handed out. Never waits."""
        if self._closed:
            return False
        following = self._following
        if following is None:
            return True
        if following.member.yielding() or not following.is_mine(stream):
            return False
        following.member.touch()
        return True

    @property
    def is_assigned(self) -> bool:
        """True if it may read now: always without a group."""
        return self._member is None or bool(self._member.held())

    @property
    def assigned(self) -> list[str]:
        """The streams it may read now."""
        if self._member is None:
            return sorted(self._logs)
        return sorted(self._seats[seat].name for seat in self._member.held())

    @property
    def unowned(self) -> list[str]:
        """The streams that no member of its group owns yet; none without a group."""
        if self._member is None:
            return []
        group = self._member.group_state
        return sorted(log.name for seat, log in self._seats.items() if group.seat(seat).owner is None)

    def wait_assigned(self, timeout: float) -> bool:
        """Wait until it may read something; False if that takes longer than `timeout` seconds."""
        end = self._runtime.monotonic() + arguments.seconds("timeout", timeout)
        while not self.is_assigned and self._runtime.monotonic() < end:
            self._check_open()
            self._waiter.wait(min(end - self._runtime.monotonic(), _WAIT_SLICE_S))
        return self.is_assigned

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self._closed

    def offset(self, stream: str | None = None) -> int | None:
        """The next offset to read, or None while it has no position (in a group: not assigned)."""
        cursor = self._cursors.get(self._one(stream))
        return None if cursor is None else cursor.position

    def last_read_offset(self, stream: str | None = None) -> int | None:
        """The last offset that was handed out: of a batch by poll, of a record by an iterator."""
        cursor = self._cursors.get(self._one(stream))
        return None if cursor is None else cursor.last_read

    def confirmed_offset(self, stream: str | None = None) -> int | None:
        """The group's last confirmed offset that counted, as far as this process has read."""
        following = self._in_group("tell what is confirmed")
        return following.member.confirmed(following.seat_of[self._one(stream)])

    def epoch(self, stream: str | None = None) -> int | None:
        """The fencing token: hand it to whatever you write to, and refuse lower ones there."""
        name = self._one(stream)
        return None if self._following is None else self._following.epochs.get(name)

    def confirm(
        self,
        offset: int | Record[V, K] | RecordBatch[V, K] | None = None,
        *,
        stream: str | None = None,
        sync: bool = False,
        timeout: float = 10.0,
    ) -> None:
        """Everything up to `offset` is done: an offset, a record, a batch, or by default the last record handed out.

        Does nothing before the first read, or for an empty batch.

        In a receiver's handler, without an offset: the record being handled, and no further than everything before it
        is handled. The confirmation is written soon; with `sync` it returns once it was read back and counts.
        """
        following = self._in_group("confirm")
        timeout = arguments.seconds("timeout", timeout)
        if isinstance(offset, RecordBatch):
            if not offset:
                return
            stream, offset = offset.stream, offset.last_offset
        elif isinstance(offset, Record):
            stream, offset = offset.stream, offset.offset
        name = self._one(stream)
        if name in following.lost:
            self._report("A confirmation came too late", following.fenced(name, following.lost[name]))
            return
        last = self.last_read_offset(name)
        if offset is None:
            offset = last if self._confirmable is None else self._confirmable(name)
            if offset is None:
                return
        offset = arguments.integer("offset", offset, least=arguments.INT64_MIN)
        if offset < 0 or last is None or offset > last:
            reason = "nothing was read yet" if last is None else f"nothing beyond {last} was read"
            raise BadOffset(offset=offset, stream=name, reason=reason)
        seat, epoch = following.seat_of[name], following.epochs[name]
        if not following.is_mine(name):
            self._report("A confirmation came too late", following.fenced(name, epoch))
            return
        self._meter.confirms += 1
        if sync:
            following.member.confirm_now(seat, epoch, offset, timeout)
        else:
            following.member.confirm(seat, epoch, offset)

    def flush_confirms(self, timeout: float = 10.0) -> None:
        """Return when everything confirmed so far was read back and counts; raise if it does not.

        Fenced if another member owns a stream by now, TimedOut or what the bus says if it can't be written.
        """
        following = self._in_group("flush confirmations")
        end = self._runtime.monotonic() + arguments.seconds("timeout", timeout)
        for seat in following.seat_of.values():
            following.member.flush(seat, max(end - self._runtime.monotonic(), 0.0))

    def seek(self, offset: int, *, stream: str | None = None, check: bool = False) -> None:
        """Read on from `offset`. With `check`, an offset outside the readable range is refused at once."""
        name = self._alone("seek", stream)
        offset = arguments.integer("offset", offset, least=arguments.INT64_MIN)
        if offset < 0:
            raise BadOffset(offset=offset, stream=name, reason="offsets begin at 0")
        bounds = self._logs[name].bounds()
        if check and not bounds.first <= offset <= bounds.next:
            raise BadOffset(offset=offset, stream=name, reason=f"the readable range is {bounds.first} to {bounds.next}")
        self._cursors[name].seek(offset)

    def seek_to_beginning(self, stream: str | None = None) -> None:
        """Read on from the first readable record."""
        name = self._alone("seek", stream)
        self._cursors[name].seek(self._logs[name].bounds().first)

    def seek_to_end(self, stream: str | None = None) -> None:
        """Read only what is published from now on."""
        name = self._alone("seek", stream)
        self._cursors[name].seek(self._logs[name].bounds().next)

    def seek_to_time(self, time_ns: int, *, stream: str | None = None) -> None:
        """Read on from the first record appended at or after a time."""
        name = self._alone("seek", stream)
        self._cursors[name].seek(first_at(self._logs[name], arguments.time_ns("time_ns", time_ns)))

    def seek_by(self, records: int, *, stream: str | None = None) -> None:
        """Go forward or, with a negative number, back by so many records, within the readable range."""
        name = self._alone("seek", stream)
        records = arguments.integer("records", records, least=arguments.INT64_MIN)
        bounds = self._logs[name].bounds()
        cursor, log = self._cursors[name], self._logs[name]
        at = min(max(cursor.position, bounds.first), bounds.next)
        if records > 0:
            cursor.seek(step_forward(log, at, records, bounds.next))
        else:
            cursor.seek(step_back(log, at, -records, bounds.first))

    def pause(self, stream: str | None = None) -> None:
        """Return nothing of a stream until resume; its lease goes on."""
        self._cursor(stream).paused = True

    def resume(self, stream: str | None = None) -> None:
        """Return records of a paused stream again."""
        self._cursor(stream).paused = False
        self._waiter.wake()

    def extend(self) -> None:
        """Still working: count processing time from now. Liveness needs no help."""
        if self._member is not None:
            self._member.touch()

    def deactivate(self) -> None:
        """Hand all streams over and stay as a spectator until reactivate."""
        following = self._in_group("deactivate")
        with self._polling:
            following.member.set_active(False)
            following.finish_yielding()

    def reactivate(self) -> None:
        """Take part again."""
        self._in_group("reactivate").member.set_active(True)

    def close(self) -> None:
        """Write what is confirmed, hand streams over, stop. A second call waits for the first."""
        self._closed = True
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._process.is_forked:
            return  # a child inherited it: the streams, the locks and the group membership are the parent's
        if not self._released:
            self._waiter.wake()
        with self._polling:
            if self._released:
                return
            self._released = True
            _release(self._meter, self._waiter, list(self._logs.values()), self._member)

    def __repr__(self) -> str:
        group = f" in group {self.group!r}" if self.group is not None else ""
        state = " closed" if self._closed else ""
        return f"<Subscriber to {', '.join(map(repr, self._logs))}{group}{state}>"

    def __enter__(self) -> Subscriber[V, K]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Subscriber[V, K]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        import asyncio

        await asyncio.to_thread(self.close)

    def _attach(self, is_busy: Callable[[str], bool], confirmable: Callable[[str], int | None]) -> None:
        """A receiver reads for this subscriber from now on, and says which streams it still works on.

        `confirmable` tells how far a stream may be confirmed. There can be one receiver in a subscriber's life.
        """
        if self._attached:
            raise IllegalState(what="A subscriber", action="attach a second receiver", reason="it has one")
        self._attached, self._confirmable = True, confirmable
        if self._following is not None:
            self._following.is_busy = is_busy

    def _follow(self) -> None:
        """Keep up with the group without reading: for a receiver that has enough at hand."""
        with self._polling:
            self._check_open()
            try:
                if self._following is not None:
                    self._following.follow()
            except LockstepError as error:
                self._report("Following the group failed", error)

    def _decode(self, record: Record) -> Record[V, K]:
        """A record of bytes with its value and key as this subscriber's serializers make them."""
        return self._reading.decode(record)

    def _seat(self, stream: str) -> str:
        """The name under which the group's log knows a stream."""
        return self._in_group("have seats").seat_of[stream]

    def _is_owner(self, stream: str, epoch: int) -> bool:
        """Whether the stream is still this member's in that epoch, after the group's log was read to its end."""
        following = self._in_group("own streams")
        return following.member.is_owner(following.seat_of[stream], epoch)

    def _poll_once(self, read: ReadBatch, max_records: int, max_bytes: int) -> RecordBatch[V, K] | None:
        with self._polling:
            if self._following is None:
                return read(max_records, max_bytes, self._may_hand_out, {})
            if not self._attached:  # a receiver polls while its handler works: it says itself what is progress
                self._following.member.touch()
            self._following.follow()
            batch = read(max_records, max_bytes, self._may_hand_out, self._following.epochs)
            trouble = self._following.member.trouble() if batch is None else None
            if trouble is not None:  # without its log the group gives this member nothing to read
                raise trouble
            return batch

    def _read_failed(self, error: LockstepError) -> None:
        if isinstance(error, FormatTooNew) and self._member is not None:
            self.deactivate()  # a member of a newer version may be able to read it
        self._report("Reading failed", error)

    def _may_hand_out(self, name: str) -> bool:
        return self._following is None or self._following.is_mine(name)

    def _report(self, summary: str, error: BaseException) -> None:
        if self.options.on_error is None:
            raise error
        self.options.on_error(summary, error)

    def _cursor(self, stream: str | None) -> Cursor:
        name = self._one(stream)
        if name not in self._cursors:
            raise IllegalState(what="A subscriber", action=f"pause or resume {name}", reason="it is not assigned")
        return self._cursors[name]

    def _one(self, stream: str | None) -> str:
        """The stream meant; its name may be left out where there is only one."""
        if stream is None and len(self._logs) == 1:
            return next(iter(self._logs))
        if stream is None or stream not in self._logs:
            known = ", ".join(self._logs)
            raise BadArgument(name="stream", value=stream, reason=f"this subscriber reads {known}; name one of them")
        return stream

    def _in_group(self, action: str) -> Following:
        self._check_open()
        if self._following is None:
            raise IllegalState(what="A subscriber without a group", action=action, reason="it shares nothing")
        return self._following

    def _alone(self, action: str, stream: str | None) -> str:
        self._check_open()
        if self._member is not None:
            reason = "its position belongs to the group; use reset"
            raise IllegalState(what="A subscriber in a group", action=action, reason=reason)
        return self._one(stream)

    def _check_open(self) -> None:
        self._process.check()
        if self._closed:
            raise Closed(what="The subscriber")
        if self._member is not None and self._member.error is not None:
            raise self._member.error  # it would wait for ever otherwise


class _Records(Generic[V, K]):
    """Records one by one, for a loop in a thread."""

    def __init__(self, subscriber: Subscriber[V, K], idle_s: float | None) -> None:
        self._subscriber, self._idle_s = subscriber, idle_s
        self._batch: RecordsInTurn | None = None

    def __iter__(self) -> Iterator[Record[V, K]]:
        return self

    def __next__(self) -> Record[V, K]:
        subscriber = self._subscriber
        while True:
            if self._batch is not None and subscriber._goes_on(self._batch.stream):
                for record in self._batch:
                    return record
            self._batch = self._next_batch()

    def _next_batch(self) -> RecordsInTurn | None:
        if self._subscriber.is_closed:
            raise StopIteration
        try:
            batch = self._subscriber._in_turn(_WAIT_SLICE_S if self._idle_s is None else self._idle_s)
        except Closed:  # by another thread, while waiting: that is how such a loop is ended
            raise StopIteration from None
        if batch is None and self._idle_s is not None:
            raise StopIteration
        return batch


class _AsyncRecords(Generic[V, K]):
    """Records one by one, for a loop in an event loop."""

    def __init__(self, subscriber: Subscriber[V, K]) -> None:
        self._subscriber = subscriber
        self._batch: RecordsInTurn | None = None

    def __aiter__(self) -> AsyncIterator[Record[V, K]]:
        return self

    async def __anext__(self) -> Record[V, K]:
        subscriber = self._subscriber
        while not subscriber.is_closed:
            if self._batch is not None and subscriber._goes_on(self._batch.stream):
                for record in self._batch:
                    return record
            try:
                self._batch = subscriber._in_turn(0.0)
                if self._batch is None:
                    await wait_async(subscriber._waiter, _WAIT_SLICE_S)
            except Closed:  # as in a thread
                break
        raise StopAsyncIteration


def _release(meter: SubscriberMeter, waiter: LogWaiter, logs: Sequence[Log], member: GroupMember | None) -> None:
    """Give everything back; the last of these first, and one that fails keeps no other."""
    with ExitStack() as closing:
        closing.callback(meter.retire)
        closing.callback(waiter.close)
        for log in logs:
            closing.callback(log.close)
        if member is not None:
            closing.callback(member.close)
