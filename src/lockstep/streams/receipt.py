"""Futures of published records. One batch completes as a whole, so a receipt is little more than a place in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from itertools import chain
from typing import Any

from lockstep.errors import BadArgument, TimedOut
from lockstep.log.batch import Headers
from lockstep.runtime import Runtime, Waiter

Callback = Callable[[int | None, BaseException | None], None]


class Draft:
    """Records that will be stored as one batch, and what became of them."""

    __slots__ = (
        "_callbacks",
        "_lock",
        "_runtime",
        "_waiters",
        "attempts",
        "base",
        "created",
        "deadline",
        "done",
        "encoded",
        "error",
        "headers",
        "joined",
        "keys",
        "sequence",
        "size",
        "stream",
        "values",
    )  # fmt: skip

    def __init__(self, stream: str, runtime: Runtime, deadline: float) -> None:
        self.stream, self.deadline = stream, deadline
        self.values: list[Any] = []
        self.created: list[int] | int = []
        self.keys: list[Any] | None = None
        self.headers: list[Headers] | None = None
        self.size = 0
        self.sequence = -1
        self.attempts = 0
        self.encoded = False
        """Its values are bytes already; nothing is left to serialize."""
        self.joined = False
        """Must be stored in the same step as the draft behind it."""
        self.base: int | None = None
        self.error: BaseException | None = None
        self.done = False
        self._runtime = runtime
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._callbacks: list[tuple[int, Callback]] = []

    def finish(self, base: int | None, error: BaseException | None) -> list[tuple[int, Callback]]:
        """Complete every receipt; returns the callbacks to call, exactly once each."""
        with self._lock:
            self.base, self.error = base, error
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        for waiter in self._waiters:
            waiter.wake()
        return callbacks

    def call_back(self, index: int, callback: Callback) -> bool:
        """Have `callback` called on completion; False if that was already."""
        with self._lock:
            if self.done:
                return False
            self._callbacks.append((index, callback))
            return True

    def wait(self, timeout: float | None) -> None:
        """Return when complete; TimedOut if that takes longer than `timeout` seconds."""
        if timeout is not None and timeout < 0:
            raise BadArgument(name="timeout", value=timeout, reason="it must not be negative")
        if self.done:
            return
        waiter = self._runtime.waiter()
        self._waiters.append(waiter)
        end = float("inf") if timeout is None else self._runtime.monotonic() + timeout
        while not self.done:
            left = end - self._runtime.monotonic()
            if left <= 0:
                raise TimedOut(what=f"Publishing to {self.stream}", seconds=timeout or 0.0)
            waiter.wait(min(left, 1.0))


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
        self._draft.wait(timeout)
        if self._draft.error is not None:
            raise self._draft.error
        assert self._draft.base is not None, "a draft without error has a base"
        return self._draft.base + self._index

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What went wrong, or None."""
        self._draft.wait(timeout)
        return self._draft.error

    @property
    def offset(self) -> int | None:
        """The offset if it is known by now, else None."""
        return None if self._draft.base is None else self._draft.base + self._index

    @property
    def log(self) -> str:
        """The name of the log the record goes to: its stream, or one of the stream's shards."""
        return self._draft.stream

    def add_done_callback(self, callback: Callback) -> None:
        """Call `callback(offset, error)` once, from a background thread, or at once if it is done."""
        if not self._draft.call_back(self._index, callback):
            callback(self.offset, self._draft.error)

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
            loop.call_soon_threadsafe(settle, offset, error)

        self.add_done_callback(hand_over)
        return (yield from finished)


class ManyReceipt:
    """The future of records published together."""

    __slots__ = ("_drafts",)

    def __init__(self, drafts: list[Draft]) -> None:
        self._drafts = drafts

    def __len__(self) -> int:
        return sum(len(draft.values) for draft in self._drafts)

    def done(self) -> bool:
        """True once all are stored as promised, or failed."""
        return all(draft.done for draft in self._drafts)

    def result(self, timeout: float | None = None) -> list[int]:
        """The offsets of all records, in order; raises what went wrong."""
        for draft in self._drafts:
            draft.wait(timeout)
            if draft.error is not None:
                raise draft.error
        return list(chain.from_iterable(self._ranges()))

    def wait(self, timeout: float | None = None) -> int:
        """As result, but only the last offset (-1 for no records): the cheap way for large batches."""
        for draft in self._drafts:
            draft.wait(timeout)
            if draft.error is not None:
                raise draft.error
        return self._ranges()[-1][-1] if self._drafts else -1

    def __await__(self) -> Generator[Any, None, list[int]]:
        for draft in self._drafts:
            yield from Receipt(draft, 0).__await__()
        return list(chain.from_iterable(self._ranges()))

    def _ranges(self) -> list[range]:
        return [range(d.base, d.base + len(d.values)) for d in self._drafts if d.base is not None]
