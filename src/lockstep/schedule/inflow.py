"""Inflow from Kafka: each record of some topics is a request for an event, as /events/schedule takes it.

Offsets are committed after the requests are stored in the scheduler's stream, never before, so that no record is lost.
A process that dies in between has its last records read again. On a bus with transactions they are recognized and
passed by; `inflow_progress` says how. On other buses they are stored again: in their order they end in the same events,
but an event that fired and was removed meanwhile fires again.

A record that is not a valid request, or that the scheduler's stream can't take, is stored in the stream NAME.inflow.dlq
with the reason, and delays no other.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from lockstep.core.agenda import Remove, Upsert
from lockstep.errors import AppendTooLarge, BadArgument, BadConfig, ExtraMissing, TimedOut, Unavailable
from lockstep.log.batch import NO_PRODUCER, Batch, Headers, pack
from lockstep.log.port import Bus, Transaction
from lockstep.runtime import logger
from lockstep.schedule.client import SchedulerClient
from lockstep.schedule.delivery.port import redact, secret_texts
from lockstep.schedule.validation import NewId, Rejection, checked_event

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
except ModuleNotFoundError as missing:
    raise ExtraMissing(extra="kafka", package="confluent_kafka") from missing

GROUP = "bigben-inbound"
RECORDS_MAX = 1000
"""Records that are taken at once."""
POLL_S, RETRY_S, CLOSE_S = 0.5, 0.5, 30.0
TOLD_S = 60.0
"""An error of Kafka that lasts is logged so often."""
KEPT_BYTES = 10_000
"""What is kept of a record that is too large for the dead-letter stream."""
REASON_HEADER, TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER, SIZE_HEADER = (
    "Lockstep-Reason", "Lockstep-Topic", "Lockstep-Partition", "Lockstep-Offset", "Lockstep-Size",
)  # fmt: skip
NOT_AN_OBJECT = "the record is not a JSON object"
Decided = tuple[Message, Upsert | Remove | Rejection]
_OWN = frozenset({
    "bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store", "error_cb", "log_level",
})  # fmt: skip
_MOVED = frozenset({
    KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._STATE,
    KafkaError._ASSIGNMENT_LOST, KafkaError._NO_OFFSET, KafkaError.FENCED_INSTANCE_ID,
})  # fmt: skip
"""A commit that fails so: the partitions have another consumer by now, which reads the records again."""


@dataclass(slots=True)
class InflowCounts:
    """What an inflow has done."""

    taken: int = 0
    rejected: int = 0
    """Records that are in the dead-letter stream."""


class KafkaInflow:
    """Runs so many consumers of one group until it is closed. `error` is why one of them ended, if one did."""

    def __init__(
        self,
        client: SchedulerClient,
        topics: Sequence[str],
        bootstrap_servers: str,
        group: str = GROUP,
        *,
        consumers: int = 1,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        wrong = sorted(_OWN & (settings or {}).keys())
        if wrong:
            raise BadArgument(name="settings", value=wrong[0], reason="this one is set by the inflow")
        if not topics or consumers < 1:
            raise BadArgument(name="topics", value=list(topics), reason="give at least one topic and one consumer")
        self._client, self._topics = client, list(topics)
        self._settings = {
            "auto.offset.reset": "earliest", "client.id": "lockstep-inflow", **(settings or {}),
            "bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False,
            "enable.auto.offset.store": False, "error_cb": self._note, "log_level": 0,
        }  # fmt: skip
        self.counts = InflowCounts()
        self._counting = threading.Lock()
        self._told: dict[str, float] = {}
        self._check_settings()
        self.dead_letters = f"{client.streams.name}.inflow.dlq"
        if self.dead_letters not in client.bus.bus.names():
            client.bus.create(self.dead_letters)
        self._dead_letters = client.bus.logs(self.dead_letters)[0]
        self.error: BaseException | None = None
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"lockstep-inflow-{number}", daemon=True)
            for number in range(consumers)
        ]
        for thread in self._threads:
            thread.start()

    def _check_settings(self) -> None:
        """Raise BadConfig for settings that Kafka's client does not take; it does not connect for that."""
        try:
            Consumer(self._settings).close()
        except KafkaException as error:
            reason = redact(error.args[0].str(), secret_texts(self._settings))
            raise BadConfig(field="kafka.consumers", value=", ".join(self._topics), reason=reason) from None

    def close(self, timeout: float = CLOSE_S) -> None:
        """Store and commit what was read, and leave the group; TimedOut if that takes longer."""
        self._stopping.set()
        clock = self._client.bus.runtime.monotonic
        deadline = clock() + timeout
        for thread in self._threads:
            thread.join(max(deadline - clock(), 0.0))
        if any(thread.is_alive() for thread in self._threads):
            raise TimedOut(what="Stopping the inflow", seconds=timeout)

    def _run(self) -> None:
        """Consume until stopped; a broker that fails for good is left, and another consumer begins."""
        try:
            while not self._stopping.is_set():
                try:
                    self._consume()
                except (KafkaException, PartitionMoved) as error:
                    logger.warning(
                        "The inflow lost its consumer, and begins another: %s", error,
                        extra={"action": "inflow_retry", "reason": str(error)},
                    )  # fmt: skip
                    self._stopping.wait(RETRY_S)
        except BaseException as error:  # the owner gets the error, and the thread ends
            self.error = error
            logger.error("The inflow ended", exc_info=error, extra={"action": "inflow_ended"})
            if not isinstance(error, Exception):
                raise

    def _consume(self) -> None:
        consumer = Consumer(self._settings)
        progress = Progress(self._client.bus.bus, self._client.streams.name, self._settings["group.id"])

        def came(_: Any, places: Sequence[TopicPartition]) -> None:
            with suppress(Unavailable):  # then what another consumer stores in between is not noticed
                progress.begin([(place.topic, place.partition) for place in places])

        def left(_: Any, places: Sequence[TopicPartition]) -> None:
            progress.forget([(place.topic, place.partition) for place in places])

        try:
            consumer.subscribe(self._topics, on_assign=came, on_revoke=left, on_lost=left)
            while not self._stopping.is_set():
                records = self._read(consumer)
                if records and self._store(consumer, progress, records):
                    progress.stored(records)
                if progress.to_commit:
                    self._commit(consumer, progress)
        finally:
            consumer.close()

    def _store(self, consumer: Any, progress: Progress, records: Sequence[Message]) -> bool:
        """Store what records ask for, however long the bus is away; False if it is time to stop before that."""
        paused: list[TopicPartition] = []
        try:
            while True:
                try:
                    self._take(progress, records)
                except Unavailable as error:
                    logger.warning(
                        "The inflow could not store requests, and tries again: %s", error,
                        extra={"action": "inflow_retry", "reason": str(error)},
                    )  # fmt: skip
                else:
                    return True
                if self._stopping.is_set():
                    return False
                paused = consumer.assignment()
                consumer.pause(paused)  # without more records, polling keeps the consumer in its group
                _put_back(consumer, consumer.poll(RETRY_S))
        finally:
            if paused:
                consumer.resume([one for one in paused if one in consumer.assignment()])

    def _take(self, progress: Progress, records: Sequence[Message]) -> None:
        """Store what records ask for; those that the bus can't take together one after the other."""
        try:
            self._take_together(progress, records)
        except AppendTooLarge as error:
            if len(records) == 1:
                self._take_together(progress, records, too_large=Rejection(str(error)))
                return
            middle = len(records) // 2
            self._take(progress, records[:middle])
            self._take(progress, records[middle:])

    def _take_together(
        self, progress: Progress, records: Sequence[Message], too_large: Rejection | None = None
    ) -> None:
        known, new_id = self._client.tenants().__contains__, self._client.bus.runtime.new_id
        decided = [(record, too_large or _decided(record, known, new_id)) for record in records]
        if self._client.bus.promises.atomic:
            fresh = progress.atomic(records, lambda new, changes: self._write(_only(decided, new), too_large, changes))
        else:
            fresh = list(records)
            self._write(decided, too_large)
        rejected = sum(isinstance(made, Rejection) for _, made in _only(decided, fresh))
        with self._counting:
            self.counts.taken += len(fresh) - rejected
            self.counts.rejected += rejected

    def _write(
        self, decided: Sequence[Decided], too_large: Rejection | None, changes: Transaction | None = None
    ) -> None:
        """Store requests, and records that make none with the reasons; of one that is too large only the beginning."""
        asked = [made for _, made in decided if not isinstance(made, Rejection)]
        rejected = [(record, made.message) for record, made in decided if isinstance(made, Rejection)]
        if asked:
            self._client.send(asked, changes)
        if not rejected:
            return
        batch = self._packed(rejected, None if too_large is None else KEPT_BYTES)
        if changes is None:
            self._dead_letters.append([batch])
        else:
            changes.append(self._dead_letters.name, [batch])

    def _packed(self, rejected: Sequence[tuple[Message, str]], most: int | None) -> Batch:
        values = [(record.value() or b"")[:most] for record, _ in rejected]
        keys = [None if (key := record.key()) is None else key[:most] for record, _ in rejected]
        headers = [_headers(record, reason) for record, reason in rejected]
        wall = self._client.bus.runtime.wall_ns()
        return pack(values, producer=NO_PRODUCER, sequence=0, created_ns=wall, keys=keys, headers=headers)

    def _read(self, consumer: Any) -> list[Message]:
        found: list[Message] = []
        for message in consumer.consume(RECORDS_MAX, POLL_S):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.fatal():
                raise KafkaException(error)
            elif error.code() != KafkaError._PARTITION_EOF:
                self._note(error)
        return found

    def _commit(self, consumer: Any, progress: Progress) -> None:
        """Commit offsets and forget them; those that the broker does not take now are tried again later."""
        for place, offset in list(progress.to_commit.items()):
            # one by one: a partition that moved does not keep the others from being committed
            try:
                consumer.commit(offsets=[TopicPartition(*place, offset)], asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in _MOVED:
                    self._note(error.args[0])
                    return
                logger.info("Partition %s of %s has another consumer by now", place[1], place[0],
                            extra={"action": "inflow_moved"})  # fmt: skip
            progress.committed(place)

    def _note(self, error: KafkaError) -> None:
        """Log an error that Kafka's client reported; it reports a lasting one again and again."""
        now = self._client.bus.runtime.monotonic()
        with self._counting:
            if now - self._told.get(error.name(), -TOLD_S) < TOLD_S:
                return
            self._told[error.name()] = now
        logger.warning("Kafka told the inflow: %s", error, extra={"action": "inflow_error", "reason": str(error)})


def _put_back(consumer: Any, record: Message | None) -> None:
    """Have a record read again later: it is of a partition that came while the others were paused."""
    if record is not None and record.error() is None:
        consumer.seek(TopicPartition(*place_of(record), record.offset() or 0))


def _decided(record: Message, known: Callable[[str], bool], new_id: NewId) -> Upsert | Remove | Rejection:
    fields = _fields(record)
    return fields if isinstance(fields, Rejection) else checked_event(fields, known, new_id)


def _only(decided: Sequence[Decided], records: Sequence[Message]) -> list[Decided]:
    wanted = set(map(id, records))
    return [one for one in decided if id(one[0]) in wanted]


def _fields(record: Message) -> dict[str, Any] | Rejection:
    """The JSON object of a record."""
    try:
        tree = json.loads((record.value() or b"").decode())
    except (ValueError, RecursionError):
        return Rejection(NOT_AN_OBJECT)
    return tree if isinstance(tree, dict) else Rejection(NOT_AN_OBJECT)


def _headers(record: Message, reason: str) -> Headers:
    named = {
        REASON_HEADER: reason, TOPIC_HEADER: record.topic(), PARTITION_HEADER: record.partition(),
        OFFSET_HEADER: record.offset(), SIZE_HEADER: len(record.value() or b""),
    }  # fmt: skip
    return tuple((name, str(value).encode(errors="replace")) for name, value in named.items())


Place = tuple[str, int]
"""A topic and the number of a partition."""
Mark = tuple[int, str]
"""The offset and the digest of a record."""


class PartitionMoved(Exception):
    """Another consumer has stored records of a partition since this one got it."""


@dataclass(slots=True)
class Progress:
    """What one consumer knows of its partitions."""

    bus: Bus
    scheduler: str
    group: str
    to_commit: dict[Place, int] = field(default_factory=dict)
    """Offsets after what is stored."""
    _seen: dict[Place, bytes | None] = field(default_factory=dict)
    """The cells as this consumer read them when it got the partitions, or wrote them since."""
    _first: dict[Place, Mark] = field(default_factory=dict)
    """The first record that may not be committed yet."""
    _known_to: dict[Place, int] = field(default_factory=dict)
    """Records before this offset were stored before a crash."""

    def begin(self, places: Iterable[Place]) -> None:
        """Partitions came to this consumer."""
        if self.bus.promises.atomic:
            keys = {place: self._key(place) for place in places}
            self._seen |= self.bus.atomic(lambda changes: {place: changes.get(key) for place, key in keys.items()})

    def forget(self, places: Iterable[Place]) -> None:
        """Partitions have another consumer from now on, which commits what it stores."""
        for place in places:
            for kept in (self.to_commit, self._seen, self._first, self._known_to):
                kept.pop(place, None)

    def stored(self, records: Iterable[Any]) -> None:
        """Records are stored; those before the end of an earlier crash are committed together, when all were read."""
        for record in records:
            place, after = place_of(record), record.offset() + 1
            if after >= self._known_to.get(place, 0):
                self.to_commit[place] = after

    def committed(self, place: Place) -> None:
        """What was to be committed of a partition is, or is not this consumer's any more."""
        del self.to_commit[place]
        self._first.pop(place, None)
        self._known_to.pop(place, None)

    def atomic(self, records: Sequence[Any], write: Callable[[Sequence[Any], Transaction], None]) -> list[Any]:
        """Have records written that were not stored before, in one transaction with the cells; return them."""
        by_place: dict[Place, list[Any]] = {}
        for record in records:
            by_place.setdefault(place_of(record), []).append(record)

        def work(changes: Transaction) -> tuple[list[Any], dict[Place, tuple[Mark, int, bytes | None]]]:
            fresh: list[Any] = []
            after: dict[Place, tuple[Mark, int, bytes | None]] = {}
            for place, read in by_place.items():
                first, known_to, cell = self._look(changes, place, read[0])
                new = [record for record in read if record.offset() >= known_to]
                if new:
                    cell = json.dumps([*first, new[-1].offset() + 1]).encode()
                    changes.put(self._key(place), cell)
                fresh += new
                after[place] = (first, known_to, cell)
            if fresh:
                write(fresh, changes)
            return fresh, after

        fresh, after = self.bus.atomic(work)
        for place, (first, known_to, cell) in after.items():
            self._first[place], self._known_to[place], self._seen[place] = first, known_to, cell
        return fresh

    def _look(self, changes: Transaction, place: Place, record: Any) -> tuple[Mark, int, bytes | None]:
        """The first record that may not be committed, up to where records were stored before, and the cell."""
        cell = changes.get(self._key(place))
        if place in self._seen and self._seen[place] != cell:
            reason = f"partition {place[1]} of {place[0]} has another consumer by now"
            raise PartitionMoved(reason)
        if place in self._first:
            return self._first[place], self._known_to.get(place, 0), cell
        mark = (record.offset(), _digest(record))
        if cell is None:
            return mark, 0, None
        *first, end = json.loads(cell)
        return mark, end if tuple(first) == mark else 0, cell

    def _key(self, place: Place) -> bytes:
        named = json.dumps([self.scheduler, self.group, *place]).encode()
        return b"inflow\0" + blake2b(named, digest_size=16).digest()


def place_of(record: Any) -> Place:
    """Where a record of Kafka is from."""
    return record.topic(), record.partition()


def _digest(record: Any) -> str:
    parts = json.dumps([record.timestamp()[1], len(record.key() or b"")]).encode()
    return blake2b(parts + (record.key() or b"") + (record.value() or b""), digest_size=16).hexdigest()
