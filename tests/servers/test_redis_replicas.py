"""Redis with replicas, with TLS and as a cluster."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from dataclasses import replace

import pytest

from lockstep.dev.redis import redis
from lockstep.errors import AppendUncertain, ServerUnfit, ServerUnreachable
from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values
from servers.server_fixtures import free_ports

KEEP = StreamConfig(capacity=None)
BOUND_S = 30.0


@pytest.fixture
def opened():
    """Opens buses, and closes them in the end."""
    buses = []

    def open_one(url, **options):
        options.setdefault("prefix", uuid.uuid4().hex)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        buses.append(open_bus(f"{url}?{query}", ThreadRuntime()))
        return buses[-1]

    yield open_one
    for bus in buses:
        bus.close()


def until(condition, what):
    runtime = ThreadRuntime()
    end, pause = runtime.monotonic() + BOUND_S, runtime.waiter()
    while not condition():
        assert runtime.monotonic() < end, f"{what} did not come true"
        pause.wait(0.01)


def surely(log, batch):
    """Append as a publisher does: again, until it is acknowledged; on a busy machine replicas take their time."""
    found = []

    def is_acknowledged():
        try:
            found[:] = log.append([batch])
        except AppendUncertain:
            return False
        return True

    until(is_acknowledged, "the acknowledgement")
    return found


@pytest.fixture
def pair(start_server, opened):
    """A primary, a replica that follows it, and a way to talk to the replica."""
    primary, replica = start_server("redis"), start_server("redis")
    first, second = opened(primary.url), opened(replica.url)

    def tell_replica(*words):
        return second.client.ask(words)[0]

    first.client.ask(("CONFIG", "SET", "repl-diskless-sync-delay", 0))
    tell_replica("REPLICAOF", "127.0.0.1", primary.port)
    until(lambda: b"state=online" in first.client.ask(("INFO", "replication"))[0], "the replica")
    return primary, replica, tell_replica


def test_a_replica_is_refused_as_the_only_server(pair, opened):
    _, replica, _ = pair
    with pytest.raises(ServerUnfit, match="it is a replica"):
        opened(replica.url)


def test_of_several_servers_the_primary_is_used(pair, opened):
    primary, replica, _ = pair
    bus = opened(f"redis://127.0.0.1:{replica.port},127.0.0.1:{primary.port}")
    log = bus.create("orders", KEEP)
    log.append([Producer().batch(b"a")])
    assert values(log) == [b"a"]
    assert (bus.promises.sync_replicas, bus.promises.async_replicas) == (0, 1)
    assert not bus.check()


def test_an_append_waits_for_replicas_and_is_uncertain_without_them(pair, opened):
    primary, replica, _ = pair
    bus = opened(primary.url, wait_replicas=1, wait_ms=300)
    assert (bus.promises.sync_replicas, bus.promises.async_replicas) == (1, 0)
    log, producer = bus.create("orders", KEEP), Producer()
    surely(log, producer.batch(b"a"))
    batch = producer.batch(b"b")
    replica.pause()
    with pytest.raises(AppendUncertain, match="0 of 1 replicas have it after 300 ms"):
        log.append([batch])
    # Sent again it is a copy, but that is no reason to say that the replica has it
    with pytest.raises(AppendUncertain, match="0 of 1 replicas"):
        log.append([batch])
    with pytest.raises(AppendUncertain, match="0 of 1 replicas"):
        bus.atomic(lambda changes: changes.put(b"cell", b"1"))
    # Nor is it one that a transaction, done again, finds that all of it is there
    for work in (lambda changes: changes.append("orders", [batch]), lambda changes: changes.get(b"cell")):
        with pytest.raises(AppendUncertain, match="0 of 1 replicas"):
            bus.atomic(work)
    replica.resume()
    assert surely(log, batch) == [1]
    assert values(log) == [b"a", b"b"]


def test_too_few_replicas_for_what_is_waited_for_is_told(redis_server, opened, caplog):
    opened(redis_server.url, wait_replicas=2)
    assert "0 replicas follow it, and every append waits for 2" in caplog.text


def test_when_a_replica_takes_over_the_same_handle_goes_on_and_nothing_acknowledged_is_lost(pair, opened):
    primary, replica, tell_replica = pair
    both = f"redis://127.0.0.1:{primary.port},127.0.0.1:{replica.port}"
    bus = opened(both, wait_replicas=1, wait_ms=500, timeout_s=5)
    log, producer = bus.create("orders", KEEP), Producer()
    waiter = bus.waiter()
    waiter.watch(log)
    sent = [b"%d" % number for number in range(50)]
    for value in sent:
        surely(log, producer.batch(value))
    primary.kill()
    tell_replica("REPLICAOF", "NO", "ONE")
    # No replica follows the new primary, so what is stored there now is uncertain, and says so
    batch = producer.batch(b"after")
    with pytest.raises(AppendUncertain, match="0 of 1 replicas"):
        log.append([batch])
    assert values(log) == [*sent, b"after"]
    waiter.close()


def test_a_primary_that_becomes_a_replica_is_left_for_the_new_one(pair, opened):
    primary, replica, tell_replica = pair
    bus = opened(f"redis://127.0.0.1:{primary.port},127.0.0.1:{replica.port}", timeout_s=5)
    log, producer = bus.create("orders", KEEP), Producer()
    log.append([producer.batch(b"a")])
    until(lambda: tell_replica("EXISTS", log.keys.entries) == 1, "the copy")
    tell_replica("REPLICAOF", "NO", "ONE")
    bus.client.ask(("REPLICAOF", "127.0.0.1", replica.port))
    log.append([producer.batch(b"b")])
    assert values(log) == [b"a", b"b"]
    assert tell_replica("XLEN", log.keys.entries) == 2


@pytest.fixture
def encrypted(start_server, opened, tmp_path):
    """A Redis that also listens with TLS: its port there, and the file of whom to trust."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True, timeout=60)
    [port] = free_ports(1)
    bus = opened(start_server("redis").url)
    files = ("tls-cert-file", certificate, "tls-key-file", key, "tls-ca-cert-file", certificate)
    bus.client.ask(("CONFIG", "SET", *map(str, files), "tls-auth-clients", "no", "tls-port", port))
    return port, certificate


def test_tls_with_a_certificate_that_is_trusted(encrypted, opened):
    port, certificate = encrypted
    bus = opened(f"redis://127.0.0.1:{port}", tls="true", ca=certificate)
    log, waiter, runtime = bus.create("orders", KEEP), bus.waiter(), ThreadRuntime()
    waiter.watch(log)
    for number in range(20):
        log.append([Producer(str(number)).batch(b"x" * 100_000)])
    end = runtime.monotonic() + BOUND_S
    while len(values(log)) < 20:
        assert runtime.monotonic() < end
        waiter.wait(1)
    waiter.close()


def test_tls_with_a_certificate_that_nobody_knows(encrypted, opened):
    port, _ = encrypted
    with pytest.raises(ServerUnreachable, match="certificate"):
        opened(f"redis://127.0.0.1:{port}", tls="true", timeout_s=5)


def test_a_plain_connection_to_a_port_with_tls(encrypted, opened):
    port, _ = encrypted
    with pytest.raises(ServerUnreachable, match=f"127.0.0.1:{port}"):
        opened(f"redis://127.0.0.1:{port}", timeout_s=5)


def cluster_node():
    """A Redis that is one of a cluster; its second port is for the others."""
    plain = redis()

    def plan(site):
        port, others = site.ports
        made = plain.plan(replace(site, ports=(port,)))
        settings = f"{made.files['redis.conf']}cluster-enabled yes\ncluster-port {others}\n"
        return replace(made, files={"redis.conf": settings})

    return replace(plain, port_count=2, plan=plan)


@pytest.fixture
def cluster(start_server, opened):
    """Two nodes, each with half of the slots."""
    nodes = [start_server(cluster_node()) for _ in range(2)]
    buses = [opened(node.url) for node in nodes]
    for bus, (first, last) in zip(buses, ((0, 8191), (8192, 16383)), strict=True):
        bus.client.ask(("CLUSTER", "ADDSLOTSRANGE", first, last))
    buses[0].client.ask(("CLUSTER", "MEET", "127.0.0.1", *nodes[1].ports))
    for bus in buses:
        until(lambda bus=bus: b"cluster_state:ok" in bus.client.ask(("CLUSTER", "INFO"))[0], "the cluster")
    return nodes, buses


def test_a_bus_lives_in_one_slot_of_a_cluster_and_is_found_from_any_node(cluster, opened):
    nodes, buses = cluster
    homes = set()
    for number in range(20):
        prefix = f"shop{number}"
        [slot] = buses[0].client.ask(("CLUSTER", "KEYSLOT", f"{{{prefix}}}:streams"))
        if (slot < 8192) in homes:
            continue
        homes.add(slot < 8192)
        first, second = (opened(node.url, prefix=prefix) for node in nodes)
        log, waiter = first.create("orders", KEEP), second.waiter()
        other = second.open("orders")
        waiter.watch(other)
        log.append([Producer().batch(b"a")])
        until(lambda waiter=waiter, other=other: (waiter.wait(0.1), values(other))[1] == [b"a"], "the record")
        first.atomic(lambda changes: (changes.append("orders", [Producer("x").batch(b"b")]), changes.put(b"n", b"1")))
        with second.snapshot() as view:
            assert (view.get(b"n"), view.bounds("orders").next) == (b"1", 2)
        waiter.close()
    assert homes == {True, False}
