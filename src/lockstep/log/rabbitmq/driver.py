"""RabbitMQ streams as a bus: rabbitmq://USER:PASSWORD@HOST:PORT/VHOST?OPTIONS.

A stream has the name PREFIXname~identity on the server, as in `orders~3f2a9c01be77`. The identity tells a stream
that is made anew from the one of that name before it, so nobody who still holds the old one can write into the new one.

The server drops whole segments, oldest first, and never the last one, which may be new and empty. It counts what it
writes around each message too. So it is given several times what the stream keeps, in segments that are small beside
that, and never drops what still counts. Which records count is decided above the driver.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rstream import schema

from lockstep.errors import BadUrl, DataError, ServerUnfit, UnsupportedByBackend
from lockstep.log.config import StreamConfig
from lockstep.log.network.address import Address, Secret, parse_address
from lockstep.log.network.bus import NetworkBus
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.driver import (
    STRIDE,
    Catalogue,
    Driver,
    Finding,
    StreamEntry,
    Topic,
    TopicGone,
    login_findings,
    report_findings,
)
from lockstep.log.network.retention import is_bounded
from lockstep.log.network.retry import Deadline
from lockstep.log.port import DROPPED_BY_READERS, Bus, Limits, Promises
from lockstep.log.rabbitmq import errors
from lockstep.log.rabbitmq.client import RabbitClient
from lockstep.log.rabbitmq.connection import Receiver
from lockstep.log.rabbitmq.frames import PUBLISH_OVERHEAD
from lockstep.log.rabbitmq.handshake import Login
from lockstep.log.rabbitmq.subscription import ChunkPeek
from lockstep.log.rabbitmq.topic import RabbitTopic
from lockstep.runtime import Runtime

CATALOGUE = "_lockstep.catalogue"
BYTES_MAX = 255
_IDENTITY = 12
_MARK = "~"


def server_name(prefix: str, name: str, identity: str, bus: str) -> str:
    """The name on the server."""
    full = f"{prefix}{name}{_MARK}{identity[:_IDENTITY]}"
    if len(full) > BYTES_MAX:
        raise UnsupportedByBackend(bus=bus, feature=f"carry a name of {len(full)} bytes; {BYTES_MAX} are the most")
    return full


RETENTION_OPTIONS = ("max_bytes", "max_age_s", "segment_bytes")
SEGMENT_LEAST, SEGMENT_MOST = 4 << 20, 500_000_000
_SEGMENT_BY_AGE = 64 << 20
_SLACK_AGE = 2
_SLACK_BYTES = _SEGMENTS = 4


def stream_arguments(config: StreamConfig, address: Address) -> Mapping[str, str]:
    """The settings of a new stream; those of the URL go before those that follow from the configuration."""
    wanted = {name: address.whole(name, 0) for name in RETENTION_OPTIONS}
    by_bytes, by_age = config.retain_bytes, config.retain_age_s
    segment = wanted["segment_bytes"] or _segment(by_bytes, by_age, wanted["max_bytes"])
    most = wanted["max_bytes"] or (max(_SLACK_BYTES * by_bytes, _SEGMENTS * segment) if by_bytes else 0)
    age = wanted["max_age_s"] or (math.ceil(_SLACK_AGE * by_age) if by_age else 0)
    found = {"max-length-bytes": str(most), "max-age": f"{age}s", "stream-max-segment-size-bytes": str(segment)}
    given = {"max-length-bytes": most, "max-age": age, "stream-max-segment-size-bytes": segment}
    return {name: text for name, text in found.items() if given[name]}


def frees_space(config: StreamConfig, address: Address) -> bool:
    """Whether the server ever drops anything of a stream."""
    found = stream_arguments(config, address)
    return "max-length-bytes" in found or "max-age" in found


def keeps_enough(made: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a stream made with some settings never drops what others would keep."""
    limits = [name for name in ("max-length-bytes", "max-age") if name in made]
    return all(name in wanted and _number(wanted[name]) <= _number(made[name]) for name in limits)


def _number(text: str) -> int:
    return int(text.removesuffix("s"))


def _segment(by_bytes: int | None, by_age: float | None, most: int) -> int:
    if most:  # the server's own default may be larger, and then it would keep nothing but the last segment
        return min(max(most // _SEGMENTS, 1), SEGMENT_MOST)
    if by_bytes is not None:
        return min(max(by_bytes // _SEGMENTS, SEGMENT_LEAST), SEGMENT_MOST)
    return _SEGMENT_BY_AGE if by_age is not None else 0


PORT = 5552
_GUEST = "guest"
_KNOWN = (*RETENTION_OPTIONS, "amqp_port")
"""The port for other clients is often written into the same URL; nothing is done with it here."""


def open_bus(target: str, options: dict[str, str], runtime: Runtime, environ: Mapping[str, str]) -> Bus:
    """The bus at an address; raises within about its time-out if nobody answers, or says no."""
    address = read_address(target, options, environ)
    report_findings(login_findings(address), strict=address.strict)
    client = RabbitClient(address, login_of(address), runtime)
    try:
        driver = RabbitDriver(address, client, runtime)
        report_findings(driver.check_cheaply(), strict=address.strict)
    except BaseException:
        client.close()
        raise
    return NetworkBus(driver, runtime, patience_s=address.patience_s)


def read_address(target: str, options: Mapping[str, str], environ: Mapping[str, str]) -> Address:
    """The address in a URL, with options that fit each other."""
    address = parse_address("rabbitmq", target, options, environ=environ, default_port=PORT, known=_KNOWN)
    if not address.prefix.isascii():
        raise BadUrl(url=address.safe_url, reason="its option prefix may hold ASCII only")
    for name in _KNOWN:
        address.whole(name, 0)
    return address


def login_of(address: Address) -> Login:
    """Who we are; the server's own guest, unless the URL or the environment says more."""
    user = address.user or _GUEST
    password = address.password or Secret(_GUEST if user == _GUEST else "")
    return Login(user, password, address.path or "/", address.tls, address.timeout_s)


_SETTING = "stream.frame_max in rabbitmq.conf"
_SETTINGS = f"{', '.join(RETENTION_OPTIONS)} in the URL, or the name"
_CATALOGUE_SETTINGS = {"max-length-bytes": str(1 << 30), "stream-max-segment-size-bytes": str(16 << 20)}
"""Snapshots in the catalogue make its old segments needless, long before they add up to this."""
_PERHAPS_THERE = (errors.PRECONDITION, errors.REFUSED)


class RabbitCatalogue(TopicCatalogue):
    """A stream is made before its entry is written, so an entry without a stream tells of a loss."""

    def __init__(
        self,
        topic: Topic,
        monotonic: Callable[[], float],
        make: Callable[[StreamEntry], None],
        remove: Callable[[StreamEntry], None],
    ) -> None:
        super().__init__(topic, monotonic)
        self._make, self._remove = make, remove

    def add(self, known: StreamEntry) -> StreamEntry:
        self._make(known)
        found = super().add(known)
        if found.identity != known.identity:
            self._remove(known)
        return found


class RabbitDriver(Driver):
    """A RabbitMQ cluster whose streams are the topics."""

    never_uses_a_name_twice = True
    """An identity is a part of each name on the server."""

    def __init__(self, address: Address, client: RabbitClient, runtime: Runtime) -> None:
        self.url = address.safe_url
        self._address, self._client, self._runtime = address, client, runtime
        self._catalogue_name = f"{address.prefix}{CATALOGUE}"
        self.replicas = client.with_retries(self._find_catalogue, client.deadline())
        self.promises = promises_of(self.replicas)
        topic = self._topic(self._catalogue_name, "the catalogue")
        self.catalogue: Catalogue = RabbitCatalogue(topic, runtime.monotonic, self._make, self.remove)

    def make(self, known: StreamEntry) -> None:
        """It was made before its entry; one that is missing was not deleted by us, and is not made anew."""
        stream = self._server_name(known)
        if self._client.with_retries(lambda within: self._exists(stream, within), self._client.deadline()):
            return
        found = self.catalogue.find(known.name)
        if found is not None and found.identity == known.identity:
            raise DataError(
                reason=f"The server {self._address.servers} no longer has {stream!r}, which held the records of stream"
                f" {known.name!r}: somebody deleted it there. Delete the stream and make it anew."
            )

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        """What the server drops by itself was fixed when the stream was made."""
        made = stream_arguments(known.config, self._address)
        if not keeps_enough(made, stream_arguments(config, self._address)):
            words = ", ".join(f"{name}={value}" for name, value in made.items())
            feature = f"keep more of stream {known.name} than it was created for ({words}); create another stream"
            raise UnsupportedByBackend(bus=self.url, feature=feature)

    def remove(self, known: StreamEntry) -> None:
        stream = self._server_name(known)
        self._client.with_retries(lambda within: self._delete(stream, within), self._client.deadline())

    def topic(self, known: StreamEntry) -> RabbitTopic:
        return self._topic(self._server_name(known), known.name)

    def foreign(self, name: str) -> StreamEntry | None:
        """Streams of others are not read here."""
        del name
        return None

    def check(self, known: Sequence[StreamEntry]) -> list[Finding]:
        deadline = self._client.deadline()
        found = self.check_cheaply()
        found += self._client.with_retries(self._check_disk, deadline)
        return found + check_room(self._address, known)

    def check_cheaply(self) -> list[Finding]:
        """What is known without asking."""
        facts = self._client.facts
        assert facts is not None, "there was a connection"
        server = self._address.servers
        return check_version(server, facts.version) + check_replicas(server, self.replicas)

    def close(self) -> None:
        self._client.close()

    def _make(self, known: StreamEntry) -> None:
        settings = stream_arguments(known.config, self._address)
        stream = self._server_name(known)
        self._client.with_retries(lambda within: self._create(stream, settings, within), self._client.deadline())

    def _topic(self, stream: str, name: str) -> RabbitTopic:
        return RabbitTopic(self._client, stream, name, self._limits(), self._runtime.new_id().hex())

    def _limits(self) -> Limits:
        facts = self._client.facts
        assert facts is not None, "there was a connection"
        return Limits(
            stride=STRIDE, append_records=STRIDE, append_bytes=facts.frame_max - PUBLISH_OVERHEAD,
            append_setting=_SETTING,
        )  # fmt: skip

    def _server_name(self, known: StreamEntry) -> str:
        return server_name(self._address.prefix, known.name, known.identity, self.url)

    def _find_catalogue(self, deadline: Deadline) -> int:
        """How many copies it has; it is made if there is none."""
        try:
            return self._client.topology(self._catalogue_name, deadline)[1]
        except TopicGone:
            self._create(self._catalogue_name, _CATALOGUE_SETTINGS, deadline)
            return self._client.topology(self._catalogue_name, deadline)[1]

    def _check_disk(self, deadline: Deadline) -> list[Finding]:
        return check_disk(self._client, self._catalogue_name, deadline)

    def _create(self, stream: str, settings: Mapping[str, str], deadline: Deadline) -> None:
        properties = [schema.Property(name, value) for name, value in settings.items()]
        answer = self._client.any(deadline).ask(lambda number: schema.Create(number, stream, properties), deadline)
        code = answer.response_code
        if code == errors.EXISTS or (code in _PERHAPS_THERE and self._exists(stream, deadline)):
            return
        if code == errors.PRECONDITION:
            words = ", ".join(f"{name}={value}" for name, value in settings.items())
            reason = f"it makes no stream {stream!r} with {words or 'its own settings'}"
            raise ServerUnfit(server=self._address.servers, reason=reason, setting=_SETTINGS)
        self._check(code, "create", stream)

    def _delete(self, stream: str, deadline: Deadline) -> None:
        answer = self._client.any(deadline).ask(lambda number: schema.Delete(number, stream), deadline)
        if answer.response_code != errors.NO_STREAM:
            self._check(answer.response_code, "delete", stream)

    def _exists(self, stream: str, deadline: Deadline) -> bool:
        try:
            self._client.topology(stream, deadline)
        except TopicGone:
            return False
        except errors.NotReady:
            return True  # it has nobody to lead it, and so it is one
        return True

    def _check(self, code: int, action: str, stream: str) -> None:
        errors.check(code, server=self._address.servers, user=self._client.user, action=action, stream=stream)


def promises_of(replicas: int) -> Promises:
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


LEAST_VERSION = (3, 9)


def check_version(server: str, version: str) -> list[Finding]:
    """Streams came with 3.9."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) == len(LEAST_VERSION) and numbers < LEAST_VERSION:
        problem = f"its version is {version}, and streams need 3.9 or newer"
        return [Finding(server, problem, "the version of the server", fatal=True)]
    return []


def check_replicas(server: str, replicas: int) -> list[Finding]:
    """One node alone loses everything with its disk."""
    if replicas:
        return []
    problem = "it keeps its streams on one node: they are gone if its disk is, and away while it is"
    return [Finding(server, problem, "the number of nodes of the cluster (3 or more)")]


def check_disk(client: RabbitClient, stream: str, deadline: Deadline) -> list[Finding]:
    """A server with a disk alarm refuses new publishers at once."""
    connection = client.fresh(deadline)
    try:
        number = connection.add_publisher(_nobody(client, stream))
        answer = connection.ask(lambda n: schema.DeclarePublisher(n, number, "", stream), deadline)
    finally:
        connection.lose("it was for one question")
    if answer.response_code != errors.PRECONDITION:
        return []
    problem = "it has a disk alarm and takes no messages"
    return [Finding(connection.server, problem, "disk_free_limit in rabbitmq.conf, or the disk")]


def check_room(address: Address, known: Sequence[StreamEntry]) -> list[Finding]:
    """A stream that is bounded by a number of records only grows on the server."""
    setting = "the option max_bytes or max_age_s in the URL before the stream is made, or give it retain_bytes"
    return [
        Finding(
            address.servers,
            f"stream {one.name!r} keeps a number of records, which this server can't count: its disk is not given back",
            setting,
        )
        for one in known
        if is_bounded(one.config) and not frees_space(one.config, address)
    ]


def _nobody(client: RabbitClient, stream: str) -> Receiver:
    return ChunkPeek(client, stream)
