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

from dataclasses import replace

import pytest

from lockstep.core.agenda import Event, Form, Option, Status
from lockstep.core.ticks import Misfire, Overlap, Policy
from lockstep.errors import StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus, Log
from lockstep.schedule.rows import Change, CronRow, Fence, Outgoing, Run, ShardState, row_key
from lockstep.schedule.store.port import Filter, Page, Store
from lockstep.testing.contract_case import KEEP_ALL, records, values, views
from lockstep.testing.contract_schedule_case import FAR, StoreCase, cron, event, key_of, run
from lockstep.testing.contract_schedule_queries import DueContract, ListContract


class FenceContract(StoreCase):
    """A shard has one owner: a claim or change of an earlier epoch is refused and changes nothing."""

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
    """A committed change is stored as a whole or not at all, and every handle reads it from then on."""

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

    def test_a_commit_that_was_begun_leaves_other_shards_free_and_tells_its_outcome_at_the_end(
        self, store: Store, same_store: Store, fence: Fence, fired: Log
    ) -> None:
        other, gone = self.claimed(store, 1), self.claimed(store, 2)
        self.claimed(same_store, 2, "two", 2)
        self.put(store, other, event("other"), shard=1)
        changes = [Change(shard, own, position=4) for shard, own in ((0, fence), (2, gone))]
        for change in changes:
            change.put(row_key(event("e")), None, event("e"))
            change.outgoing.append(Outgoing("fired", b"%d" % change.shard))
        end = store.begin(changes)
        assert list(store.due_events(1, "shop", 0, FAR, 10).values()) == [event("other")]
        assert store.claim(1, other) is not None
        assert end() == {2}
        assert store.events([0, 2], Filter(), 10).events == [event("e")]
        assert values(fired) == [b"0"]
        assert store.claim(0, fence) == ShardState(4, None)

    def test_a_commit_that_can_not_begin_leaves_nothing(self, store: Store, fence: Fence) -> None:
        change = Change(0, fence, position=5, outgoing=[Outgoing("missing", b"x")])
        with pytest.raises(StreamNotFound):
            store.begin([change])
        assert store.claim(0, fence) == ShardState()

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
    """The records that changes send are published once and in order."""

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


class ScheduleStoreContract(FenceContract, CommitContract, OutgoingContract, DueContract, RowContract, ListContract):
    """Everything lockstep.schedule.store.port says about stores."""
