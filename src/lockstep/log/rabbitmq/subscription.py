"""A subscription that reads ahead: chunks come by themselves, as many as there is room for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from rstream import schema
from rstream.constants import OffsetType

from lockstep.errors import ServerUnreachable
from lockstep.log.network.driver import Message
from lockstep.log.network.retry import Deadline
from lockstep.log.rabbitmq import errors, frames
from lockstep.log.rabbitmq.client import READ, RabbitClient
from lockstep.log.rabbitmq.connection import Connection, Receiver

AHEAD_BYTES = 8 << 20
"""About so many bytes are read ahead of the reader."""
_CHUNKS_FIRST, _CHUNKS_MOST, _CHUNKS_LEAST = 8, 64, 2
_NO_OFFSET = 19
_CLOSE_S = 1.0
_NOBODY = "_"
LAST, NEXT, FIRST = (schema.OffsetSpec(kind) for kind in (OffsetType.LAST, OffsetType.NEXT, OffsetType.FIRST))


def from_number(number: int) -> schema.OffsetSpec:
    """Begin with the chunk that holds a number, or the next one there is."""
    return schema.OffsetSpecOffset(OffsetType.OFFSET, number)


def subscribe(number: int, stream: str, spec: schema.OffsetSpec, chunks: int) -> frames.Build:
    """The request for a subscription."""
    return lambda correlation: schema.Subscribe(correlation, number, stream, spec, chunks, [])


def unsubscribe(number: int) -> frames.Build:
    """The request to end it."""
    return lambda correlation: schema.Unsubscribe(correlation, number)


class Subscription(Receiver):
    """One subscription on a connection, and how many chunks the server may still send."""

    def __init__(self, client: RabbitClient, stream: str) -> None:
        self.stream = stream
        self.is_lost = False
        self.credit = 0
        self._client = client
        self._connection: Connection | None = None
        self._number = -1
        self._lock = threading.Lock()

    def open(self, spec: schema.OffsetSpec, chunks: int, deadline: Deadline) -> None:
        """Subscribe at the leader of the stream."""
        connection = self._client.to_leader(READ, self.stream, deadline)
        self.credit = chunks  # before anything can come
        self._number = number = connection.add_subscription(self)
        try:
            answer = connection.ask(subscribe(number, self.stream, spec, chunks), deadline)
            self._check(answer.response_code, "read")
        except BaseException:
            self.credit = 0
            connection.drop_subscription(number, self)
            raise
        self._connection = connection

    def grant(self, chunks: int, deadline: Deadline) -> None:
        """Let the server send some more."""
        with self._lock:
            self.credit += chunks
        self._ask_via().write(frames.credit(self._number, chunks), deadline)

    def close(self) -> None:
        """End the subscription; its number is free when the server has said so."""
        connection, self._connection = self._connection, None
        if connection is None or self.is_lost:
            return
        self.is_lost, number = True, self._number
        with suppress(ServerUnreachable):
            deadline = self._client.deadline(_CLOSE_S)
            connection.begin(deadline, unsubscribe(number), then=lambda: connection.drop_subscription(number, self))

    def on_chunk(self, chunk: frames.Chunk) -> None:
        with self._lock:
            self.credit -= 1
            self.receive(chunk)

    def receive(self, chunk: frames.Chunk) -> None:
        """Take a chunk; the lock is held."""
        raise NotImplementedError

    def on_refusal(self, publishing_id: int, code: int) -> None:
        """Nothing is published here."""

    def on_lost(self, reason: str) -> None:
        del reason
        self.is_lost = True

    def _ask_via(self) -> Connection:
        if self.is_lost or self._connection is None:
            raise errors.NotReady
        return self._connection

    def _check(self, code: int, action: str) -> None:
        client = self._client
        errors.check(code, server=client.address.servers, user=client.user, action=action, stream=self.stream)


class ReadAhead(Subscription):
    """Messages from a number on, in order. Taken by one thread at a time."""

    def __init__(self, client: RabbitClient, stream: str, on_news: Callable[[], None]) -> None:
        super().__init__(client, stream)
        self.position: int | None = None
        """Every message from this number on comes, or is here; None: it is not known yet."""
        self.arrived = 0
        self.last: frames.Chunk | None = None
        """The chunk that came last."""
        self._on_news = on_news
        self._chunks: deque[frames.Chunk] = deque()
        self._messages: deque[Message] = deque()
        self._chunk_bytes = 0
        self._stir = threading.Event()

    def start(self, number: int | None, deadline: Deadline) -> None:
        """Read from a number on, or whatever is stored from now on."""
        self.position = number
        self.open(NEXT if number is None else from_number(number), _CHUNKS_FIRST, deadline)

    def settle(self, deadline: Deadline, *, fully: bool = False) -> None:
        """Return when everything has come that was stored before this call; unless `fully`, as soon as anything has.

        The leader answers the first question itself, and has announced all it has stored before to this connection by
        then; the second answer comes after what was announced.
        """
        before = None if fully else self.arrived
        asked: tuple[frames.Build, ...] = (
            lambda number: schema.QueryOffset(number, _NOBODY, self.stream),
            lambda number: schema.Metadata(number, []),
        )
        for build in asked:
            answer = self._answer_or_news(build, before, deadline)
            if answer is None:
                return
            code = getattr(answer, "response_code", _NO_OFFSET)
            if code != _NO_OFFSET:
                self._check(code, "read")
        self._ask_via()

    def last_stored(self, deadline: Deadline) -> frames.Chunk | None:
        """The last chunk of the stream, asked for now; None if this is not where the stream ends."""
        if self.is_lost or self.last is None:
            return None
        self.settle(deadline, fully=True)
        return self.last if self.credit > 0 else None  # without room for more there may be more

    def covers(self, number: int) -> bool:
        """Whether reading on from a number needs no other subscription."""
        if self.is_lost or self.position is None or number < self.position:
            return False
        return number == self.position or any(message.number >= number for message in self._messages)

    def take(self, number: int, max_bytes: int, deadline: Deadline) -> list[Message]:
        """What has come from a number on, up to where a number is missing: the server may have dropped it meanwhile."""
        found, size = list[Message](), 0
        while size < max_bytes and (self._messages or self._unpack(number)):
            if found and self._messages[0].number != found[-1].number + 1:
                break  # the next call sees the gap, and whether it is a note of the server or a loss
            message = self._messages.popleft()
            if message.number >= number:
                found.append(message)
                size += len(message.data)
        self.position = found[-1].number + 1 if found else number
        self._refill(deadline)
        return found

    def on_chunk(self, chunk: frames.Chunk) -> None:
        super().on_chunk(chunk)
        self._stir.set()
        self._on_news()

    def receive(self, chunk: frames.Chunk) -> None:
        self._chunks.append(chunk)
        self.last = chunk
        self.arrived += 1
        self._chunk_bytes = max(len(chunk.data), self._chunk_bytes * 3 // 4)

    def on_lost(self, reason: str) -> None:
        """Wake waiting readers, so that they look again."""
        super().on_lost(reason)
        self._on_news()

    def _answer_or_news(self, build: frames.Build, before: int | None, deadline: Deadline) -> Any:
        """The answer to a question; None if messages have come first."""
        self._stir.clear()
        [reply] = self._ask_via().begin(deadline, build, then=self._stir.set)
        while before is None or self.arrived == before:
            if reply.has_come or not self._stir.wait(deadline.left()):
                return reply.wait(deadline)
            self._stir.clear()
        return None

    def _unpack(self, number: int) -> bool:
        while not self._messages:
            with self._lock:
                if not self._chunks:
                    return False
                chunk = self._chunks[0]
            self._messages.extend(chunk.messages(number))  # if this fails, it fails again for the next caller
            self._chunks.popleft()
        return True

    def _refill(self, deadline: Deadline) -> None:
        if self.is_lost:
            return
        window = min(max(AHEAD_BYTES // max(self._chunk_bytes, 1), _CHUNKS_LEAST), _CHUNKS_MOST)
        with self._lock:
            missing = window - self.credit - len(self._chunks)
        if self.credit <= window // 2 and missing > 0:
            with suppress(ServerUnreachable, errors.NotReady):  # what has come is good; the next read finds out
                self.grant(missing, deadline)


class ChunkPeek(Subscription):
    """The first chunk that a subscription brings, and nothing more."""

    def __init__(self, client: RabbitClient, stream: str) -> None:
        super().__init__(client, stream)
        self.chunk: frames.Chunk | None = None
        self._came = threading.Event()

    def receive(self, chunk: frames.Chunk) -> None:
        self.chunk = self.chunk or chunk
        self._came.set()

    def on_lost(self, reason: str) -> None:
        super().on_lost(reason)
        self._came.set()

    def wait(self, spec: schema.OffsetSpec, deadline: Deadline) -> frames.Chunk:
        """The chunk, which is there or is about to be."""
        self.open(spec, 1, deadline)
        self._came.wait(deadline.left())
        self.close()
        if self.chunk is None:
            raise errors.NotReady
        return self.chunk


def peek_chunks(
    client: RabbitClient, stream: str, specs: Sequence[schema.OffsetSpec], deadline: Deadline
) -> list[frames.Chunk | None]:
    """The chunk that is found at each place now, asked for in one go; None where there is none."""
    connection = client.to_leader(READ, stream, deadline)
    looks = [ChunkPeek(client, stream) for _ in specs]
    numbers = [connection.add_subscription(look) for look in looks]
    builds = [
        build
        for number, spec in zip(numbers, specs, strict=True)
        for build in (subscribe(number, stream, spec, 1), unsubscribe(number))
    ]
    answers = [reply.wait(deadline) for reply in connection.begin(deadline, *builds)]
    for number, look in zip(numbers, looks, strict=True):
        connection.drop_subscription(number, look)
    for answer in answers[::2]:
        errors.check(
            answer.response_code, server=client.address.servers, user=client.user, action="read", stream=stream
        )
    return [look.chunk for look in looks]
