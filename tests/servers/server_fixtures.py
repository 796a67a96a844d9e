"""Fixtures with real servers: each is started once for a test run, when a test first asks for it, and ended by pid.

A server that can't be had is a reason to skip; under CI=true it is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.dev import ports
from lockstep.dev.errors import ServerNotAvailable
from lockstep.dev.kafka import kafka
from lockstep.dev.recipe import Recipe
from lockstep.dev.servers import RECIPES, RunningServer, start
from lockstep.runtime import ThreadRuntime
from servers.tcp_proxy import TcpProxy, proxied

StartServer = Callable[..., RunningServer]


def free_ports(count: int) -> tuple[int, ...]:
    """So many ports on loopback that nobody uses."""
    return ports.free_ports(count, ThreadRuntime.random)


def started(recipe: Recipe, folder: Path) -> RunningServer:
    """A server that answers, and that dies with this test run; skips or fails the test if it can't be had."""
    try:
        return start(recipe, folder, owner=os.getpid())
    except ServerNotAvailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


def for_the_run(name: str) -> Callable[..., Iterator[RunningServer]]:
    """The body of a fixture: the server of that name, for the whole test run."""

    def body(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
        server = started(RECIPES[name](), tmp_path_factory.mktemp(name))
        yield server
        server.destroy()

    return body


kafka_server = pytest.fixture(scope="session", name="kafka_server")(for_the_run("kafka"))
rabbitmq_server = pytest.fixture(scope="session", name="rabbitmq_server")(for_the_run("rabbitmq"))
redis_server = pytest.fixture(scope="session", name="redis_server")(for_the_run("redis"))
hazelcast_server = pytest.fixture(scope="session", name="hazelcast_server")(for_the_run("hazelcast"))
zookeeper_server = pytest.fixture(scope="session", name="zookeeper_server")(for_the_run("zookeeper"))
kafka_cluster = pytest.fixture(scope="session", name="kafka_cluster")(for_the_run("kafka3"))
spark_cluster = pytest.fixture(scope="session", name="spark_cluster")(for_the_run("spark"))
hazelcast_cluster = pytest.fixture(scope="session", name="hazelcast_cluster")(for_the_run("hazelcast3"))


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts a server for one test: `start_server("redis")`, or with a recipe of your own."""
    running: list[RunningServer] = []

    def begin(wanted: str | Recipe) -> RunningServer:
        recipe = RECIPES[wanted]() if isinstance(wanted, str) else wanted
        running.append(started(recipe, tmp_path / f"{recipe.name}-{len(running)}"))
        return running[-1]

    yield begin
    for server in running:
        server.destroy()


@pytest.fixture
def proxy() -> Iterator[TcpProxy]:
    """A TCP proxy: set `proxy.target = PORT`, connect to `proxy.address`; cut, stall, refuse, resume."""
    with proxied() as made:
        yield made


@pytest.fixture
def proxied_kafka(proxy: TcpProxy, start_server: StartServer) -> RunningServer:
    """A Kafka whose clients go through `proxy`, also after they have asked it for its address."""
    server = start_server(kafka(advertised=(proxy.address,)))
    proxy.target = server.port
    return server
