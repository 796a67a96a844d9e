"""A broker in memory that behaves as RabbitMQ does for Sensu: the model that other transports are compared with."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from lockstep.errors import BadArgument
from lockstep.monitor.transport.errors import PipeMismatch, TransportDown
from lockstep.monitor.transport.port import (
    KINDS,
    Features,
    Handler,
    Message,
    QueueStats,
    Subscription,
    Transport,
)

PREFETCH = 1


@dataclass(slots=True)
class Stored:
    """A message in a queue."""

    body: bytes
    redelivered: bool = False


@dataclass(slots=True, eq=False)
class Consumer:
    """One reader of a queue: what it has taken and not acknowledged yet, in order."""

    owner: object
    handler: Handler
    ack: bool
    prefetch: int
    taken: dict[int, Stored] = field(default_factory=dict)

    @property
    def has_room(self) -> bool:
        """Whether it may get another message."""
        return not self.ack or not self.prefetch or len(self.taken) < self.prefetch


@dataclass(slots=True)
class Queue:
    """Messages that wait, and those who read them in turn."""

    name: str
    lasting: bool = False
    waiting: deque[Stored] = field(default_factory=deque)
    consumers: deque[Consumer] = field(default_factory=deque)

    def next_consumer(self) -> Consumer | None:
        """The next one in turn that has room."""
        for _ in range(len(self.consumers)):
            self.consumers.rotate(-1)
            if self.consumers[-1].has_room:
                return self.consumers[-1]
        return None

    def give_back(self, consumer: Consumer) -> None:
        """What a reader had taken and not acknowledged waits again, in front, marked as delivered before."""
        for stored in reversed(consumer.taken.values()):
            stored.redelivered = True
            self.waiting.appendleft(stored)
        consumer.taken.clear()


@dataclass(slots=True)
class Exchange:
    """Where messages go, and the queues bound to it in the order of binding."""

    kind: str
    queues: list[str] = field(default_factory=list)


class Broker:
    """Exchanges and queues that connections share. Messages are handed out by `deliver`, or after each call."""

    def __init__(self, *, prefetch: int = PREFETCH, durable: bool = False) -> None:
        self.prefetch, self.durable = prefetch, durable
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.is_up = True
        self.lock = threading.RLock()
        self._tags = 0
        self._delivering = False

    def declare_exchange(self, pipe: str, kind: str) -> Exchange:
        """Return the exchange, created if it is missing."""
        if kind not in KINDS:
            raise BadArgument(name="kind", value=kind, reason=f"choose one of {', '.join(KINDS)}")
        exchange = self.exchanges.setdefault(pipe, Exchange(kind))
        if exchange.kind != kind:
            raise PipeMismatch(what="Exchange", name=pipe, reason=f"it is there as {exchange.kind}, not {kind}")
        return exchange

    def declare_queue(self, name: str) -> Queue:
        """Return the queue, created if it is missing."""
        return self.queues.setdefault(name, Queue(name, self.durable))

    def publish(self, kind: str, pipe: str, stored: Stored) -> None:
        """Put a message into the queues of an exchange; without any it is dropped."""
        exchange = self.declare_exchange(pipe, kind)
        for name in exchange.queues:
            self.queues[name].waiting.append(Stored(stored.body, stored.redelivered))

    def bind(self, kind: str, pipe: str, queue: Queue) -> None:
        """Have a queue get what comes to an exchange."""
        bound = self.declare_exchange(pipe, kind).queues
        if queue.name not in bound:
            bound.append(queue.name)

    def remove_consumer(self, queue: Queue, consumer: Consumer) -> None:
        """A reader ends: what it had not acknowledged goes back, and an auto-delete queue ends with its last reader."""
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        queue.give_back(consumer)
        if not queue.consumers and not queue.lasting:
            self.delete_queue(queue.name)

    def delete_queue(self, name: str) -> None:
        """Remove a queue with its messages and bindings."""
        self.queues.pop(name, None)
        for exchange in self.exchanges.values():
            if name in exchange.queues:
                exchange.queues.remove(name)

    def deliver(self) -> None:
        """Hand out what can be handed out; called after each change."""
        with self.lock:
            if self._delivering:
                return  # a handler that acknowledges comes here again: the loop below goes on
            self._delivering = True
            try:
                while self._hand_out_one():
                    pass
            finally:
                self._delivering = False

    def _hand_out_one(self) -> bool:
        for queue in list(self.queues.values()):
            if queue.waiting and (consumer := queue.next_consumer()) is not None:
                stored = queue.waiting.popleft()
                consumer.handler(self.taken(stored, consumer))
                return True
        return False

    def taken(self, stored: Stored, consumer: Consumer) -> Message:
        """A message in the hands of a reader."""
        if not consumer.ack:
            return Message(stored.body, stored.redelivered, _done)
        self._tags += 1
        consumer.taken[self._tags] = stored
        return Message(stored.body, stored.redelivered, partial(self._acknowledged, consumer, self._tags))

    def _acknowledged(self, consumer: Consumer, tag: int) -> None:
        with self.lock:
            consumer.taken.pop(tag, None)  # an acknowledgement after the connection was lost finds nothing
            self.deliver()


def _done() -> None:
    """Nothing is left to acknowledge."""


class MemoryTransport(Transport):
    """A connection to a broker in memory."""

    name = "memory"
    features = Features(durable_publish=False)

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        self._consumers: dict[str, Consumer] = {}
        self._wanted: list[tuple[str, str, str, Handler, bool]] = []
        self._connected = True
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._connected and self._broker.is_up and not self._closed

    def publish(self, kind: str, pipe: str, message: bytes, *, redelivered: bool = False) -> None:
        self._check()
        with self._broker.lock:
            self._broker.publish(kind, pipe, Stored(message, redelivered))
        self._broker.deliver()

    def subscribe(
        self, kind: str, pipe: str, funnel: str, handler: Handler, *, ack: bool = False, exclusive: bool = False
    ) -> Subscription:
        del exclusive
        self._check()
        self._bind(kind, pipe, funnel, handler, ack)
        self._wanted.append((kind, pipe, funnel, handler, ack))
        self._broker.deliver()
        return _MemorySubscription(partial(self._cancel, funnel))

    def unsubscribe(self) -> None:
        self._wanted.clear()
        self._drop_consumers()

    def stats(self, queue: str) -> QueueStats:
        self._check()
        with self._broker.lock:
            found = self._broker.declare_queue(queue)
            return QueueStats(len(found.waiting), len(found.consumers))

    def fetch(self, queue: str) -> Message | None:
        self._check()
        with self._broker.lock:
            found = self._broker.declare_queue(queue)
            if not found.waiting:
                return None
            return Message(found.waiting.popleft().body, False, _done)

    def close(self) -> None:
        self._closed = True
        self._drop_consumers()

    def lose(self) -> None:
        """Lose the connection, as a cut cable does."""
        self._connected = False
        self._drop_consumers()
        self.before_reconnect()

    def restore(self) -> None:
        """Connect again, with the subscriptions of before."""
        self._connected = True
        for wanted in self._wanted:
            self._bind(*wanted)
        self.after_reconnect()
        self._broker.deliver()

    def _bind(self, kind: str, pipe: str, funnel: str, handler: Handler, ack: bool) -> None:
        with self._broker.lock:
            queue = self._broker.declare_queue(funnel)
            self._broker.bind(kind, pipe, queue)
            if funnel not in self._consumers:
                consumer = Consumer(self, handler, ack, self._broker.prefetch)
                self._consumers[funnel] = consumer
                queue.consumers.append(consumer)

    def _cancel(self, funnel: str) -> None:
        self._wanted = [wanted for wanted in self._wanted if wanted[2] != funnel]
        with self._broker.lock:
            consumer = self._consumers.pop(funnel, None)
            if consumer is not None and funnel in self._broker.queues:
                self._broker.remove_consumer(self._broker.queues[funnel], consumer)
        self._broker.deliver()

    def _drop_consumers(self) -> None:
        with self._broker.lock:
            for funnel, consumer in self._consumers.items():
                if funnel in self._broker.queues:
                    self._broker.remove_consumer(self._broker.queues[funnel], consumer)
            self._consumers.clear()
        self._broker.deliver()

    def _check(self) -> None:
        if not self.connected:
            reason = "it is closed" if self._closed else "the connection is lost"
            raise TransportDown(transport=self.name, reason=reason)


class _MemorySubscription(Subscription):
    """A funnel of a connection in memory."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def cancel(self) -> None:
        self._cancel()
