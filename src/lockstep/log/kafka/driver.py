"""Kafka as a bus: streams are partitions, and the catalogue is a topic of its own.

    kafka://HOST:PORT,HOST:PORT?replication=3&min_insync=2&prefix=shop.

Options of its own: replication (copies of topics that are made), min_insync (copies before an acknowledgement),
max_message_bytes, layout (appends, or records: one plain message for each record), compression (of what is sent, by the
client), mechanism (of the login: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512).

An identity tells how a stream is written: plain hex digits: one message for each append; `records-`: one plain message
for each record; `foreign-`: a topic of somebody else, written and read like that too.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from confluent_kafka import KafkaException

from lockstep.errors import BadUrl, ServerRefused, ServerUnfit, StreamNotFound, UnsupportedByBackend
from lockstep.log.batch import peek
from lockstep.log.config import StreamConfig
from lockstep.log.kafka.client import (
    CATALOGUE,
    COMPRESSIONS,
    MECHANISMS,
    MESSAGE_BYTES,
    MESSAGE_BYTES_MIN,
    OPTIONS,
    READER_WAIT_MS,
    TAIL_WAIT_MS,
    Cluster,
    Layout,
    Partition,
    choice_option,
    consumer_settings,
    is_shard,
    partition_of,
    producer_settings,
)
from lockstep.log.kafka.errors import error_of
from lockstep.log.kafka.follower import Follower
from lockstep.log.kafka.reader import ReaderPool
from lockstep.log.kafka.sender import Sender
from lockstep.log.kafka.topic import Appends, EntryTopic, Format, KafkaClients, KafkaTopic, Records
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.bus import NetworkBus
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.driver import (
    Catalogue,
    Driver,
    Finding,
    Message,
    StreamEntry,
    Topic,
    TopicGone,
    login_findings,
    report_findings,
    unbundle,
)
from lockstep.log.port import DROPPED_BY_READERS, Promises
from lockstep.runtime import Runtime

PORT = 9092
LAYOUTS = ("appends", "records")
_REPLICAS_WANTED = 3


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of the topics that a bus creates."""

    replication: int
    min_insync: int
    message_bytes: int

    @property
    def config(self) -> dict[str, str]:
        """The settings of a new topic."""
        return {
            "max.message.bytes": str(self.message_bytes),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "cleanup.policy": "delete",
            "min.insync.replicas": str(self.min_insync),
            "unclean.leader.election.enable": "false",
        }


def open_bus(target: str, options: dict[str, str], runtime: Runtime, environ: Mapping[str, str]) -> NetworkBus:
    """Open a bus on Kafka. Raises BadUrl, ServerRefused, ServerUnfit or ServerUnreachable."""
    address = parse_address("kafka", target, options, environ=environ, default_port=PORT, known=OPTIONS)
    _check_address(address)
    report_findings(login_findings(address), strict=address.strict)
    with ExitStack() as undo:
        cluster = _cluster(address, runtime)
        undo.callback(cluster.close)
        topic = address.prefix + CATALOGUE
        brokers, found = cluster.connect(topic), cluster.layout(topic)
        settings = topic_settings(address, found.replicas if found else brokers)  # brokers may be away just now
        found = found or cluster.create(topic, 1, settings.replication, settings.config)
        config = cluster.config(topic)
        report_findings(copy_findings(address.servers, topic, found, config), strict=address.strict)
        driver = KafkaDriver(
            _connect(cluster, address, runtime), promises_of(found, config), settings.config, settings.replication,
            choice_option(address, "layout", LAYOUTS),
        )  # fmt: skip
        undo.pop_all()
    return NetworkBus(driver, runtime, patience_s=address.patience_s)


def topic_settings(address: Address, brokers: int) -> TopicSettings:
    """The settings that the options ask for, with defaults that suit this number of brokers or copies."""
    replication = address.whole("replication", min(_REPLICAS_WANTED, brokers))
    min_insync = address.whole("min_insync", 2 if replication >= _REPLICAS_WANTED else 1)
    if not 1 <= min_insync <= replication:
        reason = f"its option min_insync must be from 1 to replication, which is {replication}, not {min_insync}"
        raise BadUrl(url=address.safe_url, reason=reason)
    message_bytes = address.whole("max_message_bytes", MESSAGE_BYTES)
    if message_bytes < MESSAGE_BYTES_MIN:
        reason = f"its option max_message_bytes must be at least {MESSAGE_BYTES_MIN}"
        raise BadUrl(url=address.safe_url, reason=reason)
    return TopicSettings(replication, min_insync, message_bytes)


def promises_of(layout: Layout, config: Mapping[str, str]) -> Promises:
    """The promises of a bus on a cluster with this layout and configuration."""
    in_sync = min(int(config.get("min.insync.replicas", "1")), layout.replicas)
    if layout.replicas == 1:
        may_lose = (
            "what the broker has not yet written to its disk (seconds), if its machine fails; everything with its disk"
        )
    else:
        may_lose = (
            f"nothing while one of the brokers in sync lives; with min.insync.replicas={in_sync}, what they have not "
            f"yet written to disk (seconds), if {in_sync} machines fail at once"
        )
    return Promises(
        durability="relaxed",
        may_lose=may_lose,
        opened_by="network",
        retention=("capacity", "bytes", "age"),
        sync_replicas=in_sync - 1,
        async_replicas=layout.replicas - in_sync,
        notifies=True,
        copies=DROPPED_BY_READERS,
    )


def _check_address(address: Address) -> None:
    """Raise BadUrl for options that are wrong whatever the server says."""
    if address.path:
        raise BadUrl(url=address.safe_url, reason="it takes no path")
    if partition_of(address.prefix, "x") is None:
        reason = f"its option prefix must be letters, digits, dots, dashes or underscores, not {address.prefix!r}"
        raise BadUrl(url=address.safe_url, reason=reason)
    choice_option(address, "layout", LAYOUTS)
    choice_option(address, "mechanism", MECHANISMS)
    choice_option(address, "compression", COMPRESSIONS)
    topic_settings(address, _REPLICAS_WANTED)


def _cluster(address: Address, runtime: Runtime) -> Cluster:
    try:
        return Cluster(address, runtime)
    except KafkaException as raised:  # before anything is sent: the client can't use what it was given
        reason = f"the client does not take its options: {error_of(raised).str()}"
        raise BadUrl(url=address.safe_url, reason=reason) from raised


def _connect(cluster: Cluster, address: Address, runtime: Runtime) -> KafkaClients:
    last_errors, clock = cluster.last_errors, runtime.monotonic
    reading = consumer_settings(address, last_errors, wait_ms=READER_WAIT_MS, eof=True)
    following = consumer_settings(address, last_errors, wait_ms=TAIL_WAIT_MS, eof=False)
    return KafkaClients(
        url=address.safe_url,
        cluster=cluster,
        sender=Sender(producer_settings(address, last_errors), address.timeout_s, clock),
        readers=ReaderPool(reading, clock),
        follower=Follower(following, cluster.ends, runtime),
        runtime=runtime,
    )


RECORDS, FOREIGN = "records-", "foreign-"
CATALOGUE_IDENTITY = "catalogue"
_MESSAGE_BYTES_UNKNOWN = str(1 << 20)


class KafkaCatalogue(TopicCatalogue):
    """A catalogue that also records in a stream's identity how its records are written."""

    def __init__(self, topic: Topic, monotonic: Callable[[], float], *, as_records: bool) -> None:
        super().__init__(topic, monotonic)
        self._as_records = as_records

    def add(self, known: StreamEntry) -> StreamEntry:
        if self._as_records and not known.name.startswith("_"):  # what lockstep keeps for itself nobody else reads
            known = replace(known, identity=RECORDS + known.identity)
        return super().add(known)


class CatalogueTopic(KafkaTopic):
    """The topic of the catalogue. If it is gone, the bus can't be used."""

    __slots__ = ()

    def fetch(self, number: int, max_bytes: int) -> list[Message]:
        try:
            return super().fetch(number, max_bytes)
        except TopicGone as gone:
            raise self._lost() from gone

    def reread(self, number: int) -> Message | None:
        """The message with a number, or the next one, read from the server and not from what was fetched before."""
        try:
            return super().reread(number)
        except TopicGone as gone:
            raise self._lost() from gone

    def send(self, messages: Sequence[bytes]) -> list[int]:
        try:
            return super().send(messages)
        except TopicGone as gone:
            raise self._lost() from gone

    def _lost(self) -> ServerUnfit:
        reason, setting = (
            f"its topic {self.partition.topic} was deleted",
            "nothing: open the bus again to make a new one",
        )
        return ServerUnfit(server=self.clients.server, reason=reason, setting=setting)


class KafkaDriver(Driver):
    """A Kafka cluster whose partitions are the topics."""

    def __init__(
        self, clients: KafkaClients, promises: Promises, topics: Mapping[str, str], replicas: int, layout: str
    ) -> None:
        self.url, self.promises = clients.url, promises
        self._clients, self._topics, self._replicas = clients, topics, replicas
        self._prefix = clients.cluster.address.prefix
        self._message_bytes: dict[str, int] = {}
        self.catalogue: Catalogue = KafkaCatalogue(
            self._catalogue_topic(), clients.runtime.monotonic, as_records=layout == "records"
        )

    def make(self, known: StreamEntry) -> None:
        if known.identity.startswith(FOREIGN):
            return
        partition, wanted = self._partition(known.name), _partitions(known)
        if (found := self._clients.cluster.layout(partition.topic)) is None:
            try:
                found = self._clients.cluster.create(partition.topic, wanted, self._replicas, self._settings(known))
            except (ServerUnfit, ServerRefused):
                self.catalogue.remove(known)  # the server will never have it
                raise
        report_findings(partition_findings(self._clients.server, partition.topic, found.partitions, wanted))

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        """The topic keeps everything until it is told to drop it."""
        del config
        if known.identity.startswith(FOREIGN):
            raise UnsupportedByBackend(bus=self.url, feature=f"alter {known.name}, a topic that others made")

    def remove(self, known: StreamEntry) -> None:
        if known.identity.startswith(FOREIGN):
            raise UnsupportedByBackend(bus=self.url, feature=f"delete {known.name}, a topic that others made")
        partition = self._partition(known.name)
        self._message_bytes.pop(partition.topic, None)
        if not is_shard(known.name):
            self._clients.cluster.delete(partition.topic)
        elif self._clients.cluster.layout(partition.topic) is not None:
            self._clients.cluster.drop(partition)  # the topic goes with the stream itself

    def topic(self, known: StreamEntry) -> Topic:
        if known.config.shards > 1 and not is_shard(known.name):
            return EntryTopic(self.url, known.name)
        how: Format = Records() if known.identity.startswith((RECORDS, FOREIGN)) else Appends()
        partition = self._partition(known.name)
        limits = how.limits(partition.topic, self._largest(partition.topic))
        return KafkaTopic(self._clients, partition, known.name, known.identity, how, limits)

    def foreign(self, name: str) -> StreamEntry | None:
        partition = None if name.startswith("_") else partition_of(self._prefix, name)
        layout = self._clients.cluster.layout(partition.topic) if partition is not None else None
        if partition is None or layout is None or partition.number >= layout.partitions or self._is_ours(partition):
            return None
        if not is_shard(name) and layout.partitions > 1:
            reason = f"the topic {partition.topic} has {layout.partitions} partitions, and so no one order"
            setting = f"the name to that of one partition, for example {name}/0"
            raise ServerUnfit(server=self._clients.server, reason=reason, setting=setting)
        config = StreamConfig(capacity=None, max_record_bytes=max(self._largest(partition.topic), 1))
        return StreamEntry(
            name, f"{FOREIGN}{self._clients.cluster.topic_id(partition.topic)}-{partition.number}", config
        )

    def check(self, known: Sequence[StreamEntry]) -> list[Finding]:
        topic = self._prefix + CATALOGUE
        layout = self._clients.cluster.layout(topic)
        found = (
            copy_findings(self._clients.server, topic, layout, self._clients.cluster.config(topic)) if layout else []
        )
        return found + [finding for one in known for finding in self._check(one)]

    def commit_group(self, group: str, positions: Mapping[str, int]) -> None:
        """Store positions of streams as those of a Kafka consumer group, for Kafka's own tools."""
        numbers = {}
        for name, position in positions.items():
            with closing(self._open(name)) as topic:
                numbers[self._partition(name)] = message_number(topic, position, name)
        self._clients.cluster.commit(self._prefix + group, numbers)

    def close(self) -> None:
        self._clients.follower.close()
        self._clients.readers.close()
        self._clients.sender.close()
        self._clients.cluster.close()

    def _settings(self, known: StreamEntry) -> dict[str, str]:
        """The settings of a new topic; where only we read the messages, the broker stamps them with its own clock."""
        if known.identity.startswith(RECORDS):
            return dict(self._topics)
        return {**self._topics, TIMESTAMP_TYPE: LOG_APPEND_TIME}

    def _partition(self, name: str) -> Partition:
        partition = partition_of(self._prefix, name)
        if partition is None:
            raise UnsupportedByBackend(bus=self.url, feature=f"have a topic that is called {self._prefix + name!r}")
        return partition

    def _is_ours(self, partition: Partition) -> bool:
        """Whether a stream of the catalogue, or a shard of one, is in the topic: a shard may not be there yet."""
        return any(self._partition(known.name).topic == partition.topic for known in self.catalogue.all())

    def _catalogue_topic(self) -> CatalogueTopic:
        partition, how = Partition(self._prefix + CATALOGUE, 0), Appends()
        limits = how.limits(partition.topic, self._largest(partition.topic))
        return CatalogueTopic(self._clients, partition, CATALOGUE, CATALOGUE_IDENTITY, how, limits)

    def _largest(self, topic: str) -> int:
        """The largest message that a topic takes; asked once."""
        if topic not in self._message_bytes:
            text = self._clients.cluster.config(topic).get("max.message.bytes", _MESSAGE_BYTES_UNKNOWN)
            self._message_bytes[topic] = int(text)
        return self._message_bytes[topic]

    def _check(self, known: StreamEntry) -> list[Finding]:
        partition, server = self._partition(known.name), self._clients.server
        if known.config.shards > 1 and known.name != f"{known.name.partition('/')[0]}/0":
            return []  # once for all of its shards
        layout = self._clients.cluster.layout(partition.topic, is_expected=True)
        if layout is None:
            return [Finding(server, f"the topic {partition.topic} is missing", f"nothing: create {known.name} again")]
        config = self._clients.cluster.config(partition.topic)
        return [
            *partition_findings(server, partition.topic, layout.partitions, _partitions(known)),
            *(finding for finding in copy_findings(server, partition.topic, layout, config) if layout.brokers > 1),
            *retention_findings(server, partition.topic, config),
            *(timestamp_findings(server, partition.topic, config) if known.config.retain_age_s is not None else []),
        ]

    def _open(self, name: str) -> Topic:
        known = self.catalogue.find(name) or self.foreign(name)
        if known is None:
            raise StreamNotFound(name=name, bus=self.url)
        return self.topic(known)


def _partitions(known: StreamEntry) -> int:
    if known.config.shards > 1:
        return known.config.shards
    return int(known.name.rpartition("/")[2]) + 1 if is_shard(known.name) else 1


_REPLICAS, _IN_SYNC = 3, 2
_FOR_EVER = "-1"
TIMESTAMP_TYPE, LOG_APPEND_TIME = "message.timestamp.type", "LogAppendTime"


def copy_findings(server: str, topic: str, layout: Layout, config: Mapping[str, str]) -> list[Finding]:
    """Findings about how many brokers have a message before it is acknowledged."""
    found = []
    if layout.brokers == 1:
        problem = "there is one broker: what it had not yet written to disk is lost with its machine, all with its disk"
        found.append(Finding(server, problem, "the cluster: run three brokers"))
    elif layout.replicas < _REPLICAS:
        problem = f"the topic {topic} has {layout.replicas} replicas, where {_REPLICAS} are needed to lose one safely"
        found.append(Finding(server, problem, "the option replication, and reassign the partitions of the topic"))
    elif int(config.get("min.insync.replicas", "1")) < _IN_SYNC:
        problem = f"the topic {topic} acknowledges what one broker alone has"
        found.append(Finding(server, problem, f"min.insync.replicas of the topic {topic} to {_IN_SYNC}"))
    if config.get("unclean.leader.election.enable") == "true":
        problem = f"a broker that missed acknowledged messages may come to lead the topic {topic}"
        found.append(Finding(server, problem, f"unclean.leader.election.enable of the topic {topic} to false"))
    return found


def retention_findings(server: str, topic: str, config: Mapping[str, str]) -> list[Finding]:
    """Findings about settings by which the server deletes records that a stream still keeps."""
    found = []
    if "compact" in config.get("cleanup.policy", "delete"):
        problem = f"the topic {topic} is compacted: older messages of a key vanish"
        found.append(Finding(server, problem, f"cleanup.policy of the topic {topic} to delete"))
    for setting in ("retention.ms", "retention.bytes"):
        value = config.get(setting, _FOR_EVER)
        if value != _FOR_EVER:
            problem = f"the topic {topic} has {setting}={value}: it may delete what the stream still keeps"
            found.append(Finding(server, problem, f"{setting} of the topic {topic} to {_FOR_EVER}"))
    return found


def timestamp_findings(server: str, topic: str, config: Mapping[str, str]) -> list[Finding]:
    """A finding if age is measured by the clocks of writers and not by that of the broker."""
    if config.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME:
        return []
    problem = f"the topic {topic} keeps the times of its writers, so that a writer's clock decides what is too old"
    return [Finding(server, problem, f"{TIMESTAMP_TYPE} of the topic {topic} to {LOG_APPEND_TIME}")]


def partition_findings(server: str, topic: str, has: int, wanted: int) -> list[Finding]:
    """A finding if a topic has another number of partitions than its stream has shards."""
    if has == wanted:
        return []
    problem = f"the topic {topic} has {has} partitions, and the stream {wanted}: it would have no one order"
    return [Finding(server, problem, f"the topic: make it anew with {wanted} partitions", fatal=True)]


def message_number(topic: Topic, position: int, stream: str) -> int:
    """The number of the message that a reader at a position needs next; one that was read in part is still needed."""
    number, inside = divmod(position, topic.limits.stride)
    if not inside:
        return number
    for message in topic.fetch(number, 1):
        if message.number == number:
            last = unbundle(message.data, number * topic.limits.stride, stream)[-1]
            return number if position < last.base + peek(last.data)[0] else number + 1
    return number + 1
