"""RabbitMQ as a source and a target of connectors: a topic exchange, and queues bound to a routing key."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lockstep.connectors.errors import ConnectorDown, SourceForgot
from lockstep.connectors.forms import OnBad, ReadForm, WriteForm, block_of
from lockstep.connectors.plan import Planned
from lockstep.connectors.port import NOTHING, Note, Pace, Piece
from lockstep.connectors.properties import BINARY
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.csv_reader import BadLine
from lockstep.engine.gates.port import needed
from lockstep.engine.runtime.sequence.reader import head_of
from lockstep.events.subscriber import Block

TIMEOUT_S = 10.0
HEARTBEAT_S = 5
_PREFETCH = 500
_POLL_S = 0.05
_OFFSET = "x-stream-offset"


@dataclass(frozen=True, slots=True)
class Place:
    """An exchange and a routing key, and how the client gets there."""

    connector: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    vhost: str
    exchange: str
    topic: str
    is_persistent: bool
    tls: Mapping[str, str] | None = None

    @classmethod
    def of(cls, planned: Planned, environ: Mapping[str, str]) -> Place:
        """Return the place that the properties name; a missing password is read from the environment."""
        properties = planned.properties
        files = {"cafile": "rmqsslcacert", "certfile": "rmqsslcert", "keyfile": "rmqsslkey"}
        tls = {name: properties.text(key) for name, key in files.items() if properties.text(key)}
        return cls(
            properties.connector,
            properties.text("rmqhost"),
            properties.number("rmqport", 5672, 1),
            properties.text("rmquserid") or environ.get("LOCKSTEP_RABBITMQ_USER") or "guest",
            properties.text("rmqpassword") or environ.get("LOCKSTEP_RABBITMQ_PASSWORD") or "guest",
            properties.text("rmqvhost", "/"),
            properties.text("rmqexchange"),
            planned.topic(),
            properties.flag("buspersistence"),
            tls if properties.flag("rmqssl") else None,
        )

    @property
    def server(self) -> str:
        """The server's address, for messages."""
        return f"RabbitMQ {self.host}:{self.port}"

    def connect(self) -> Any:
        """A connection; it is dead to the server when it is silent for some seconds."""
        pika = client()
        parameters = pika.ConnectionParameters(
            self.host,
            self.port,
            self.vhost,
            pika.PlainCredentials(self.user, self.password),
            heartbeat=HEARTBEAT_S,
            socket_timeout=TIMEOUT_S,
            stack_timeout=TIMEOUT_S,
            blocked_connection_timeout=TIMEOUT_S,
            connection_attempts=1,
            ssl_options=None if self.tls is None else pika.SSLOptions(_context(self.tls), self.host),
        )
        return pika.BlockingConnection(parameters)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The client's errors in our words."""
        pika = client()
        try:
            yield
        except (pika.exceptions.AMQPError, OSError) as error:
            raise self.down(getattr(error, "reply_text", "") or str(error) or type(error).__name__) from error

    def down(self, reason: str) -> ConnectorDown:
        """It can't be used now."""
        return ConnectorDown(connector=self.connector, server=self.server, reason=reason)

    def channel(self, connection: Any) -> Any:
        """Return a channel, after creating the exchange if it is missing."""
        pika, channel = client(), connection.channel()
        try:
            channel.exchange_declare(self.exchange, "topic", passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
            channel = connection.channel()
            channel.exchange_declare(self.exchange, "topic", durable=self.is_persistent)
        return channel


def client() -> Any:
    """pika, or an error that says what to install."""
    needed("pika.exceptions", "rabbitmq")
    own = logging.getLogger("pika")
    if not own.handlers:  # its words are for programs that want them; errors come with the calls
        own.addHandler(logging.NullHandler())
    return needed("pika", "rabbitmq")


def _context(tls: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.get("cafile"))
    if tls.get("certfile"):
        context.load_cert_chain(tls["certfile"], tls.get("keyfile"))
    return context


class RabbitSource:
    """Messages of a routing key.

    Persistent: a durable stream queue, which is read and not consumed; the number of a block is the offset of its
    message there and one. Direct: a queue that is there as long as it is read; what is sent meanwhile is lost.
    """

    def __init__(
        self, place: Place, form: ReadForm, pace: Pace, on_bad: OnBad, *, queue: str = "", keeps_ids: bool = False
    ) -> None:
        client()
        self._place, self._form, self._pace, self._on_bad = place, form, pace, on_bad
        self._queue, self._keeps_ids = queue or f"{place.exchange}/{place.topic}.in", keeps_ids
        self.is_numbered = place.is_persistent
        self._connection: Any = None
        self._channel: Any = None
        self._waiting: list[tuple[int, int, bytes]] = []

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Yield the blocks after `after` or the noted offset; raises if the broker cannot be reached."""
        offset = after or (note.at if note is not None else 0)
        with self._place.errors():
            self._open(offset)
        return self._read(offset)

    def start(self) -> Note | None:
        """Return None: a queue is always read from its beginning."""
        return None

    def close(self) -> None:
        """Close the connection."""
        close(self._connection)
        self._connection = None

    def _open(self, offset: int) -> None:
        place = self._place
        self._connection = place.connect()
        channel = self._channel = place.channel(self._connection)
        arguments: dict[str, Any] = {}
        if place.is_persistent:
            channel = self._channel = self._with_stream(channel)
            arguments[_OFFSET] = offset
        else:
            self._queue = channel.queue_declare("", auto_delete=True, exclusive=True).method.queue
        channel.queue_bind(self._queue, place.exchange, place.topic)
        channel.basic_qos(prefetch_count=_PREFETCH)
        channel.basic_consume(self._queue, self._came, arguments=arguments)

    def _with_stream(self, channel: Any) -> Any:
        """Return a channel, after creating the queue if it is missing; an existing one keeps its own limits."""
        try:
            channel.queue_declare(self._queue, passive=True)
        except client().exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 404:
                raise
            channel = self._connection.channel()
            channel.queue_declare(self._queue, durable=True, arguments={"x-queue-type": "stream"})
        return channel

    def _came(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._waiting.append((method.delivery_tag, _offset_of(properties), body))

    def _read(self, offset: int) -> Iterator[Piece | None]:
        while True:
            self._pace.check()
            with self._place.errors():
                if not self._waiting:
                    self._connection.process_data_events(_POLL_S)
            taken, self._waiting = self._waiting, []
            for _, at, body in taken:
                if self.is_numbered and at < offset:
                    continue  # a stream hands out whole chunks
                if self.is_numbered and at > offset and offset:
                    self._check_gap(offset)
                yield from self._piece(at, body)
                offset = at + 1
            yield None  # has what was given stored, before it is acknowledged
            with self._place.errors():
                if taken:
                    self._channel.basic_ack(taken[-1][0], multiple=True)

    def _check_gap(self, offset: int) -> None:
        """Streams hold entries of their own between messages. But where the stream begins later, messages are gone."""
        with self._place.errors():
            first = self._first_offset()
        if first > offset:
            raise SourceForgot(connector=self._place.connector, source=self._queue, needed=offset, first=first)

    def _first_offset(self) -> int:
        """The first message that the stream still holds."""
        found: list[int] = []
        channel = self._connection.channel()
        channel.basic_qos(prefetch_count=1)
        arguments = {_OFFSET: "first"}
        channel.basic_consume(self._queue, lambda *came: found.append(_offset_of(came[2])), arguments=arguments)
        while not found:
            self._pace.check()
            self._connection.process_data_events(_POLL_S)
        channel.close()
        return found[0]

    def _piece(self, at: int, body: bytes) -> Iterator[Piece]:
        if self._keeps_ids:
            head = head_of(body)
            if head is None or head.client is None:
                self._on_bad(BadLine(at, "FRAME", "it has no client, and so no number", ""))
                return
            nothing = EventBatch.empty(self._form.schema)
            yield Piece(nothing, NOTHING, frame=body, at=at + 1, frame_events=head.events)
            return
        batch, transactional = self._form.message(body, at + 1, self._on_bad)
        yield Piece(batch, np.array([at + 1], np.int64), transactional)


def _offset_of(properties: Any) -> int:
    return int((properties.headers or {}).get(_OFFSET, 0))


class RabbitTarget:
    """A routing key that one engine at a time sends to: it holds an exclusive queue as a lock.

    A second queue keeps only the last message, from which the block number of a binary message is read.
    """

    def __init__(self, place: Place, form: WriteForm, *, content_type: str = "", headers: str = "") -> None:
        client()
        self._place, self._form = place, form
        self._content_type = content_type or None
        self._headers = dict(part.partition("=")[::2] for part in headers.split(",") if "=" in part)
        self._connection: Any = None
        self._channel: Any = None

    def open(self, note: Note) -> int | None:
        """Connect, keeping other senders out; returns the last block published if it can be read, else None."""
        del note  # what is there tells
        place = self._place
        with place.errors():
            self._connection = place.connect()
            channel = self._channel = place.channel(self._connection)
            channel.queue_declare(f"{place.exchange}/{place.topic}.sender", exclusive=True)
            last = LastValueQueue(channel, place.exchange, place.topic, f"{place.exchange}/{place.topic}.last").last()
            channel.confirm_delivery()
        return block_of(last) if last is not None and self._form.form == BINARY else None

    def send(self, blocks: Sequence[Block]) -> None:
        """Publish blocks as confirmed messages; raises if the broker refuses one."""
        pika, place = client(), self._place
        with place.errors():
            for block in blocks:
                properties = pika.BasicProperties(
                    message_id=str(block.number),
                    delivery_mode=2 if place.is_persistent else 1,
                    content_type=self._content_type,
                    headers=self._headers or None,
                )
                self._channel.basic_publish(place.exchange, place.topic, self._form.message(block), properties)

    def mark(self) -> Mapping[str, Any]:
        """Return nothing: the last message holds its block's number, if the format has one."""
        return {}

    def idle(self) -> None:
        """Answer heartbeats; raises if the connection is lost."""
        with self._place.errors():
            self._connection.process_data_events(0)

    def close(self) -> None:
        """Close the connection."""
        close(self._connection)
        self._connection = None


def close(connection: Any) -> None:
    """Close a connection, whatever became of it."""
    if connection is None:
        return
    pika = client()
    try:
        if connection.is_open:
            connection.close()
    except (pika.exceptions.AMQPError, OSError):  # it was dead already, and nothing depends on it
        return


class LastValueQueue:
    """A queue bound to the topic that holds its last message from then on; created if it is missing.

    It serves one reader at a time: give each reader a queue with its own name.
    """

    def __init__(self, channel: Any, exchange: str, routing_key: str, name: str) -> None:
        """`channel` is a blocking channel of pika, and the exchange exists."""
        self._channel, self.name = channel, name
        arguments = {"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "drop-head"}
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, exchange, routing_key)

    def last(self) -> bytes | None:
        """Return the last message and leave it in the queue; None if there was none since the queue was created."""
        method, _, body = self._channel.basic_get(self.name)
        if method is None:
            return None
        self._channel.basic_nack(method.delivery_tag, requeue=True)
        self._channel.queue_declare(self.name, passive=True)  # answered when it is back
        return bytes(body)

    def delete(self) -> None:
        """Remove the queue."""
        self._channel.queue_delete(self.name)
