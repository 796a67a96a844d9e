"""A real Hazelcast is killed, paused and cut off under load: what was acknowledged is there, once and in order."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path

import pytest

import lockstep.log.hazelcast.driver  # noqa: F401 - the client warns when it is imported, and this keeps that quiet
from lockstep import Lockstep, StreamConfig
from lockstep.errors import AppendUncertain, LockstepError, ServerUnreachable, StreamNotFound
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values
from lockstep.testing.contract_case import views

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

BOUND_S = 60.0
KEEP_ALL = StreamConfig(capacity=None)


class Load:
    """One publisher and one reader at work; what was tried, acknowledged and read, and a verdict."""

    def __init__(self, url):
        self._runtime = ThreadRuntime()
        self.nodes = [Lockstep(open_bus(url, self._runtime), self._runtime) for _ in range(2)]
        self.tried, self.acknowledged, self.read, self.errors = [], [], [], []
        self._publishing, self._reading = threading.Event(), threading.Event()
        self.nodes[0].bus.create("orders", KEEP_ALL)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._publish, self._read)]
        for thread in self._threads:
            thread.start()

    def _publish(self):
        with self.nodes[0].publisher("orders", create=False) as publisher:
            while not self._publishing.is_set():
                value = b"%d" % len(self.tried)
                self.tried.append(value)
                try:
                    publisher.publish(value).result(BOUND_S)
                    self.acknowledged.append(value)
                except LockstepError as error:
                    self.errors.append(error)

    def _read(self):
        with self.nodes[1].subscriber("orders", initial="earliest", create=False) as subscriber:
            while not (self._reading.is_set() and self._has_all()):
                try:
                    self.read += [record.value for record in subscriber.poll(0.2)]
                except LockstepError as error:
                    self.errors.append(error)

    def _has_all(self):
        return self.read and self.acknowledged and int(self.read[-1]) >= int(self.acknowledged[-1])

    def until(self, more):
        """Go on until so many more records were acknowledged and read."""
        wanted = len(self.acknowledged) + more
        end = time.monotonic() + BOUND_S
        while not (len(self.acknowledged) >= wanted and len(self.read) >= wanted):
            assert time.monotonic() < end, (
                f"{len(self.acknowledged)} acknowledged, {len(self.read)} read, {self.errors}"
            )
            self._publishing.wait(0.01)

    def verdict(self):
        """Stop, and check what was read against what was acknowledged."""
        for ending, thread in zip((self._publishing, self._reading), self._threads, strict=True):
            ending.set()
            thread.join(BOUND_S)
            assert not thread.is_alive(), self.errors
        read = [int(value) for value in self.read]
        assert set(self.acknowledged) <= set(self.read), "lost"
        assert len(set(read)) == len(read), "doubled"
        assert self._held()[: len(self.read)] == self.read, "readers see something else than there is"
        assert all(node.bus.driver._client.losses for node in self.nodes), "nobody noticed anything: it shows nothing"
        assert read == sorted(read), "out of order"
        assert set(self.read) <= set(self.tried), "made up"

    def _held(self):
        """The values on the cluster itself, without the copies of an append, which are dropped by those who read."""
        found = {}
        for view in views(self.nodes[1].bus.open("orders")):
            found.setdefault((view.producer, view.sequence), view.values())
        return [value for some in found.values() for value in some]

    def close(self):
        self._publishing.set()
        self._reading.set()
        self.acknowledged = self.read or [b"0"]
        for node in self.nodes:
            node.close()
            node.bus.close()


@pytest.fixture
def load():
    """Starts a load; it is ended with the test."""
    loads = []

    def start(url):
        loads.append(Load(url))
        return loads[-1]

    yield start
    for one in loads:
        one.close()


def url_of(server, **options):
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{server.url}?prefix=t{uuid.uuid4().hex}.&{query}"


def pause(server):
    """Stop every thread of a server; a signal alone may let a call through that comes at once."""
    server.pause()
    end = time.monotonic() + BOUND_S
    while not all("State:\tT" in task.read_text() for task in Path(f"/proc/{server.pid}/task").glob("*/status")):
        assert time.monotonic() < end


@pytest.fixture
def warm_server(breakable_hazelcast):
    """One member that has served somebody already: a young Java is slower than the short time-outs here."""
    server = breakable_hazelcast.server
    bus = open_bus(url_of(server, timeout_s=BOUND_S), ThreadRuntime())
    log = bus.create("orders", KEEP_ALL)
    for _ in range(20):
        log.append([Producer().batch(b"a")])
    bus.close()
    return server


@pytest.fixture
def whole_cluster(hazelcast_cluster):
    """Three members that see each other, before and after the test."""
    yield hazelcast_cluster
    for node in hazelcast_cluster.nodes:
        if node.is_alive:
            node.resume()
        else:
            node.restart()
    hazelcast_cluster.wait_ready()


def owner_of(cluster, bus, stream):
    """The member that holds the ring of a stream."""
    client, ring = bus.driver._client.library, bus.open(stream).topic._ring._proxy
    owner = client.partition_service.get_partition_owner(ring._partition_id)
    [port] = [member.address.port for member in client.cluster_service.get_members() if member.uuid == owner]
    [node] = [node for node in cluster.nodes if node.port == port]
    return node


@pytest.mark.parametrize("which", ["the owner of the ring", pytest.param("another one", marks=pytest.mark.soak)])
def test_one_of_three_members_is_killed_under_load(whole_cluster, load, which):
    cluster = whole_cluster
    work = load(url_of(cluster, timeout_s=10))
    work.until(200)
    owner = owner_of(cluster, work.nodes[0].bus, "orders")
    others = [node for node in cluster.nodes if node is not owner]
    (owner if which == "the owner of the ring" else others[0]).kill()
    work.until(200)
    work.verdict()


@pytest.mark.parametrize("which", [0, pytest.param(2, marks=pytest.mark.soak)])
def test_a_bus_is_opened_while_one_of_three_members_hangs(whole_cluster, which):
    cluster = whole_cluster
    pause(cluster.nodes[which])
    began = time.monotonic()
    bus = open_bus(url_of(cluster, timeout_s=6), ThreadRuntime())
    assert time.monotonic() - began < 12
    assert bus.promises.sync_replicas == 1
    bus.close()


def test_connections_are_cut_while_publishing_and_reading(breakable_hazelcast, load):
    work = load(url_of(breakable_hazelcast.server, timeout_s=10))
    for _ in range(4):
        work.until(100)
        breakable_hazelcast.proxy.cut()
    work.until(100)
    work.verdict()


def test_a_server_paused_for_longer_than_the_time_out(warm_server, load):
    server = warm_server
    work = load(url_of(server, timeout_s=2))
    work.until(100)
    pause(server)
    paused = time.monotonic()
    while time.monotonic() < paused + 4:
        threading.Event().wait(0.1)
    server.resume()
    work.until(100)
    work.verdict()


def test_every_call_on_a_paused_server_ends_in_time_and_works_afterwards(warm_server):
    server = warm_server
    bus = open_bus(url_of(server, timeout_s=2, patience_s=0.1), ThreadRuntime())
    log, producer = bus.create("orders", KEEP_ALL), Producer()
    log.append([producer.batch(b"before")])
    pause(server)
    lost = producer.batch(b"lost?")
    for call, expected in (
        (lambda: log.append([lost]), AppendUncertain),
        (lambda: log.read(0), ServerUnreachable),
        (log.bounds, ServerUnreachable),
        (bus.names, ServerUnreachable),
        (lambda: bus.open("other"), ServerUnreachable),
        (lambda: bus.create("other", KEEP_ALL), ServerUnreachable),
    ):
        started = time.monotonic()
        with pytest.raises((expected, ServerUnreachable)):
            call()
        assert time.monotonic() - started < 8
    server.resume()
    _until_reachable(bus)
    log.append([lost])
    log.append([producer.batch(b"after")])
    assert values(log) == [b"before", b"lost?", b"after"]
    bus.close()


def test_a_killed_server_gives_errors_and_a_restarted_one_has_lost_the_stream(warm_server):
    # Given records on the only member, in its memory
    server = warm_server
    bus = open_bus(url_of(server, timeout_s=2, patience_s=0.1), ThreadRuntime())
    log, producer = bus.create("orders", KEEP_ALL), Producer()
    log.append([producer.batch(b"a")])
    # When it is killed, calls fail within the time-out
    server.kill()
    for call in (lambda: log.read(0), lambda: log.append([producer.batch(b"b")]), bus.names):
        started = time.monotonic()
        with pytest.raises((ServerUnreachable, AppendUncertain)):
            call()
        assert time.monotonic() - started < 8
    # Then the same handle sees that the stream is gone when it is back, and a new one begins at 0
    server.restart()
    _until_reachable(bus)
    for call in (lambda: log.read(0), lambda: log.append([producer.batch(b"b")]), log.bounds):
        with pytest.raises(StreamNotFound):
            call()
    anew = bus.create("orders", KEEP_ALL)
    assert anew.identity != log.identity
    assert anew.append([producer.batch(b"c")]) == [0]
    assert values(anew) == [b"c"]
    bus.close()


def _until_reachable(bus):
    end = time.monotonic() + BOUND_S
    while True:
        try:
            return bus.names()
        except ServerUnreachable:
            assert time.monotonic() < end
