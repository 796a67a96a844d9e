"""Calling a handler, and what happens when it fails: try again, send to a dead-letter stream, skip, or stop."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lockstep.errors import BadConfig, HandlerFailed
from lockstep.log.batch import Headers
from lockstep.streams.record import Record

Handler = Callable[..., Any]

_TRACEBACK_BYTES = 4000


@dataclass(frozen=True, kw_only=True, slots=True)
class OnFailure:
    """What to do with a record whose handler raises.

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
    """Stream for dead letters; by default the record's stream with .dlq added."""

    def __post_init__(self) -> None:
        if self.then not in ("stop", "skip", "dead-letter"):
            raise BadConfig(field="then", value=self.then, reason="choose stop, skip or dead-letter")
        for name in ("retries", "backoff_s", "backoff_max_s"):
            if getattr(self, name) < 0:
                raise BadConfig(field=name, value=getattr(self, name), reason="it must not be negative")

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the failed attempt of that number (1 is the first)."""
        return float(min(self.backoff_s * 2 ** (attempt - 1), self.backoff_max_s))

    def dead_letter_stream(self, stream: str) -> str:
        """Where dead letters of a stream go."""
        return self.dead_letters or f"{stream}.dlq"


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a handler with a second parameter is told about the record it gets."""

    epoch: int | None
    """Fencing token of the group: refuse lower ones where you write."""
    attempt: int
    """1 for the first."""
    extend: Callable[[], None]
    """Call it now and then in long work, to count processing time from new."""


class Call:
    """A handler, sync or async, with or without a second parameter, called the same way."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._wants_delivery = _parameters(handler) > 1
        self._runner: asyncio.Runner | None = None

    def __call__(self, record: Record, delivery: Delivery) -> None:
        """Handle one record; whatever has to be awaited runs to its end."""
        arguments = (record, delivery) if self._wants_delivery else (record,)
        result = self._handler(*arguments)
        if not inspect.isawaitable(result):
            return
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(_to_its_end(result))

    def close(self) -> None:
        """End the event loop, if there is one. To be called from the thread that handled the records."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


async def _to_its_end(result: Awaitable[Any]) -> None:
    await result


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
        ("dlq-reason", f"{type(error).__name__}: {error}".encode()[:1000]),
        ("dlq-traceback", trace),
        *record.headers,
    )


def original_headers(headers: Iterable[tuple[str, bytes]]) -> Headers:
    """The headers a record had before it became a dead letter."""
    return tuple((name, value) for name, value in headers if not name.startswith("dlq-"))


def stopped_at(record: Record, attempts: int, error: BaseException) -> HandlerFailed:
    """The error of a receiver that stands still."""
    return HandlerFailed(offset=record.offset, stream=record.stream, attempts=attempts, reason=repr(error))
