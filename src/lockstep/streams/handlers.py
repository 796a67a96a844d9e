"""Calling a handler, what happens when it fails, and the event loops of async handlers."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

from lockstep.errors import BadConfig, HandlerFailed
from lockstep.log.batch import Headers
from lockstep.log.config import NAME_CHARACTERS_MAX, check_name
from lockstep.streams import arguments
from lockstep.streams.arguments import bad_setting
from lockstep.streams.record import Record

Handler = Callable[..., Any]

_TRACEBACK_BYTES, _REASON_BYTES = 4000, 1000
_LETTER_PAUSE_S = 0.1
LETTER_BYTES = 64 << 10
"""Room that a dead-letter stream has for the headers of a letter, beyond the largest record of its source."""
VALUE_CUT = "dlq-value-cut"
"""Header of a letter whose value did not fit: it has the size of the value."""


def fitting_name(name: str, suffix: str = "") -> str:
    """The name with the suffix; one that would be too long is shortened, always in the same way."""
    if len(name) + len(suffix) <= NAME_CHARACTERS_MAX:
        return name + suffix
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: NAME_CHARACTERS_MAX - len(suffix) - len(digest) - 1]}-{digest}{suffix}"


@dataclass(frozen=True, kw_only=True, slots=True)
class OnFailure:
    """What to do with a record whose handler raises. SystemExit and asyncio.CancelledError count as failures too.

    OnFailure()                                            # 3 more tries, then stop at the record
    OnFailure(retries=5, then="dead-letter")               # ... then to <stream>.dlq, and go on
    OnFailure(retries=0, then="skip")                      # drop it, count it, go on
    """

    retries: int = 3
    backoff_s: float = 0.1
    """Pause before the first retry; doubles with each."""
    backoff_max_s: float = 10.0
    then: str = "stop"
    """stop (keep the stream and stand still), skip, or dead-letter.

    A stream whose receiver stands still can still move: when the group balances itself after a member joined, or when
    the process ends. The next member then stops at the same record.
    """
    dead_letters: str | None = None
    """Stream for dead letters; by default the record's stream with .dlq added, shortened if that is too long."""

    def __post_init__(self) -> None:
        if self.then not in ("stop", "skip", "dead-letter"):
            raise BadConfig(field="then", value=self.then, reason="choose stop, skip or dead-letter")
        arguments.integer("retries", self.retries, refuse=bad_setting)
        for name in ("backoff_s", "backoff_max_s"):
            arguments.seconds(name, getattr(self, name), finite=True, refuse=bad_setting)
        if self.dead_letters is not None:
            check_name("Stream", self.dead_letters)

    def dead_letter_stream(self, stream: str) -> str:
        """Where dead letters of a stream go."""
        return self.dead_letters or fitting_name(stream, ".dlq")


def pause_after(policy: OnFailure, attempt: int) -> float:
    """Seconds to wait after the failed attempt of that number (1 is the first)."""
    return float(min(policy.backoff_s * 2 ** (attempt - 1), policy.backoff_max_s))


def pause_for_letter(policy: OnFailure, attempt: int) -> float:
    """Seconds to wait after a dead letter could not be stored for that many times before."""
    return float(min(_LETTER_PAUSE_S * 2 ** min(attempt, 10), max(policy.backoff_max_s, _LETTER_PAUSE_S)))


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a handler with a second parameter gets with the record."""

    epoch: int | None
    """Fencing token of the group: refuse lower ones where you write."""
    attempt: int
    """1 for the first."""
    extend: Callable[[], None]
    """Call it now and then in long work, to count processing time from new."""


class Call:
    """A handler, sync or async, with or without a second parameter, called the same way."""

    def __init__(self, handler: Handler, loop: HandlerLoop) -> None:
        self._handler, self._loop = handler, loop
        self._wants_delivery = _parameters(handler) > 1

    def __call__(self, record: Record, delivery: Delivery) -> None:
        """Handle one record; whatever has to be awaited runs to its end."""
        arguments = (record, delivery) if self._wants_delivery else (record,)
        result = self._handler(*arguments)
        if inspect.isawaitable(result):
            self._loop.run(result)

    def close(self) -> None:
        """Call it no more: the last worker that says so ends the event loop."""
        self._loop.release()


def _parameters(handler: Handler) -> int:
    """How many it asks for; one with a default is the handler's own, as in lambda record, seen=seen: ..."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(handler).parameters.values()
        return sum(1 for p in parameters if p.kind in kinds and p.default is inspect.Parameter.empty)
    except (TypeError, ValueError):  # some builtins have no signature
        return 1


def dead_letter_headers(record: Record, group: str | None, attempts: int, error: BaseException) -> Headers:
    """Where a dead letter came from and why, before the headers it had."""
    trace = "".join(traceback.format_exception(error)).encode()[-_TRACEBACK_BYTES:]
    return (
        ("dlq-stream", record.stream.encode()),
        ("dlq-offset", str(record.offset).encode()),
        ("dlq-group", (group or "").encode()),
        ("dlq-attempts", str(attempts).encode()),
        ("dlq-reason", f"{type(error).__name__}: {error}".encode()[:_REASON_BYTES]),
        ("dlq-traceback", trace),
        *record.headers,
    )


def without_value(value: bytes, headers: Headers) -> Headers:
    """The headers of a letter that is sent without its value and traceback, because it is too large."""
    short = tuple(pair for pair in headers if pair[0] != "dlq-traceback")
    return ((VALUE_CUT, str(len(value)).encode()), *short)


def letter_headers(headers: Iterable[tuple[str, bytes]]) -> Headers:
    """The headers that say where a dead letter came from, without those that the record had."""
    return tuple((name, value) for name, value in headers if name.startswith("dlq-"))


def original_headers(headers: Iterable[tuple[str, bytes]]) -> Headers:
    """The headers a record had before it became a dead letter."""
    return tuple((name, value) for name, value in headers if not name.startswith("dlq-"))


def stopped_at(record: Record, attempts: int, error: BaseException) -> HandlerFailed:
    """The error of a receiver that stands still."""
    return HandlerFailed(offset=record.offset, stream=record.stream, attempts=attempts, reason=repr(error))


_ENDS_WITHIN_S = 10.0
_LOOK_AGAIN_S = 1.0


class HandlerLoop:
    """One event loop for all workers of a receiver, on a thread of its own that starts with the first async handler.

    Each worker waits for its handler, so that its records stay in order; those of several workers run side by side.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    def run(self, result: Awaitable[Any]) -> None:
        """Run something to its end, in the context of the calling worker; raises what it raises."""
        error = asyncio.run_coroutine_threadsafe(_error_of(result), self._running()).result()
        if error is not None:
            raise error

    def release(self) -> None:
        """A worker ended. With the last one the loop ends, and tasks that handlers did not await are cancelled."""
        with self._lock:
            self._workers -= 1
            thread, loop = self._thread, self._loop
            if self._workers or thread is None or loop is None or not thread.is_alive():
                return
        loop.call_soon_threadsafe(self._ended.set)
        thread.join(_ENDS_WITHIN_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # one that a task of the user ended is replaced
                started = threading.Event()
                self._thread = threading.Thread(target=self._main, args=(started,), name="lockstep-loop", daemon=True)
                self._thread.start()
                started.wait()
            assert self._loop is not None, "it was made before it was told"
            return self._loop

    def _main(self, started: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._ended, self._loop = asyncio.Event(), runner.get_loop()
            self._loop.call_soon(started.set)
            runner.run(_wait(self._ended))


class CallersLoop:
    """The event loop of the program itself: made in it, and used by the threads of workers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def run(self, result: Awaitable[Any]) -> None:
        """Run something to its end, while the calling worker waits; raises what it raises."""
        running = _error_of(result)
        try:
            future = asyncio.run_coroutine_threadsafe(running, self._loop)
        except RuntimeError:  # the loop is closed
            running.close()
            raise
        while not wait([future], _LOOK_AGAIN_S).done:
            if self._loop.is_closed():
                message = "the event loop was closed before the handler returned"
                raise RuntimeError(message)
        error = future.result()
        if error is not None:
            raise error

    def release(self) -> None:
        """It is not ours to end."""


async def _wait(ended: asyncio.Event) -> None:
    await ended.wait()


async def _error_of(result: Awaitable[Any]) -> BaseException | None:
    """What it raised. Handed over as a value: SystemExit would end the loop, and the handlers of other workers."""
    try:
        await result
    except BaseException as error:  # noqa: BLE001 - raised again by the worker
        return error
    return None
