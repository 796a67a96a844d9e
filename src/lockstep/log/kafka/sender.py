"""One producer for all topics of a bus. A thread that waits for its acknowledgement polls for the others too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lockstep.log.kafka.client import Partition, Settings
from lockstep.log.kafka.errors import error_of

GRACE_S = 2.0
"""How long after its time-out a message is given up if the client has not reported it."""
_SERVE_S = 0.2
_KNOWN_MAX = 10_000
_EACH_BYTES = 24


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send."""

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        size = len(self.value) + len(self.key or b"")
        return size + sum(len(name) + len(item) for name, item in self.headers) + _EACH_BYTES * len(self.headers)


class Overdue(Exception):
    """The time-out passed and nothing is known about a message."""


class Unsent(Exception):
    """A message failed, and may be stored or not; carries the client's error."""

    def __init__(self, error: KafkaError, *, is_partial: bool = False) -> None:
        """`is_partial`: other messages of the same call are stored."""
        super().__init__(error.str())
        self.error, self.is_partial = error, is_partial


class NotSent(Unsent):
    """A message was not sent, and so is not stored."""


class _Job:
    def __init__(self, count: int) -> None:
        self.numbers = [-1] * count
        self.left = count
        self.error: KafkaError | None = None


class Sender:
    """Sends messages and waits until they are acknowledged. Safe to share between threads."""

    def __init__(
        self,
        set_up: Settings,
        timeout_s: float,
        monotonic: Callable[[], float],
        make: Callable[[dict[str, Any]], Producer] = Producer,
    ) -> None:
        self._set_up, self._timeout_s, self._monotonic, self._make = set_up, timeout_s, monotonic, make
        self._producer: Producer | None = None
        self._changed = threading.Condition()
        self._serving = False
        self._known: set[str] = set()

    def send(self, partition: Partition, messages: Sequence[Outgoing]) -> list[int]:
        """Send messages and return the number of each. Raises Unsent, NotSent or Overdue if one is not acknowledged."""
        producer, job = self._open(), _Job(len(messages))
        end = self._monotonic() + self._timeout_s + GRACE_S
        self._get_ready(producer, partition.topic)
        try:
            for index, message in enumerate(messages):
                self._produce(producer, partition, message, partial(self._delivered, job, index), end)
            self._await(producer, job, end)
        except Overdue:
            self._replace(producer)  # what is left of this goes, all at once: a later part must not overtake
            raise
        if job.error is not None:
            if _is_fatal(job.error):
                self._replace(producer)
            raise Unsent(job.error, is_partial=any(number >= 0 for number in job.numbers))
        return job.numbers

    def close(self) -> None:
        """End the connections; outstanding messages are given up."""
        with self._changed:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.close()

    def _open(self) -> Producer:
        with self._changed:
            if self._producer is None:
                self._producer = self._make(dict(self._set_up))
            return self._producer

    def _get_ready(self, producer: Producer, topic: str) -> None:
        """Have the client look for the leader of a topic at once; in its own time it may take a second."""
        if topic in self._known:
            return
        try:
            error = producer.list_topics(topic, timeout=self._timeout_s).topics[topic].error
        except KafkaException as raised:
            raise NotSent(error_of(raised)) from raised
        if error is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known.add(topic)

    def _replace(self, broken: Producer) -> None:
        """Use a new producer from now on: this one lost track of its sequence numbers.

        Other threads that wait for this one are told that nothing is known of their messages.
        """
        with self._changed:
            if self._producer is broken:
                self._producer = None
                self._known.clear()
        broken.purge()

    def _produce(
        self,
        producer: Producer,
        partition: Partition,
        message: Outgoing,
        delivered: Callable[[KafkaError | None, Message], None],
        end: float,
    ) -> None:
        headers: list[tuple[str, str | bytes | None]] | None = list(message.headers) or None
        while True:
            try:
                return producer.produce(
                    partition.topic,
                    message.value,
                    message.key,
                    partition.number,
                    on_delivery=delivered,
                    headers=headers,
                )
            except BufferError:
                self._poll(producer)  # full: room comes with the next acknowledgements
                if self._monotonic() > end:
                    raise Overdue from None
            except KafkaException as raised:
                error = error_of(raised)
                if _is_fatal(error):
                    self._replace(producer)
                raise Unsent(error) from raised

    def _poll(self, producer: Producer) -> None:
        """Let the client call back. Only an error that ends the client is raised here, in the thread that polls."""
        try:
            producer.poll(_SERVE_S)
        except KafkaException as raised:
            self._replace(producer)
            raise Unsent(error_of(raised)) from raised

    def _delivered(self, job: _Job, index: int, error: KafkaError | None, message: Message) -> None:
        with self._changed:
            job.left -= 1
            if error is not None:
                job.error = job.error or error
            else:
                job.numbers[index] = message.offset() or 0
            if job.left == 0:
                self._changed.notify_all()

    def _await(self, producer: Producer, job: _Job, end: float) -> None:
        """Wait for acknowledgements. One waiting thread polls for all; when it is done, another one takes over."""
        with self._changed:
            while job.left > 0:
                left_s = end - self._monotonic()
                if left_s <= 0:
                    raise Overdue
                if self._serving:
                    self._changed.wait(left_s)
                else:
                    self._serve(producer, job, end)

    def _serve(self, producer: Producer, job: _Job, end: float) -> None:
        self._serving = True
        self._changed.release()
        try:
            while job.left > 0 and self._monotonic() < end:
                self._poll(producer)
        finally:
            self._changed.acquire()
            self._serving = False
            self._changed.notify_all()


def _is_fatal(error: KafkaError) -> bool:
    """Whether the producer can't go on. For a message that it refuses, only the error code says so."""
    return error.fatal() or error.code() == KafkaError._FATAL
