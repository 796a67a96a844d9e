"""Engines as processes, and a bus that fails: partitions, pauses, promotions. The output stays the same to the byte."""

from __future__ import annotations

import resource
import uuid
from pathlib import Path

import pytest
from engine_processes import LEASE_S, LONG_LEASE_S, EngineWorld

from lockstep.dev import probes
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from servers.rabbitmq_cluster import leader_of, start_cluster

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]
PAUSE = ThreadRuntime().waiter()


def with_prefix(url, **options):
    options = {"prefix": f"t{uuid.uuid4().hex[:12]}.", **options}
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"


@pytest.fixture
def world(tmp_path):
    made = []

    def begin(url):
        made.append(EngineWorld(url, tmp_path))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def cut_off_pair(world, proxy, server):
    """An active engine whose way to the bus is the proxy, a standby with a way of its own, and blocks under way."""
    proxy.target = server.port
    url = with_prefix(server.url)
    made = world(url)
    made.start("a", url.replace(f"127.0.0.1:{server.port}", proxy.address))
    made.until_active("a")
    made.start("b")
    made.publish(20)
    made.settle()
    return made


@pytest.mark.parametrize("fault", ["stall", "stall_answers", pytest.param("refuse", marks=pytest.mark.soak)])
def test_an_active_engine_that_is_cut_off_from_redis_is_replaced_and_comes_back_as_a_standby(
    world, proxy, redis_server, fault
):
    made = cut_off_pair(world, proxy, redis_server)
    made.publish(30)
    getattr(proxy, fault)()
    made.publish(30)
    made.until_active("b")
    made.settle()
    proxy.resume()
    made.publish(30)
    made.settle()
    made.until(lambda: made.engines["a"].role == "standby", "the one that was cut off is a standby")
    assert all(engine.is_alive for engine in made.engines.values())


@pytest.mark.soak
def test_a_standby_that_was_cut_off_takes_over_later(world, proxy, redis_server):
    proxy.target = redis_server.port
    url = with_prefix(redis_server.url)
    made = world(url)
    active = made.start("a")
    made.until_active("a")
    made.start("b", url.replace(f"127.0.0.1:{redis_server.port}", proxy.address))
    made.publish(20)
    made.settle()
    proxy.stall()
    made.publish(50)
    made.settle()
    proxy.resume()
    active.kill()
    made.until_active("b")
    made.publish(20)
    made.settle()


def test_redis_is_stopped_for_longer_than_a_lease_and_goes_on(world, start_server):
    server = start_server("redis")
    made = world(with_prefix(server.url, timeout_s=1))
    for name in "ab":
        made.start(name)
    made.until_active(*"ab")
    made.publish(50)
    server.pause()
    PAUSE.wait(4 * LEASE_S)
    server.resume()
    made.publish(20)
    made.settle()
    assert [engine.error for engine in made.engines.values()] == [None, None]


VISIBLE = {"DATA", "SERVER_UNREACHABLE", "INPUT_CHANGED", "STORE_FULL"}
"""What an engine may end with when the bus fails, as docs/failover.md says; then it is started again."""
SPLIT = VISIBLE | {"STREAM_NOT_FOUND", "LOG_SHORTENED"}
"""And when the bus was two for a while."""


def test_the_page_on_failover_names_what_an_engine_may_end_with():
    page = (Path(__file__).parents[2] / "docs" / "failover.md").read_text()
    assert [code for code in SPLIT if f"`{code}`" not in page] == []


def goes_on(made, visible=VISIBLE):
    """Blocks that are published now come out, after engines that ended with an error were started again."""
    made.publish(20)

    def is_settled():
        for name, engine in list(made.engines.items()):
            if not engine.is_alive:
                assert engine.error in visible, engine.said
                engine.kill()
                made.start(name)
        return made.is_out()

    made.until(is_settled, "everything is out")


def running_pair(world, url):
    made = world(url)
    for name in "ab":
        made.start(name)
    made.until_active(*"ab")
    made.publish(50)
    return made


def stop_for_a_while(server):
    server.pause()
    PAUSE.wait(2 * LONG_LEASE_S)
    server.resume()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["kafka", "rabbitmq", "hazelcast"])
@pytest.mark.timeout(300)
def test_a_server_is_stopped_for_longer_than_a_lease_and_goes_on(world, start_server, kind):
    server = start_server(kind)
    made = running_pair(world, with_prefix(server.url))
    stop_for_a_while(server)
    goes_on(made)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["kafka", "redis"])
@pytest.mark.timeout(300)
def test_a_server_is_killed_and_started_again(world, start_server, kind):
    server = start_server(kind)
    made = running_pair(world, with_prefix(server.url))
    server.kill()
    server.restart()
    goes_on(made)


@pytest.mark.soak
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.timeout(300)
def test_a_member_of_a_hazelcast_cluster_is_killed(world, start_server, which):
    cluster = start_server("hazelcast3")
    made = running_pair(world, with_prefix(cluster.url))
    cluster.nodes[which].kill()
    goes_on(made)


@pytest.mark.soak
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.timeout(400)
def test_a_member_of_a_hazelcast_cluster_sleeps_until_it_is_expelled_and_comes_back(world, start_server, which):
    cluster = start_server("hazelcast3")
    made = running_pair(world, with_prefix(cluster.url))
    asleep = cluster.nodes[which]
    asleep.pause()
    others = [node for node in cluster.nodes if node is not asleep]
    made.until(lambda: all(probes.hazelcast(node.port) == 2 for node in others), "the others are a cluster of two")
    asleep.resume()
    made.publish(20)
    made.until(lambda: all(probes.hazelcast(node.port) == 3 for node in cluster.nodes), "they are three again")
    made.sent = made.input_events()  # what only the woken member acknowledged is lost, as bus.promises.may_lose says
    goes_on(made, SPLIT)


@pytest.mark.soak
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.timeout(300)
def test_a_broker_of_a_kafka_cluster_is_killed(world, start_server, which):
    cluster = start_server("kafka3")
    made = running_pair(world, with_prefix(cluster.url))
    cluster.nodes[which].kill()
    goes_on(made)


@pytest.fixture
def replicated_redis(start_server):
    """A primary, a replica, and a replica of that one, which it has when it is promoted; and how to tell them."""
    servers = [start_server("redis") for _ in range(3)]
    buses = [open_bus(server.url, ThreadRuntime()) for server in servers]

    def tell(which, *words):
        return buses[which].client.ask(words)[0]

    for which in (0, 1):
        tell(which, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
        tell(which + 1, "REPLICAOF", "127.0.0.1", servers[which].port)
        while b"state=online" not in tell(which, "INFO", "replication"):
            PAUSE.wait(0.02)
    yield servers, tell
    for bus in buses:
        bus.close()


@pytest.mark.soak
@pytest.mark.parametrize("wait_replicas", [0, 1])
def test_a_redis_replica_is_promoted(world, replicated_redis, wait_replicas):
    (first, second, _), tell = replicated_redis
    both = f"redis://127.0.0.1:{first.port},127.0.0.1:{second.port}"
    made = running_pair(world, with_prefix(both, wait_replicas=wait_replicas))
    made.settle()
    made.publish(50)
    first.kill()
    tell(1, "REPLICAOF", "NO", "ONE")
    if not wait_replicas:  # what was published and never reached the replica is lost, as bus.promises.may_lose says
        made.sent = made.input_events()
    goes_on(made)


@pytest.mark.soak
def test_a_disk_that_writes_only_a_part_stops_redis_and_loses_nothing(world, start_server):
    server = start_server("redis")
    made = running_pair(world, with_prefix(server.url))
    [file] = server.folder.rglob("*.incr.aof")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (file.stat().st_size + 1000, resource.RLIM_INFINITY))
    made.until(lambda: not server.is_alive, "Redis ends itself")
    server.restart()
    goes_on(made)


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_node_that_leads_the_streams_of_a_rabbitmq_cluster_is_killed(world, start_server):
    nodes, url = start_cluster(start_server)
    made = running_pair(world, with_prefix(url))
    assert made.bus.promises.sync_replicas == 1
    leader_of(nodes, made.bus, made.streams.sequence).kill()
    goes_on(made)
