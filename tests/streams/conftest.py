from __future__ import annotations

import pytest
from worlds import lmdb_world, memory_world, virtual_world

MAKERS = {"memory": lambda _: memory_world(), "lmdb": lmdb_world, "virtual": lambda _: virtual_world()}


def _open(request, tmp_path):
    world = MAKERS[request.param](tmp_path)
    yield world
    world.close()


@pytest.fixture(params=["memory", "lmdb", "virtual"])
def world(request, tmp_path):
    """Every bus there is; nothing in the test needs a thread of its own."""
    yield from _open(request, tmp_path)


@pytest.fixture(params=["memory", "lmdb"])
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
