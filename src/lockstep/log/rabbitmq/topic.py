"""One stream of the server as a topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from lockstep.errors import AppendTooLarge, BatchDamaged, ServerUnreachable
from lockstep.log.network.driver import Ends, Message, Topic, TopicGone
from lockstep.log.network.retry import Deadline
from lockstep.log.port import Limits
from lockstep.log.rabbitmq import errors
from lockstep.log.rabbitmq.client import RabbitClient
from lockstep.log.rabbitmq.frames import Chunk
from lockstep.log.rabbitmq.sender import Sender
from lockstep.log.rabbitmq.subscription import FIRST, LAST, ChunkPeek, ReadAhead, from_number, peek_chunks

_FIRST_HOLDS_S = 1.0
"""Where a stream begins is asked for again after this time, or when something is missing."""
_SUBSCRIPTIONS = 2
"""Places of a stream that one handle reads on from without asking anew: its own, and one that was looked up."""


class RabbitTopic(Topic):
    """One stream of the server: its sender, its subscriptions, and who waits for it."""

    def __init__(self, client: RabbitClient, stream: str, name: str, limits: Limits, reference: str) -> None:
        self.limits = limits
        self._client, self._stream, self._name = client, stream, name
        self._sender = Sender(client, stream, name, reference)
        self._lock = threading.RLock()
        self._subscriptions: list[ReadAhead] = []
        self._last: list[Message] = []
        """The messages of the chunk that was the last one when somebody asked for the ends."""
        self._has_seen = False
        """Whether there was ever anything in it."""
        self._first: int | None = None
        self._first_asked = 0.0
        self._wakes: list[Callable[[], None]] = []

    def send(self, messages: Sequence[bytes]) -> list[int]:
        deadline = self._client.deadline()
        for data in messages:
            self._check_size(data)
        numbers = [self._sender.send(data, deadline) for data in messages]
        self._has_seen = True
        return numbers

    def ends(self) -> Ends:
        deadline = self._client.deadline()
        return self._client.with_retries(self._ends, deadline)

    def fetch(self, number: int, max_bytes: int) -> list[Message]:
        if self._last and self._last[0].number <= number <= self._last[-1].number:
            found = [message for message in self._last if message.number >= number]
            if sum(len(message.data) for message in found) >= max_bytes:
                return found
        with self._lock:
            return self._client.with_retries(
                lambda within: self._fetch(number, max_bytes, within), self._client.deadline()
            )

    def reread(self, number: int) -> Message | None:
        with self._lock:
            return self._client.with_retries(lambda within: self._reread(number, within), self._client.deadline())

    def drop(self, before: int) -> None:
        """The server takes room back by its own settings only."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            self._wakes.append(wake)
            self._client.watched.add(self._look_again)
            if not any(not subscription.is_lost for subscription in self._subscriptions):
                self._listen(wake)

        def stop() -> None:
            with self._lock:
                with suppress(ValueError):
                    self._wakes.remove(wake)
                if not self._wakes:
                    self._client.watched.discard(self._look_again)

        return stop

    def close(self) -> None:
        with self._lock:
            self._wakes.clear()
            self._client.watched.discard(self._look_again)
            subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.close()
        self._sender.close()

    def _fetch(self, number: int, max_bytes: int, deadline: Deadline) -> list[Message]:
        subscription = self._subscription_at(number, deadline)
        while not (found := subscription.take(number, max_bytes, deadline)):
            before = subscription.arrived
            subscription.settle(deadline)
            if subscription.arrived == before:
                return []
        self._has_seen = True
        if found[0].number > number:
            self._first = None
        return found

    def _reread(self, number: int, deadline: Deadline) -> Message | None:
        [chunk] = peek_chunks(self._client, self._stream, (from_number(number),), deadline)
        if chunk is None and self._ends(deadline).next > number:
            raise errors.NotReady  # it is there, but a server that has just begun to lead a stream does not show it yet
        messages = [] if chunk is None else chunk.messages()
        found = next((message for message in messages if message.number >= number), None)
        if found is not None and found.number > number:
            self._first = None
        return found

    def _subscription_at(self, number: int, deadline: Deadline) -> ReadAhead:
        self._subscriptions = [subscription for subscription in self._subscriptions if not subscription.is_lost]
        for subscription in self._subscriptions:
            if subscription.covers(number):
                self._subscriptions.remove(subscription)
                self._subscriptions.append(subscription)
                return subscription
        subscription = ReadAhead(self._client, self._stream, self._wake)
        subscription.start(number, deadline)
        self._subscriptions.append(subscription)
        self._drop_subscriptions()
        subscription.settle(deadline, fully=True)
        return subscription

    def _drop_subscriptions(self) -> None:
        """Keep those that were read from last; the one that only listens is not needed beside one that reads."""
        kept = [subscription for subscription in self._subscriptions if subscription.position is not None][
            -_SUBSCRIPTIONS:
        ]
        dropped, self._subscriptions = (
            [subscription for subscription in self._subscriptions if subscription not in kept],
            kept,
        )
        for subscription in dropped:
            subscription.close()
        if dropped:
            self._wake()  # one of them may have been what others waited for

    def _listen(self, wake: Callable[[], None]) -> None:
        """Subscribe at least at the end of the stream, so that waiting readers are woken."""
        subscription = ReadAhead(self._client, self._stream, self._wake)
        try:
            subscription.start(None, self._client.deadline())
        except (ServerUnreachable, errors.NotReady, TopicGone):
            wake()  # he finds out why when he reads
            return
        self._subscriptions.append(subscription)

    def _ends(self, deadline: Deadline) -> Ends:
        last = self._last_by_subscriptions(deadline)
        if last is None or self._first is None or self._client.now() - self._first_asked > _FIRST_HOLDS_S:
            first, last = peek_chunks(self._client, self._stream, (FIRST, LAST), deadline)
            if first is None:
                return self._nothing()
            self._first, self._first_asked = first.first, self._client.now()
        if last is None:  # it is written, and about to be stored for good
            last = ChunkPeek(self._client, self._stream).wait(LAST, deadline)
        self._has_seen = True
        self._last = []
        with suppress(BatchDamaged):  # where it ends is known all the same, and its readers get the error
            self._last = last.messages()
        return Ends(self._first, last.end)

    def _nothing(self) -> Ends:
        """A server that has just begun to lead a stream shows nothing of it until it knows what the others have."""
        if self._has_seen:
            raise errors.NotReady
        return Ends(0, 0)

    def _last_by_subscriptions(self, deadline: Deadline) -> Chunk | None:
        with self._lock:
            found = (subscription.last_stored(deadline) for subscription in reversed(self._subscriptions))
            return next((chunk for chunk in found if chunk is not None), None)

    def _wake(self) -> None:
        for wake in list(self._wakes):
            wake()

    def _look_again(self) -> None:
        """Called now and then: without a living subscription nothing else wakes those who wait."""
        if all(subscription.is_lost for subscription in self._subscriptions):
            self._wake()

    def _check_size(self, data: bytes) -> None:
        limit = self.limits.append_bytes
        if limit is not None and len(data) > limit:
            raise AppendTooLarge(
                size=f"{len(data)} bytes", stream=self._name, bus=self._client.address.safe_url,
                limit=f"{limit} bytes", setting=self.limits.append_setting,
            )  # fmt: skip
