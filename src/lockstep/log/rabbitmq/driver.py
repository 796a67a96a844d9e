"""RabbitMQ streams as a wire: see lockstep.log.network.wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rstream import schema

from lockstep.errors import DataError, ServerUnfit, UnsupportedByBackend
from lockstep.log.config import StreamConfig
from lockstep.log.network.address import Address
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.checks import Finding
from lockstep.log.network.driver import STRIDE, Catalogue, Known, Topic, TopicGone
from lockstep.log.port import DROPPED_BY_READERS, Limits, Promises
from lockstep.log.rabbitmq import checks, errors, retention
from lockstep.log.rabbitmq.client import Links
from lockstep.log.rabbitmq.frames import PUBLISH_OVERHEAD
from lockstep.log.rabbitmq.names import CATALOGUE, server_name
from lockstep.log.rabbitmq.timing import Deadline
from lockstep.log.rabbitmq.topic import RabbitTopic
from lockstep.runtime import Runtime

_SETTING = "stream.frame_max in rabbitmq.conf"
_SETTINGS = f"{', '.join(retention.OPTIONS)} in the URL, or the name"
_CATALOGUE_SETTINGS = {"max-length-bytes": str(1 << 30), "stream-max-segment-size-bytes": str(16 << 20)}
"""Snapshots in the catalogue make its old segments needless, long before they add up to this."""
_PERHAPS_THERE = (errors.PRECONDITION, errors.REFUSED)


class RabbitCatalogue(TopicCatalogue):
    """See Catalogue. A stream is made before its entry is written, so an entry without a stream tells of a loss."""

    def __init__(
        self,
        topic: Topic,
        monotonic: Callable[[], float],
        make: Callable[[Known], None],
        remove: Callable[[Known], None],
    ) -> None:
        super().__init__(topic, monotonic)
        self._make, self._remove = make, remove

    def add(self, known: Known) -> Known:
        """See Catalogue."""
        self._make(known)
        found = super().add(known)
        if found.identity != known.identity:
            self._remove(known)
        return found


class RabbitWire:
    """See Wire."""

    never_uses_a_name_twice = True
    """An identity is a part of each name on the server."""

    def __init__(self, address: Address, links: Links, runtime: Runtime) -> None:
        self.url = address.safe_url
        self._address, self._links, self._runtime = address, links, runtime
        self._catalogue_name = f"{address.prefix}{CATALOGUE}"
        self.replicas = links.persist(self._find_catalogue, links.deadline())
        self.promises = promises(self.replicas)
        topic = self._topic(self._catalogue_name, "the catalogue")
        self.catalogue: Catalogue = RabbitCatalogue(topic, runtime.monotonic, self._make, self.remove)

    def make(self, known: Known) -> None:
        """See Wire: it was made before its entry; one that is missing was not deleted by us, and is not made anew."""
        stream = self._server_name(known)
        if self._links.persist(lambda within: self._exists(stream, within), self._links.deadline()):
            return
        found = self.catalogue.find(known.name)
        if found is not None and found.identity == known.identity:
            raise DataError(
                reason=f"The server {self._address.servers} no longer has {stream!r}, which held the records of stream"
                f" {known.name!r}: somebody deleted it there. Delete the stream and make it anew."
            )

    def alter(self, known: Known, config: StreamConfig) -> None:
        """See Wire: what the server drops by itself was fixed when the stream was made."""
        made = retention.arguments(known.config, self._address)
        if not retention.keeps(made, retention.arguments(config, self._address)):
            words = ", ".join(f"{name}={value}" for name, value in made.items())
            feature = f"keep more of stream {known.name} than it was created for ({words}); create another stream"
            raise UnsupportedByBackend(bus=self.url, feature=feature)

    def remove(self, known: Known) -> None:
        """See Wire."""
        stream = self._server_name(known)
        self._links.persist(lambda within: self._delete(stream, within), self._links.deadline())

    def topic(self, known: Known) -> RabbitTopic:
        """See Wire."""
        return self._topic(self._server_name(known), known.name)

    def foreign(self, name: str) -> Known | None:
        """See Wire: streams of others are not read here."""
        del name
        return None

    def check(self, known: Sequence[Known]) -> list[Finding]:
        """See Wire."""
        deadline = self._links.deadline()
        found = self.check_cheaply()
        found += self._links.persist(self._check_disk, deadline)
        return found + checks.check_room(self._address, known)

    def check_cheaply(self) -> list[Finding]:
        """What is known without asking."""
        facts = self._links.facts
        assert facts is not None, "there was a connection"
        server = self._address.servers
        return checks.check_version(server, facts.version) + checks.check_replicas(server, self.replicas)

    def close(self) -> None:
        """See Wire."""
        self._links.close()

    def _make(self, known: Known) -> None:
        settings = retention.arguments(known.config, self._address)
        stream = self._server_name(known)
        self._links.persist(lambda within: self._create(stream, settings, within), self._links.deadline())

    def _topic(self, stream: str, name: str) -> RabbitTopic:
        return RabbitTopic(self._links, stream, name, self._limits(), self._runtime.new_id().hex())

    def _limits(self) -> Limits:
        facts = self._links.facts
        assert facts is not None, "there was a connection"
        return Limits(
            stride=STRIDE, append_records=STRIDE, append_bytes=facts.frame_max - PUBLISH_OVERHEAD,
            append_setting=_SETTING,
        )  # fmt: skip

    def _server_name(self, known: Known) -> str:
        return server_name(self._address.prefix, known.name, known.identity, self.url)

    def _find_catalogue(self, deadline: Deadline) -> int:
        """How many copies it has; it is made if there is none."""
        try:
            return self._links.topology(self._catalogue_name, deadline)[1]
        except TopicGone:
            self._create(self._catalogue_name, _CATALOGUE_SETTINGS, deadline)
            return self._links.topology(self._catalogue_name, deadline)[1]

    def _check_disk(self, deadline: Deadline) -> list[Finding]:
        return checks.check_disk(self._links, self._catalogue_name, deadline)

    def _create(self, stream: str, settings: Mapping[str, str], deadline: Deadline) -> None:
        properties = [schema.Property(name, value) for name, value in settings.items()]
        answer = self._links.any(deadline).ask(lambda number: schema.Create(number, stream, properties), deadline)
        code = answer.response_code
        if code == errors.EXISTS or (code in _PERHAPS_THERE and self._exists(stream, deadline)):
            return
        if code == errors.PRECONDITION:
            words = ", ".join(f"{name}={value}" for name, value in settings.items())
            reason = f"it makes no stream {stream!r} with {words or 'its own settings'}"
            raise ServerUnfit(server=self._address.servers, reason=reason, setting=_SETTINGS)
        self._check(code, "create", stream)

    def _delete(self, stream: str, deadline: Deadline) -> None:
        answer = self._links.any(deadline).ask(lambda number: schema.Delete(number, stream), deadline)
        if answer.response_code != errors.NO_STREAM:
            self._check(answer.response_code, "delete", stream)

    def _exists(self, stream: str, deadline: Deadline) -> bool:
        try:
            self._links.topology(stream, deadline)
        except TopicGone:
            return False
        except errors.NotReady:
            return True  # it has nobody to lead it, and so it is one
        return True

    def _check(self, code: int, action: str, stream: str) -> None:
        errors.check(code, server=self._address.servers, user=self._links.user, action=action, stream=stream)


def promises(replicas: int) -> Promises:
    """What holds with so many copies beside the leader's: a majority has a record when it is acknowledged."""
    before = (replicas + 1) // 2
    nodes = "the machine loses" if not replicas else f"{before + 1} of {replicas + 1} machines lose"
    return Promises(
        durability="relaxed",
        may_lose=f"the last records before {nodes} power: the server leaves it to the system when to write to disk",
        opened_by="network",
        retention=("capacity", "bytes", "age"),
        sync_replicas=before,
        async_replicas=replicas - before,
        notifies=True,
        copies=DROPPED_BY_READERS,
    )
