"""Which tests run on one worker when pytest-xdist shares them out (`-n 2 --dist loadgroup`).

A real server is started once for a run: every test that asks for it belongs to one group, and a group stays on one
worker. Tests that share a fixture of their module or class stay together too; all others go where there is room.
Nothing is written on the tests themselves: the fixtures they ask for decide.
"""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

GROUPS_FILE = "worker_groups"
SHARED_SERVERS = (
    "spark_cluster",
    "kafka_cluster",
    "hazelcast_cluster",
    "broken_kafka",
    "broken_rabbitmq",
    "broken_hazelcast",
    "broken_postgresql",
    "cassandra_server",
    "kafka_server",
    "rabbitmq_server",
    "hazelcast_server",
    "postgresql_server",
    "redis_server",
    "zookeeper_server",
)
"""Fixtures for the whole run, the slowest to start first: a test that asks for several goes with the first of them."""


def group_of(item: pytest.Item) -> str | None:
    """The group of a test: its server, else its file if it shares a fixture there, else none."""
    wanted = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    if callspec is not None:
        values = [part for value in callspec.params.values() for part in (value if type(value) is tuple else [value])]
        given = {value for value in values if isinstance(value, str)}
        wanted |= given | {f"{value}_server" for value in given}
    for server in SHARED_SERVERS:
        if server in wanted:
            return server
    return _file_of(item) if _shares_a_fixture(item) else None


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """Fail a test that asks for a server only while it runs: it would start one on each worker that it comes to."""
    item = getattr(request, "_pyfuncitem", None)
    if fixturedef.argname in SHARED_SERVERS and isinstance(item, pytest.Function) and group_of(item) is None:
        pytest.fail(f"{item.name} uses {fixturedef.argname}: name it among the arguments of the test or its fixture")


def _shares_a_fixture(item: pytest.Item) -> bool:
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return False
    used = (definition for name in info.names_closure for definition in info.name2fixturedefs.get(name, ()))
    return any(definition.scope in ("module", "class", "package") for definition in used)


def _file_of(item: pytest.Item) -> str:
    return item.path.stem


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell the controller the groups of the tests that are left: they do not fit into what workers send it."""
    given = getattr(config, "workerinput", {}).get(GROUPS_FILE)
    if given is not None:
        groups = {item.nodeid: group for item in items if (group := group_of(item)) is not None}
        part = Path(f"{given}.{os.getpid()}")
        part.write_text(json.dumps(groups))
        part.replace(given)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where its groups are expected."""
    node.workerinput[GROUPS_FILE] = str(_groups_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Share out groups instead of single tests with `--dist loadgroup`.

    The scheduler of pytest-xdist 3.8 finds no groups with pytest 9.2, where node ids can't be changed any more.
    """
    return GroupScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


class GroupScheduling(LoadScopeScheduling):
    """One group is one piece of work, and so is a test without a group; large groups are begun first."""

    @cached_property
    def groups(self) -> dict[str, str]:
        """The group of each test that has one, as a worker found them; all workers find the same."""
        return dict(json.loads(_groups_file(self.config).read_text()))

    def _split_scope(self, nodeid: str) -> str:
        return self.groups.get(nodeid, nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker two tests or the word that there are no more: with one alone it waits before it runs it.

        A worker that replaces a dead one is left alone until it has collected the tests.
        """
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Give back what a dead worker had left, except the test that it died in: that one failed and runs no more."""
        workload = self.assigned_work.pop(node)
        left = [(scope, nodeid) for scope, unit in workload.items() for nodeid, done in unit.items() if not done]
        if not left:
            return None
        scope, crashed = left[0]
        workload[scope][crashed] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed


def _groups_file(config: pytest.Config) -> Path:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp() / f"{GROUPS_FILE}.json"
