"""The transport over Lockstep streams: results and keepalives into one stream of input, requests from another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lockstep.errors import LockstepError, StreamNotFound, UnsupportedByBackend, UsageError
from lockstep.log.config import check_name
from lockstep.monitor.core.documents import parse_object
from lockstep.monitor.transport.errors import TransportDown
from lockstep.monitor.transport.port import (
    KEEPALIVES,
    RESULTS,
    Features,
    Handler,
    Message,
    Outgoing,
    QueueStats,
    Subscription,
    Transport,
)
from lockstep.streams.client import Lockstep
from lockstep.streams.outbox import ID_HEADER

if TYPE_CHECKING:
    from lockstep.streams.publisher import Publisher
    from lockstep.streams.record import Record

SHARED = ("roundrobin", "direct")
"""Subscriptions of which one member runs a request: the model picks it, and asks `client:NAME`."""
REDELIVERED = b'{"_redelivered":true,'
_POLL_S = 0.5
_DELIVERY_S = 10.0
_PAUSE_S, _PAUSE_MAX_S = 0.5, 20.0
_FIRST_S = 1.0
"""What is published at the start waits so long for the bus to be opened."""
_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class MonitorStreams:
    """The streams of a monitor, by its name."""

    name: str = "monitor"

    def __post_init__(self) -> None:
        check_name("Monitor", self.name)

    @property
    def input(self) -> str:
        """Keepalives, results and orders, in the one order that counts."""
        return f"{self.name}.input"

    @property
    def requests(self) -> str:
        """Requests to run checks; a record's key is the subscription that is asked."""
        return f"{self.name}.requests"


def input_key(pipe: str, body: bytes, client: str | None) -> bytes:
    """The key of a keepalive or a result in the stream of input: its kind, and the client that sent it."""
    if client is None:
        document = parse_object(body)
        found = document.get("name" if pipe == KEEPALIVES else "client")
        client = found if isinstance(found, str) else ""
    return f"{'k' if pipe == KEEPALIVES else 'r'}:{client}".encode()


def marked(body: bytes) -> bytes:
    """A document that says of itself that it may have been taken before; what is no object stays as it is."""
    rest = body.lstrip()
    is_object = rest.startswith(b"{") and not rest[1:].lstrip().startswith(b"}")
    return REDELIVERED + rest[1:] if is_object else body


class StreamsTransport(Transport):
    """Publishes into the input of a monitor, and follows its requests with a thread of its own."""

    name = "streams"
    features = Features(queues=False, fetch=False)

    def __init__(self, connect: Callable[[], Lockstep], name: str = "monitor", client: str | None = None) -> None:
        """`connect` opens the bus, and is called until it succeeds. `client` is whose messages all are."""
        super().__init__()
        self._connect, self._client = connect, client
        self.streams = MonitorStreams(name)
        self._handlers: dict[str, Handler] = {}
        self._funnels: dict[str, set[str]] = {}
        self._bus: Lockstep | None = None
        self._publishers: dict[str, Publisher[bytes, bytes]] = {}
        self._lock = threading.Lock()
        self._closing, self._reached = threading.Event(), threading.Event()
        self._connected = self._has_been_up = False
        self._reason = "it has not been reached yet"
        self._thread = threading.Thread(target=self._run, name="lockstep-monitor-requests", daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        return self._connected and not self._closing.is_set()

    def publish(self, kind: str, pipe: str, message: bytes, *, redelivered: bool = False) -> None:
        self.publish_many([Outgoing(kind, pipe, marked(message) if redelivered else message)])

    def publish_many(self, messages: Sequence[Outgoing]) -> None:
        """As in Transport; messages to the input are stored in one step, all of them or none."""
        inputs = [message for message in messages if message.pipe in (KEEPALIVES, RESULTS)]
        others = [message for message in messages if message.pipe not in (KEEPALIVES, RESULTS)]
        keys = [input_key(message.pipe, message.body, self._client) for message in inputs]
        self._store(self.streams.input, inputs, keys)
        self._store(self.streams.requests, others, [message.pipe.encode() for message in others])

    def subscribe(
        self, kind: str, pipe: str, funnel: str, handler: Handler, *, ack: bool = False, exclusive: bool = False
    ) -> Subscription:
        del kind, ack, exclusive  # a reader of its own gets all requests, and there is nobody to acknowledge them to
        with self._lock:
            pipes = self._funnels.setdefault(funnel, set())
            known = next((self._handlers[other] for other in pipes if other in self._handlers), handler)
            pipes.add(pipe)
            self._handlers[pipe] = known
        return _StreamsSubscription(partial(self._cancel, funnel))

    def unsubscribe(self) -> None:
        with self._lock:
            self._handlers.clear()
            self._funnels.clear()

    def stats(self, queue: str) -> QueueStats:
        raise UnsupportedByBackend(bus=self.name, feature=f"count messages of a queue such as {queue!r}")

    def close(self) -> None:
        self._closing.set()
        self._reached.set()
        self._thread.join(_CLOSE_S)
        bus, self._bus = self._bus, None
        if bus is not None:
            try:
                bus.close()
            except LockstepError as error:
                self.on_error(error)

    def _cancel(self, funnel: str) -> None:
        with self._lock:
            for pipe in self._funnels.pop(funnel, set()):
                self._handlers.pop(pipe, None)

    # publishing

    def _store(self, stream: str, messages: Sequence[Outgoing], keys: list[bytes]) -> None:
        if not messages:
            return
        try:
            receipt = self._publisher(stream).publish_many([message.body for message in messages], keys=keys)
            receipt.wait()
        except (UsageError, TransportDown):
            raise  # of the first kind it is the message that can't be stored, whatever the bus does
        except LockstepError as error:
            raise TransportDown(transport=self.name, reason=str(error)) from error

    def _publisher(self, stream: str) -> Publisher[bytes, bytes]:
        self._reached.wait(_FIRST_S)
        with self._lock:
            if self._bus is None or self._closing.is_set():
                raise TransportDown(transport=self.name, reason=self._reason)
            if stream not in self._publishers:
                self._publishers[stream] = self._bus.publisher(stream, delivery_timeout_s=_DELIVERY_S)
            return self._publishers[stream]

    # reading

    def _run(self) -> None:
        """Connect, follow requests, and begin again after errors, until closed."""
        pause, subscriber = _PAUSE_S, None
        while not self._closing.is_set():
            try:
                if subscriber is None:
                    subscriber = self._opened()
                self._hand_out(subscriber.poll(_POLL_S))
                self._is_up()
                pause = _PAUSE_S
            except LockstepError as error:
                self._is_down(error)
                self._closing.wait(pause)
                pause = min(pause * 2, _PAUSE_MAX_S)
        if subscriber is not None:
            subscriber.close()

    def _opened(self) -> Any:
        if self._bus is None:
            bus = self._connect()
            with self._lock:
                self._bus = bus
            self._reached.set()
        assert self._bus is not None
        try:
            return self._bus.subscriber(self.streams.requests, initial="latest", create=False)
        except StreamNotFound:
            return self._bus.subscriber(self.streams.requests, initial="earliest")  # nothing was missed yet

    def _hand_out(self, records: Any) -> None:
        for record in records:
            handler = self._wanted(record)
            if handler is not None:
                found = record.header(ID_HEADER)
                handler(Message(record.value, False, _done, None if found is None else found.decode(errors="replace")))

    def _wanted(self, record: Record) -> Handler | None:
        pipe = (record.key or b"").decode(errors="replace")
        if pipe.partition(":")[0] in SHARED:
            return None  # no member was known that is alive: not all of them are meant
        with self._lock:
            return self._handlers.get(pipe)

    def _is_up(self) -> None:
        if not self._connected:
            was_lost, self._connected, self._has_been_up = self._has_been_up, True, True
            if was_lost:
                self.after_reconnect()

    def _is_down(self, error: LockstepError) -> None:
        self._reason = str(error)
        self.on_error(error)
        if self._connected:
            self._connected = False
            self.before_reconnect()


def _done() -> None:
    """A record that was read has nothing to acknowledge."""


class _StreamsSubscription(Subscription):
    """A funnel that requests are handed to."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def cancel(self) -> None:
        self._cancel()
