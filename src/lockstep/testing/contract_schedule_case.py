"""What the tests of a scheduler's store share: rows to store, a shard that is owned, and shorthand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstep.core.agenda import Event
from lockstep.log.memory import MemoryBroker
from lockstep.log.port import Bus, Log
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.rows import Change, CronRow, Fence, Run, cron_key, row_key
from lockstep.schedule.store.port import Filter, Store
from lockstep.testing.contract_case import KEEP_ALL

FAR = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def event(name: str, due: int = 1000, **fields: object) -> Event:
    """An event of the tenant shop, with what the test needs."""
    given = {"tenant": "shop", "id": name, "event_id": f"id-{name}", "at": due, "due": due, **fields}
    return Event(**given)  # type: ignore[arg-type]


def run(cron: str, at: int, *, bucket: int = 0, expires: int | None = None) -> Run:
    """A logged run."""
    return Run(cron, bucket, at, b'{"at": %d}' % at, expires)


def cron(name: str, **fields: object) -> CronRow:
    """A cron of the tenant shop."""
    given = {"tenant": "shop", "id": name, "type": "QUARTZ", "expression": "0 0 9 * * ?", **fields}
    return CronRow(**given)  # type: ignore[arg-type]


def key_of(row: CronRow) -> bytes:
    """The key of a cron's row."""
    return cron_key(row.tenant, row.id, row.type)


class StoreCase:
    """Fixtures and shorthand. Override `store`; the rest only where your store needs it."""

    @pytest.fixture
    def bus(self) -> Iterator[Bus]:
        """The bus that outgoing records are published to."""
        bus = MemoryBroker().bus(ThreadRuntime())
        yield bus
        bus.close()

    @pytest.fixture
    def store(self, bus: Bus) -> Iterator[Store]:
        """An empty store; yours yields it and closes it."""
        message = "override the fixture 'store'"
        raise NotImplementedError(message)

    @pytest.fixture
    def same_store(self, store: Store) -> Store:
        """Another handle on the same store, as another node would have."""
        return store

    @pytest.fixture
    def fence(self, store: Store) -> Fence:
        """The fence of shard 0, claimed."""
        return self.claimed(store, 0)

    @pytest.fixture
    def fired(self, bus: Bus) -> Log:
        """A stream that events are published to."""
        return bus.create("fired", KEEP_ALL)

    @pytest.fixture
    def few_looked_at(self) -> None:
        """Have a page of a list look at 10 rows at most, if the store has such a limit."""

    def elect(self, shard: int, member: str, epoch: int, *, seat: str = "requests") -> Fence:
        """Have a member get the seat of a shard in an epoch, as the group of nodes would."""
        return Fence(f"{seat}/{shard}", member, epoch)

    def claimed(self, store: Store, shard: int, member: str = "one", epoch: int = 1) -> Fence:
        """The fence of a shard that a member was elected to and has claimed."""
        fence = self.elect(shard, member, epoch)
        assert store.claim(shard, fence) is not None
        return fence

    def put(self, store: Store, fence: Fence, *events: Event, shard: int = 0) -> None:
        """Commit events as they are, in place of those that are stored."""
        keys = [row_key(one) for one in events]
        stored = store.get(shard, keys)
        change = Change(shard, fence)
        for key, one in zip(keys, events, strict=True):
            change.put(key, stored.get(key), one)
        assert store.commit([change]) == set()

    def take(self, store: Store, fence: Fence, *events: Event, shard: int = 0) -> None:
        """Remove events."""
        change = Change(shard, fence)
        for one in events:
            change.put(row_key(one), one, None)
        assert store.commit([change]) == set()

    def everything(self, store: Store, shard: int = 0) -> tuple[object, ...]:
        """All that a reader of a shard can see."""
        listed = store.events([shard], Filter(), 1000)
        crons = sorted(store.crons(shard), key=lambda row: row.name)
        ended = [*store.expired(shard, FAR, 1000)]
        return listed, crons, store.tenants(shard), store.firing(shard), ended, store.runs(shard, "shop/c/QUARTZ", 1000)
