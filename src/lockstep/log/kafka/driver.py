"""Kafka as a wire: streams are partitions, and the catalogue is a topic of its own.

An identity tells how a stream is written: plain hex digits: one message for each append; `records-`: one plain message
for each record; `foreign-`: a topic of somebody else, written and read like that too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from lockstep.errors import ServerRefused, ServerUnfit, StreamNotFound, UnsupportedByBackend
from lockstep.log.config import StreamConfig
from lockstep.log.kafka import checks, groups
from lockstep.log.kafka.names import CATALOGUE, Place, is_shard, place_of, stream_of
from lockstep.log.kafka.topic import Appends, EntryTopic, Format, KafkaTopic, Link, Records
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.checks import Finding, judge
from lockstep.log.network.driver import Catalogue, Known, Message, Topic, TopicGone
from lockstep.log.port import Promises

RECORDS, FOREIGN = "records-", "foreign-"
CATALOGUE_IDENTITY = "catalogue"
_MESSAGE_BYTES_UNKNOWN = str(1 << 20)


class KafkaCatalogue(TopicCatalogue):
    """See Catalogue. Remembers in the identity of a stream how its records are written."""

    def __init__(self, topic: Topic, monotonic: Callable[[], float], *, as_records: bool) -> None:
        super().__init__(topic, monotonic)
        self._as_records = as_records

    def add(self, known: Known) -> Known:
        """See Catalogue."""
        if self._as_records and not known.name.startswith("_"):  # what lockstep keeps for itself nobody else reads
            known = replace(known, identity=RECORDS + known.identity)
        return super().add(known)


class CatalogueTopic(KafkaTopic):
    """The topic of the catalogue; without it there is no bus."""

    __slots__ = ()

    def fetch(self, number: int, max_bytes: int) -> list[Message]:
        """See Topic."""
        try:
            return super().fetch(number, max_bytes)
        except TopicGone as gone:
            raise self._lost() from gone

    def reread(self, number: int) -> Message | None:
        """The message with a number, or the next one, from the server, whatever was fetched before."""
        try:
            return super().reread(number)
        except TopicGone as gone:
            raise self._lost() from gone

    def send(self, messages: Sequence[bytes]) -> list[int]:
        """See Topic."""
        try:
            return super().send(messages)
        except TopicGone as gone:
            raise self._lost() from gone

    def _lost(self) -> ServerUnfit:
        reason, setting = f"its topic {self.place.topic} was deleted", "nothing: open the bus again to make a new one"
        return ServerUnfit(server=self.link.server, reason=reason, setting=setting)


class KafkaWire:
    """See Wire."""

    def __init__(self, link: Link, promises: Promises, topics: Mapping[str, str], replicas: int, layout: str) -> None:
        self.url, self.promises = link.url, promises
        self._link, self._topics, self._replicas = link, topics, replicas
        self._prefix = link.cluster.address.prefix
        self._message_bytes: dict[str, int] = {}
        self.catalogue: Catalogue = KafkaCatalogue(
            self._catalogue_topic(), link.runtime.monotonic, as_records=layout == "records"
        )

    def make(self, known: Known) -> None:
        """See Wire."""
        if known.identity.startswith(FOREIGN):
            return
        place, wanted = self._place(known.name), _partitions(known)
        if (found := self._link.cluster.layout(place.topic)) is None:
            try:
                found = self._link.cluster.create(place.topic, wanted, self._replicas, self._settings(known))
            except (ServerUnfit, ServerRefused):
                self.catalogue.remove(known)  # the server will never have it
                raise
        judge(checks.of_partitions(self._link.server, place.topic, found.partitions, wanted))

    def alter(self, known: Known, config: StreamConfig) -> None:
        """See Wire: the topic keeps everything until it is told to drop it."""
        del config
        if known.identity.startswith(FOREIGN):
            raise UnsupportedByBackend(bus=self.url, feature=f"alter {known.name}, a topic that others made")

    def remove(self, known: Known) -> None:
        """See Wire."""
        if known.identity.startswith(FOREIGN):
            raise UnsupportedByBackend(bus=self.url, feature=f"delete {known.name}, a topic that others made")
        place = self._place(known.name)
        self._message_bytes.pop(place.topic, None)
        if not is_shard(known.name):
            self._link.cluster.delete(place.topic)
        elif self._link.cluster.layout(place.topic) is not None:
            self._link.cluster.drop(place)  # the topic goes with the stream itself

    def topic(self, known: Known) -> Topic:
        """See Wire."""
        if known.config.shards > 1 and not is_shard(known.name):
            return EntryTopic(self.url, known.name)
        how: Format = Records() if known.identity.startswith((RECORDS, FOREIGN)) else Appends()
        place = self._place(known.name)
        limits = how.limits(place.topic, self._largest(place.topic))
        return KafkaTopic(self._link, place, known.name, known.identity, how, limits)

    def foreign(self, name: str) -> Known | None:
        """See Wire."""
        place = None if name.startswith("_") else place_of(self._prefix, name)
        layout = self._link.cluster.layout(place.topic) if place is not None else None
        if place is None or layout is None or place.partition >= layout.partitions or self._is_ours(place):
            return None
        if not is_shard(name) and layout.partitions > 1:
            reason = f"the topic {place.topic} has {layout.partitions} partitions, and so no one order"
            setting = f"the name to that of one partition, for example {name}/0"
            raise ServerUnfit(server=self._link.server, reason=reason, setting=setting)
        config = StreamConfig(capacity=None, max_record_bytes=max(self._largest(place.topic), 1))
        return Known(name, f"{FOREIGN}{self._link.cluster.topic_id(place.topic)}-{place.partition}", config)

    def check(self, known: Sequence[Known]) -> list[Finding]:
        """See Wire."""
        topic = self._prefix + CATALOGUE
        layout = self._link.cluster.layout(topic)
        found = checks.of_copies(self._link.server, topic, layout, self._link.cluster.config(topic)) if layout else []
        return found + [finding for one in known for finding in self._check(one)]

    def commit_group(self, group: str, positions: Mapping[str, int]) -> None:
        """Store positions of streams as those of a consumer group of Kafka, for its own tools to see."""
        numbers = {}
        for name, position in positions.items():
            with closing(self._open(name)) as topic:
                numbers[self._place(name)] = groups.number_of(topic, position, name)
        self._link.cluster.commit(self._prefix + group, numbers)

    def group_positions(self, group: str) -> Mapping[str, int]:
        """The positions that a consumer group of Kafka has stored, as offsets of streams."""
        positions = {}
        for place, number in self._link.cluster.committed(self._prefix + group).items():
            layout = self._link.cluster.layout(place.topic)
            name = stream_of(self._prefix, place, layout.partitions) if layout is not None else None
            if name is not None:
                positions[name] = groups.position_of(self._open(name), number)
        return positions

    def close(self) -> None:
        """See Wire."""
        self._link.tail.close()
        self._link.readers.close()
        self._link.sender.close()
        self._link.cluster.close()

    def _settings(self, known: Known) -> dict[str, str]:
        """The settings of a new topic; where only we read the messages, the broker stamps them with its own clock."""
        if known.identity.startswith(RECORDS):
            return dict(self._topics)
        return {**self._topics, checks.STAMPED_BY: checks.BROKER}

    def _place(self, name: str) -> Place:
        place = place_of(self._prefix, name)
        if place is None:
            raise UnsupportedByBackend(bus=self.url, feature=f"have a topic that is called {self._prefix + name!r}")
        return place

    def _is_ours(self, place: Place) -> bool:
        """Whether a stream of the catalogue, or a shard of one, is in the topic: a shard may not be there yet."""
        return any(self._place(known.name).topic == place.topic for known in self.catalogue.all())

    def _catalogue_topic(self) -> CatalogueTopic:
        place, how = Place(self._prefix + CATALOGUE, 0), Appends()
        limits = how.limits(place.topic, self._largest(place.topic))
        return CatalogueTopic(self._link, place, CATALOGUE, CATALOGUE_IDENTITY, how, limits)

    def _largest(self, topic: str) -> int:
        """How large a message of a topic may be; asked once."""
        if topic not in self._message_bytes:
            text = self._link.cluster.config(topic).get("max.message.bytes", _MESSAGE_BYTES_UNKNOWN)
            self._message_bytes[topic] = int(text)
        return self._message_bytes[topic]

    def _check(self, known: Known) -> list[Finding]:
        place, server = self._place(known.name), self._link.server
        if known.config.shards > 1 and known.name != f"{known.name.partition('/')[0]}/0":
            return []  # once for all of its shards
        layout = self._link.cluster.layout(place.topic)
        if layout is None:
            return [Finding(server, f"the topic {place.topic} is missing", f"nothing: create {known.name} again")]
        config = self._link.cluster.config(place.topic)
        return [
            *checks.of_partitions(server, place.topic, layout.partitions, _partitions(known)),
            *(finding for finding in checks.of_copies(server, place.topic, layout, config) if layout.brokers > 1),
            *checks.of_keeping(server, place.topic, config),
            *(checks.of_stamps(server, place.topic, config) if known.config.retain_age_s is not None else []),
        ]

    def _open(self, name: str) -> Topic:
        known = self.catalogue.find(name) or self.foreign(name)
        if known is None:
            raise StreamNotFound(name=name, bus=self.url)
        return self.topic(known)


def _partitions(known: Known) -> int:
    if known.config.shards > 1:
        return known.config.shards
    return int(known.name.rpartition("/")[2]) + 1 if is_shard(known.name) else 1
