"""Nobody waits for others: neither tenants nor shards; and a node that has to wait rests."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_worlds import World

from lockstep.schedule import rounds as due_selection
from lockstep.schedule import shard
from lockstep.schedule.requests import PutCron
from lockstep.schedule.rows import Change, CronRow, Run
from lockstep.schedule.tenants import Paused, Registered, Tenant, TenantType

CRON = CronRow(tenant="s", id="c", type="UNIX", expression="0 0 1 1 *", log_granularity="YEARS", retention=1)


def started(shards=1, **options):
    world = World(shards=shards)
    world.start(**options)
    world.clock.advance(2)
    return world


def register(world, name, rate=None, topic="out"):
    tenant = Tenant(tenant=name, type=TenantType.MESSAGING, props={"topic": topic}, rate=rate)
    world.client.control(Registered(tenant))


def count_rounds(world, seconds, name="n1"):
    node, rounds = world.nodes[name], []
    round_ = node._round
    node._round = lambda: rounds.append(1) or round_()
    world.clock.advance(seconds)
    del node._round
    return len(rounds)


def in_shards(world, shards, count):
    """So many names in each of these shards."""
    found, number = {shard: [] for shard in shards}, 0
    while any(len(names) < count for names in found.values()):
        names = found.get(world.client.shard_of("t", f"e{number}"), [])
        if len(names) < count:
            names.append(f"e{number}")
        number += 1
    return found


@pytest.mark.parametrize("rate", [0.5, 1.0, 10.0])
def test_a_throttled_tenant_keeps_its_rate_and_lets_the_node_rest(rate):
    world = started()
    register(world, "t", rate)
    at = world.now + 1000
    world.ask(*(world.upsert(f"e{number}", at, tenant="t") for number in range(200)))
    world.clock.advance(2)
    before = len(world.fired())
    rounds = count_rounds(world, 10)
    assert len(world.fired()) - before == pytest.approx(10 * rate, abs=1)
    # And it does not look a thousand times a second whether a second has passed
    assert rounds < 80 + 3 * 10 * rate


def test_a_throttled_tenant_holds_up_nobody():
    world = started()
    register(world, "t", 0.1)
    register(world, "u", topic="others")
    at = world.now + 1000
    world.ask(*(world.upsert(f"e{number}", at, tenant=tenant) for number in range(100) for tenant in ("t", "u")))
    world.clock.advance(2)
    assert len(world.fired("others")) == 100


def test_every_shard_of_a_throttled_tenant_gets_its_turn():
    world = started(shards=4)
    register(world, "t", 4.0)
    names = in_shards(world, range(4), 20)
    at = world.now + 1000
    world.ask(*(world.upsert(name, at, tenant="t") for shard in names.values() for name in shard))
    world.clock.advance(11)
    fired = set(world.fired())
    shares = [len(fired & set(mine)) for mine in names.values()]
    assert sum(shares) == pytest.approx(40, abs=4)
    assert min(shares) >= 7


def test_the_requests_of_one_shard_do_not_keep_those_of_another_waiting():
    world = started(shards=2, round_requests=10)
    names = in_shards(world, range(2), 1000)
    at = world.now + 3_600_000
    # Given a thousand requests to one shard, and then one to the other, whichever it is
    for busy, quiet in ((0, 1), (1, 0)):
        world.client.send([world.upsert(name, at, tenant="t") for name in names[busy]])
        world.client.send([world.upsert(names[quiet][0], at, tenant="t")])
        rounds = []
        node = world.nodes["n1"]
        round_ = node._round
        node._round = lambda rounds=rounds, round_=round_: rounds.append(1) or round_()
        while world.client.find("t", names[quiet][0]) is None:
            world.clock._next_due(world.clock.now_ns() + 10**10).run()
        # Then that one is carried out within a few rounds
        assert len(rounds) < 5
        del node._round
        world.clock.advance(1)
        at += 1


class CountingView:
    """A view of a store that counts what its scans give."""

    def __init__(self, view, looked_at):
        self._view, self._looked_at = view, looked_at

    def __getattr__(self, name):
        return getattr(self._view, name)

    def scan(self, *where, **how):
        for pair in self._view.scan(*where, **how):
            self._looked_at.append(pair)
            yield pair


def test_looking_for_runs_that_expired_does_not_look_at_those_that_have_not(monkeypatch):
    world = started()
    world.ask(PutCron(CRON))
    store, shard = world.nodes["n1"]._store, world.nodes["n1"]._owned[0].shard
    runs = [Run(CRON.log_name, 0, number, b"{}", 10**13 + number) for number in range(5000)]
    store.commit([Change(0, shard.fence, runs=[*runs, replace(runs[0], at=7000, expires=5)])])
    snapshot, looked_at = store._bus.snapshot, []

    @contextmanager
    def counting():
        with snapshot() as view:
            yield CountingView(view, looked_at)

    monkeypatch.setattr(store._bus, "snapshot", counting)
    assert store.forget_runs(0, shard.fence, world.now) == 1
    assert len(looked_at) < 10


@pytest.fixture(scope="module")
def soon_backlog():
    """Events count as backlog after one second."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (shard, due_selection):
            patch.setattr(module, "FRESH_MS", 1000)
        yield


@pytest.mark.usefixtures("soon_backlog")
@settings(max_examples=15)
@given(
    dues=st.lists(st.integers(0, 3000), min_size=20, max_size=40), at_once=st.integers(1, 6),
    changed=st.sets(st.integers(0, 39), max_size=5),
)  # fmt: skip
def test_of_a_backlog_that_takes_many_rounds_nothing_is_left(dues, at_once, changed):
    # Given events of two tenants that were due in the last three seconds
    world = World(shards=1)
    register(world, "t")
    world.start(round_events=at_once, round_requests=3)
    world.clock.advance(2)
    begin, names = world.now + 5000, [f"e{number}" for number in range(len(dues))]
    world.client.control(Paused("t", True))
    tenants = ["t" if number % 5 else "s" for number in range(len(dues))]
    asked = [
        world.upsert(name, begin + due, tenant)
        for name, due, tenant in zip(names, dues, tenants, strict=True)
    ]  # fmt: skip
    world.ask(*asked)
    world.clock.advance((begin + 3000 - world.now) / 1000)
    # When they may fire, while some are changed
    world.client.control(Paused("t", False))
    world.client.send([asked[number] for number in changed if number < len(asked)])
    world.clock.advance(1)
    # Then each has fired once
    assert sorted(world.fired()) == sorted(names)
