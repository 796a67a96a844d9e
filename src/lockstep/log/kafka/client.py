"""The clients of librdkafka: how they are configured, and what a Kafka cluster is asked and told to do.

The stream `orders` is partition 0 of the topic PREFIXorders; the shard `orders/3` is partition 3 of it.

"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from lockstep.errors import BadUrl, ServerUnreachable
from lockstep.log.kafka.errors import GONE, LOGIN, TRANSIENT, error_of, translated
from lockstep.log.network.address import Address
from lockstep.log.network.driver import Ends, TopicGone
from lockstep.log.network.retry import Deadline, Retry
from lockstep.runtime import Runtime

SEPARATOR = "/"
CATALOGUE = "_lockstep.catalogue"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class Partition(NamedTuple):
    """One partition."""

    topic: str
    number: int


def partition_of(prefix: str, stream: str) -> Partition | None:
    """The partition of a stream, or None if no topic can have such a name."""
    name, separator, shard = stream.partition(SEPARATOR)
    topic = prefix + name
    if not name or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        return None
    if separator and not (shard.isascii() and shard.isdigit()):
        return None
    return Partition(topic, int(shard or 0))


def is_shard(stream: str) -> bool:
    """Whether a stream name is that of a shard."""
    return SEPARATOR in stream


T = TypeVar("T")
GONE_S = 0.5
"""A topic is gone if no broker knows it for this long; a new topic is not known to all brokers at once."""
_PAUSE_S = 0.05
_DOWN_S = 2.0
"""How long opening a bus waits for a server that refuses connections."""
_TO_THE_END = -1
_ATTEMPT = 0.25
"""The part of the time-out that one try of an admin call may take."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a topic is laid out over the brokers."""

    brokers: int
    partitions: int
    replicas: int
    """Replicas of the partition that has the fewest."""
    in_sync: int
    has_leaders: bool


class LastErrors:
    """The last errors that a client reported in the background."""

    def __init__(self) -> None:
        self.refused: KafkaError | None = None
        self.down: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Called by the client."""
        if error.code() in LOGIN:
            self.refused = error
        elif self.down is None or error.code() != KafkaError._ALL_BROKERS_DOWN:  # which says less than what came before
            self.down = error

    def clear(self) -> None:
        """Forget the errors: the server answers."""
        self.refused = self.down = None


class Cluster:
    """Questions and orders to a Kafka cluster. Safe to share between threads; every call ends within the time-out."""

    def __init__(self, address: Address, runtime: Runtime) -> None:
        self.address, self._runtime = address, runtime
        self.last_errors = LastErrors()
        set_up = consumer_settings(address, self.last_errors, wait_ms=READER_WAIT_MS, eof=False)
        self._set_up = set_up
        self._consumer = Consumer(set_up)  # assigned nothing, so that no fetch holds up its questions
        self._admin_or_none: AdminClient | None = None
        self._closed = False
        self._lock = threading.Lock()

    def connect(self, topic: str) -> int:
        """Wait until a broker answers and return the number of brokers; raise as soon as it is clear that none will."""
        begun, pause = self._runtime.monotonic(), min(0.5, self.address.timeout_s)
        while True:
            try:
                found = self._consumer.list_topics(topic, timeout=pause)
            except KafkaException as raised:
                self._poll_errors()
                waited = self._runtime.monotonic() - begun
                if (
                    self.last_errors.refused
                    or (self.last_errors.down and waited > _DOWN_S)
                    or waited > self.address.timeout_s
                ):
                    raise self._error_for(error_of(raised)) from raised
            else:
                self.last_errors.clear()
                return len(found.brokers)

    def layout(self, topic: str, within_s: float | None = None, *, is_expected: bool = False) -> Layout | None:
        """How a topic is laid out; None if there is none of that name.

        `is_expected`: brokers that do not know it are asked again, for a broker learns of a new topic a little later.
        """
        try:
            found = self._with_retries(lambda left_s: self._metadata(topic, left_s, must_be=is_expected), within_s)
        except TopicGone:
            return None
        partitions = found.topics[topic].partitions.values()
        if not partitions:
            return None
        return Layout(
            brokers=len(found.brokers),
            partitions=len(partitions),
            replicas=min(len(partition.replicas) for partition in partitions),
            in_sync=min(len(partition.isrs) for partition in partitions),
            has_leaders=all(partition.leader >= 0 for partition in partitions),
        )

    def ends(self, partition: Partition, within_s: float | None = None) -> Ends:
        """The first and the next number of a partition now."""
        asked = TopicPartition(*partition)
        first, after = self._with_retries(
            lambda left_s: self._consumer.get_watermark_offsets(asked, timeout=left_s), within_s, partition.topic
        )
        return Ends(first, after)

    def check_there(self, topic: str, within_s: float) -> None:
        """Raise TopicGone if no broker knows a topic."""
        self._with_retries(lambda left_s: self._metadata(topic, left_s, must_be=True), within_s)

    def config(self, topic: str) -> Mapping[str, str]:
        """The settings of a topic, its own and those of the server."""
        asked = ConfigResource(ResourceType.TOPIC, topic)
        found = self._admin_call(lambda admin, limits: admin.describe_configs([asked], **limits)[asked])
        return {name: str(entry.value) for name, entry in found.items()}

    def topic_id(self, topic: str) -> str:
        """The id of a topic, which differs from that of a later topic with the same name."""
        return str(
            self._admin_call(
                lambda admin, limits: _single(admin.describe_topics(TopicCollection([topic]), **limits))
            ).topic_id
        )

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> Layout:
        """Create a topic and wait until it can be used."""
        wanted = NewTopic(topic, partitions, replicas, config=dict(config))
        self._admin_call(
            lambda admin, limits: _single(admin.create_topics([wanted], **limits)), KafkaError.TOPIC_ALREADY_EXISTS
        )
        found: list[Layout] = []
        self._until(lambda: _is_led(self.layout(topic), found), f"the topic {topic} is made and has a leader")
        return found[-1]

    def delete(self, topic: str) -> None:
        """Delete a topic if it exists, and wait until it is gone."""
        self._admin_call(lambda admin, limits: _single(admin.delete_topics([topic], **limits)), *GONE)
        self._until(lambda: self.layout(topic) is None, f"the topic {topic} is deleted")

    def drop(self, partition: Partition, before: int = _TO_THE_END) -> None:
        """Delete the messages below a number, or all."""
        wanted = TopicPartition(*partition, before)
        self._admin_call(lambda admin, limits: _single(admin.delete_records([wanted], **limits)))

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Store positions of a consumer group without members."""
        wanted = ConsumerGroupTopicPartitions(
            group, [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        )
        done = self._admin_call(lambda admin, limits: _single(admin.alter_consumer_group_offsets([wanted], **limits)))
        for item in done.topic_partitions:
            if item.error:
                raise translated(item.error, self.address.servers)

    def close(self) -> None:
        """End the connections."""
        with self._lock:
            self._closed = True
            self._admin_or_none = None
        self._consumer.close()

    def _metadata(self, topic: str, within_s: float, *, must_be: bool = False) -> Any:
        found = self._consumer.list_topics(topic, timeout=within_s)
        error = found.topics[topic].error
        if error is not None and (must_be or error.code() not in GONE):
            raise KafkaException(error)
        return found

    def _admin_call(self, order: Callable[[AdminClient, dict[str, float]], Future[T]], *fine: int) -> T | Any:
        def ask(within_s: float) -> T | None:
            within_s = min(within_s, max(self.address.timeout_s * _ATTEMPT, 1.0))
            limits = {"request_timeout": within_s}
            try:
                return order(self._admin(), limits).result(within_s + 1)
            except KafkaException as raised:
                if error_of(raised).code() in fine:
                    return None
                if error_of(raised).code() in TRANSIENT:
                    self._forget_admin()
                raise

        return self._with_retries(ask)

    def _forget_admin(self) -> None:
        """Use a new admin client from now on: the old one remembers for minutes which broker was the controller."""
        with self._lock:
            self._admin_or_none = None

    def _admin(self) -> AdminClient:
        with self._lock:
            if self._admin_or_none is None:
                self._admin_or_none = AdminClient(common_settings(self.address, self.last_errors))
            return self._admin_or_none

    def _with_retries(self, ask: Callable[[float], T], within_s: float | None = None, topic: str | None = None) -> T:
        """Ask, and ask again after transient errors. A topic that seems to be gone is looked up first."""
        deadline = Deadline(self._runtime.monotonic, within_s or self.address.timeout_s)
        retry = Retry(self._runtime, deadline, pause_s=_PAUSE_S)
        self.last_errors.clear()
        while True:
            left_s = max(deadline.left(), _PAUSE_S)
            try:
                return ask(left_s)
            except TimeoutError as raised:
                raise ServerUnreachable(server=self.address.servers, reason="no answer in time") from raised
            except KafkaException as raised:
                error = error_of(raised)
                self._poll_errors()
                limit_s = _retry_for_s(error)
                if error.code() in GONE and topic is not None:
                    self.check_there(topic, left_s)
                    limit_s = None
                if self.last_errors.refused or not retry.again(limit_s=limit_s):
                    if error.code() in TRANSIENT:
                        self._renew_consumer()
                    raise self._error_for(error, topic) from raised

    def _renew_consumer(self) -> None:
        """Ask with a new client from now on: one that got no answer may go on asking a leader that is dead.

        The old one ends when the last thread that asks with it is done.
        """
        with self._lock:
            old = self._consumer
            if not self._closed:
                self._consumer = Consumer(self._set_up)
        del old  # not within the lock: its end may take a moment

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = Deadline(self._runtime.monotonic, self.address.timeout_s)
        retry = Retry(self._runtime, deadline, pause_s=_PAUSE_S / 5)
        while not is_so():
            if not retry.again():
                raise ServerUnreachable(server=self.address.servers, reason=f"it does not say that {what}")

    def _poll_errors(self) -> None:
        """Let the client report background errors; from one thread at a time."""
        if self._lock.acquire(blocking=False):
            try:
                self._consumer.poll(0)
            finally:
                self._lock.release()

    def _error_for(self, error: KafkaError, topic: str | None = None) -> Exception:
        """The error to raise; a background error says more than a time-out."""
        if error.code() in GONE and topic is not None:
            return ServerUnreachable(server=self.address.servers, reason=f"{error.str()} ({topic}, which is there)")
        told = self.last_errors.refused or (self.last_errors.down if error.code() in TRANSIENT else None) or error
        return translated(told, self.address.servers)


def _is_led(layout: Layout | None, seen: list[Layout]) -> bool:
    if layout is not None:
        seen.append(layout)
    return layout is not None and layout.has_leaders


def _retry_for_s(error: KafkaError) -> float | None:
    """How long to try again after an error; None: until the deadline."""
    if error.code() in TRANSIENT:
        return None
    return GONE_S if error.code() in GONE else 0.0


def _single(futures: Mapping[Any, Future[T]]) -> Future[T]:
    [future] = futures.values()
    return future


Settings = Mapping[str, Any]
ErrorCallback = Callable[[KafkaError], None]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OPTIONS = ("mechanism", "replication", "min_insync", "max_message_bytes", "layout", "compression")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGE_BYTES = 64 << 20
"""The largest message in topics that a bus creates, unless the URL says otherwise."""
MESSAGE_BYTES_MIN = 4096
_MESSAGE_BYTES_MAX = 1_000_000_000
READER_WAIT_MS, TAIL_WAIT_MS = 10, 50
"""How long a fetch waits at the broker for something new. It holds up whatever else goes over that connection."""
_QUEUED_KB = 16 << 10
_SOCKET_MS_MAX = 300_000
_GIVEN_UP_MS = 5_000
"""The sender gives up first, and all messages of a call at once. The client gives up one by one, the oldest first."""


def common_settings(address: Address, on_error: ErrorCallback) -> dict[str, Any]:
    """Settings of every client: servers, login, and bounds on every wait."""
    whole_ms = min(max(int(address.timeout_s * 1000), 10), _SOCKET_MS_MAX)
    return {
        "bootstrap.servers": address.servers,
        "client.id": "lockstep",
        "log_level": 0,  # librdkafka would write to standard error; what matters comes as errors
        "error_cb": on_error,
        "socket.timeout.ms": whole_ms,
        "socket.connection.setup.timeout.ms": max(whole_ms, 1000),
        "socket.nagle.disable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.propagation.max.ms": 1000,
        "receive.message.max.bytes": 1_500_000_000,
        "allow.auto.create.topics": False,  # a topic that was deleted must not come back by being asked for
        **_security(address),
    }


def producer_settings(address: Address, on_error: ErrorCallback) -> dict[str, Any]:
    """Settings of a producer: acknowledged messages are on every replica in sync, once and in order."""
    whole_ms = max(int(address.timeout_s * 1000), 10)
    return {
        **common_settings(address, on_error),
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": choice_option(address, "compression", COMPRESSIONS),
        "linger.ms": 0,
        "message.max.bytes": _MESSAGE_BYTES_MAX,  # the topic decides
        "message.timeout.ms": whole_ms + _GIVEN_UP_MS,
        "request.timeout.ms": whole_ms,
    }


def consumer_settings(address: Address, on_error: ErrorCallback, *, wait_ms: int, eof: bool) -> dict[str, Any]:
    """Settings of a consumer that reads assigned partitions, belongs to no group and commits nothing."""
    return {
        **common_settings(address, on_error),
        "group.id": f"{address.prefix}_lockstep",  # wanted by the client, used for nothing
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "enable.partition.eof": eof,
        "fetch.wait.max.ms": wait_ms,
        "fetch.error.backoff.ms": 50,
        "fetch.queue.backoff.ms": 5,
        "fetch.message.max.bytes": 4 << 20,
        "queued.max.messages.kbytes": _QUEUED_KB,
    }


def choice_option(address: Address, name: str, known: tuple[str, ...]) -> str:
    """An option that is one of some words, by default the first. Raises BadUrl for another word."""
    text = address.options.get(name, known[0])
    if text not in known:
        reason = f"its option {name} must be one of {', '.join(known)}, not {text!r}"
        raise BadUrl(url=address.safe_url, reason=reason)
    return text


def _security(address: Address) -> dict[str, Any]:
    named = address.user is not None
    protocol = ("SASL_" if named else "") + ("SSL" if address.tls else "PLAINTEXT")
    found: dict[str, Any] = {"security.protocol": protocol}
    mechanism = choice_option(address, "mechanism", MECHANISMS)
    if named:
        secret = address.password.reveal() if address.password else ""
        found |= {"sasl.mechanism": mechanism, "sasl.username": address.user, "sasl.password": secret}
    if address.tls:
        files = {"ca": address.tls.ca, "certificate": address.tls.cert, "key": address.tls.key}
        found |= {f"ssl.{name}.location": path for name, path in files.items() if path}
    return found
