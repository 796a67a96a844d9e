"""A Hazelcast cluster as a bus: streams are rings, and the catalogue is a map.

    hazelcast://HOST:PORT,HOST:PORT/CLUSTER?backups=1

Stream `orders` with the prefix `app.` is the ring `app.orders@<identity>`. The part before the @ is the name under
which the members look up their settings, so `app.orders` in their configuration means this stream; the part after it
chooses the partition, and makes a stream that is made anew another ring.

"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence

from lockstep.errors import BadUrl
from lockstep.log.config import StreamConfig
from lockstep.log.hazelcast.catalogue import MapCatalogue
from lockstep.log.hazelcast.client import ClusterClient
from lockstep.log.hazelcast.handshake import find_member
from lockstep.log.hazelcast.ring import Ring
from lockstep.log.hazelcast.topic import RingTopic, slack
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.bus import NetworkBus
from lockstep.log.network.driver import Catalogue, Driver, Finding, StreamEntry, login_findings, report_findings
from lockstep.log.port import DROPPED_BY_READERS, Bus, Promises
from lockstep.runtime import Runtime

PORT = 5701
CLUSTER = "dev"
OPTIONS = ("backups", "append_bytes")
APPEND_BYTES = 32 << 20
"""The default largest append; the cluster sets no limit but the memory of its members."""


def open_bus(target: str, options: dict[str, str], runtime: Runtime, environ: Mapping[str, str]) -> Bus:
    """Open a bus on Hazelcast. Raises BadUrl, ServerRefused, ServerUnfit or ServerUnreachable."""
    address = parse_address("hazelcast", target, options, environ=environ, default_port=PORT, known=OPTIONS)
    prefix = check_prefix(address.prefix, address.safe_url)
    report_findings(login_findings(address), strict=address.strict)
    backups, append_bytes = _backups(address), address.whole("append_bytes", APPEND_BYTES)
    cluster = address.path or CLUSTER
    member = find_member(address, cluster, runtime.new_id(), runtime.monotonic)
    client = ClusterClient(address, cluster, runtime, member.host)
    try:
        report_findings(cluster_findings(client.server, len(client.members), backups), strict=address.strict)
        driver = HazelcastDriver(client, prefix=prefix, backups=backups, append_bytes=append_bytes)
    except BaseException:
        client.close()
        raise
    return NetworkBus(driver, runtime, patience_s=address.patience_s)


def _backups(address: Address) -> int:
    backups = address.whole("backups", 1)
    if backups > BACKUPS_MAX:
        raise BadUrl(url=address.safe_url, reason=f"its option backups may be 0 to {BACKUPS_MAX}, not {backups}")
    return backups


class HazelcastDriver(Driver):
    """A cluster whose rings are the topics."""

    def __init__(self, client: ClusterClient, *, prefix: str, backups: int, append_bytes: int) -> None:
        self.url = client.server
        self._client, self._prefix, self._backups, self._append_bytes = client, prefix, backups, append_bytes
        self._lock = threading.Lock()
        self._rings: dict[str, Ring] = {}
        self.promises = promises_of(len(client.members), backups)
        self._streams = MapCatalogue(client, map_name(prefix), self._mark, self._unmark)
        self.catalogue: Catalogue = self._streams

    def make(self, known: StreamEntry) -> None:
        """Does nothing: the ring was created before the entry in the catalogue."""

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        """Does nothing: the capacity of a ring is a setting of the members. Publishing fails beyond it."""

    def room(self, name: str) -> int:
        """How many messages the ring of a new stream would hold: a setting of the members, by the name of the ring."""
        ring = Ring(self._client, ring_name(self._prefix, name, uuid.uuid4().hex))
        try:
            return ring.capacity - slack(ring.capacity)
        finally:
            ring.destroy()  # to ask about a ring makes it

    def remove(self, known: StreamEntry) -> None:
        self._streams.leave(known)
        self._unmark(known)

    def topic(self, known: StreamEntry) -> RingTopic:
        return RingTopic(self._client, self._ring(known), known, self._streams, self._append_bytes)

    def foreign(self, name: str) -> StreamEntry | None:
        """None: rings of other programs are not read."""
        del name
        return None

    def check(self, known: Sequence[StreamEntry]) -> list[Finding]:
        found = cluster_findings(self.url, len(self._client.members), self._backups)
        return found + stream_findings(self.url, known, lambda one: self._ring(one).capacity)

    def close(self) -> None:
        self._client.close()

    def _ring(self, known: StreamEntry) -> Ring:
        name = ring_name(self._prefix, known.name, known.identity)
        with self._lock:
            ring = self._rings.get(name)
        if ring is None:
            ring = Ring(self._client, name)
            with self._lock:
                ring = self._rings.setdefault(name, ring)
        return ring

    def _mark(self, known: StreamEntry) -> None:
        self._ring(known).mark()

    def _unmark(self, known: StreamEntry) -> None:
        self._ring(known).destroy()
        with self._lock:
            self._rings.pop(ring_name(self._prefix, known.name, known.identity), None)


def promises_of(members: int, backups: int) -> Promises:
    """The promises of a bus on a cluster with this number of members and backups."""
    copies = min(backups, max(members - 1, 0))
    lost = "everything, if the member ends: the records are in its memory only"
    if copies:
        ended = "two members end" if copies == 1 else f"{copies + 1} members end"
        lost = (
            f"the records of a stream, if {ended} before the others have made new copies; and what was acknowledged on"
            " the smaller side of a cluster that was split and joined again"
        )
    return Promises(
        durability="memory", may_lose=lost, opened_by="network", retention=("capacity", "bytes", "age"),
        sync_replicas=copies, notifies=True, copies=DROPPED_BY_READERS, takes_back=True,
    )  # fmt: skip


BACKUPS_MAX = 6


def cluster_findings(server: str, members: int, backups: int) -> list[Finding]:
    """Findings about the number of members and backups; asks nobody."""
    found = []
    if members < 2:
        found.append(
            Finding(server, "the cluster has one member: if it ends, everything is lost", "the cluster: add members")
        )
    if backups < 1:
        found.append(
            Finding(server, "its rings are kept without a copy (backups=0)", "backup-count of ringbuffer and map")
        )
    elif members > 1 and members <= backups:
        problem = f"{members} members can't keep {backups} copies"
        found.append(Finding(server, problem, "the cluster: add members, or lower backup-count"))
    return found


def stream_findings(
    server: str, known: Sequence[StreamEntry], capacity_of: Callable[[StreamEntry], int]
) -> list[Finding]:
    """Streams that may need more messages than their rings can hold; asks the members about each."""
    found = []
    for one in known:
        wanted = one.config.capacity
        if wanted is None:
            continue
        capacity = capacity_of(one)
        if wanted > capacity - slack(capacity):
            problem = (
                f"stream {one.name} keeps {wanted} records, and its ring has room for {capacity - slack(capacity)}"
                " messages: published one by one, they don't fit"
            )
            found.append(
                Finding(server, problem, f"capacity of ringbuffer {one.name} to {needed_capacity(wanted)} or more")
            )
    return found


def needed_capacity(messages: int) -> int:
    """The ring capacity that this number of messages needs."""
    capacity = messages + slack(messages)
    while capacity - slack(capacity) < messages:
        capacity += max(1, messages - capacity + slack(capacity))
    return capacity


CATALOGUE = "_lockstep.streams"
SEPARATOR = "@"


def ring_name(prefix: str, stream: str, identity: str) -> str:
    """The ring of a stream."""
    return f"{prefix}{stream}{SEPARATOR}{identity}"


def map_name(prefix: str) -> str:
    """The map with all streams."""
    return prefix + CATALOGUE


def check_prefix(prefix: str, url: str) -> str:
    """Return the prefix; raises BadUrl if names with it would be ambiguous."""
    if SEPARATOR in prefix or "*" in prefix:
        raise BadUrl(url=url, reason=f"its option prefix may hold neither @ nor *, which {prefix!r} does")
    return prefix
