"""Storing messages, and finding the numbers that they get.

The server says that a message is stored, but not where; and it skips numbers for notes of its own. So a sender
also reads the end of the stream, and knows a message again when it comes by. Only what is stored for good comes by.

Each handle publishes under a name of its own with growing ids, and the server drops what does not grow: a message that
is sent again after a lost acknowledgement has the same id, so of both one is stored, and a message that was given up
can't turn up after a later one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from rstream import schema

from lockstep.errors import AppendUncertain, BatchDamaged, LockstepError, ServerUnreachable, StoreFull
from lockstep.log.batch import MAGIC as BATCH
from lockstep.log.batch import NO_PRODUCER
from lockstep.log.network.driver import BUNDLE_MAGIC as BUNDLE
from lockstep.log.network.driver import first_origin
from lockstep.log.network.retry import Deadline
from lockstep.log.rabbitmq import errors, frames
from lockstep.log.rabbitmq.client import PUBLISH, RabbitClient
from lockstep.log.rabbitmq.connection import Connection, Receiver
from lockstep.log.rabbitmq.subscription import LAST, Subscription, from_number

_CHUNKS = 32
_CLOSE_S = 1.0
_NO_PUBLISHER = 18
_FULL = "a disk alarm: less room is left than disk_free_limit in rabbitmq.conf asks for"

Origin = tuple[bytes, int]


@dataclass(slots=True)
class Attempt:
    """A message on its way."""

    publishing_id: int
    data: bytes
    origin: Origin | None
    start: int | None = None
    """The stream ended here, or later, before it was sent."""
    tries: int = 0
    """How often it has left."""
    is_retry: bool = False

    def is_again(self, data: bytes) -> bool:
        """Whether a message is this one, stamped anew."""
        return len(data) == len(self.data) and self.origin is not None and origin_of(data) == self.origin

    def is_stored_as(self, data: bytes) -> bool:
        """Whether a stored message is this one."""
        return data == self.data or (self.is_retry and self.is_again(data))


def origin_of(data: bytes) -> Origin | None:
    """Producer and sequence of a message, if it can be known again by them."""
    if data[:2] not in (BATCH, BUNDLE):
        return None
    origin = first_origin(data)
    return None if origin[0] == NO_PRODUCER else origin


class StoredWatcher(Subscription):
    """The end of a stream, looked at while a message is on its way; what comes at other times is dropped."""

    def __init__(self, client: RabbitClient, stream: str, news: threading.Event, wanted: Attempt) -> None:
        super().__init__(client, stream)
        self.first: int | None = None
        self.end: int | None = None
        self.found: int | None = None
        self._news = news
        self._wanted: Attempt | None = wanted

    def expect(self, attempt: Attempt, deadline: Deadline) -> None:
        """Look out for a message from now on."""
        with self._lock:
            self.found, self._wanted = None, attempt
        self.refill(deadline)

    def refill(self, deadline: Deadline) -> None:
        """Give room for more, if little is left."""
        if self.credit <= _CHUNKS // 2:
            self.grant(_CHUNKS - self.credit, deadline)

    def receive(self, chunk: frames.Chunk) -> None:
        if self.first is None:
            self.first = chunk.first
        self.end = chunk.end
        if self._wanted is None:
            return
        with suppress(
            BatchDamaged
        ):  # written by another client: its readers get an error; ours, if in it, is uncertain
            self._look_for(self._wanted, chunk)
        self._news.set()  # also if it was another one: then room for more has to be given

    def _look_for(self, wanted: Attempt, chunk: frames.Chunk) -> None:
        for message in chunk.messages(wanted.start or 0):
            if wanted.is_stored_as(message.data):
                self.found, self._wanted = message.number, None
                return

    def on_lost(self, reason: str) -> None:
        super().on_lost(reason)
        self._news.set()


class Sender(Receiver):
    """Sends the messages of one handle, one at a time."""

    def __init__(self, client: RabbitClient, stream: str, name: str, reference: str) -> None:
        self.stream = stream
        self._client, self._name, self._reference = client, name, reference
        self._news = threading.Event()
        self._connection: Connection | None = None
        self._number = -1
        self._is_lost = True
        self._refusal: int | None = None
        self._tail: StoredWatcher | None = None
        self._last_id = 0
        self._open: Attempt | None = None
        """The message before, if nobody knows whether it was stored."""

    def send(self, data: bytes, deadline: Deadline) -> int:
        """Store a message; its number."""
        attempt = self._attempt(data)
        try:
            number = self._client.with_retries(lambda within: self._try(attempt, within, deadline), deadline)
        except (ServerUnreachable, StoreFull) as error:
            self._give_up(attempt, error)
            raise
        except AppendUncertain:
            self._open = attempt
            raise
        self._open = None
        return number

    def close(self) -> None:
        """Give back what it uses."""
        if self._tail is not None:
            self._tail.close()
        self._withdraw()

    def on_chunk(self, chunk: frames.Chunk) -> None:
        """Nothing is read here."""

    def on_refusal(self, publishing_id: int, code: int) -> None:
        if publishing_id == self._last_id:
            self._refusal = code
            self._news.set()

    def on_lost(self, reason: str) -> None:
        del reason
        self._is_lost = True
        self._news.set()

    def _attempt(self, data: bytes) -> Attempt:
        if self._open is not None and self._open.is_again(data):
            self._open.data, self._open.is_retry = data, True
            return self._open
        self._last_id += 1
        return Attempt(self._last_id, data, origin_of(data))

    def _give_up(self, attempt: Attempt, error: LockstepError) -> None:
        """It was not sent this time; if it was before, nobody knows."""
        if attempt.tries:
            self._open = attempt
            reason = f"an earlier try may have landed, and now: {error.params.get('reason')}"
            raise AppendUncertain(stream=self._name, reason=reason) from error

    def _try(self, attempt: Attempt, within: Deadline, deadline: Deadline) -> int:
        connection = self._declared(within)
        tail = self._watched(attempt, within)
        if attempt.start is None:
            attempt.start = tail.end
        self._refusal = None
        self._news.clear()
        connection.write(frames.publish(self._number, attempt.publishing_id, attempt.data), within)
        attempt.tries += 1
        return self._number_of(attempt, tail, deadline)

    def _number_of(self, attempt: Attempt, tail: StoredWatcher, deadline: Deadline) -> int:
        while tail.found is None:
            if self._refusal is not None:
                self._refused(attempt, self._refusal)
            if self._is_lost or tail.is_lost or not self._news.wait(deadline.left()):
                raise self._uncertain(attempt, tail)
            self._news.clear()
            self._make_room(attempt, tail, deadline)
        return tail.found

    def _make_room(self, attempt: Attempt, tail: StoredWatcher, deadline: Deadline) -> None:
        try:
            tail.refill(deadline)
        except (ServerUnreachable, errors.NotReady) as error:
            raise self._uncertain(attempt, tail) from error

    def _refused(self, attempt: Attempt, code: int) -> None:
        """The server has not taken it."""
        attempt.tries -= 1
        self._withdraw()
        if code == _NO_PUBLISHER:
            raise errors.NotReady
        self._check(code)

    def _withdraw(self) -> None:
        """Publish no more under this number: the server knows a publisher of this name until it is told."""
        connection, self._connection = self._connection, None
        if connection is None or self._is_lost:
            return
        self._is_lost, number = True, self._number
        with suppress(ServerUnreachable):
            connection.begin(
                self._client.deadline(_CLOSE_S),
                lambda correlation: schema.DeletePublisher(correlation, number),
                then=lambda: connection.drop_publisher(number, self),
            )

    def _uncertain(self, attempt: Attempt, tail: StoredWatcher) -> AppendUncertain:
        """Nobody knows; a fresh connection finds out more than one that may be stuck."""
        if attempt.start is None:
            attempt.start = tail.first
        connection = self._connection
        reason = "the connection was lost" if self._is_lost or tail.is_lost else "no answer came in time"
        if connection is not None:
            connection.lose("it did not store a message in time")
        return AppendUncertain(stream=self._name, reason=f"{reason} from {self._client.address.servers}")

    def _declared(self, deadline: Deadline) -> Connection:
        if self._connection is not None and not self._is_lost:
            return self._connection
        connection = self._client.to_leader(PUBLISH, self.stream, deadline)
        number, code = connection.add_publisher(self), errors.NO_STREAM
        try:
            code = connection.ask(
                lambda n: schema.DeclarePublisher(n, number, self._reference, self.stream), deadline
            ).response_code
        finally:
            if code != errors.OK:
                connection.drop_publisher(number, self)
        if code == errors.PRECONDITION:
            raise StoreFull(stream=self._name, reason=f"the server {connection.server} has {_FULL}")
        self._check(code)
        self._connection, self._number, self._is_lost = connection, number, False
        return connection

    def _watched(self, attempt: Attempt, deadline: Deadline) -> StoredWatcher:
        """The end of the stream; from where it was before the first try, if this is not the first."""
        tail = self._tail
        if tail is not None and not tail.is_lost and tail.credit > 0 and not attempt.tries:
            tail.expect(attempt, deadline)
            return tail
        self._tail = None
        if tail is not None:
            tail.close()
        tail = StoredWatcher(self._client, self.stream, self._news, attempt)
        tail.open(from_number(attempt.start or 0) if attempt.tries else LAST, _CHUNKS, deadline)
        self._tail = tail  # only now: one that was refused brings nothing
        return tail

    def _check(self, code: int) -> None:
        client = self._client
        errors.check(code, server=client.address.servers, user=client.user, action="write", stream=self.stream)
