"""The store on the bus runs the suite of all stores; see lockstep.testing.contract_schedule_store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from lockstep.core.group import GroupState
from lockstep.core.seats import Seat
from lockstep.errors import AppendUncertain
from lockstep.log.memory import MemoryBroker
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.store import cells
from lockstep.schedule.store.cells import CellStore
from lockstep.testing import FaultPlan, FaultyBus
from lockstep.testing.contract_schedule_store import ScheduleStoreContract


class CellStoreContract(ScheduleStoreContract):
    """A store whose group of nodes is what the test elects."""

    @pytest.fixture(autouse=True)
    def begin_without_owners(self):
        self.group = GroupState()

    def elect(self, shard, member, epoch, *, seat="requests"):
        fence = super().elect(shard, member, epoch, seat=seat)
        seats = {name: one for name, one in self.group.seats.items() if not name.endswith(f"/{shard}")}
        self.group = replace(self.group, seats={**seats, fence.seat: Seat(epoch=epoch, owner=member)})
        return fence

    @pytest.fixture
    def few_looked_at(self, monkeypatch):
        monkeypatch.setattr(cells, "SCANNED_MAX", 10)

    @pytest.fixture
    def store(self, bus):
        return CellStore(bus, "shop", ThreadRuntime(), lambda _: self.group)

    @pytest.fixture
    def same_store(self, same_bus):
        return CellStore(same_bus, "shop", ThreadRuntime(), lambda _: self.group)


class TestMemory(CellStoreContract):
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


class TestLmdb(CellStoreContract):
    @pytest.fixture
    def url(self, tmp_path):
        return f"lmdb:{tmp_path / 'bus'}?map_bytes={1 << 28}&durability=relaxed"

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


class LossyStore(CellStore):
    """Each commit is lost first, so that it has to be made again."""

    kind = "drop"

    def __init__(self, bus, name, runtime, owners):
        self.plan = FaultPlan()
        super().__init__(FaultyBus(bus, self.plan), name, runtime, owners)

    def commit(self, changes):
        getattr(self.plan, self.kind)(on="atomic")
        try:
            with suppress(AppendUncertain):
                return super().commit(changes)  # nothing was to be written
        finally:
            self.plan.clear()
        return self.again(changes)

    def again(self, changes):
        return super().commit(changes)


class UncertainStore(LossyStore):
    """Each commit is stored and seems to have failed, so that shards are claimed again."""

    kind = "lose_ack"

    def again(self, changes):
        return {change.shard for change in changes if self.claim(change.shard, change.fence) is None}


@pytest.mark.parametrize("faulty", [LossyStore, UncertainStore], scope="class")
class TestFaulty(TestMemory):
    @pytest.fixture
    def store(self, bus, faulty):
        return faulty(bus, "shop", ThreadRuntime(), lambda _: self.group)

    @pytest.fixture
    def same_store(self, same_bus, faulty):
        return faulty(same_bus, "shop", ThreadRuntime(), lambda _: self.group)
