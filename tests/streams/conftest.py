from __future__ import annotations

import pytest
from worlds import lmdb_world, memory_world, server_world, virtual_world, wire_world

from lockstep.errors import UnsupportedByBackend

SERVERS = ["redis", "kafka", "rabbitmq", "hazelcast"]
MAKERS = {
    "wire": lambda _: wire_world(),
    "memory": lambda _: memory_world(),
    "lmdb": lmdb_world,
    "virtual": lambda _: virtual_world(),
}


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """What a bus says it can't do is not asked of it."""
    try:
        return (yield)
    except UnsupportedByBackend as error:
        pytest.skip(f"the bus can't {error.params['feature']}, and says so")


def _open(request, tmp_path):
    if request.param in SERVERS:
        world = server_world(request.getfixturevalue(f"{request.param}_server").url)
    else:
        world = MAKERS[request.param](tmp_path)
    yield world
    world.close()


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
