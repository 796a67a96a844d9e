"""A Hazelcast cluster as a wire: streams are rings, the catalogue is a map."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

from lockstep.log.config import StreamConfig
from lockstep.log.hazelcast.catalogue import MapCatalogue
from lockstep.log.hazelcast.checks import cluster_findings, stream_findings
from lockstep.log.hazelcast.client import Link
from lockstep.log.hazelcast.naming import map_name, ring_name
from lockstep.log.hazelcast.ring import Ring
from lockstep.log.hazelcast.topic import RingTopic, slack
from lockstep.log.network.checks import Finding
from lockstep.log.network.driver import Catalogue, Known
from lockstep.log.port import DROPPED_BY_READERS, Promises


class HazelcastWire:
    """See Wire."""

    def __init__(self, link: Link, *, prefix: str, backups: int, append_bytes: int) -> None:
        self.url = link.server
        self._link, self._prefix, self._backups, self._append_bytes = link, prefix, backups, append_bytes
        self._lock = threading.Lock()
        self._rings: dict[str, Ring] = {}
        self.promises = promises(len(link.members), backups)
        self._streams = MapCatalogue(link, map_name(prefix), self._mark, self._unmark)
        self.catalogue: Catalogue = self._streams

    def make(self, known: Known) -> None:
        """See Wire: the ring was made before the entry in the catalogue."""

    def alter(self, known: Known, config: StreamConfig) -> None:
        """See Wire: what a ring can hold is a setting of the members; beyond it, publishing fails."""

    def room(self, name: str) -> int:
        """How many messages the ring of a new stream would hold: a setting of the members, by the name of the ring."""
        ring = Ring(self._link, ring_name(self._prefix, name, uuid.uuid4().hex))
        try:
            return ring.capacity - slack(ring.capacity)
        finally:
            ring.destroy()  # to ask about a ring makes it

    def remove(self, known: Known) -> None:
        """See Wire."""
        self._streams.leave(known)
        self._unmark(known)

    def topic(self, known: Known) -> RingTopic:
        """See Wire."""
        return RingTopic(self._link, self._ring(known), known, self._streams, self._append_bytes)

    def foreign(self, name: str) -> Known | None:
        """See Wire: rings of others are not read."""
        del name
        return None

    def check(self, known: Sequence[Known]) -> list[Finding]:
        """See Wire."""
        found = cluster_findings(self.url, len(self._link.members), self._backups)
        return found + stream_findings(self.url, known, lambda one: self._ring(one).capacity)

    def close(self) -> None:
        """See Wire."""
        self._link.close()

    def _ring(self, known: Known) -> Ring:
        name = ring_name(self._prefix, known.name, known.identity)
        with self._lock:
            ring = self._rings.get(name)
        if ring is None:
            ring = Ring(self._link, name)
            with self._lock:
                ring = self._rings.setdefault(name, ring)
        return ring

    def _mark(self, known: Known) -> None:
        self._ring(known).mark()

    def _unmark(self, known: Known) -> None:
        self._ring(known).destroy()
        with self._lock:
            self._rings.pop(ring_name(self._prefix, known.name, known.identity), None)


def promises(members: int, backups: int) -> Promises:
    """What a cluster of so many members keeps, if it is told to keep so many copies."""
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
