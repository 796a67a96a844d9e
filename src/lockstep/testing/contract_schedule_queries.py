"""What a scheduler's store finds: due events, those under way and expired, and lists in pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.core.agenda import ENDED, UNFIRED, Event, Status
from lockstep.errors import BadArgument
from lockstep.schedule.rows import Change, Fence, row_key
from lockstep.schedule.store.port import EARLY_MS, Due, Filter, Page, Store
from lockstep.testing.contract_schedule_case import FAR, StoreCase, event


class DueContract(StoreCase):
    """The queries by time and status find an event by what it waits for, and only there."""

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


class ListContract(StoreCase):
    """Lists of events are filtered, in the order of their time, and complete over all pages."""

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
