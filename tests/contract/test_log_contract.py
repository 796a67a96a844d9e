"""Every bus runs the same suite; see lockstep.testing.contract."""

from __future__ import annotations

import pytest
from strided_bus import StridedBus

from lockstep.log.memory import MemoryBroker
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing import FaultyBus, VirtualRuntime
from lockstep.testing.contract import LogContract
from memory_driver import MemoryServer

MAP = f"map_bytes={1 << 28}"


class TestMemory(LogContract):
    @pytest.fixture
    def grid(self):
        return MemoryBroker()

    @pytest.fixture
    def bus(self, grid):
        bus = grid.bus(ThreadRuntime())
        yield bus
        bus.close()

    @pytest.fixture
    def same_bus(self, grid):
        bus = grid.bus(ThreadRuntime())
        yield bus
        bus.close()


class TestMemoryWithoutDedupe(TestMemory):
    @pytest.fixture
    def grid(self):
        return MemoryBroker(dedupe=False)


class TestMemoryInVirtualTime(LogContract):
    uses_threads = False

    @pytest.fixture(autouse=True)
    def use_clock(self, lockstep_clock):
        self.clock = lockstep_clock

    @pytest.fixture
    def bus(self, lockstep_bus):
        return lockstep_bus

    @pytest.fixture
    def same_bus(self, lockstep_grid, lockstep_clock, bus):
        return lockstep_grid.bus(lockstep_clock)

    def let_time_pass(self):
        self.clock.advance(0.01)

    def ends_soon(self, call):
        before = self.clock.monotonic()
        call()
        assert self.clock.monotonic() == before, "the wait was ended by its timeout"


class TestLmdb(LogContract):
    options = "durability=fsync"

    @pytest.fixture
    def url(self, tmp_path):
        return f"lmdb:{tmp_path / 'bus'}?{MAP}&{self.options}"

    @pytest.fixture
    def bus(self, url):
        bus = open_bus(url, ThreadRuntime())
        yield bus
        bus.close()

    @pytest.fixture
    def same_bus(self, url, bus):
        other = open_bus(url, ThreadRuntime())
        yield other
        other.close()


class TestLmdbRelaxed(TestLmdb):
    options = "durability=relaxed"


class TestLmdbWithReplica(TestLmdb):
    @pytest.fixture
    def url(self, tmp_path):
        return f"lmdb:{tmp_path / 'bus'}?{MAP}&durability=relaxed&replica={tmp_path / 'copy'}"


class TestLmdbWithFollower(TestLmdb):
    @pytest.fixture
    def url(self, tmp_path):
        return f"lmdb:{tmp_path / 'bus'}?{MAP}&durability=relaxed&async_replica={tmp_path / 'copy'}"


class TestFaultyBusWithoutFaults(TestMemory):
    @pytest.fixture
    def bus(self, grid):
        bus = FaultyBus(grid.bus(ThreadRuntime()))
        yield bus
        bus.close()
        assert not bus.plan.counts


def test_virtual_time_is_what_the_fixtures_give(lockstep_clock, lockstep_bus, lockstep_folder):
    assert isinstance(lockstep_clock, VirtualRuntime)
    assert lockstep_bus.promises.durability == "memory"
    bus = open_bus(lockstep_folder, ThreadRuntime())
    assert bus.promises.durability == "fsync"
    bus.close()


class TestTheLeastABusCanBe(LogContract):
    """A backend that promises next to nothing passes too: the suite asks only for what was promised."""

    @pytest.fixture
    def bus(self):
        bus = StridedBus()
        yield bus
        bus.close()


class TestServerInMemory(LogContract):
    """What all buses over a network share, over the least a server can be."""

    @pytest.fixture
    def server(self):
        return MemoryServer()

    @pytest.fixture
    def bus(self, server):
        bus = server.bus(ThreadRuntime())
        yield bus
        bus.close()

    @pytest.fixture
    def same_bus(self, server, bus):
        other = server.bus(ThreadRuntime())
        yield other
        other.close()
