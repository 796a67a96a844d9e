"""Opening a bus on Kafka.

    kafka://HOST:PORT,HOST:PORT?replication=3&min_insync=2&prefix=shop.

Options of its own: replication (copies of topics that are made), min_insync (copies before an acknowledgement),
max_message_bytes, layout (appends, or records: one plain message for each record), compression (of what is sent, by the
client), mechanism (of the login: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from confluent_kafka import KafkaException

from lockstep.errors import BadUrl
from lockstep.log.kafka import checks, settings
from lockstep.log.kafka.client import Cluster, Layout
from lockstep.log.kafka.driver import KafkaWire
from lockstep.log.kafka.errors import error_of
from lockstep.log.kafka.follower import Tail
from lockstep.log.kafka.names import CATALOGUE, place_of
from lockstep.log.kafka.reader import Readers
from lockstep.log.kafka.sender import Sender
from lockstep.log.kafka.topic import Link
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.bus import NetworkBus
from lockstep.log.network.checks import judge, of_login
from lockstep.log.port import DROPPED_BY_READERS, Promises
from lockstep.runtime import Runtime

PORT = 9092
LAYOUTS = ("appends", "records")
_REPLICAS_WANTED = 3


@dataclass(frozen=True, slots=True)
class Wish:
    """How topics are to be made."""

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
    """The bus on the servers at an address."""
    address = parse_address("kafka", target, options, environ=environ, default_port=PORT, known=settings.OPTIONS)
    _check(address)
    judge(of_login(address), strict=address.strict)
    with ExitStack() as undo:
        cluster = _cluster(address, runtime)
        undo.callback(cluster.close)
        topic = address.prefix + CATALOGUE
        brokers, found = cluster.connect(topic), cluster.layout(topic)
        wish = wish_of(address, found.replicas if found else brokers)  # brokers may be away just now
        found = found or cluster.create(topic, 1, wish.replication, wish.config)
        config = cluster.config(topic)
        judge(checks.of_copies(address.servers, topic, found, config), strict=address.strict)
        wire = KafkaWire(
            _link(cluster, address, runtime), promises(found, config), wish.config, wish.replication,
            settings.choice(address, "layout", LAYOUTS),
        )  # fmt: skip
        undo.pop_all()
    return NetworkBus(wire, runtime, patience_s=address.patience_s)


def wish_of(address: Address, brokers: int) -> Wish:
    """What the options of the address ask for, with what suits so many brokers (or copies) where they are silent."""
    replication = address.whole("replication", min(_REPLICAS_WANTED, brokers))
    min_insync = address.whole("min_insync", 2 if replication >= _REPLICAS_WANTED else 1)
    if not 1 <= min_insync <= replication:
        reason = f"its option min_insync must be from 1 to replication, which is {replication}, not {min_insync}"
        raise BadUrl(url=address.safe_url, reason=reason)
    message_bytes = address.whole("max_message_bytes", settings.MESSAGE_BYTES)
    if message_bytes < settings.MESSAGE_BYTES_MIN:
        reason = f"its option max_message_bytes must be at least {settings.MESSAGE_BYTES_MIN}"
        raise BadUrl(url=address.safe_url, reason=reason)
    return Wish(replication, min_insync, message_bytes)


def promises(layout: Layout, config: Mapping[str, str]) -> Promises:
    """What a cluster with such topics keeps."""
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


def _check(address: Address) -> None:
    """Refuse what can be refused without a server."""
    if address.path:
        raise BadUrl(url=address.safe_url, reason="it takes no path")
    if place_of(address.prefix, "x") is None:
        reason = f"its option prefix must be letters, digits, dots, dashes or underscores, not {address.prefix!r}"
        raise BadUrl(url=address.safe_url, reason=reason)
    settings.choice(address, "layout", LAYOUTS)
    settings.choice(address, "mechanism", settings.MECHANISMS)
    settings.choice(address, "compression", settings.COMPRESSIONS)
    wish_of(address, _REPLICAS_WANTED)


def _cluster(address: Address, runtime: Runtime) -> Cluster:
    try:
        return Cluster(address, runtime)
    except KafkaException as raised:  # before anything is sent: the client can't use what it was given
        reason = f"the client does not take its options: {error_of(raised).str()}"
        raise BadUrl(url=address.safe_url, reason=reason) from raised


def _link(cluster: Cluster, address: Address, runtime: Runtime) -> Link:
    notes, clock = cluster.notes, runtime.monotonic
    reading = settings.consumer(address, notes, wait_ms=settings.READER_WAIT_MS, eof=True)
    following = settings.consumer(address, notes, wait_ms=settings.TAIL_WAIT_MS, eof=False)
    return Link(
        url=address.safe_url,
        cluster=cluster,
        sender=Sender(settings.producer(address, notes), address.timeout_s, clock),
        readers=Readers(reading, clock),
        tail=Tail(following, cluster.ends, runtime),
        runtime=runtime,
    )
