"""A log over a topic: batches in messages, bounds, retention and trimming."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Protocol, TypeVar

from lockstep.errors import (
    AppendTooLarge,
    AppendUncertain,
    DataError,
    LockstepError,
    ServerUnreachable,
    StoreFull,
    StreamNotFound,
    Trimmed,
    UnsupportedByBackend,
)
from lockstep.log.batch import NO_PRODUCER, Batch, peek
from lockstep.log.network.cache import FetchCache
from lockstep.log.network.driver import Ends, Message, StreamEntry, Topic, TopicGone, bundle, first_origin, unbundle
from lockstep.log.network.retention import RetentionWindow, is_bounded, only_by_age
from lockstep.log.port import READ_BYTES_DEFAULT, Bounds, Entry, Log

T = TypeVar("T")
SCAN_BYTES = 8 << 20
AGE_SCAN_BYTES = 1 << 20
APPENDS_BETWEEN_DROPS = 200
CONFIG_S = 1.0
"""How long a handle uses the configuration that it knows before it looks again."""
AGE_CHECKS = 1000
"""A stream bounded by age alone drops records in at most this many steps per retention time, at most once a second."""
DOUBTS_MAX = 1000
Identity = tuple[bytes, int, int]
"""What identifies an append."""


class LogOwner(Protocol):
    """What a log needs of its bus."""

    url: str

    def with_retries(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; call it again, up to a bound, while the server is unreachable."""

    def now_ns(self) -> int:
        """The wall clock, for append times."""

    def monotonic(self) -> float:
        """The clock of this process."""

    def look_up(self, name: str) -> StreamEntry | None:
        """The entry of a stream now."""

    def note_trim(self, known: StreamEntry, head: int) -> None:
        """Record a trim in the catalogue."""

    def head(self, identity: str) -> int:
        """The offset below which a stream was trimmed, as far as this process knows."""


class NetworkLog(Log):
    """A log over the topic of a driver. Safe to share between threads."""

    def __init__(self, bus: LogOwner, known: StreamEntry, topic: Topic) -> None:
        self.name, self.identity, self.config, self.limits = known.name, known.identity, known.config, topic.limits
        self.topic = topic
        self._bus, self._known = bus, known
        self._lock = threading.RLock()
        self._gone = False
        self._last: tuple[int, int] | None = None
        """The number of the last message that was seen, and the offset after it."""
        self._window: RetentionWindow | None = None
        self._age_head = 0
        self._age_due = float("-inf")
        self._is_aging = False
        """Whether there are more expired messages than the last check passed."""
        self._config_due = bus.monotonic() + CONFIG_S
        self._opened_at: int | None = None
        """The number after the last message when this handle first appended, if it had seen no message before."""
        self._uncertain: dict[Identity, int] = {}
        """Appends that may have been stored, each with the lowest message number it can have."""
        self._since_drop = 0
        self._cache = FetchCache()
        self._stamped_ns = 0

    def append(self, batches: Sequence[Batch], *, expected_next: int | None = None, wake: bool = True) -> list[int]:
        del wake  # the server wakes waiting readers
        if expected_next is not None:
            raise UnsupportedByBackend(bus=self._bus.url, feature="append on a condition")
        stamp = self._stamp()
        sealed = [batch.seal(stamp) for batch in batches]
        return self._do(lambda: self._append(sealed, batches))

    def read(self, offset: int, *, max_bytes: int = READ_BYTES_DEFAULT) -> list[Entry]:
        return self._do(lambda: self._read(offset, max_bytes))

    def reread(self, offset: int) -> Entry | None:
        return self._do(lambda: self._reread(offset))

    def bounds(self) -> Bounds:
        return self._do(self._bounds)

    def trim(self, before: int) -> None:
        self._do(lambda: self._trim(before))

    def hold(self, holder: str, offset: int | None) -> None:
        del holder, offset
        raise UnsupportedByBackend(bus=self._bus.url, feature="keep what a group has not confirmed")

    def close(self) -> None:
        """Does nothing: the bus reuses the topic when this handle is dropped."""

    def forget(self) -> None:
        """Raise StreamNotFound from now on: the stream was deleted through this bus."""
        self._gone = True

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever something is stored, until the returned function is called."""
        return self.topic.watch(wake)

    def _do(self, work: Callable[[], T]) -> T:
        return self._bus.with_retries(lambda: self._locked(work))

    def _locked(self, work: Callable[[], T]) -> T:
        with self._lock:
            if self._gone:
                raise StreamNotFound(name=self.name, bus=self._bus.url)
            try:
                return work()
            except DataError:
                self._forget_seen()  # what was read before may be a part of it: asking again gets what is there
                raise
            except TopicGone as gone:
                self._refresh()
                reason = f"the topic of {self.name} is missing; another process may still be creating it"
                raise ServerUnreachable(server=self._bus.url, reason=reason) from gone

    def _stamp(self) -> int:
        """The time for an append: never earlier than the previous one, even if the clock was set back."""
        with self._lock:
            self._stamped_ns = max(self._bus.now_ns(), self._stamped_ns)
            return self._stamped_ns

    def _append(self, sealed: Sequence[bytes], batches: Sequence[Batch]) -> list[int]:
        if not sealed:
            return []
        self._check_size(sealed, batches)
        if self.limits.batch_records == 1:
            self._refresh_sometimes()
            return [number * self.limits.stride for number in self.topic.send(sealed)]
        return self._append_bundle(bundle(sealed), batches[0])

    def _read(self, offset: int, max_bytes: int) -> list[Entry]:
        self._check_readable(offset, self._first_known())
        cache = self._cache
        if not cache.has(offset):
            cache.begin(offset, offset // self.limits.stride)
        if found := cache.take(offset, max_bytes):
            return found
        self._refresh_sometimes()
        if is_bounded(self.config):
            self._count_up_to(self.topic.ends())
            self._check_readable(offset, self._first_known())
        self._fetch(offset, max_bytes)
        return cache.take(offset, max_bytes)

    def _reread(self, offset: int) -> Entry | None:
        stride = self.limits.stride
        self._check_readable(offset, self._first_known())
        message = self.topic.reread(offset // stride)
        if message is not None and message.number > offset // stride:
            self._check_readable(offset, self.topic.ends().first * stride)
        found: Entry | None = None
        while message is not None and found is None:
            entries = unbundle(message.data, message.number * stride, self.name)
            found = next((entry for entry in entries if entry.base + peek(entry.data)[0] > offset), None)
            message = self.topic.reread(message.number + 1) if found is None else None
        if self._cache.has(offset) and self._cache.take(offset, 1) not in ([], [found]):
            self._forget_seen()  # what was fetched before is not what is there
        return found

    def _bounds(self) -> Bounds:
        self._refresh()
        ends = self.topic.ends()
        after = self._end(ends)
        self._count_up_to(ends)
        return Bounds(min(max(self._first_known(), ends.first * self.limits.stride), after), after)

    def _trim(self, before: int) -> None:
        bounds = self._bounds()
        head = min(before, bounds.next)
        if head > bounds.first:
            self._bus.note_trim(self._known, head)
            self._drop(head)

    def _append_bundle(self, data: bytes, first: Batch) -> list[int]:
        identity, least = _identity(first), 0
        try:
            self._refresh_sometimes()
            least = self._least_number() if first.producer != NO_PRODUCER else 0
            number = self._landed(first) if identity in self._uncertain else None
            if number is None:
                number = self._send(data)
        except AppendUncertain:
            self._doubt(identity, least)
            raise
        except LockstepError as error:
            if identity in self._uncertain:  # this time nothing was stored; but an earlier time something may have been
                raise AppendUncertain(stream=self.name, reason=str(error)) from error
            raise
        self._uncertain.pop(identity, None)
        entries = unbundle(data, number * self.limits.stride, self.name)
        self._see(number, entries)
        if self.config.retain_age_s is None:  # else when it is read: only then it is known when the server stored it
            self._count_next(number, entries)
        self._drop_sometimes()
        return [entry.base for entry in entries]

    def _doubt(self, identity: Identity, least: int) -> None:
        """Remember an append that may have been stored, and the lowest number it can have."""
        self._uncertain.setdefault(identity, least)
        if len(self._uncertain) > DOUBTS_MAX:
            del self._uncertain[next(iter(self._uncertain))]

    def _least_number(self) -> int:
        """The lowest number that a message sent now can get."""
        if self._last is not None:
            return self._last[0] + 1
        if self._opened_at is None:
            self._opened_at = self.topic.ends().next
        return self._opened_at

    def _send(self, data: bytes) -> int:
        try:
            [number] = self.topic.send([data])
        except StoreFull:  # perhaps of what nobody needs any more
            self._drop(self._bounds().first)
            [number] = self.topic.send([data])
        return number

    def _landed(self, first: Batch) -> int | None:
        """The number of a message whose acknowledgement was lost, or None if it was not stored."""
        if first.producer == NO_PRODUCER:
            return None
        ends = self.topic.ends()
        for message in self._messages(max(self._uncertain[_identity(first)], ends.first), ends.next):
            if first_origin(message.data) == (first.producer, first.sequence):
                return message.number
        return None

    def _check_size(self, sealed: Sequence[bytes], batches: Sequence[Batch]) -> None:
        limits, bus = self.limits, self._bus.url
        records, size = sum(batch.count for batch in batches), sum(map(len, sealed))
        if limits.append_records is not None and records > limits.append_records:
            limit, setting = f"{limits.append_records} records", "nothing: it is fixed"
            raise AppendTooLarge(size=f"{records} records", stream=self.name, bus=bus, limit=limit, setting=setting)
        if limits.append_bytes is not None and size > limits.append_bytes and limits.batch_records != 1:
            limit, setting = f"{limits.append_bytes} bytes", limits.append_setting
            raise AppendTooLarge(size=f"{size} bytes", stream=self.name, bus=bus, limit=limit, setting=setting)

    def _fetch(self, offset: int, max_bytes: int) -> None:
        """Fetch until the cache holds a batch at or after an offset, if there is any."""
        cache = self._cache
        while cache.end <= offset and (messages := self.topic.fetch(cache.number, max_bytes)):
            if messages[0].number > cache.number:
                self._check_readable(offset, self.topic.ends().first * self.limits.stride)
            for message in messages:
                cache.add(self._note(message), message.number + 1)
        cache.forget_before(offset)

    def _note(self, message: Message) -> list[Entry]:
        """The batches of a fetched message; also updates the known end and the retention window."""
        entries = unbundle(message.data, message.number * self.limits.stride, self.name)
        self._see(message.number, entries)
        self._count_next(message.number, entries, message.time_ns)
        return entries

    def _see(self, number: int, entries: list[Entry]) -> None:
        if self._last is None or number > self._last[0]:
            self._last = number, _after(entries)

    def _count_next(self, number: int, entries: list[Entry], time_ns: int | None = None) -> None:
        if self._window is not None and number == self._window.next:
            self._window.add(number, entries, time_ns)

    def _first_known(self) -> int:
        counted = self._window.head if self._window is not None else 0
        return max(self._bus.head(self.identity), counted, self._age_head)

    def _check_readable(self, offset: int, first: int) -> None:
        if offset < first:
            raise Trimmed(offset=offset, stream=self.name, first=first)

    def _refresh_sometimes(self) -> None:
        """Look at the catalogue once a second, to notice that others altered or deleted the stream."""
        if self._bus.monotonic() >= self._config_due:
            self._refresh()

    def _refresh(self) -> None:
        known = self._bus.look_up(self.name)
        if known is None or known.identity != self.identity:
            raise StreamNotFound(name=self.name, bus=self._bus.url)
        self._config_due = self._bus.monotonic() + CONFIG_S
        if known.config != self.config:  # others altered it
            self.config, self._window = known.config, None
            self._forget_age()

    def _end(self, ends: Ends) -> int:
        """The offset after the last record; only its message tells it."""
        if self._last is not None and self._last[0] >= ends.next:
            self._forget_seen()  # the server lost what it had: readers past the end have to be told
        at_least = max(ends.next * self.limits.stride, self._bus.head(self.identity))
        if ends.next <= ends.first:
            return self._last[1] if self._last else at_least
        if self.limits.batch_records == 1:
            return at_least
        if self._last is None or self._last[0] < ends.next - 1:
            for message in self.topic.fetch(ends.next - 1, 1):
                self._note(message)
        assert self._last is not None, "a message that was stored is found"
        return self._last[1]

    def _forget_seen(self) -> None:
        self._last, self._window, self._cache, self._opened_at = None, None, FetchCache(), None
        self._uncertain = dict.fromkeys(self._uncertain, 0)
        self._forget_age()

    def _forget_age(self) -> None:
        self._age_head, self._age_due, self._is_aging = 0, float("-inf"), False

    def _count_up_to(self, ends: Ends) -> None:
        """Bring the retention window of a bounded stream up to the end."""
        if not is_bounded(self.config):
            return
        if only_by_age(self.config) and self._find_age_head(ends):
            return
        if self._window is None or self._window.next < ends.first:
            self._window = self._new_window(ends)
        self._count(self._window, ends)

    def _find_age_head(self, ends: Ends) -> bool:
        """Hide messages that are too old compared with the newest; return False if the server stamps no times."""
        if self._bus.monotonic() < self._age_due or ends.next <= ends.first:
            return True
        newest = self._first_from(ends.next - 1)
        if newest is None or newest.time_ns is None:
            return newest is None
        age_s = self.config.retain_age_s or 0.0
        self._is_aging = not self._pass_old(ends, newest.number, newest.time_ns - int(age_s * 1e9))
        if not self._is_aging:
            self._age_due = self._bus.monotonic() + min(age_s / AGE_CHECKS, 1.0)
        return True

    def _pass_old(self, ends: Ends, stop: int, oldest_ns: int) -> bool:
        """Move the age limit to the first message that is not too old, within a bound; return whether it was reached.

        Every message is looked at, once: brokers have clocks of their own, so old stamps may follow fresh ones.
        """
        at, passed, size = max(ends.first, self._age_head // self.limits.stride), 0, 1
        found_fresh = False
        while at < stop and passed < SCAN_BYTES and not found_fresh:
            messages = self.topic.fetch(at, size)
            old = list(takewhile(lambda one: one.number < stop and _stored_ns(one, self.name) < oldest_ns, messages))
            at = old[-1].number + 1 if old else at
            passed += sum(len(message.data) for message in old)
            found_fresh = len(old) < len(messages) or not messages
            size = AGE_SCAN_BYTES  # after the first, which mostly is fresh
        if at > ends.first:
            self._age_head = max(self._age_head, at * self.limits.stride)
        return found_fresh or at >= stop

    def _first_from(self, number: int) -> Message | None:
        return next(iter(self.topic.fetch(number, 1)), None)

    def _new_window(self, ends: Ends) -> RetentionWindow:
        """A window that begins far enough back: a message holds a record or more, but numbers may have gaps."""
        by_count = self.config.capacity is not None and self.config.retain_bytes is None
        back = self.config.capacity or 0 if by_count else ends.next - ends.first
        while True:
            start = max(ends.next - back, ends.first)
            window = RetentionWindow(self.config, start, self._bus.now_ns)
            self._count(window, ends)
            if start == ends.first or window.is_full:
                return window
            back *= 2

    def _count(self, window: RetentionWindow, ends: Ends) -> None:
        for message in self._messages(window.next, ends.next):
            entries = unbundle(message.data, message.number * self.limits.stride, self.name)
            window.add(message.number, entries, message.time_ns)
            self._see(message.number, entries)

    def _messages(self, start: int, stop: int) -> Iterator[Message]:
        while start < stop and (messages := self.topic.fetch(start, SCAN_BYTES)):
            yield from messages
            start = messages[-1].number + 1

    def _drop_sometimes(self) -> None:
        """Now and then let the server reclaim what retention has dropped."""
        if not is_bounded(self.config):
            return
        self._since_drop += 1
        if self._since_drop >= APPENDS_BETWEEN_DROPS or self._is_aging:
            self._since_drop = 0
            with suppress(LockstepError, TopicGone):  # the append is stored, and must not fail for this
                self._drop(self._bounds().first)

    def _drop(self, head: int) -> None:
        """Let the server drop messages below an offset. The last message stays, because it tells where the log ends."""
        last = self._last[0] if self._last else 0
        self.topic.drop(min(head // self.limits.stride, last))


def _identity(first: Batch) -> Identity:
    """The identity of an append, by its first batch; without a producer, the content stands in for the sequence."""
    if first.producer == NO_PRODUCER:
        return first.producer, first.created_ns, first.body_crc
    return first.producer, first.sequence, 0


def _stored_ns(message: Message, stream: str) -> int:
    """When a message was stored, by the server's clock; by the writer's clock if the server does not stamp it."""
    if message.time_ns is not None:
        return message.time_ns
    return peek(unbundle(message.data, 0, stream)[-1].data)[1]


def _after(entries: list[Entry]) -> int:
    return entries[-1].base + peek(entries[-1].data)[0]
