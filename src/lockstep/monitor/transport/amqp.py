"""The transport over RabbitMQ, with exchanges, queues and bindings as Sensu declares them.

One connection with one channel, served by one thread: the client library is not safe for several. What others ask is
queued and done by that thread.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lockstep.errors import Closed, ExtraMissing, LockstepError, ServerRefused, TimedOut
from lockstep.monitor.transport.brokers import CONNECT_S, Broker, Turn, pauses
from lockstep.monitor.transport.errors import PipeMismatch, TransportDown
from lockstep.monitor.transport.port import (
    DIRECT,
    Features,
    Handler,
    Message,
    Outgoing,
    QueueStats,
    Subscription,
    Transport,
)
from lockstep.runtime import logger

_SLICE_S = 1.0
_CALL_S = 30.0
_CLOSE_S = 10.0
_PRECONDITION, _LOCKED, _NOT_FOUND = 406, 405, 404
_ALONE = "x-single-active-consumer"
_LASTING = 2


def client_library() -> Any:
    """pika, or an error that says what to install."""
    try:
        importlib.import_module("pika.exceptions")
        pika = importlib.import_module("pika")
    except ImportError as error:
        raise ExtraMissing(package="pika", extra="rabbitmq") from error
    own = logging.getLogger("pika")
    if not own.handlers:  # its words are for programs that want them; errors come with the calls
        own.addHandler(logging.NullHandler())
        own.propagate = False
    return pika


@dataclass(slots=True, eq=False)
class _Funnel:
    """A queue that is read, and the pipes it is bound to."""

    name: str
    handler: Handler
    ack: bool
    exclusive: bool
    pipes: list[tuple[str, str]] = field(default_factory=list)
    tag: str | None = None
    """The tag of its consumer, while there is one."""


class AmqpTransport(Transport):
    """A connection to one of several RabbitMQ brokers, made again whenever it is lost."""

    name = "rabbitmq"
    features = Features()

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self._pika = client_library()
        self._turn = turn
        self._funnels: dict[str, _Funnel] = {}
        self._connection: Any = None
        self._channel: Any = None
        self._broker = Broker()
        self._declared: set[tuple[str, str]] = set()
        self._generation = 0
        self._work: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._acks: deque[tuple[int, int]] = deque()
        self._unacknowledged: deque[int] = deque()
        """Numbers of deliveries of this channel that are not acknowledged, in order."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._reason = "it has not been reached yet"
        self._connected = False
        self._thread = threading.Thread(target=self._run, name="lockstep-monitor-amqp", daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        return self._connected and not self._closing.is_set()

    @property
    def broker(self) -> Broker:
        """The broker that it is connected to, or was last."""
        return self._broker

    def publish(self, kind: str, pipe: str, message: bytes, *, redelivered: bool = False) -> None:
        del redelivered  # a broker marks what it delivers again, and nothing else
        self.publish_many([Outgoing(kind, pipe, message)])

    def publish_many(self, messages: Sequence[Outgoing]) -> None:
        """As in Transport: returns when the broker has confirmed all of them."""
        self._call(partial(self._publish, list(messages)))

    def subscribe(
        self, kind: str, pipe: str, funnel: str, handler: Handler, *, ack: bool = False, exclusive: bool = False
    ) -> Subscription:
        wanted = _Funnel(funnel, handler, ack, exclusive)
        try:
            self._call(partial(self._subscribe, wanted, (kind, pipe)))
        except (TransportDown, TimedOut):
            if self._closing.is_set():
                raise
            self._noted(wanted, (kind, pipe))  # it is read as soon as there is a connection
        return _AmqpSubscription(partial(self._cancel, funnel))

    def unsubscribe(self) -> None:
        for name in list(self._funnels):
            self._cancel(name)

    def stats(self, queue: str) -> QueueStats:
        found: QueueStats = self._call(partial(self._stats, queue))
        return found

    def fetch(self, queue: str) -> Message | None:
        message: Message | None = self._call(partial(self._fetch, queue))
        return message

    def close(self) -> None:
        self._closing.set()
        self._wake()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)
        self._fail_work(Closed(what="The connection to RabbitMQ"))

    def _cancel(self, name: str) -> None:
        with self._lock:
            funnel = self._funnels.pop(name, None)
        if funnel is not None and self._connected:
            try:
                self._call(partial(self._end_consumer, funnel))
            except TransportDown:
                return  # its consumer ended with the connection

    # work that other threads ask for

    def _call(self, work: Callable[[], Any]) -> Any:
        """Have the connection's thread do something, and return what that returns."""
        if not self.connected:
            raise TransportDown(transport=self.name, reason="it is closed" if self._closing.is_set() else self._reason)
        if threading.current_thread() is self._thread:
            return work()
        done: Future[Any] = Future()
        self._work.append((work, done))
        self._wake()
        try:
            return done.result(_CALL_S)
        except TimeoutError as error:
            done.cancel()
            raise TimedOut(what="A call to RabbitMQ", seconds=_CALL_S) from error

    def _wake(self) -> None:
        connection = self._connection
        try:
            if connection is not None:
                connection.add_callback_threadsafe(_nothing)
        except self._pika.exceptions.AMQPError:
            return  # it is gone; its thread notices by itself

    def _acknowledge(self, generation: int, tag: int) -> None:
        """Ask for an acknowledgement; one of an earlier connection is void, as the broker delivers that again."""
        first = not self._acks
        self._acks.append((generation, tag))
        if first:
            self._wake()

    # the thread of the connection

    def _run(self) -> None:
        next_pause, tried_before = pauses(), False
        while not self._closing.is_set():
            try:
                self._open()
                next_pause = pauses()
                if tried_before:
                    self.after_reconnect()
                self._serve()
            except (self._pika.exceptions.AMQPError, OSError, LockstepError, AssertionError) as error:
                # The client asserts that it knows why a connection ends, and sometimes it does not.
                self._lost(error, tell_before=self._connected or not tried_before)
                tried_before = True
                self._closing.wait(next_pause())
        self._end()

    def _open(self) -> None:
        broker = self._broker = self._turn.next()
        pika = self._pika
        context = broker.context()
        parameters = pika.ConnectionParameters(
            broker.host,
            broker.port,
            broker.vhost,
            pika.PlainCredentials(broker.user, broker.password),
            heartbeat=broker.heartbeat,
            socket_timeout=CONNECT_S,
            stack_timeout=CONNECT_S,
            blocked_connection_timeout=CONNECT_S,
            connection_attempts=1,
            ssl_options=None if context is None else pika.SSLOptions(context, broker.host),
        )
        self._connection = pika.BlockingConnection(parameters)
        self._open_channel()
        self._connected = True

    def _open_channel(self) -> None:
        """The channel, with all that is subscribed to."""
        self._declared.clear()
        self._unacknowledged.clear()
        self._generation += 1
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=self._broker.prefetch)
        self._channel.confirm_delivery()
        for funnel in list(self._funnels.values()):
            funnel.tag = None
            self._consume(funnel)

    def _serve(self) -> None:
        """Do what comes and what is asked for, until the connection ends or is to end."""
        while not self._closing.is_set():
            self._connection.process_data_events(0.0 if self._work or self._acks else _SLICE_S)
            self._send_acks()
            while self._work:
                work, done = self._work.popleft()
                if done.set_running_or_notify_cancel():
                    self._do(work, done)
            if not self._channel.is_open:
                self._open_channel()

    def _do(self, work: Callable[[], Any], done: Future[Any]) -> None:
        try:
            done.set_result(work())
        except self._pika.exceptions.ChannelClosedByBroker as error:
            try:
                self._open_channel()
            finally:
                done.set_exception(self._refusal(error, "The exchange or queue"))
        except (self._pika.exceptions.AMQPError, OSError) as error:
            done.set_exception(TransportDown(transport=self.name, reason=_reason(error)))
            raise
        except LockstepError as error:
            done.set_exception(error)

    def _refusal(self, error: Any, what: str) -> LockstepError:
        if error.reply_code in (_PRECONDITION, _LOCKED):
            return PipeMismatch(what=what, name=self._broker.place, reason=error.reply_text)
        return ServerRefused(server=f"RabbitMQ {self._broker.place}", reason=error.reply_text)

    def _send_acks(self) -> None:
        """Acknowledge what was asked for: all deliveries up to a number in one go, and others by themselves."""
        asked = set()
        while self._acks:
            generation, tag = self._acks.popleft()
            if generation == self._generation:
                asked.add(tag)
        if not asked:
            return
        last = 0
        while self._unacknowledged and self._unacknowledged[0] in asked:
            last = self._unacknowledged.popleft()
            asked.discard(last)
        if last:
            self._channel.basic_ack(last, multiple=True)
        for tag in sorted(asked):
            if tag in self._unacknowledged:  # not if its reader ended meanwhile
                self._unacknowledged.remove(tag)
                self._channel.basic_ack(tag)

    def _lost(self, error: Exception, *, tell_before: bool) -> None:
        self._reason = _reason(error)
        self._connected = False
        self._fail_work(TransportDown(transport=self.name, reason=self._reason))
        self._acks.clear()
        self._shut(self._connection)
        self._connection = None
        self.on_error(TransportDown(transport=self.name, reason=self._reason))
        if tell_before:
            self.before_reconnect()

    def _fail_work(self, error: LockstepError) -> None:
        while self._work:
            _, done = self._work.popleft()
            if done.set_running_or_notify_cancel():
                done.set_exception(error)

    def _end(self) -> None:
        self._connected = False
        try:
            if self._connection is not None and self._connection.is_open:
                self._send_acks()
        except (self._pika.exceptions.AMQPError, OSError):
            self._acks.clear()
        self._shut(self._connection)

    def _shut(self, connection: Any) -> None:
        try:
            if connection is not None and connection.is_open:
                connection.close()
        except (self._pika.exceptions.AMQPError, OSError):
            return  # it was dead already, and nothing depends on it

    # what is asked of the broker

    def _publish(self, messages: list[Outgoing]) -> None:
        mode = _LASTING if self._broker.durable else None
        for message in messages:
            self._declare(message.kind, message.pipe)
            properties = self._pika.BasicProperties(delivery_mode=mode, message_id=message.id)
            self._channel.basic_publish(message.pipe, "", message.body, properties)

    def _declare(self, kind: str, pipe: str) -> None:
        if (kind, pipe) not in self._declared:
            self._channel.exchange_declare(pipe, kind, durable=self._broker.durable)
            self._declared.add((kind, pipe))

    def _declare_queue(
        self, channel: Any, name: str, *, is_shared: bool, arguments: dict[str, Any] | None = None
    ) -> Any:
        """An auto-delete queue; with `durable`, shared ones last, and one client's own ends with its connection."""
        if not self._broker.durable:
            return channel.queue_declare(name, auto_delete=True, arguments=arguments)
        if is_shared:
            return channel.queue_declare(name, durable=True, arguments=arguments)
        return channel.queue_declare(name, exclusive=True, auto_delete=True)

    def _noted(self, wanted: _Funnel, pipe: tuple[str, str]) -> _Funnel:
        """The funnel of this name, with one more pipe."""
        with self._lock:
            funnel = self._funnels.setdefault(wanted.name, wanted)
            if pipe not in funnel.pipes:
                funnel.pipes.append(pipe)
        return funnel

    def _subscribe(self, wanted: _Funnel, pipe: tuple[str, str]) -> None:
        """Read a pipe through a funnel; one that the broker refuses is not tried again with the next connection."""
        funnel = self._noted(wanted, pipe)
        try:
            self._consume(funnel)
        except self._pika.exceptions.ChannelClosedByBroker:
            funnel.pipes.remove(pipe)
            if not funnel.pipes:
                self._funnels.pop(funnel.name, None)
            raise

    def _consume(self, funnel: _Funnel) -> None:
        """Bind a queue to its pipes and read it, if that is not so yet."""
        is_shared = any(kind == DIRECT for kind, _ in funnel.pipes)
        if funnel.exclusive:
            self._declare_alone(funnel.name)
        else:
            self._declare_queue(self._channel, funnel.name, is_shared=is_shared)
        for kind, pipe in funnel.pipes:
            self._declare(kind, pipe)
            self._channel.queue_bind(funnel.name, pipe, "")
        if funnel.tag is None:
            came = partial(self._came, funnel)
            funnel.tag = self._channel.basic_consume(funnel.name, came, auto_ack=not funnel.ack)

    def _declare_alone(self, name: str) -> None:
        """A queue of which one reader at a time gets messages, the others being ready to go on.

        One that is there already without this is taken as it is: its readers share it, which a warning says.
        """
        channel = self._connection.channel()
        try:
            self._declare_queue(channel, name, is_shared=True, arguments={_ALONE: True})
        except self._pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != _PRECONDITION:
                raise
            logger.warning(
                "Queue %s is shared by its readers: %s", name, error.reply_text, extra={"action": "queue_shared"}
            )
        else:
            channel.close()

    def _came(self, funnel: _Funnel, _: Any, method: Any, properties: Any, body: bytes) -> None:
        done = _nothing
        if funnel.ack:
            self._unacknowledged.append(method.delivery_tag)
            done = partial(self._acknowledge, self._generation, method.delivery_tag)
        funnel.handler(Message(body, bool(method.redelivered), done, properties.message_id))

    def _end_consumer(self, funnel: _Funnel) -> None:
        if funnel.tag is not None:
            self._send_acks()
            self._channel.basic_cancel(funnel.tag)
            if funnel.ack:
                self._channel.basic_recover(requeue=True)
                self._unacknowledged.clear()
                self._generation += 1  # what others have in their hands comes again too: their marks are void

    def _stats(self, queue: str) -> QueueStats:
        found = self._present(queue) or self._declare_queue(self._channel, queue, is_shared=True)
        return QueueStats(found.method.message_count, found.method.consumer_count)

    def _fetch(self, queue: str) -> Message | None:
        if self._present(queue) is None:
            return None
        method, properties, body = self._channel.basic_get(queue, auto_ack=True)
        return None if method is None else Message(body, bool(method.redelivered), _nothing, properties.message_id)

    def _present(self, queue: str) -> Any:
        """What the broker says of a queue, whatever its properties; None if it is not there."""
        channel = self._connection.channel()
        try:
            found = channel.queue_declare(queue, passive=True)
        except self._pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != _NOT_FOUND:
                raise
            return None
        channel.close()
        return found


def _nothing() -> None:
    """Wakes the thread of a connection, which then looks what there is to do."""


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reply_text", "") or "") or str(error) or type(error).__name__


class _AmqpSubscription(Subscription):
    """A queue that is read."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel

    def cancel(self) -> None:
        self._cancel()
