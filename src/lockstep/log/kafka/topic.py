"""One partition as a topic: sending, reading, ends and waiting.

A topic has one of two formats. `Appends`: one append is one message. `Records`: one record is one plain message, as
every Kafka program writes and reads them. What only lockstep knows of such a record travels in the header `lockstep`:
producer 16 bytes, sequence u64, append time and create time i64 in nanoseconds since 1970, little endian. A message
without that header was sent by somebody else: its time is the message's, and it has no producer. A message without a
value reads as an empty one.

"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException
from confluent_kafka import Message as KafkaMessage

from lockstep.errors import (
    AppendTooLarge,
    AppendUncertain,
    BadArgument,
    LockstepError,
    ServerUnreachable,
    UnsupportedByBackend,
)
from lockstep.log.batch import NO_PRODUCER, BatchView, Headers, pack
from lockstep.log.kafka.client import Cluster, Layout, Partition
from lockstep.log.kafka.errors import GONE, NOT_STORED, TOO_LARGE, TRANSIENT, error_of, translated
from lockstep.log.kafka.follower import Follower
from lockstep.log.kafka.reader import OutOfRange, Reader, ReaderPool, ReadLimit
from lockstep.log.kafka.sender import NotSent, Outgoing, Overdue, Sender, Unsent
from lockstep.log.network.driver import STRIDE, Ends, Message, Topic, TopicGone
from lockstep.log.network.retry import Deadline, Retry
from lockstep.log.port import Limits
from lockstep.runtime import Runtime, logger

SLACK = 1024
"""Bytes of a message that Kafka needs for itself."""
REQUEST_BYTES = 1_000_000
"""The client puts no more than this into one request, unless one message alone is larger."""
_DIAGNOSIS_S, _PAUSE_S = 1.0, 0.05
_NO_ANSWER = "nothing came back in time"


@dataclass(frozen=True, slots=True)
class KafkaClients:
    """The clients that all topics of a bus share."""

    url: str
    cluster: Cluster
    sender: Sender
    readers: ReaderPool
    follower: Follower
    runtime: Runtime

    @property
    def server(self) -> str:
        """The servers, as shown in errors."""
        return self.cluster.address.servers

    @property
    def timeout_s(self) -> float:
        """Every call ends within about this time."""
        return self.cluster.address.timeout_s


class Format(Protocol):
    """How messages of a log are stored as messages of Kafka."""

    def limits(self, topic: str, message_bytes: int) -> Limits:
        """How offsets are numbered, and how much a message holds."""

    def out(self, data: bytes, stream: str) -> Outgoing:
        """The Kafka message to send."""

    def back(self, message: KafkaMessage) -> Message:
        """The message of the log that was read."""


class Appends(Format):
    """One append is one message, stored as it is."""

    def limits(self, topic: str, message_bytes: int) -> Limits:
        setting = f"max.message.bytes of the topic {topic}"
        return Limits(
            stride=STRIDE, append_records=STRIDE, append_bytes=max(message_bytes - SLACK, 1), append_setting=setting
        )

    def out(self, data: bytes, stream: str) -> Outgoing:
        del stream
        return Outgoing(data)

    def back(self, message: KafkaMessage) -> Message:
        return Message(message.offset() or 0, message.value() or b"", stored_ns(message))


class Records(Format):
    """One record is one plain message, as any Kafka program writes and reads it."""

    def limits(self, topic: str, message_bytes: int) -> Limits:
        setting = f"max.message.bytes of the topic {topic}"
        return Limits(append_bytes=max(message_bytes - SLACK, 1), append_setting=setting, batch_records=1)

    def out(self, data: bytes, stream: str) -> Outgoing:
        return to_kafka(data, stream)

    def back(self, message: KafkaMessage) -> Message:
        return from_kafka(message)


@dataclass(slots=True)
class KafkaTopic(Topic):
    """One partition, and the reader that this handle uses."""

    clients: KafkaClients
    partition: Partition
    stream: str
    identity: str
    format: Format
    limits: Limits
    _reader: Reader | None = field(default=None, init=False)
    _position: int = field(default=-1, init=False)
    """The number of the message that the reader returns next."""
    _last: Message | None = field(default=None, init=False)
    """The message that was returned last: a reader that goes on from its end asks for it again."""

    _is_closed: bool = field(default=False, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Held while the reader is taken or put back."""

    __hash__ = object.__hash__

    def send(self, messages: Sequence[bytes]) -> list[int]:
        outgoing = [self.format.out(data, self.stream) for data in messages]
        for message in outgoing:
            self._check_size(message)
        numbers: list[int] = []
        try:
            for piece in self._pieces(outgoing):
                numbers += self.clients.sender.send(self.partition, piece)
        except Unsent as unsent:
            is_partial = unsent.is_partial or bool(numbers)
            raise self._unsent(unsent, max(map(len, messages)), is_partial=is_partial) from unsent
        except Overdue as overdue:
            raise self._uncertain(_NO_ANSWER) from overdue
        return numbers

    def ends(self) -> Ends:
        return self.clients.cluster.ends(self.partition)

    def fetch(self, number: int, max_bytes: int) -> list[Message]:
        if self._last is not None and self._last.number == number:
            return [self._last]
        found = self._at_hand(number, max_bytes) or self._asked_for(number, max_bytes)
        messages = [self.format.back(message) for message in found]
        self._last = messages[-1] if messages else self._last
        return messages

    def reread(self, number: int) -> Message | None:
        self._last = None  # it may be what the server lost
        self._let_go()
        found = self._asked_for(number, 1)
        self._let_go()
        return self.format.back(found[0]) if found else None

    def drop(self, before: int) -> None:
        try:
            self.clients.cluster.drop(self.partition, before)
        except LockstepError as error:
            extra = {"action": "drop_failed", "stream": self.stream, "error": str(error)}
            logger.info("The server keeps messages that retention gave up", extra=extra)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self.clients.follower.watch(self.partition, self.identity, wake)

    def close(self) -> None:
        """Return the reader to the pool. A thread that is reading returns it when it is done."""
        with self._changing:
            self._is_closed = True
        self._let_go()

    def _at_hand(self, number: int, max_bytes: int) -> list[KafkaMessage]:
        """Messages that were fetched in advance; empty if there are none."""
        tail = self.clients.follower.find(self.partition, self.identity)
        if tail is not None and (found := tail.take(number, max_bytes)):
            self._let_go()
            return found
        if self._reader is None or self._position != number or (reader := self._taken()) is None:
            return []
        try:
            found = reader.ready(max_bytes)
        except (OutOfRange, KafkaException):
            self.clients.readers.take_back(reader)
            return []  # if it was no passing trouble, it is met again
        self._keep(reader)
        return self._read_on(found)

    def _asked_for(self, number: int, max_bytes: int) -> list[KafkaMessage]:
        deadline = Deadline(self.clients.runtime.monotonic, self.clients.timeout_s)
        retry = Retry(self.clients.runtime, deadline, pause_s=_PAUSE_S)
        while True:
            ends = self.clients.cluster.ends(self.partition, max(deadline.left(), _PAUSE_S))
            number = max(number, ends.first)
            if number >= ends.next:
                self._let_go()
                return []
            reader = self._borrowed()
            try:
                self._start(reader, number)
                found = reader.read(ReadLimit(ends.next, max_bytes, deadline))
            except OutOfRange:  # dropped meanwhile, or the leader has changed
                self.clients.readers.take_back(reader)
            except KafkaException as raised:
                self.clients.readers.discard(reader)
                self._check_transient(error_of(raised), max(deadline.left(), _PAUSE_S))
            else:
                self._keep(reader)
                if found is not None:
                    return self._read_on(found)
            if not retry.again():
                self._discard()
                raise ServerUnreachable(server=self.clients.server, reason=f"{self.stream} could not be read in time")

    def _check_transient(self, error: KafkaError, within_s: float) -> None:
        """Raise an error that is not transient."""
        if error.code() in GONE:
            self.clients.cluster.check_there(self.partition.topic, within_s)
        elif error.code() not in TRANSIENT:
            raise translated(error, self.clients.server)

    def _borrowed(self) -> Reader:
        """A reader for the caller, who must keep it, give it back or discard it."""
        reader = self._taken()
        if reader is None:
            reader, self._position = self.clients.readers.lend(self.partition.topic), -1
        return reader

    def _start(self, reader: Reader, number: int) -> None:
        """Make the reader return this number next."""
        if self._position != number:
            reader.start(self.partition, number, self.clients.timeout_s)
            self._position = number

    def _taken(self) -> Reader | None:
        """Take the reader, so that another thread can't close it while this one reads."""
        with self._changing:
            reader, self._reader = self._reader, None
        return reader

    def _keep(self, reader: Reader) -> None:
        """Put a reader back for the next call, or give it back if the topic was closed meanwhile."""
        with self._changing:
            if not self._is_closed:
                self._reader = reader
                return
        self.clients.readers.take_back(reader)

    def _read_on(self, found: list[KafkaMessage]) -> list[KafkaMessage]:
        if found:
            self._position = (found[-1].offset() or 0) + 1
        return found

    def _let_go(self) -> None:
        if (reader := self._taken()) is not None:
            self.clients.readers.take_back(reader)

    def _discard(self) -> None:
        if (reader := self._taken()) is not None:
            self.clients.readers.discard(reader)

    def _pieces(self, messages: list[Outgoing]) -> Iterator[list[Outgoing]]:
        """The limit of a topic is for what the client sends in one request, which may be several messages."""
        limit, piece, size = self.limits.append_bytes or sys.maxsize, list[Outgoing](), 0
        for message in messages:
            if size + message.size > limit < REQUEST_BYTES and piece:
                yield piece
                piece, size = [], 0
            piece.append(message)
            size += message.size
        yield piece

    def _check_size(self, message: Outgoing) -> None:
        if self.limits.append_bytes is not None and message.size > self.limits.append_bytes:
            raise self._too_large(message.size)

    def _too_large(self, size: int) -> AppendTooLarge:
        limit, setting = f"{self.limits.append_bytes} bytes", self.limits.append_setting
        return AppendTooLarge(
            size=f"{size} bytes", stream=self.stream, bus=self.clients.url, limit=limit, setting=setting
        )

    def _unsent(self, unsent: Unsent, size: int, *, is_partial: bool) -> Exception:
        code = unsent.error.code()
        if is_partial:
            return self._uncertain(f"some of the records are stored, and then: {unsent.error.str()}")
        if code in TOO_LARGE:
            return self._too_large(size)
        if code in NOT_STORED or isinstance(unsent, NotSent):
            return translated(unsent.error, self.clients.server)
        return self._uncertain(unsent.error.str())

    def _uncertain(self, reason: str) -> Exception:
        """AppendUncertain with the reason that the cluster gives, or TopicGone."""
        try:
            self.clients.cluster.check_there(self.partition.topic, _DIAGNOSIS_S)
            layout = self.clients.cluster.layout(self.partition.topic, _DIAGNOSIS_S)
        except TopicGone as gone:
            return gone
        except ServerUnreachable as error:
            why = f"{error.params['reason']}; a broker also stops when a disk of its log.dirs is full"
            return AppendUncertain(stream=self.stream, reason=f"{reason}; {self.clients.server}: {why}")
        why = (
            f"; {self.clients.server}: {_reason_not_stored(layout)}"
            if layout is not None and _reason_not_stored(layout)
            else ""
        )
        return AppendUncertain(stream=self.stream, reason=reason + why)


def _reason_not_stored(layout: Layout) -> str:
    if not layout.has_leaders:
        return "the topic has no leader: its broker is down, or a disk of its log.dirs is full or broken"
    if layout.in_sync < layout.replicas:
        return f"{layout.in_sync} of {layout.replicas} replicas are in sync; see min.insync.replicas"
    return ""


class EntryTopic(Topic):
    """The topic of a stream with shards: always empty, because the records are in the shards."""

    limits = Limits()

    def __init__(self, url: str, stream: str) -> None:
        self._url, self._stream = url, stream

    def send(self, messages: Sequence[bytes]) -> list[int]:
        """Raises UnsupportedByBackend."""
        del messages
        raise UnsupportedByBackend(bus=self._url, feature=f"store in {self._stream} itself, only in its shards")

    def ends(self) -> Ends:
        return Ends(0, 0)

    def fetch(self, number: int, max_bytes: int) -> list[Message]:
        del number, max_bytes
        return []

    def reread(self, number: int) -> Message | None:
        del number
        return None

    def drop(self, before: int) -> None:
        """Does nothing: there is nothing to drop."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Does nothing: nothing is ever stored."""
        del wake
        return lambda: None

    def close(self) -> None:
        """Does nothing."""


ORIGIN_HEADER = "lockstep"
_ORIGIN = struct.Struct("<16sQqq")
_NS_PER_MS = 1_000_000


def to_kafka(sealed: bytes, stream: str) -> Outgoing:
    """The Kafka message for a sealed batch of one record."""
    view = BatchView(0, sealed, stream)
    if view.count != 1:
        raise BadArgument(name="batches", value=f"{view.count} records", reason="one record makes one message here")
    origin = _ORIGIN.pack(view.producer, view.sequence, view.append_ns, view.created()[0])
    return Outgoing(view.values()[0], view.keys()[0], (*view.headers()[0], (ORIGIN_HEADER, origin)))


def from_kafka(message: KafkaMessage) -> Message:
    """A Kafka message as a sealed batch of one record."""
    kind, stamp_ms = message.timestamp()
    producer, sequence = NO_PRODUCER, 0
    append_ns = created_ns = 0 if kind == TIMESTAMP_NOT_AVAILABLE else stamp_ms * _NS_PER_MS
    headers: list[tuple[str, bytes]] = []
    for name, value in cast("list[tuple[str, bytes | str | None]]", message.headers() or []):
        data = value.encode() if isinstance(value, str) else value or b""
        if name == ORIGIN_HEADER and len(data) == _ORIGIN.size:
            producer, sequence, append_ns, created_ns = _ORIGIN.unpack(data)
        else:
            headers.append((name, data))
    sealed = _sealed(message, producer, sequence, created_ns, append_ns, tuple(headers))
    return Message(message.offset() or 0, sealed, stored_ns(message))


def stored_ns(message: KafkaMessage) -> int | None:
    """When the broker stored a message; None if the topic keeps the time of the client that sent it."""
    kind, stamp_ms = message.timestamp()
    return stamp_ms * _NS_PER_MS if kind == TIMESTAMP_LOG_APPEND_TIME else None


def _sealed(
    message: KafkaMessage, producer: bytes, sequence: int, created_ns: int, append_ns: int, headers: Headers
) -> bytes:
    key = message.key()
    batch = pack(
        [message.value() or b""], producer=producer, sequence=sequence, created_ns=created_ns,
        keys=None if key is None else [key], headers=[headers] if headers else None,
    )  # fmt: skip
    return batch.seal(append_ns)
