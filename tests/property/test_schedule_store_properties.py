"""The store in the cells of a bus against rows in dicts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.agenda import UNFIRED, Event, Status
from lockstep.core.group import GroupState
from lockstep.core.seats import Seat
from lockstep.errors import StreamNotFound
from lockstep.log.batch import BatchView
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.schedule.rows import Change, CronRow, Fence, Outgoing, Run, ShardState, cron_key, row_key
from lockstep.schedule.store.cells import CellStore
from lockstep.schedule.store.port import Filter
from lockstep.testing.virtual import VirtualRuntime

SHARDS = (0, 1)
TENANTS = ("a", "b", "ab")


@dataclass
class DictStore:
    """What a store has to do, in the plainest way: rows in dicts, and every question is a scan of all of them."""

    events: dict[int, dict[bytes, Event]] = field(default_factory=lambda: {0: {}, 1: {}})
    crons: dict[int, dict[bytes, CronRow]] = field(default_factory=lambda: {0: {}, 1: {}})
    runs: dict[int, list[Run]] = field(default_factory=lambda: {0: [], 1: []})
    states: dict[int, ShardState] = field(default_factory=lambda: {0: ShardState(), 1: ShardState()})
    sent: list[bytes] = field(default_factory=list)

    def commit(self, changes, refused):
        for change in changes:
            if change.shard in refused:
                continue
            for rows, changed in ((self.events, {key: after for key, (_, after) in change.events.items()}),
                                  (self.crons, change.crons)):  # fmt: skip
                for key, row in changed.items():
                    if row is None:
                        rows[change.shard].pop(key, None)
                    else:
                        rows[change.shard][key] = row
            for run in change.runs:
                same = [one for one in self.runs[change.shard] if _place(one) == _place(run)]
                for one in same:
                    self.runs[change.shard].remove(one)
                self.runs[change.shard].append(run)
            state = self.states[change.shard]
            position = state.position if change.position is None else change.position
            self.states[change.shard] = ShardState(position, state.mark if change.mark is None else change.mark)
            self.sent += [one.value for one in change.outgoing]

    def unfired(self, shard, tenant):
        rows = [(event.due, key) for key, event in self.events[shard].items()
                if event.status in UNFIRED and event.tenant == tenant]  # fmt: skip
        return sorted(rows)


def _place(run):
    return run.cron, run.at, run.bucket


class Pair:
    """Both stores, the same changes."""

    def __init__(self):
        self.clock = VirtualRuntime()
        self.bus = MemoryBroker().bus(self.clock)
        self.bus.create("out", StreamConfig(capacity=None))
        self.epochs = dict.fromkeys(SHARDS, 1)
        self.store = CellStore(self.bus, "jobs", self.clock, lambda _: self.owners())
        self.other = CellStore(self.bus, "jobs2", self.clock, lambda _: self.owners())
        self.model = DictStore()

    def owners(self):
        return GroupState(seats={f"s{shard}": Seat(epoch=epoch, owner="m") for shard, epoch in self.epochs.items()})

    def fence(self, shard, behind=0):
        return Fence(f"s{shard}", "m", self.epochs[shard] - behind)

    def sent(self):
        log, found, start = self.bus.open("out"), [], 0
        while entries := log.read(start):
            for entry in entries:
                view = BatchView(entry.base, entry.data, "out")
                found += view.values()
                start = view.end
        return found


@st.composite
def event_rows(draw):
    status = draw(st.sampled_from(list(Status)))
    ended = draw(st.integers(1, 60)) if status in (Status.DONE, Status.FAILED) else None
    return Event(
        draw(st.sampled_from(TENANTS)), f"e{draw(st.integers(0, 3))}", "id", draw(st.integers(-5, 60)),
        draw(st.integers(0, 60)), status, draw(st.sampled_from([None, b"x"])), ended=ended,
        tick=draw(st.booleans()),
    )  # fmt: skip


def changed(draw, pair, shard, stale):
    change = Change(shard, pair.fence(shard, behind=int(stale)))
    for event in draw(st.lists(event_rows(), max_size=4)):
        key = row_key(event)
        before = change.events[key][1] if key in change.events else pair.model.events[shard].get(key)
        change.put(key, before, draw(st.sampled_from([event, event, None])))
    for number in draw(st.lists(st.integers(0, 2), max_size=2)):
        row = CronRow(tenant="a", id=f"c{number}", type="UNIX", expression="* * * * *", since=draw(st.integers(0, 9)))
        change.crons[cron_key("a", row.id, row.type)] = draw(st.sampled_from([row, row, None]))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, 9))
        change.runs.append(Run(draw(st.sampled_from(["c0", "c1"])), at // 5, at, b"{}",
                               draw(st.none() | st.integers(1, 30))))  # fmt: skip
    change.position = draw(st.none() | st.integers(0, 99))
    change.mark = draw(st.none() | st.integers(0, 99))
    for number in range(draw(st.integers(0, 2))):
        change.outgoing.append(Outgoing("out", f"{shard} {number} {draw(st.integers(0, 9))}".encode()))
    return change


def check(draw, pair):
    store, model = pair.store, pair.model
    assert pair.sent() == model.sent
    for shard in SHARDS:
        assert store.claim(shard, pair.fence(shard)) == model.states[shard]
        assert store.claim(shard, pair.fence(shard, behind=1)) is None
        rows = model.events[shard]
        firsts = {tenant: due[0][0] for tenant in TENANTS if (due := model.unfired(shard, tenant))}
        assert store.tenants(shard) == firsts
        start, stop, limit = draw(st.integers(0, 60)), draw(st.integers(0, 60)), draw(st.integers(1, 5))
        for tenant in TENANTS:
            between = [(due, key) for due, key in model.unfired(shard, tenant) if start <= due <= stop]
            assert [(one.due, one.key) for one in store.due(shard, tenant, start, stop, limit)] == between[:limit]
            later = [due for due, _ in model.unfired(shard, tenant) if due >= start]
            assert store.next_due(shard, tenant, start) == (later[0] if later else None)
        firing = [event for event in rows.values() if event.status is Status.FIRING]
        assert sorted(store.firing(shard), key=row_key) == sorted(firing, key=row_key)
        ended = sorted((event.expires_from, key) for key, event in rows.items() if event.ended is not None)
        expired = [rows[key] for time, key in ended if time < stop][:limit]
        assert store.expired(shard, stop, limit) == expired
        assert store.get(shard, [*rows, b"missing" * 2]) == rows
        assert sorted(store.crons(shard), key=lambda row: row.id) == sorted(
            model.crons[shard].values(), key=lambda row: row.id
        )
        for number in range(3):
            key = cron_key("a", f"c{number}", "UNIX")
            assert store.cron(shard, key) == model.crons[shard].get(key)
        for cron in ("c0", "c1"):
            runs = sorted((run for run in model.runs[shard] if run.cron == cron), key=_place, reverse=True)
            assert store.runs(shard, cron, limit) == runs[:limit]
    check_pages(draw, pair)


def check_pages(draw, pair):
    """Pages put together are all rows of a filter, whatever their size."""
    chosen = Filter(
        tenant=draw(st.none() | st.sampled_from(TENANTS)),
        status=draw(st.none() | st.sets(st.sampled_from(list(Status)), min_size=1).map(frozenset)),
        start=draw(st.none() | st.integers(0, 60)),
        stop=draw(st.none() | st.integers(0, 60)),
    )
    shards, limit = draw(st.sampled_from([(0,), (1,), (0, 1)])), draw(st.integers(1, 4))
    wanted = [
        (shard, key) for shard in shards for key, event in pair.model.events[shard].items()
        if chosen.tenant in (None, event.tenant) and (chosen.status is None or event.status in chosen.status)
        and (chosen.start is None or event.at >= chosen.start) and (chosen.stop is None or event.at < chosen.stop)
    ]  # fmt: skip
    found, cursor = list[Event](), None
    for _ in range(len(wanted) + 2):
        page = pair.store.events(shards, chosen, limit, cursor)
        assert len(page.events) <= limit
        found += page.events
        cursor = page.next
        if cursor is None:
            break
    assert sorted(map(row_key, found)) == sorted(key for _, key in wanted)
    times = [event.expires_from for event in found]
    assert times == sorted(times)


@settings(max_examples=150)
@given(st.data())
def test_the_store_in_cells_is_the_one_in_dicts(data) -> None:
    pair = Pair()
    for _ in range(data.draw(st.integers(1, 5))):
        word = data.draw(st.sampled_from(["commit", "commit", "commit", "takeover", "forget runs"]))
        if word == "takeover":
            pair.epochs[data.draw(st.sampled_from(SHARDS))] += 1
        elif word == "forget runs":
            shard, before = data.draw(st.sampled_from(SHARDS)), data.draw(st.integers(0, 40))
            stale = data.draw(st.booleans())
            gone = [run for run in pair.model.runs[shard] if run.expires is not None and run.expires < before]
            assert pair.store.forget_runs(shard, pair.fence(shard, behind=int(stale)), before) >= 0
            if not stale:
                pair.model.runs[shard] = [run for run in pair.model.runs[shard] if run not in gone]
        else:
            stale = {shard for shard in SHARDS if data.draw(st.integers(0, 4)) == 0}
            chosen = data.draw(st.sampled_from([(0,), (1,), (0, 1)]))
            changes = [changed(data.draw, pair, shard, shard in stale) for shard in chosen]
            assert pair.store.commit(changes) == stale & set(chosen)
            pair.model.commit(changes, stale)
        check(data.draw, pair)
    # And another scheduler of the bus has none of it
    assert pair.other.tenants(0) == {}
    assert pair.other.events(SHARDS, Filter(), 10).events == []


def test_a_commit_that_fails_changes_nothing() -> None:
    pair = Pair()
    event = Event("a", "e", "id", 5, 5)
    change = Change(0, pair.fence(0), position=7, events={row_key(event): (None, event)})
    with pytest.raises(StreamNotFound):
        pair.store.commit([replace(change, outgoing=[Outgoing("out", b"x"), Outgoing("nowhere", b"y")])])
    assert pair.store.claim(0, pair.fence(0)) == ShardState()
    assert pair.store.get(0, list(change.events)) == {}
    assert pair.sent() == []
