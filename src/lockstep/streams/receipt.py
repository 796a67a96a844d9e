"""Futures of published records. One batch completes as a whole, so a receipt is little more than a place in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from itertools import chain, repeat
from typing import Any, Protocol

from lockstep.errors import TimedOut
from lockstep.log.batch import Headers
from lockstep.runtime import Runtime, Waiter, logger
from lockstep.streams import arguments
from lockstep.streams.serializers import Serializer
from lockstep.streams.shards import check_size, checked_bytes

Callback = Callable[[int | None, BaseException | None], None]
GRACE_S = 0.5
_PAUSE_S = 0.01


def check_timeout(timeout: float | None) -> None:
    """BadArgument for what is no time to wait."""
    if timeout is not None:
        arguments.seconds("timeout", timeout)


def called(callback: Callback, offset: int | None, error: BaseException | None) -> None:
    """Call a callback; it is the user's, and its failure is logged and stops nothing."""
    try:
        callback(offset, error)
    except Exception:  # noqa: BLE001
        logger.exception("A publish callback failed", extra={"action": "callback_failed"})


class Keeper(Protocol):
    """Who stores drafts, as those who wait for one see it."""

    def check_may_wait(self) -> None:
        """Raise if waiting here would be for ever."""

    def fail_overdue(self) -> None:
        """Fail what is past its deadline."""


class Draft:
    """Records that will be stored as one batch, and what became of them."""

    __slots__ = (
        "_callbacks",
        "_keeper",
        "_lock",
        "_runtime",
        "_told",
        "_waiters",
        "attempts",
        "base",
        "count",
        "created",
        "deadline",
        "done",
        "encoded",
        "error",
        "failed",
        "headers",
        "joined",
        "keys",
        "settled",
        "size",
        "stream",
        "values",
    )  # fmt: skip

    def __init__(self, stream: str, runtime: Runtime, deadline: float, keeper: Keeper) -> None:
        self.stream, self.deadline = stream, deadline
        self.values: list[Any] = []
        self.created: list[int] | int = []
        self.keys: list[Any] | None = None
        self.headers: list[Headers] | None = None
        self.count = 0
        """Its records, also when they are no longer here."""
        self.size = 0
        self.attempts = 0
        self.encoded = False
        """Its values are bytes already; nothing is left to serialize."""
        self.joined = False
        """Must be stored in the same step as the draft after it."""
        self.settled = False
        """Its outcome is decided and it is about to be finished; the lock of its keeper guards this."""
        self.base: int | None = None
        self.error: BaseException | None = None
        self.failed: dict[int, BaseException] = {}
        """Records that could not be serialized, by index: they are not in the batch."""
        self.done = False
        self._runtime, self._keeper = runtime, keeper
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._callbacks: list[tuple[int, Callback, bool]] = []
        self._told: set[int] = set()
        """Failed records whose publisher knows: it looked at the receipt, or had a callback."""

    def add_key(self, key: Any) -> None:
        """Give the newest record, not counted yet, its key: the column begins when a record needs it."""
        if self.keys is None:
            self.keys = [None] * self.count
        self.keys.append(key)

    def add_headers(self, headers: Headers) -> None:
        """As add_key."""
        if self.headers is None:
            self.headers = [()] * self.count
        self.headers.append(headers)

    def encode(self, value: Serializer, key: Serializer, limit: int) -> None:
        """Serialize what is not yet; whatever can't be fails alone and is left out."""
        if self.encoded:
            return
        self.encoded = True
        kept: list[int] = []
        values, keys = [], []
        for index, (item, its_key, pairs) in enumerate(self._rows()):
            try:
                packed = checked_bytes("value", value.encode(item), self.stream)
                packed_key = None if its_key is None else checked_bytes("key", key.encode(its_key), self.stream)
                check_size(packed, packed_key, pairs, limit, self.stream)
            except Exception as error:  # noqa: BLE001 - whatever a serializer raises, it is this record's
                self.failed[index] = error
                continue
            kept.append(index)
            values.append(packed)
            keys.append(packed_key)
        self.values, self.keys = values, None if self.keys is None else keys
        if self.failed:
            self.created = self.created if isinstance(self.created, int) else [self.created[index] for index in kept]
            self.headers = None if self.headers is None else [self.headers[index] for index in kept]

    def forget_payload(self) -> None:
        """Let go of what was stored or failed: a receipt that is kept must not keep it."""
        self.values, self.created, self.keys, self.headers = [], [], None, None

    def finish(self, base: int | None, error: BaseException | None) -> None:
        """Complete every receipt, and call every callback once."""
        with self._lock:
            self.base, self.error = base, error
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        for waiter in self._waiters:
            waiter.wake()
        for index, callback, tells in callbacks:
            if tells:
                self.tell(index)
            called(callback, self.offset_of(index), self.error_of(index))

    def tell(self, index: int) -> BaseException | None:
        """Why a record has no offset, for its publisher, who knows from now on."""
        error = self.error_of(index)
        if error is not None:
            self._told.add(index)
        return error

    def tell_all(self) -> None:
        """As tell, for every record."""
        if self.done and (self.error is not None or self.failed):
            self._told.update(range(self.count))

    def untold_failures(self) -> int:
        """Records that failed, and for which no caller was notified yet."""
        failed = range(self.count) if self.error is not None else self.failed
        return sum(index not in self._told for index in failed)

    def first_error(self) -> BaseException | None:
        """Why its first failed record failed."""
        return self.error or next(iter(self.failed.values()), None)

    @property
    def stored(self) -> bool:
        """All of it is, as promised."""
        return self.done and self.error is None and not self.failed

    def offset_of(self, index: int) -> int | None:
        """The offset of a record, if it is stored."""
        if self.base is None or index in self.failed:
            return None
        return self.base + index - sum(bad < index for bad in self.failed)

    def error_of(self, index: int) -> BaseException | None:
        """Why a record has no offset."""
        return self.failed.get(index, self.error) if self.done else None

    def call_back(self, index: int, callback: Callback, *, tells: bool = True) -> bool:
        """Have `callback` called on completion; False if that was already. Its publisher knows then, if it `tells`."""
        with self._lock:
            if self.done:
                return False
            self._callbacks.append((index, callback, tells))
            return True

    def wait(self, timeout: float | None) -> None:
        """Return when complete, which it is soon after its deadline; TimedOut if that is after `timeout` seconds."""
        check_timeout(timeout)
        if self.done:
            return
        self._keeper.check_may_wait()
        waiter = self._runtime.waiter()
        with self._lock:
            self._waiters.append(waiter)
        end = float("inf") if timeout is None else self._runtime.monotonic() + timeout
        while not self.done:
            left = end - self._runtime.monotonic()
            if left <= 0:
                raise TimedOut(what=f"Publishing to {self.stream}", seconds=timeout or 0.0)
            self.fail_if_overdue()
            waiter.wait(min(left, max(self.overdue_in(), _PAUSE_S), 1.0))

    def overdue_in(self) -> float:
        """Seconds until it counts as overdue: a little after its deadline, so that the storing thread can say why."""
        return self.deadline + GRACE_S - self._runtime.monotonic()

    def fail_if_overdue(self) -> None:
        """Don't leave it to its keeper, which may be stuck in the store."""
        if not self.done and self.overdue_in() <= 0:
            self._keeper.fail_overdue()

    def _rows(self) -> Iterable[tuple[Any, Any, Headers]]:
        return zip(
            self.values, self.keys or repeat(None, self.count), self.headers or repeat((), self.count), strict=True
        )


class Receipt:
    """The future of one record: its offset, or why it has none.

    receipt.result(timeout=5)   # blocks, in a thread
    await receipt               # waits, in an event loop
    """

    __slots__ = ("_draft", "_index")

    def __init__(self, draft: Draft, index: int) -> None:
        self._draft, self._index = draft, index

    def done(self) -> bool:
        """True once the record is stored as promised, or failed."""
        return self._draft.done

    def result(self, timeout: float | None = None) -> int:
        """The record's offset; raises what went wrong, or TimedOut."""
        draft = self._draft
        if timeout is None and draft.stored and draft.base is not None:
            return draft.base + self._index  # nothing to wait for and nothing failed: the way of millions
        error = self.exception(timeout)
        if error is not None:
            raise error
        offset = self.offset
        assert offset is not None, "a record without error has an offset"
        return offset

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What went wrong, or None."""
        self._draft.wait(timeout)
        return self._draft.tell(self._index)

    @property
    def offset(self) -> int | None:
        """The offset if it is known by now, else None."""
        return self._draft.offset_of(self._index)

    @property
    def log(self) -> str:
        """The name of the log the record goes to: its stream, or one of the stream's shards."""
        return self._draft.stream

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(offset, error)` once, from a background thread, or at once if it is done."""
        if not self._draft.call_back(self._index, callback):
            called(callback, self.offset, self._draft.tell(self._index))

    def __repr__(self) -> str:
        draft = self._draft
        error = draft.error_of(self._index)
        state = (
            f"failed: {error!r}" if error is not None else f"offset {self.offset}" if draft.done else "not stored yet"
        )
        return f"<Receipt of a record to {self.log!r}, {state}>"

    def __await__(self) -> Generator[Any, None, int]:
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[int] = loop.create_future()

        def settle(offset: int | None, error: BaseException | None) -> None:
            if finished.done():
                return
            if error is not None:
                finished.set_exception(error)
            else:
                assert offset is not None
                finished.set_result(offset)

        def hand_over(offset: int | None, error: BaseException | None) -> None:
            if finished.done():
                return  # the caller no longer waits, so it was not notified
            with suppress(RuntimeError):  # the loop is closed: no caller waits
                loop.call_soon_threadsafe(settle, offset, error)
                self._draft.tell(self._index)

        if not self._draft.call_back(self._index, hand_over, tells=False):
            hand_over(self.offset, self._draft.error_of(self._index))
        overdue = loop.call_later(max(self._draft.overdue_in(), 0.0) + _PAUSE_S, self._draft.fail_if_overdue)
        try:
            return (yield from finished)
        finally:
            overdue.cancel()


class ManyReceipt:
    """The future of records published together. `places` says which of them each stored record is, if not in order."""

    __slots__ = ("_drafts", "_places")

    def __init__(self, drafts: list[Draft], places: list[int] | None = None) -> None:
        self._drafts, self._places = drafts, places

    def __len__(self) -> int:
        return sum(draft.count for draft in self._drafts)

    def done(self) -> bool:
        """True once all are stored as promised, or failed."""
        return all(draft.done for draft in self._drafts)

    def result(self, timeout: float | None = None) -> list[int]:
        """The offsets of all records, in order; raises what went wrong."""
        self._check(timeout)
        return self._offsets()

    def wait(self, timeout: float | None = None) -> int:
        """As result, but only the last offset (-1 for no records): the cheap way for large batches."""
        self._check(timeout)
        if self._places is not None:
            return self._offsets()[-1]
        return self._ranges()[-1][-1] if self._drafts else -1

    def __repr__(self) -> str:
        return f"<ManyReceipt of {len(self)} records, {'done' if self.done() else 'not stored yet'}>"

    def __await__(self) -> Generator[Any, None, list[int]]:
        try:
            for draft in self._drafts:
                yield from Receipt(draft, 0).__await__()
        finally:
            for draft in self._drafts:
                draft.tell_all()
        return self._offsets()

    def _check(self, timeout: float | None) -> None:
        for draft in self._drafts:
            draft.wait(timeout)
        for draft in self._drafts:
            draft.tell_all()
        for draft in self._drafts:
            if draft.error is not None:
                raise draft.error

    def _offsets(self) -> list[int]:
        stored = list(chain.from_iterable(self._ranges()))
        if self._places is None:
            return stored
        offsets = [0] * len(stored)
        for place, offset in zip(self._places, stored, strict=True):
            offsets[place] = offset
        return offsets

    def _ranges(self) -> list[range]:
        return [range(d.base, d.base + d.count) for d in self._drafts if d.base is not None]
