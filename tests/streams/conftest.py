from __future__ import annotations

from pathlib import Path

import pytest
from worlds import lmdb_world, memory_world, promised, server_world, virtual_world, wire_world

HERE = Path(__file__).parent
SERVERS = ["redis", "kafka", "rabbitmq", "hazelcast"]
MAKERS = {
    "wire": lambda _: wire_world(),
    "memory": lambda _: memory_world(),
    "lmdb": lmdb_world,
    "virtual": lambda _: virtual_world(),
}


def pytest_collection_modifyitems(items):
    """On real servers `make test` runs the tests marked real_servers, and `make soak` all of them."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if item.path.parent != HERE or callspec is None or not set(SERVERS) & _texts(callspec.params.values()):
            continue
        if item.get_closest_marker("real_servers") is None:
            item.add_marker(pytest.mark.soak)


def _texts(values):
    return {value for value in values if isinstance(value, str)}


def _open(request, tmp_path):
    if request.param in SERVERS:
        world = server_world(request.getfixturevalue(f"{request.param}_server").url)
    else:
        world = MAKERS[request.param](tmp_path)
    _skip_unless_promised(request.node, world)
    yield world
    world.close()


def _skip_unless_promised(item, world):
    """Skip a test that needs what this bus does not promise; a refusal of anything else is a failure."""
    needed = {name for mark in item.iter_markers("needs") for name in mark.args}
    if needed and (missing := needed - promised(world.promises())):
        pytest.skip(f"the bus does not promise: {', '.join(sorted(missing))}")


@pytest.fixture(params=["memory", "lmdb", "virtual", "wire", *SERVERS])
def world(request, tmp_path):
    """Every bus there is; nothing in the test needs a thread of its own."""
    yield from _open(request, tmp_path)


@pytest.fixture(params=["memory", "lmdb", "wire", *SERVERS])
def threads(request, tmp_path):
    """Buses in real time, for tests that work on several threads."""
    yield from _open(request, tmp_path)


@pytest.fixture(params=["virtual"])
def virtual(request, tmp_path):
    """A bus in virtual time: what happens when, to the nanosecond."""
    yield from _open(request, tmp_path)


@pytest.fixture(params=["lmdb"])
def disk(request, tmp_path):
    """The bus on disk."""
    yield from _open(request, tmp_path)


@pytest.fixture
def bus(world):
    """A first connection."""
    return world.node()


@pytest.fixture(params=["memory", "lmdb", "virtual", "redis"])
def dense_bus(request, tmp_path):
    """A first connection to a bus whose offsets have no gaps."""
    for world in _open(request, tmp_path):
        yield world.node()
