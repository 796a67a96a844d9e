"""Consumers that read one partition at a time, and the pool that lends them to topics."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lockstep.log.kafka.client import Partition, Settings
from lockstep.log.kafka.errors import GONE, OUT_OF_RANGE, TRANSIENT
from lockstep.log.network.retry import Deadline

IDLE_READERS = 4
_MESSAGES_MAX = 10_000
_LOOK_S = 0.5


class OutOfRange(Exception):
    """The server does not have the message that was asked for."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """Where a read stops: at the end of the partition, after so many bytes, or at the deadline."""

    end: int
    max_bytes: int
    deadline: Deadline


class Reader:
    """A consumer. Used by one thread at a time."""

    def __init__(self, set_up: Settings, monotonic: Callable[[], float]) -> None:
        self._consumer = Consumer(dict(set_up))
        self._monotonic = monotonic
        self.topic = ""
        """The topic that was read last: the client knows its leader."""
        self._eof = -1
        """Every message below this number was returned, or is not visible."""
        self._held: Message | None = None

    def start(self, partition: Partition, number: int, within_s: float) -> None:
        """Fetch from a number on, in the background."""
        if partition.topic != self.topic:
            # Without this the client looks for the leader of a new topic in its own time, up to a second.
            self._consumer.list_topics(partition.topic, timeout=within_s)
            self.topic = partition.topic
        self._consumer.assign([TopicPartition(*partition, number)])
        self._eof, self._held = -1, None

    def ready(self, max_bytes: int) -> list[Message]:
        """Messages that were fetched already."""
        return self._read(ReadLimit(sys.maxsize, max_bytes, Deadline(self._monotonic, 0.0))) or []

    def read(self, limit: ReadLimit) -> list[Message] | None:
        """The next messages; empty if there are none up to the end, None if the deadline passed."""
        return self._read(limit)

    def stop(self) -> None:
        """Fetch no more, and forget what was fetched."""
        self._consumer.unassign()

    def close(self) -> None:
        """End the connections."""
        self._consumer.close()

    def _read(self, limit: ReadLimit) -> list[Message] | None:
        found: list[Message] = []
        size = 0
        while size < limit.max_bytes and len(found) < _MESSAGES_MAX:
            wait_s = 0.0 if found else min(limit.deadline.left(), _LOOK_S)
            message = self._held or self._consumer.poll(wait_s)
            self._held = None
            if message is None:
                if found or self._eof >= limit.end:
                    break
                if not limit.deadline.left():
                    return None
            elif message.error() is None:
                found.append(message)
                size += len(message)
            elif found:
                self._held = message  # said when what came before it is handed out
                break
            else:
                self._heed(message.error(), message)
        return found

    def _heed(self, error: KafkaError | None, message: Message) -> None:
        code = error.code() if error is not None else 0
        if code == KafkaError._PARTITION_EOF:
            self._eof = message.offset() or 0
        elif code in OUT_OF_RANGE:
            raise OutOfRange
        elif code not in TRANSIENT and message.topic() is not None:  # from what is passing the client gets up by itself
            if code in GONE:
                self.topic = ""
            raise KafkaException(error)


class ReaderPool:
    """Readers that are connected and free. Safe to share between threads."""

    def __init__(self, set_up: Settings, monotonic: Callable[[], float]) -> None:
        self._set_up, self._monotonic = set_up, monotonic
        self._lock = threading.Lock()
        self._free: list[Reader] = []

    def lend(self, topic: str) -> Reader:
        """A reader, if possible one that read the topic before."""
        with self._lock:
            if self._free:
                same = next((reader for reader in self._free if reader.topic == topic), self._free[0])
                self._free.remove(same)
                return same
        return Reader(self._set_up, self._monotonic)

    def take_back(self, reader: Reader) -> None:
        """Take back a reader that is no longer used."""
        reader.stop()
        with self._lock:
            if len(self._free) < IDLE_READERS:
                self._free.append(reader)
                return
        reader.close()

    def discard(self, reader: Reader) -> None:
        """Close a reader that got no answer: its client may go on waiting for a dead leader."""
        reader.close()

    def close(self) -> None:
        """End the connections of all that are free."""
        with self._lock:
            free, self._free = self._free, []
        for reader in free:
            reader.close()
