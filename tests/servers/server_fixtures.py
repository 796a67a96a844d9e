"""Fixtures with real servers: each is started once for a test run, when a test first asks for it, and ended by pid.

A server that can't be had is a reason to skip; under CI=true it is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lockstep.dev import processes
from lockstep.dev.errors import ServerNotAvailable
from lockstep.dev.hazelcast import hazelcast
from lockstep.dev.kafka import kafka
from lockstep.dev.recipe import Plan, Recipe, Site
from lockstep.dev.servers import RECIPES, RunningServer, start
from lockstep.runtime import ThreadRuntime
from servers.tcp_proxy import TcpProxy, proxied

StartServer = Callable[..., RunningServer]
BRIEF_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Servers of tests do not live long enough for the second compiler: they start with half the processor time."""


def free_ports(count: int) -> tuple[int, ...]:
    """So many ports on loopback that nobody uses."""
    return processes.free_ports(count, ThreadRuntime.random)


def started(recipe: Recipe, folder: Path) -> RunningServer:
    """A server that answers, and that dies with this test run; skips or fails the test if it can't be had."""
    try:
        return start(recipe, folder, environ={**os.environ, "JAVA_TOOL_OPTIONS": BRIEF_JVM}, owner=os.getpid())
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
postgresql_server = pytest.fixture(scope="session", name="postgresql_server")(for_the_run("postgresql"))


@pytest.fixture(scope="session", name="cassandra_server")
def cassandra_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A Cassandra for the whole test run that refuses to read across 2,000 tombstones, not only across 100,000."""
    recipe = RECIPES["cassandra"]()

    def plan(site: Site) -> Plan:
        made = recipe.plan(site)
        limits = "tombstone_warn_threshold: 1000\ntombstone_failure_threshold: 2000\n"
        files = {**made.files, "cassandra.yaml": made.files["cassandra.yaml"] + limits}
        return replace(made, files=files)

    server = started(replace(recipe, plan=plan), tmp_path_factory.mktemp("cassandra"))
    yield server
    server.destroy()


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


@dataclass(frozen=True)
class Breakable:
    """A server that tests may kill, pause and cut off; clients that go through its proxy stay on it."""

    server: RunningServer
    proxy: TcpProxy

    def repair(self) -> None:
        """Have it answer again, whatever a test did to it."""
        self.proxy.resume()
        if self.server.is_alive:
            self.server.resume()
        else:
            self.server.restart()


def to_break(recipe: Callable[[TcpProxy], Recipe]) -> Callable[..., Iterator[Breakable]]:
    """The body of a fixture: a server for the whole test run that tests break, behind a proxy."""

    def body(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Breakable]:
        with proxied() as proxy:
            made = recipe(proxy)
            server = started(made, tmp_path_factory.mktemp(f"broken-{made.name}"))
            proxy.target = server.port
            yield Breakable(server, proxy)
            server.destroy()

    return body


def advertised_hazelcast(proxy: TcpProxy) -> Recipe:
    """A Hazelcast that tells its clients to come through a proxy."""
    recipe = hazelcast()

    def plan(site: Site) -> Plan:
        made = recipe.plan(site)
        own = f"public-address: 127.0.0.1:{site.ports[0]}"
        files = {name: text.replace(own, f"public-address: {proxy.address}") for name, text in made.files.items()}
        return replace(made, files=files, url=f"hazelcast://{proxy.address}")

    return replace(recipe, plan=plan)


broken_kafka = pytest.fixture(scope="session", name="broken_kafka")(
    to_break(lambda proxy: kafka(advertised=(proxy.address,)))
)
broken_rabbitmq = pytest.fixture(scope="session", name="broken_rabbitmq")(to_break(lambda _: RECIPES["rabbitmq"]()))
broken_postgresql = pytest.fixture(scope="session", name="broken_postgresql")(
    to_break(lambda _: RECIPES["postgresql"]())
)
broken_hazelcast = pytest.fixture(scope="session", name="broken_hazelcast")(to_break(advertised_hazelcast))


@pytest.fixture
def breakable_kafka(broken_kafka: Breakable) -> Iterator[Breakable]:
    """A Kafka to break: its clients go through its proxy, also after they have asked it for its address."""
    yield broken_kafka
    broken_kafka.repair()


@pytest.fixture
def breakable_rabbitmq(broken_rabbitmq: Breakable) -> Iterator[Breakable]:
    """A RabbitMQ to break."""
    yield broken_rabbitmq
    broken_rabbitmq.repair()


@pytest.fixture
def breakable_hazelcast(broken_hazelcast: Breakable) -> Iterator[Breakable]:
    """A Hazelcast of one member to break: its clients go through its proxy. A restart loses what it held."""
    yield broken_hazelcast
    broken_hazelcast.repair()


@pytest.fixture
def breakable_postgresql(broken_postgresql: Breakable) -> Iterator[Breakable]:
    """A PostgreSQL to break."""
    yield broken_postgresql
    broken_postgresql.repair()
