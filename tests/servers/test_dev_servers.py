"""Every real server starts, answers, is killed, restarts with its data, and is stopped."""

from __future__ import annotations

import socket

import pytest

from lockstep.dev import servers
from lockstep.dev.processes import is_free
from lockstep.dev.recipe import HOST
from servers.clients import GET, PUT

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(400)]

SOAK = pytest.mark.soak
RARELY = ("rabbitmq", "kafka", "kafka3", "cassandra")
KEEP_THEIR_DATA = ["redis", "zookeeper", "postgresql", *(pytest.param(name, marks=SOAK) for name in RARELY)]
FORGET = ["hazelcast", "hazelcast3"]  # they keep everything in memory
SHARED = {
    "redis_server": "redis",
    "kafka_server": "kafka",
    "rabbitmq_server": "rabbitmq",
    "hazelcast_server": "hazelcast",
    "zookeeper_server": "zookeeper",
    "postgresql_server": "postgresql",
    "cassandra_server": "cassandra",
    "kafka_cluster": "kafka3",
    "hazelcast_cluster": "hazelcast3",
}


def test_a_port_that_somebody_takes_meanwhile_is_replaced_by_another(start_server, monkeypatch):
    with socket.create_server((HOST, 0)) as taken:
        choices = iter([(taken.getsockname()[1],)])
        choose = servers.free_ports
        monkeypatch.setattr(servers, "free_ports", lambda *asked: next(choices, None) or choose(*asked))
        server = start_server("redis")
        assert server.is_alive
        assert server.port != taken.getsockname()[1]


@pytest.mark.parametrize("name", KEEP_THEIR_DATA)
def test_a_killed_server_restarts_on_its_ports_with_its_data(name, start_server):
    server = start_server(name)
    PUT[name](server, "before the crash")
    url, pid = server.url, server.pid

    server.kill()
    assert not server.is_alive
    assert is_free(server.port)

    server.restart()
    assert (server.url, server.is_alive) == (url, True)
    assert server.pid != pid
    assert GET[name](server) == "before the crash"

    server.stop()
    assert not server.is_alive
    assert server.facts.alive == {}
    assert all(map(is_free, server.ports))


@pytest.mark.soak
@pytest.mark.parametrize("name", FORGET)
def test_a_killed_server_without_a_disk_restarts_empty(name, start_server):
    server = start_server(name)
    PUT[name](server, "before the crash")
    server.kill()
    server.restart()
    assert GET[name](server) == "None"
    server.stop()
    assert all(map(is_free, server.ports))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["kafka3", "hazelcast3"])
def test_a_cluster_loses_nothing_with_one_member(name, start_server):
    server = start_server(name)
    PUT[name](server, "before")
    server.nodes[0].kill()
    assert [node.is_alive for node in server.nodes] == [False, True, True]
    assert GET[name](server) == "before"
    PUT[name](server, "with two")
    server.nodes[0].restart()
    server.wait_ready()
    assert GET[name](server) == "with two"


def test_two_servers_of_a_kind_share_nothing(start_server):
    one, two = start_server("redis"), start_server("redis")
    assert one.folder != two.folder
    assert not set(one.ports) & set(two.ports)
    PUT["redis"](one, "mine")
    assert GET["redis"](two) == "None"


@pytest.mark.parametrize(("fixture", "name"), SHARED.items())
def test_the_shared_servers_work(fixture, name, request):
    server = request.getfixturevalue(fixture)
    PUT[name](server, "shared")
    assert GET[name](server) == "shared"
    assert request.getfixturevalue(fixture) is server
