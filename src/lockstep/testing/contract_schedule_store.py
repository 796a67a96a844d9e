"""The suite that every store of a scheduler has to pass; yours too.

    class TestMyStore(ScheduleStoreContract):
        @pytest.fixture
        def store(self, bus):
            store = MyStore("shop", bus)        # empty, and not shared with another test
            yield store
            store.close()

Also to override, if you can: `same_store` (another handle on the same store), and `elect` for a store that asks the
group of nodes who owns a shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lockstep.core.agenda import ENDED, UNFIRED, Event, Form, Option, Status
from lockstep.core.ticks import Misfire, Overlap, Policy
from lockstep.errors import BadArgument, StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.memory import Grid
from lockstep.log.port import Bus, Log
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.rows import Change, CronRow, Fence, Outgoing, Run, ShardState, cron_key, row_key
from lockstep.schedule.store.port import EARLY_MS, Due, Filter, Page, Store
from lockstep.testing.contract_case import KEEP_ALL, records, values, views

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
        bus = Grid().bus(ThreadRuntime())
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


class FenceContract(StoreCase):
    """See Store.claim and the sentence on fences."""

    def test_a_shard_that_was_never_owned_begins_at_0(self, store: Store) -> None:
        assert store.claim(3, self.elect(3, "one", 1)) == ShardState(0, None)

    def test_position_and_mark_go_to_the_next_owner(self, store: Store, same_store: Store, fence: Fence) -> None:
        assert store.commit([Change(0, fence, position=7, mark=90)]) == set()
        assert store.commit([Change(0, fence, position=8)]) == set()
        assert store.commit([Change(0, fence, mark=91)]) == set()
        assert same_store.claim(0, self.elect(0, "two", 2)) == ShardState(8, 91)

    def test_an_owner_may_claim_again(self, store: Store, fence: Fence) -> None:
        store.commit([Change(0, fence, position=7, mark=0)])
        assert store.claim(0, fence) == ShardState(7, 0)
        assert store.commit([Change(0, fence, position=8)]) == set()

    def test_a_claim_of_an_earlier_epoch_is_refused(self, store: Store, same_store: Store, fence: Fence) -> None:
        self.claimed(same_store, 0, "two", 2)
        assert store.claim(0, fence) is None
        assert same_store.claim(0, self.elect(0, "two", 2)) is not None

    def test_a_claim_of_somebody_else_in_the_same_epoch_is_refused(self, store: Store, fence: Fence) -> None:
        assert store.claim(0, replace(fence, member="two")) is None
        assert store.commit([Change(0, fence, position=1)]) == set()

    def test_a_change_of_an_earlier_epoch_is_refused_and_changes_nothing(
        self, store: Store, same_store: Store, fence: Fence, fired: Log
    ) -> None:
        kept, gone = event("kept"), event("gone", status=Status.FIRING)
        self.put(store, fence, kept, gone)
        new = self.claimed(same_store, 0, "two", 2)
        before = self.everything(store)

        late = Change(0, fence, position=99, mark=99, runs=[run("shop/c/QUARTZ", 5)])
        late.put(row_key(kept), kept, replace(kept, status=Status.DONE, due=5, ended=5))
        late.put(row_key(gone), gone, None)
        late.put(row_key(event("new")), None, event("new"))
        late.crons[key_of(cron("c"))] = cron("c")
        late.outgoing.append(Outgoing("fired", b"late"))
        assert store.commit([late]) == {0}

        assert self.everything(store) == self.everything(same_store) == before
        assert same_store.claim(0, new) == ShardState(0, None)
        assert values(fired) == []

    def test_a_change_of_somebody_else_in_the_same_epoch_is_refused(self, store: Store, fence: Fence) -> None:
        assert store.commit([Change(0, replace(fence, member="two"), position=1)]) == {0}
        assert store.claim(0, fence) == ShardState(0, None)

    def test_a_change_without_a_claim_is_refused(self, store: Store) -> None:
        assert store.commit([Change(5, Fence("requests/5", "one", 1), position=1)]) == {5}

    def test_one_refused_shard_leaves_the_others(
        self, store: Store, same_store: Store, fence: Fence, fired: Log
    ) -> None:
        other = self.claimed(store, 1)
        self.claimed(same_store, 1, "two", 2)
        changes = [Change(shard, own, position=4) for shard, own in ((0, fence), (1, other))]
        for change in changes:
            change.put(row_key(event("e")), None, event("e"))
            change.outgoing.append(Outgoing("fired", b"%d" % change.shard))
        assert store.commit(changes) == {1}
        assert (len(store.events([0], Filter(), 10).events), store.events([1], Filter(), 10)) == (1, Page([]))
        assert values(fired) == [b"0"]

    def test_a_stream_made_anew_is_another_seat_and_is_read_from_its_begin(self, store: Store, fence: Fence) -> None:
        store.commit([Change(0, fence, position=7, mark=90)])
        anew = self.elect(0, "one", 1, seat="requests-anew")
        assert store.claim(0, anew) == ShardState(0, 90)
        assert store.commit([Change(0, fence, position=9)]) == {0}
        assert store.commit([Change(0, anew, position=1)]) == set()
        assert store.claim(0, anew) == ShardState(1, 90)

    def test_a_store_is_known_by_its_identity(self, store: Store, same_store: Store) -> None:
        assert store.identity() == same_store.identity()
        assert store.identity().id


class CommitContract(StoreCase):
    """See Store.commit: a change is stored as a whole or not at all, and read by everybody from then on."""

    def test_what_was_committed_is_read_by_everybody(self, store: Store, same_store: Store, fence: Fence) -> None:
        one, row, logged = event("one"), cron("c"), run("shop/c/QUARTZ", 5)
        change = Change(0, fence, position=1, mark=2, crons={key_of(row): row}, runs=[logged])
        change.put(row_key(one), None, one)
        assert store.commit([change]) == set()
        for handle in (store, same_store):
            assert handle.get(0, [row_key(one)]) == {row_key(one): one}
            assert handle.cron(0, key_of(row)) == row
            assert handle.runs(0, "shop/c/QUARTZ", 10) == [logged]

    def test_a_change_that_fails_leaves_nothing(self, store: Store, fence: Fence, fired: Log) -> None:
        other = self.claimed(store, 1)
        good, bad = Change(0, fence, position=5), Change(1, other, position=5)
        for change in (good, bad):
            change.put(row_key(event("e")), None, event("e"))
            change.outgoing.append(Outgoing("fired", b"x"))
        bad.outgoing.append(Outgoing("missing", b"x"))
        with pytest.raises(StreamNotFound):
            store.commit([good, bad])
        assert store.events([0, 1], Filter(), 10) == Page([])
        assert (store.claim(0, fence), store.claim(1, other)) == (ShardState(), ShardState())
        assert values(fired) == []

    def test_no_change_is_no_work(self, store: Store, fence: Fence) -> None:
        assert store.commit([]) == set()
        assert store.commit([Change(0, fence)]) == set()
        assert store.claim(0, fence) == ShardState()

    def test_many_events_of_many_shards_at_once(self, store: Store) -> None:
        fences = {shard: self.claimed(store, shard) for shard in range(4)}
        changes = [Change(shard, fence) for shard, fence in fences.items()]
        for change in changes:
            for number in range(250):
                one = event(f"{change.shard}-{number}", 1000 + number)
                change.put(row_key(one), None, one)
        assert store.commit(changes) == set()
        assert [len(store.due(shard, "shop", 0, 5000, 1000)) for shard in fences] == [250] * 4

    def test_two_changes_of_a_shard_are_stored_in_their_order(self, store: Store, fence: Fence, fired: Log) -> None:
        put, gone = event("put"), event("gone")
        first = Change(0, fence, position=1, outgoing=[Outgoing("fired", b"a")])
        first.put(row_key(put), None, put)
        first.put(row_key(gone), None, gone)
        second = Change(0, fence, mark=2, outgoing=[Outgoing("fired", b"b")])
        second.put(row_key(put), put, replace(put, payload=b"new"))
        second.put(row_key(gone), gone, None)
        assert store.commit([first, second]) == set()
        assert store.events([0], Filter(), 10).events == [replace(put, payload=b"new")]
        assert (store.claim(0, fence), values(fired)) == (ShardState(1, 2), [b"a", b"b"])

    def test_an_event_is_replaced_and_removed(self, store: Store, fence: Fence) -> None:
        one = event("one", payload=b"first")
        self.put(store, fence, one)
        self.put(store, fence, replace(one, payload=b"second"))
        assert store.get(0, [row_key(one)])[row_key(one)].payload == b"second"
        self.take(store, fence, one)
        assert (store.get(0, [row_key(one)]), self.everything(store)[0]) == ({}, Page([]))

    def test_removing_what_is_not_there_is_no_error(self, store: Store, fence: Fence) -> None:
        change = Change(0, fence, crons={b"c" * 16: None})
        change.put(b"k" * 16, None, None)
        assert store.commit([change]) == set()

    def test_a_name_in_two_shards_is_two_rows(self, store: Store, fence: Fence) -> None:
        other = self.claimed(store, 1)
        self.put(store, fence, event("e", payload=b"0"))
        self.put(store, other, event("e", payload=b"1"), shard=1)
        assert [store.get(shard, [row_key(event("e"))])[row_key(event("e"))].payload for shard in (0, 1)] == [
            b"0",
            b"1",
        ]


class OutgoingContract(StoreCase):
    """See Store.commit: what changes send is published, in order."""

    def test_records_are_published_once_in_order(self, store: Store, fence: Fence, fired: Log) -> None:
        for first in (0, 10, 20):
            change = Change(0, fence, outgoing=[Outgoing("fired", b"%d" % n) for n in range(first, first + 10)])
            assert store.commit([change]) == set()
        assert values(fired) == [b"%d" % number for number in range(30)]

    def test_keys_and_headers_are_kept(self, store: Store, fence: Fence, fired: Log) -> None:
        sent = [
            Outgoing("fired", b"", b"", (("", b""), ("Grüße", b"\0\xff"))),
            Outgoing("fired", b"plain"),
            Outgoing("fired", b"\0" * 1000, b"\xff\0key"),
        ]
        store.commit([Change(0, fence, outgoing=sent)])
        found = [
            Outgoing("fired", *parts)
            for view in views(fired)
            for parts in zip(view.values(), view.keys(), view.headers(), strict=True)
        ]
        assert found == sent

    def test_records_go_to_the_shard_of_their_key(self, store: Store, fence: Fence, bus: Bus) -> None:
        from lockstep.streams.shards import logs_of, shard_of

        made = bus.create("wide", StreamConfig(capacity=None, shards=4))
        for shard in range(4):
            bus.create(f"wide/{shard}", made.config)
        keys = [b"key-%d" % number for number in range(20)]
        store.commit([Change(0, fence, outgoing=[Outgoing("wide", key, key) for key in keys])])
        for number, log in enumerate(logs_of(bus, "wide")):
            assert values(log) == [key for key in keys if shard_of(key, 4, made.config.partitioner) == number]

    @pytest.mark.parametrize("shards", [(1, 3), (3, 1), (3, 2), (3, 3)])
    def test_a_stream_made_anew_gets_records_in_the_shards_that_it_has_now(
        self, store: Store, fence: Fence, bus: Bus, shards: tuple[int, int]
    ) -> None:
        from lockstep.streams.shards import logs_of

        def make(count: int) -> None:
            for name in [*bus.names()]:
                if name.startswith("wide"):
                    bus.delete(name)
            made = bus.create("wide", StreamConfig(capacity=None, shards=count))
            for number in range(count if count > 1 else 0):
                bus.create(f"wide/{number}", made.config)

        keys = [b"key-%d" % number for number in range(10)]
        for count in shards:
            make(count)
            sent = [Outgoing("wide", key, key, (("name", key),)) for key in keys]
            assert store.commit([Change(0, fence, outgoing=sent)]) == set()
            assert sorted(value for log in logs_of(bus, "wide") for value in values(log)) == keys

    def test_shards_and_streams_of_one_commit(self, store: Store, fence: Fence, fired: Log, bus: Bus) -> None:
        history, other = bus.create("history", KEEP_ALL), self.claimed(store, 1)
        changes = [
            Change(0, fence, outgoing=[Outgoing("fired", b"a"), Outgoing("history", b"b"), Outgoing("fired", b"c")]),
            Change(1, other, outgoing=[Outgoing("history", b"d"), Outgoing("fired", b"e")]),
        ]
        assert store.commit(changes) == set()
        assert (values(fired), values(history)) == ([b"a", b"c", b"e"], [b"b", b"d"])

    def test_a_new_owner_goes_on(self, store: Store, same_store: Store, fence: Fence, fired: Log) -> None:
        store.commit([Change(0, fence, outgoing=[Outgoing("fired", b"one")])])
        new = self.claimed(same_store, 0, "two", 2)
        same_store.commit([Change(0, new, outgoing=[Outgoing("fired", b"two")])])
        assert same_store.claim(0, new) is not None
        same_store.commit([Change(0, new, outgoing=[Outgoing("fired", b"three")])])
        assert values(fired) == [b"one", b"two", b"three"]
        assert len(records(fired)) == 3


class DueContract(StoreCase):
    """See Store.due, next_due, tenants, firing and expired: an event is found by what it waits for, and only there."""

    def test_due_events_come_in_the_order_of_time(self, store: Store, fence: Fence) -> None:
        events = [event(f"e{due}", due) for due in (300, 100, 200, 400)]
        self.put(store, fence, *events)
        found = store.due(0, "shop", 0, 300, 10)
        assert found == [Due(row_key(event(f"e{due}", due)), due) for due in (100, 200, 300)]
        whole = store.due_events(0, "shop", 0, 300, 10)
        assert list(whole.items()) == [(row_key(one), one) for one in sorted(events, key=lambda one: one.due)[:3]]

    def test_both_ends_are_included(self, store: Store, fence: Fence) -> None:
        self.put(store, fence, *(event(f"e{due}", due) for due in (99, 100, 101, 102)))
        assert [one.due for one in store.due(0, "shop", 100, 101, 10)] == [100, 101]

    def test_the_limit_leaves_the_later_ones(self, store: Store, fence: Fence) -> None:
        self.put(store, fence, *(event(f"e{due}", due) for due in range(10)))
        assert [one.due for one in store.due(0, "shop", 2, 9, 3)] == [2, 3, 4]

    def test_events_of_one_time_are_all_found(self, store: Store, fence: Fence) -> None:
        events = [event(f"e{number}", 5) for number in range(20)]
        self.put(store, fence, *events)
        assert {one.key for one in store.due(0, "shop", 5, 5, 100)} == {row_key(one) for one in events}

    def test_each_tenant_and_shard_has_its_own(self, store: Store, fence: Fence) -> None:
        other = self.claimed(store, 1)
        self.put(store, fence, event("e", 1), event("e", 2, tenant="bank"))
        self.put(store, other, event("f", 3), shard=1)
        assert [one.due for one in store.due(0, "shop", 0, 10, 10)] == [1]
        assert [one.due for one in store.due(0, "bank", 0, 10, 10)] == [2]
        assert [one.due for one in store.due(1, "shop", 0, 10, 10)] == [3]
        assert store.due(1, "bank", 0, 10, 10) == store.due(7, "shop", 0, 10, 10) == []

    def test_next_due(self, store: Store, fence: Fence) -> None:
        self.put(store, fence, event("a", 100), event("b", 200), event("c", 50, status=Status.DONE, ended=50))
        asked = (0, 100, 101, 200, 201)
        assert [store.next_due(0, "shop", start) for start in asked] == [100, 100, 200, 200, None]
        assert store.next_due(0, "shop") == 100
        assert store.next_due(0, "bank") is None

    def test_tenants_with_unfired_events(self, store: Store, fence: Fence) -> None:
        self.put(
            store, fence, event("a", 300), event("b", 100, status=Status.RETRY), event("c", 200),
            event("d", 7, tenant="Bänk"), event("e", 1, tenant="idle", status=Status.FIRING),
            event("f", 2, tenant="over", status=Status.FAILED, ended=2),
        )  # fmt: skip
        assert store.tenants(0) == {"shop": 100, "Bänk": 7}
        assert store.tenants(1) == {}

    def test_a_tenant_without_unfired_events_is_left_out(self, store: Store, fence: Fence) -> None:
        one = event("a", 100)
        self.put(store, fence, one)
        self.put(store, fence, replace(one, status=Status.FIRING))
        assert store.tenants(0) == {}
        self.put(store, fence, replace(one, status=Status.RETRY, due=500))
        assert store.tenants(0) == {"shop": 500}
        self.take(store, fence, replace(one, status=Status.RETRY, due=500))
        assert store.tenants(0) == {}

    @pytest.mark.parametrize("status", sorted(UNFIRED))
    def test_a_rescheduled_event_is_due_at_its_new_time_only(self, store: Store, fence: Fence, status: Status) -> None:
        one = event("e", 100, status=status)
        self.put(store, fence, one)
        self.put(store, fence, replace(one, at=500, due=500, status=Status.WAITING))
        assert [item.due for item in store.due(0, "shop", 0, 1000, 10)] == [500]
        assert (store.next_due(0, "shop"), store.tenants(0)) == (500, {"shop": 500})
        self.put(store, fence, replace(one, at=50, due=50))
        assert [item.due for item in store.due(0, "shop", 0, 1000, 10)] == [50]
        assert len(store.events([0], Filter(), 10).events) == 1

    def test_an_event_that_changes_twice_in_one_change(self, store: Store, fence: Fence) -> None:
        one = event("e", 100)
        self.put(store, fence, one)
        change, key = Change(0, fence), row_key(one)
        change.put(key, one, replace(one, due=200))
        change.put(key, replace(one, due=200), replace(one, due=300))
        store.commit([change])
        assert store.due(0, "shop", 0, 1000, 10) == [Due(key, 300)]

    @pytest.mark.parametrize("status", Status)
    def test_an_event_is_found_where_its_status_says(self, store: Store, fence: Fence, status: Status) -> None:
        one = event("e", 100)
        self.put(store, fence, one)
        after = replace(one, status=status, due=200, ended=200 if status in ENDED else None)
        self.put(store, fence, after)
        assert len(store.due(0, "shop", 0, 1000, 10)) == (status in UNFIRED)
        assert store.firing(0) == ([after] if status is Status.FIRING else [])
        assert store.expired(0, 1000, 10) == ([after] if status in ENDED else [])
        assert store.events([0], Filter(), 10) == Page([after])

    def test_firing(self, store: Store, fence: Fence) -> None:
        events = [event(f"e{number}", number, status=Status.FIRING, epoch=1) for number in range(3)]
        self.put(store, fence, *events, event("waits"))
        assert sorted(store.firing(0), key=lambda one: one.id) == events
        assert store.firing(1) == []

    def test_expired_events_come_oldest_first(self, store: Store, fence: Fence) -> None:
        ended = [event(f"e{at}", 1, status=Status.DONE, ended=at) for at in (300, 100, 200)]
        failed = event("failed", 1, status=Status.FAILED, ended=150)
        self.put(store, fence, *ended, failed, event("waits", 1), event("fires", 1, status=Status.FIRING))
        assert [one.ended for one in store.expired(0, 300, 10)] == [100, 150, 200]
        assert [one.ended for one in store.expired(0, 301, 2)] == [100, 150]
        self.take(store, fence, *store.expired(0, 301, 2))
        assert [one.ended for one in store.expired(0, 301, 10)] == [200, 300]

    def test_an_ended_event_that_was_replayed_does_not_expire(self, store: Store, fence: Fence) -> None:
        one = event("e", 100, status=Status.FAILED, ended=100)
        self.put(store, fence, one)
        self.put(store, fence, replace(one, status=Status.WAITING, due=400, ended=None))
        assert store.expired(0, FAR, 10) == []
        assert [item.due for item in store.due(0, "shop", 0, 1000, 10)] == [400]

    def test_times_before_1970_and_far_away(self, store: Store, fence: Fence) -> None:
        dues = [-(1 << 62), -1000, -1, 0, 1, FAR, 1 << 62]
        self.put(store, fence, *(event(f"e{due}", due) for due in dues))
        assert [one.due for one in store.due(0, "shop", -(1 << 62), 1 << 62, 10)] == dues
        assert [one.due for one in store.due(0, "shop", -1000, 1, 10)] == [-1000, -1, 0, 1]
        assert [store.next_due(0, "shop", start) for start in (-5000, -1, 2)] == [-1000, -1, FAR]
        assert store.next_due(0, "shop") == 0
        assert store.tenants(0) == {"shop": -(1 << 62)}
        assert [one.due for one in store.events([0], Filter(), 10).events] == dues


EVENTS = {
    "least": event("e"),
    "all": Event(
        tenant="Ünïcode \N{SNOWMAN}", id="a/b c\td\n\N{GRINNING FACE}", event_id="ID", at=1, due=2, status=Status.RETRY,
        payload=b'{"a": 1}', form=Form.JSON, option=Option.PAYLOAD_ONLY, lapsed=True, accepted=3, attempt=4,
        triggered=5, ended=None, error="503: später", epoch=6, tick=True,
    ),
    "empty texts": event("", event_id="", payload=b"", error=""),
    "no payload": event("e", payload=None, error=None),
    "bytes": event("e", payload=bytes(range(256)) * 40, form=Form.BYTES),
    "quotes": event("'\"\\{},NULL", payload=b"\\x00", error="{\"a\": '%s'} %(x)s"),
    "control characters": event("a\0b\x1bc\x1b0", error="\0\x1b1\x01\x7f"),
    "before 1970": event("e", at=-86_400_000, accepted=-1, triggered=-1, ended=-1, status=Status.FAILED),
    "at 1970": event("e", 0, accepted=0, triggered=0, ended=0, status=Status.DONE, attempt=0),
    "far away": event("e", FAR, at=1 << 62, accepted=FAR, triggered=FAR, attempt=2**31 - 1, epoch=1 << 40),
    "long": event("n" * 5000, event_id="i" * 1000, error="e" * 60_000, payload=b"p" * 300_000),
}  # fmt: skip
CRONS = {
    "least": cron("c"),
    "all": CronRow(
        tenant="Ünïcode \N{SNOWMAN}", id="a/b c\N{GRINNING FACE}", type="UNIX", expression="*/5 * * * *",
        tz="Europe/Berlin", dst="twice", jitter_s=7, paused=True, payload="{\"a\": 'ü'}".encode(),
        policy=Policy(misfire=Misfire.ALL, grace_s=1, catch_up_s=2, overlap=Overlap.SKIP),
        log_granularity="MINUTES", retention=3, retention_units="HOURS", since=-4, updated=FAR, executed=0, caught_up=6,
    ),
    "empty": cron("", type="", expression="", payload=b"", tz="", log_granularity=""),
    "control characters": cron("a\0b\x1b", payload=b"\0\\u0000"),
}  # fmt: skip


class RowContract(StoreCase):
    """Events, crons and runs are read as they were stored."""

    @pytest.mark.parametrize("one", EVENTS.values(), ids=EVENTS)
    def test_an_event_is_read_as_it_was_stored(self, store: Store, fence: Fence, one: Event) -> None:
        self.put(store, fence, one)
        key = row_key(one)
        assert store.get(0, [key]) == {key: one}
        assert store.events([0], Filter(tenant=one.tenant), 10) == Page([one])
        found = store.get(0, [key])[key]
        assert [type(getattr(found, name)) for name in ("status", "form", "option")] == [Status, Form, Option]

    def test_missing_events_are_left_out(self, store: Store, fence: Fence) -> None:
        events = {row_key(one): one for one in (event("a"), event("b"))}
        self.put(store, fence, *events.values())
        asked = [b"\0" * 16, *events, b"\xff" * 16]
        assert store.get(0, asked) == events
        assert store.get(0, []) == store.get(1, asked) == {}

    @pytest.mark.parametrize("row", CRONS.values(), ids=CRONS)
    def test_a_cron_is_read_as_it_was_stored(self, store: Store, fence: Fence, row: CronRow) -> None:
        store.commit([Change(0, fence, crons={key_of(row): row})])
        assert store.cron(0, key_of(row)) == row
        assert list(store.crons(0)) == [row]

    def test_crons_are_replaced_and_removed(self, store: Store, fence: Fence) -> None:
        one, two = cron("one"), cron("two")
        store.commit([Change(0, fence, crons={key_of(one): one, key_of(two): two})])
        changed = replace(one, paused=True)
        store.commit([Change(0, fence, crons={key_of(one): changed, key_of(two): None})])
        assert (list(store.crons(0)), store.cron(0, key_of(two))) == ([changed], None)
        assert (list(store.crons(1)), store.cron(1, key_of(one))) == ([], None)

    def test_runs_come_newest_first(self, store: Store, fence: Fence) -> None:
        runs = [run("shop/c/Q", at, bucket=at // 10) for at in (-5, 0, 5, FAR)]
        store.commit([Change(0, fence, runs=[*runs, run("shop/other/Q", 3)])])
        assert store.runs(0, "shop/c/Q", 10) == runs[::-1]
        assert store.runs(0, "shop/c/Q", 2) == runs[:1:-1]
        assert store.runs(0, "shop/none/Q", 10) == store.runs(1, "shop/c/Q", 10) == []

    def test_a_run_is_read_as_it_was_stored(self, store: Store, fence: Fence) -> None:
        logged = Run("Ünï/a\0\x1b/Q", -60_000, 7, "{\"a\": 'ü\\u0000'}".encode(), 1 << 50)
        store.commit([Change(0, fence, runs=[logged])])
        assert store.runs(0, logged.cron, 10) == [logged]

    def test_a_run_that_is_logged_again_replaces_the_first(self, store: Store, fence: Fence) -> None:
        first, second = run("c", 5, expires=10), replace(run("c", 5, expires=90), event=b"{}")
        store.commit([Change(0, fence, runs=[first])])
        store.commit([Change(0, fence, runs=[second])])
        assert store.forget_runs(0, fence, 50) == 0
        assert store.runs(0, "c", 10) == [second]

    def test_expired_runs_are_forgotten(self, store: Store, fence: Fence) -> None:
        runs = [run("c", at, expires=expires) for at, expires in ((1, 100), (2, 200), (3, None), (4, 50))]
        store.commit([Change(0, fence, runs=runs)])
        assert store.forget_runs(0, fence, 50) == 0
        assert store.forget_runs(0, fence, 101) == 2
        assert [one.at for one in store.runs(0, "c", 10)] == [3, 2]
        assert store.forget_runs(0, fence, FAR) == 1
        assert [one.at for one in store.runs(0, "c", 10)] == [3]

    def test_tenants_without_unfired_events_are_forgotten(self, store: Store, fence: Fence) -> None:
        waiting, gone = event("a"), event("b", tenant="bank")
        self.put(store, fence, waiting, gone)
        store.commit([Change(0, fence, events={row_key(gone): (gone, None)})])
        store.forget_tenants(0, fence)
        # Then the others are still there, nothing is left to forget, and one that comes back is known again
        assert store.forget_tenants(0, fence) == 0
        assert store.tenants(0).keys() == {"shop"}
        self.put(store, fence, gone)
        assert store.tenants(0).keys() == {"shop", "bank"}
        assert [one.id for one in store.events([0], Filter(tenant="bank"), 10).events] == ["b"]

    def test_only_the_owner_forgets_runs(self, store: Store, same_store: Store, fence: Fence) -> None:
        store.commit([Change(0, fence, runs=[run("c", 1, expires=5)])])
        self.claimed(same_store, 0, "two", 2)
        assert store.forget_runs(0, fence, 100) == 0
        assert len(store.runs(0, "c", 10)) == 1


class ListContract(StoreCase):
    """See Store.events."""

    @pytest.fixture
    def stored(self, store: Store, fence: Fence) -> list[Event]:
        """Events in two shards, of three tenants, in every status; in the order of their time."""
        events = [
            event(
                f"e{number}", number * 10, tenant=("shop", "bank", "Ünï")[number % 3], status=Status(number % 5),
                ended=number * 10 if Status(number % 5) in ENDED else None,
            )
            for number in range(40)
        ]  # fmt: skip
        other = self.claimed(store, 1)
        self.put(store, fence, *events[::2])
        self.put(store, other, *events[1::2], shard=1)
        return events

    def pages(self, store: Store, chosen: Filter, limit: int) -> list[Event]:
        """All events of a list, page by page."""
        found: list[Event] = []
        cursor = None
        for _ in range(100):
            page = store.events([0, 1], chosen, limit, cursor)
            assert len(page.events) <= limit
            found += page.events
            if page.next is None:
                return found
            assert isinstance(page.next, str)
            cursor = page.next
        message = "the list has no end"
        raise AssertionError(message)

    @pytest.mark.parametrize("limit", [1, 7, 40, 1000])
    def test_pages_have_all_events_in_the_order_of_time(self, store: Store, stored: list[Event], limit: int) -> None:
        assert self.pages(store, Filter(), limit) == stored

    def test_only_the_shards_that_were_asked_for(self, store: Store, stored: list[Event]) -> None:
        assert store.events([1], Filter(), 100) == Page(stored[1::2])
        assert store.events([], Filter(), 100) == store.events([2], Filter(), 100) == Page([])

    @pytest.mark.parametrize("limit", [3, 100])
    @pytest.mark.parametrize(
        "chosen",
        [
            Filter(tenant="bank"),
            Filter(tenant="Ünï", status=frozenset({Status.WAITING})),
            Filter(tenant="nobody"),
            Filter(status=frozenset({Status.FIRING})),
            Filter(status=frozenset({Status.DONE, Status.FAILED})),
            Filter(status=frozenset()),
            Filter(start=100),
            Filter(stop=100),
            Filter(start=100, stop=101),
            Filter(start=100, stop=100),
            Filter(tenant="shop", status=frozenset(UNFIRED), start=50, stop=300),
        ],
        ids=repr,
    )
    def test_filters(self, store: Store, stored: list[Event], chosen: Filter, limit: int) -> None:
        assert self.pages(store, chosen, limit) == [one for one in stored if _is_chosen(one, chosen)]

    @pytest.mark.usefixtures("few_looked_at")
    def test_a_list_from_a_time_on_begins_there(self, store: Store, fence: Fence) -> None:
        begin = 10 * EARLY_MS
        ended = [event(f"e{number}", number, status=Status.DONE, ended=number) for number in range(30)]
        waiting = [event(f"w{number}", number, status=Status.RETRY) for number in range(30)]
        wanted = [event("w", begin), event("d", begin + 1, status=Status.DONE, ended=begin + 2)]
        # Events that stand in the list before their time: due at once, or ended after the clock was set back
        early = event("early", begin - 1000, at=begin + 5)
        set_back = event("set back", begin + 6, status=Status.FAILED, ended=3)
        self.put(store, fence, *ended, *waiting, *wanted, early, set_back)
        assert store.events([0], Filter(start=begin), 10) == Page([early, *wanted, set_back])

    def test_an_event_that_comes_in_between_is_on_a_later_page(
        self, store: Store, fence: Fence, stored: list[Event]
    ) -> None:
        first = store.events([0, 1], Filter(), 10)
        late = event("late", 395)
        self.put(store, fence, late)
        self.take(store, fence, stored[38])
        rest = store.events([0, 1], Filter(), 100, first.next)
        assert first.events + rest.events == [*stored[:38], stored[39], late]

    @pytest.mark.parametrize("cursor", ["", "no cursor", "1.zz", "zz.00"])
    def test_a_cursor_that_no_page_gave_is_refused(self, store: Store, cursor: str) -> None:
        with pytest.raises(BadArgument, match="cursor"):
            store.events([0], Filter(), 10, cursor)


def _is_chosen(one: Event, chosen: Filter) -> bool:
    return (
        chosen.tenant in (None, one.tenant)
        and (chosen.status is None or one.status in chosen.status)
        and (chosen.start is None or one.at >= chosen.start)
        and (chosen.stop is None or one.at < chosen.stop)
    )


class ScheduleStoreContract(FenceContract, CommitContract, OutgoingContract, DueContract, RowContract, ListContract):
    """Everything lockstep.schedule.store.port says about stores."""
