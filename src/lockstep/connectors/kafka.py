"""Kafka as a source and a target of connectors: one fixed partition of one topic."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep.connectors.errors import ConnectorDown, SourceForgot
from lockstep.connectors.eventhubs import login
from lockstep.connectors.forms import OnBad, ReadForm, WriteForm, block_of
from lockstep.connectors.plan import Planned
from lockstep.connectors.port import NOTHING, Note, Pace, Piece
from lockstep.engine.events.columns import EventBatch, concat
from lockstep.engine.events.csv_reader import BadLine
from lockstep.engine.gates.port import needed
from lockstep.engine.model.checks import ANY_PARTITION
from lockstep.engine.runtime.sequence.reader import head_of
from lockstep.events.subscriber import Block

HEADER = "lockstep-block"
"""The header that carries the number of a block."""
TIMEOUT_S = 10.0
ANYWHERE = -1
"""A partition that the client chooses for each message."""
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^;"'])+""")
"""A setting; a value in quotes may have a semicolon in it."""
_MOST = 500
_POLL_S = 0.05
_BACK, _BACK_GROWS = 2, 8


@dataclass(frozen=True, slots=True)
class Place:
    """A partition, or all of a topic for a target that does not care, and how the client gets there."""

    connector: str
    servers: str
    topic: str
    partition: int
    client: Mapping[str, str]

    @classmethod
    def of(cls, planned: Planned) -> Place:
        """As the properties say; kafkaglobalconfig is handed to the client."""
        properties = planned.properties
        text = properties.text("kafkaglobalconfig")
        client = dict(login(properties))
        for part in filter(None, (part.strip() for part in _PART.findall(text))):
            name, sign, value = part.partition("=")
            if not sign:
                raise properties.refused(
                    reason="its kafkaglobalconfig is not KEY=VALUE;KEY=VALUE", remedy="Write it so."
                )
            client[name.strip()] = _unquoted(value.strip())
        servers = properties.text("kafkahostport").replace(" ", "")
        is_any = properties.text("kafkapartition") == ANY_PARTITION and not properties.publishes
        partition = ANYWHERE if is_any else properties.number("kafkapartition", 0)
        return cls(properties.connector, servers, planned.topic(), partition, client)

    def settings(self, **own: Any) -> dict[str, Any]:
        """Return the settings of a confluent-kafka client that logs nothing: each call raises its own errors."""
        quiet = {"log_level": 0, "error_cb": _silent, "topic.metadata.refresh.interval.ms": 5_000}
        return {"bootstrap.servers": self.servers, **quiet, **self.client, **own}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The client's errors in our words."""
        kafka = client()
        try:
            yield
        except kafka.KafkaException as error:
            raise self.down(error.args[0]) from error

    def down(self, error: Any) -> ConnectorDown:
        """An error of the client."""
        text = error.str() if hasattr(error, "str") else str(error)
        return ConnectorDown(connector=self.connector, server=f"Kafka {self.servers}", reason=f"{self.topic}: {text}")

    def ensure_topic(self) -> None:
        """Make the topic if it is missing."""
        admin_client = needed("confluent_kafka.admin", "kafka")
        admin = admin_client.AdminClient(self.settings())
        known = admin.list_topics(timeout=TIMEOUT_S)
        if self.topic not in known.topics:
            wish = admin_client.NewTopic(self.topic, max(self.partition, 0) + 1, min(3, len(known.brokers)))
            made = admin.create_topics([wish], operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)[self.topic]
            try:
                made.result(TIMEOUT_S)
            except client().KafkaException as error:
                if error.args[0].code() != client().KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        elif self.partition != ANYWHERE and self.partition not in known.topics[self.topic].partitions:
            reason = f"{self.topic} has no partition {self.partition}"
            raise ConnectorDown(connector=self.connector, server=f"Kafka {self.servers}", reason=reason)


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def partitions_of(place: Place) -> list[int]:
    """The partition of a place, or all that its topic has."""
    if place.partition != ANYWHERE:
        return [place.partition]
    admin = needed("confluent_kafka.admin", "kafka").AdminClient(place.settings())
    return sorted(admin.list_topics(place.topic, timeout=TIMEOUT_S).topics[place.topic].partitions)


def client() -> Any:
    """confluent_kafka, or an error that says what to install."""
    return needed("confluent_kafka", "kafka")


def _silent(_error: Any) -> None:
    """Drop the client's own error messages: each call raises its own errors."""


class KafkaSource:
    """A partition from an offset on. The number of a block is the offset of its message and one."""

    is_numbered = True

    def __init__(
        self, place: Place, form: ReadForm, pace: Pace, on_bad: OnBad, *, initial: str, keeps_ids: bool
    ) -> None:
        client()
        self._place, self._form, self._pace, self._on_bad = place, form, pace, on_bad
        self._initial, self._keeps_ids = initial, keeps_ids
        self._consumer: Any = None
        self._begun: Note | None = None

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Yield the blocks of the partition after block `after`; raises if the broker cannot be reached."""
        with self._place.errors():
            offset = self._open(after, note)
        return self._read(offset)

    def start(self) -> Note | None:
        """Return the offset at which a first read began, as "largest" means another one later; None on a resume."""
        return self._begun

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _open(self, after: int, note: Note | None) -> int:
        kafka, place = client(), self._place
        place.ensure_topic()
        consumer = self._consumer = kafka.Consumer(
            place.settings(**{
                "group.id": "lockstep-connector",  # demanded by the client, and not used
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": False,
            })
        )  # fmt: skip
        partition = kafka.TopicPartition(place.topic, place.partition)
        low, high = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
        offset = after or (note.at if note is not None else self._first(low, high))
        if offset < low:
            raise SourceForgot(connector=place.connector, source=place.topic, needed=offset, first=low)
        if not after and note is None:
            self._begun = Note(offset)
        consumer.assign([kafka.TopicPartition(place.topic, place.partition, offset)])
        return offset

    def _first(self, low: int, high: int) -> int:
        if self._initial in ("", "smallest", "earliest"):
            return low
        return high if self._initial in ("largest", "latest") else int(self._initial)

    def _read(self, offset: int) -> Iterator[Piece | None]:
        while True:
            self._pace.check()
            with self._place.errors():
                messages = self._consumer.consume(_MOST, _POLL_S)
            found = [self._checked(message, offset) for message in messages]
            if not found:
                yield None
            elif self._keeps_ids:
                yield from self._frames(found)
            else:
                yield from self._pieces(found)

    def _checked(self, message: Any, offset: int) -> Any:
        error = message.error()
        if error is None:
            return message
        if error.code() == client().KafkaError._AUTO_OFFSET_RESET:
            place = self._place
            raise SourceForgot(connector=place.connector, source=place.topic, needed=offset, first="a later offset")
        raise self._place.down(error)

    def _pieces(self, messages: Sequence[Any]) -> Iterator[Piece]:
        """Messages one after the other in one piece, as long as their offsets have no gap."""
        run: list[tuple[int, Any, bool]] = []
        for message in messages:
            number = message.offset() + 1
            batch, transactional = self._form.message(message.value() or b"", number, self._on_bad)
            if run and (number != run[-1][0] + 1 or transactional != run[-1][2]):
                yield _joined(run)
                run = []
            run.append((number, batch, transactional))
        yield _joined(run)

    def _frames(self, messages: Sequence[Any]) -> Iterator[Piece]:
        """Frames as they are, with the numbers of their own clients."""
        for message in messages:
            value = message.value() or b""
            head = head_of(value)
            if head is None or head.client is None:
                self._on_bad(BadLine(message.offset(), "FRAME", "it has no client, and so no number", ""))
                continue
            nothing = EventBatch.empty(self._form.schema)
            yield Piece(nothing, NOTHING, frame=value, at=message.offset() + 1, frame_events=head.events)


def _joined(run: Sequence[tuple[int, Any, bool]]) -> Piece:
    numbers = np.array([number for number, _, _ in run], np.int64)
    return Piece(concat([batch for _, batch, _ in run]), numbers, run[0][2])


class KafkaTarget:
    """A partition that one engine at a time writes to: the last one to open it fences the others.

    Blocks are sent in transactions, so what an engine sent before it stopped is there whole or not at all when the
    next one asks for the last block.
    """

    def __init__(self, place: Place, form: WriteForm, writer: str) -> None:
        client()
        self._place, self._form, self._writer = place, form, writer
        self._producer: Any = None

    def open(self, note: Note) -> int | None:
        """Create a missing topic and fence earlier writers; returns the topic's last block, or None if it is empty."""
        del note  # what is there tells
        place = self._place
        with place.errors():
            place.ensure_topic()
            self._producer = client().Producer(
                place.settings(**{
                    "acks": "all",
                    "enable.idempotence": True,
                    "transactional.id": self._writer,
                    "transaction.timeout.ms": int(TIMEOUT_S * 1000),
                    "message.max.bytes": 64 << 20,
                    "linger.ms": 5,
                })
            )  # fmt: skip
            self._producer.init_transactions(TIMEOUT_S)
            return last_block(place)

    def send(self, blocks: Sequence[Block]) -> None:
        """Send blocks in one transaction; raises if the broker refuses it or a newer writer has fenced this one."""
        place, producer = self._place, self._producer
        with place.errors():
            producer.begin_transaction()
            for block in blocks:
                headers = [(HEADER, str(block.number).encode())]
                producer.produce(place.topic, self._form.message(block), partition=place.partition, headers=headers)
                producer.poll(0)
            producer.commit_transaction(TIMEOUT_S)

    def mark(self) -> Mapping[str, Any]:
        """Return nothing: the topic itself holds the number of its last block."""
        return {}

    def idle(self) -> None:
        """Let the client handle its events."""
        self._producer.poll(0)

    def close(self) -> None:
        """Close the producer; a transaction left open is aborted when the next writer opens the target."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(client().KafkaException):  # one that was shut out says so again, and has nothing to finish
                producer.purge()
                producer.flush(0)


def last_block(place: Place) -> int | None:
    """The number of the last block that is there; None if there is none. All of a block is there, or nothing of it."""
    found = (_last_in(replace(place, partition=partition)) for partition in partitions_of(place))
    return max((number for number in found if number is not None), default=None)


def _last_in(place: Place) -> int | None:
    kafka = client()
    consumer = kafka.Consumer(
        place.settings(**{
            "group.id": "lockstep-connector",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        })
    )  # fmt: skip
    try:
        partition = kafka.TopicPartition(place.topic, place.partition)
        low, high = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_S)
        back = _BACK  # after the last message comes the marker of its transaction
        while high > low:
            start = max(low, high - back)
            consumer.assign([kafka.TopicPartition(place.topic, place.partition, start)])
            found = _last_of(consumer, place)
            if found is not None or start == low:
                return found
            back *= _BACK_GROWS
        return None
    finally:
        consumer.close()


def _last_of(consumer: Any, place: Place) -> int | None:
    """Return the last block between the consumer's position and the end."""
    kafka, found = client(), None
    while True:
        messages = consumer.consume(_MOST, TIMEOUT_S)
        if not messages:
            raise ConnectorDown(connector=place.connector, server=f"Kafka {place.servers}", reason="it does not answer")
        for message in messages:
            if message.error() is None:
                found = _number(message) or found
            elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                return found
            else:
                raise place.down(message.error())


def _number(message: Any) -> int | None:
    for name, value in message.headers() or ():
        if name == HEADER and value.isdigit():
            return int(value)
    return block_of(message.value() or b"")
