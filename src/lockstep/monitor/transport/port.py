"""What agents and servers need of a transport: pipes to publish to, funnels to read from.

A pipe is an exchange of a broker, a funnel a queue. A direct pipe is a work queue: one of the consumers of its queue
gets each message. A fanout pipe gives a copy to every queue that is bound to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

DIRECT, FANOUT, TOPIC = "direct", "fanout", "topic"
KINDS = (DIRECT, FANOUT, TOPIC)
KEEPALIVES, RESULTS = "keepalives", "results"
OnError = Callable[[Exception], None]


class Outgoing(NamedTuple):
    """A message on its way out."""

    kind: str
    pipe: str
    body: bytes
    id: str | None = None
    """What it is called, for receivers that drop what they know."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message that came. Without acknowledgement it comes again when the connection is lost."""

    body: bytes
    redelivered: bool
    ack: Callable[[], None]
    id: str | None = None
    """What the sender called it, if it did."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many messages wait in a queue, and how many consume from it."""

    messages: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Features:
    """What a transport can do beyond publishing and subscribing; tests skip by it."""

    queues: bool = True
    """Queues that several consumers share, with acknowledgements and statistics."""
    fetch: bool = True
    """Take one message from a queue without consuming it."""
    durable_publish: bool = True
    """What publish() has returned for survives the death of the other side."""


Handler = Callable[[Message], None]
"""Gets messages one after the other, on a thread of the transport; it must not publish or wait."""


class Subscription(ABC):
    """A funnel that is read."""

    @abstractmethod
    def cancel(self) -> None:
        """Read no more from it; what was not acknowledged goes back."""


def nothing(*_: object) -> None:
    """A callback that does nothing."""


class Transport(ABC):
    """A connection to wherever messages go. Safe to share between threads."""

    name: str
    features: Features

    def __init__(self) -> None:
        self.on_error: OnError = nothing
        """Gets errors of the connection and of channels."""
        self.before_reconnect: Callable[[], None] = nothing
        """Called when the connection is lost, before it is tried again."""
        self.after_reconnect: Callable[[], None] = nothing
        """Called when it is there again, with all subscriptions."""

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether messages go out and come in now."""

    @abstractmethod
    def publish(self, kind: str, pipe: str, message: bytes, *, redelivered: bool = False) -> None:
        """Send a message, and return when it is accepted as safely as the transport can. TransportDown if not.

        `redelivered` says that it may be a copy of one that was sent before.
        """

    def publish_many(self, messages: Sequence[Outgoing]) -> None:
        """Send messages in their order. If this raises, any first part of them may have been accepted."""
        for message in messages:
            self.publish(message.kind, message.pipe, message.body)

    @abstractmethod
    def subscribe(
        self, kind: str, pipe: str, funnel: str, handler: Handler, *, ack: bool = False, exclusive: bool = False
    ) -> Subscription:
        """Read messages of a pipe through a funnel.

        A second pipe of the same funnel goes to the first one's handler: a queue has one consumer for a connection.
        With `ack` the handler's receiver acknowledges each message; without, a message counts as done when handed out.
        With `exclusive` one of the readers of the funnel gets all messages, and another one goes on when it ends.
        """

    @abstractmethod
    def unsubscribe(self) -> None:
        """Cancel all subscriptions."""

    @abstractmethod
    def stats(self, queue: str) -> QueueStats:
        """Return the messages and consumers of a queue, which is created if it is missing."""

    def fetch(self, queue: str) -> Message | None:
        """Take one message from a queue, None if it is empty; UnsupportedByBackend where there is no such thing."""
        from lockstep.errors import UnsupportedByBackend

        raise UnsupportedByBackend(bus=self.name, feature=f"fetch single messages from {queue!r}")

    @abstractmethod
    def close(self) -> None:
        """End the connection."""
