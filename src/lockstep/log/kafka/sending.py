"""Sending: one producer for all topics of a bus. Whoever waits for an acknowledgement serves the others too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lockstep.log.kafka.names import Place
from lockstep.log.kafka.settings import Settings
from lockstep.log.kafka.troubles import error_of

GRACE_S = 2.0
"""The client looks for what is overdue once a second; so much later it is given up in any case."""
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
        """About the bytes it takes."""
        size = len(self.value) + len(self.key or b"")
        return size + sum(len(name) + len(item) for name, item in self.headers) + _EACH_BYTES * len(self.headers)


class Overdue(Exception):
    """Nothing is known about a message in time."""


class Unsent(Exception):
    """A message was not stored, or is not known to be; carries the client's error."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


class NotSent(Unsent):
    """A message never left; it is not stored."""


class _Job:
    def __init__(self, count: int) -> None:
        self.numbers = [-1] * count
        self.left = count
        self.error: KafkaError | None = None


class Sender:
    """See above. Safe to share between threads."""

    def __init__(self, set_up: Settings, timeout_s: float, monotonic: Callable[[], float]) -> None:
        self._set_up, self._timeout_s, self._monotonic = set_up, timeout_s, monotonic
        self._producer: Producer | None = None
        self._changed = threading.Condition()
        self._serving = False
        self._known: set[str] = set()

    def send(self, place: Place, messages: Sequence[Outgoing]) -> list[int]:
        """The number that each message got, when all are acknowledged. Unsent, NotSent or Overdue if one is not."""
        producer, job = self._open(), _Job(len(messages))
        end = self._monotonic() + self._timeout_s + GRACE_S
        self._get_ready(producer, place.topic)
        for index, message in enumerate(messages):
            self._produce(producer, place, message, partial(self._delivered, job, index), end)
        self._await(producer, job, end)
        if job.error is not None:
            if job.error.fatal():
                self._replace(producer)
            raise Unsent(job.error)
        return job.numbers

    def close(self) -> None:
        """End the connections; nobody waits for anything any more."""
        with self._changed:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.close()

    def _open(self) -> Producer:
        with self._changed:
            if self._producer is None:
                self._producer = Producer(dict(self._set_up))
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
        """A producer that lost track of its own sequence can't go on; the next one begins a new one."""
        with self._changed:
            if self._producer is broken:
                self._producer = None
                self._known.clear()
        broken.purge()

    def _produce(
        self,
        producer: Producer,
        place: Place,
        message: Outgoing,
        delivered: Callable[[KafkaError | None, Message], None],
        end: float,
    ) -> None:
        headers: list[tuple[str, str | bytes | None]] | None = list(message.headers) or None
        while True:
            try:
                return producer.produce(
                    place.topic, message.value, message.key, place.partition, on_delivery=delivered, headers=headers
                )
            except BufferError:
                producer.poll(_SERVE_S)  # full: room comes with the next acknowledgements
                if self._monotonic() > end:
                    raise Overdue from None
            except KafkaException as raised:
                error = error_of(raised)
                if error.fatal():
                    self._replace(producer)
                raise Unsent(error) from raised

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
        """One of those who wait serves the client; when it has its own answers, another one goes on."""
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
                producer.poll(_SERVE_S)
        finally:
            self._changed.acquire()
            self._serving = False
            self._changed.notify_all()
