"""Nodes when something goes wrong: nothing is lost, nothing happens twice, and nobody else is held up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_worlds import World

from lockstep.core.agenda import Status
from lockstep.core.ladder import Ladder
from lockstep.core.ticks import Overlap, Policy
from lockstep.errors import AppendUncertain, OutboxBlocked, StoreFull
from lockstep.log.config import StreamConfig
from lockstep.schedule import requests
from lockstep.schedule.requests import Ask, DryRun, PauseCron, PutCron, RemoveCron, TriggerCron
from lockstep.schedule.rows import CronRow
from lockstep.schedule.store.cells import CellStore
from lockstep.schedule.tenants import Paused, Registered, Removed, Tenant, TenantType

MINUTE = Ladder(limit_ms=60_000)
EACH_SECOND = CronRow(tenant="s", id="c", type="QUARTZ", expression="* * * * * ?")


@pytest.fixture
def world():
    made = World(shards=1)
    made.start()
    made.clock.advance(2)
    return made


def ticks(world):
    """The nominal seconds of the history, with what became of each."""
    return [(one["eventTime"] // 1000, one["what"]) for one in world.history() if one.get("id", "").startswith("s/")]


def fail_commits(world, name, error, *, after, when=lambda changes: True):
    """Have the next commit of a node fail, before or after it is stored."""
    store = world.nodes[name]._store
    commit = store.commit

    def failing(changes):
        if not when(changes):
            return commit(changes)
        del store.commit
        if after:
            commit(changes)
        raise error

    store.commit = failing


def count_commits(world, name):
    """What became of each commit of a node."""
    store, seen = world.nodes[name]._store, []
    commit = store.commit

    def counted(changes):
        seen.append("refused")
        refused = commit(changes)
        seen[-1] = "stored"
        return refused

    store.commit = counted
    return seen


def test_events_that_are_due_at_once_are_published_in_changes_that_the_store_takes(monkeypatch):
    monkeypatch.setattr(CellStore, "change_bytes", 100_000)
    world, sizes = World(shards=1), []
    store = world.start()._store
    commit = store.commit

    def noted(changes):
        sizes.extend(sum(len(record.value) for record in change.outgoing) for change in changes)
        return commit(changes)

    store.commit = noted
    world.clock.advance(2)
    names = {f"e{number}" for number in range(20)}
    for name in names:
        world.schedule(name, 5000, payload="x" * 20_000)
    world.clock.advance(10)
    assert set(world.fired()) == names
    assert 20_000 < max(sizes) < 100_000


def test_a_node_that_dies_right_after_the_first_cron_of_a_shard_loses_no_tick(world):
    # Given the first cron of a shard
    world.clock.advance(0.5)
    since = world.now // 1000
    world.ask(PutCron(EACH_SECOND))
    # When its owner dies within the same second, and another node comes later
    world.kill("n1")
    world.clock.advance(20)
    world.start("n2")
    world.clock.advance(10)
    # Then every second has an outcome
    seconds = [second for second, _ in ticks(world)]
    assert seconds[0] == since + 1
    assert seconds == list(range(seconds[0], seconds[-1] + 1))
    assert len(seconds) >= 29


def test_a_shard_that_is_handed_over_in_doubt_carries_no_request_out_again(world):
    # Given a delivery under way, so that the shard is not handed over at once
    world.courier.hold = True
    world.schedule("h1", 0, tenant="h")
    world.clock.advance(0.5)
    # And a commit that is stored and seems to have failed
    uncertain = AppendUncertain(stream="x", reason="on order")
    fail_commits(world, "n1", uncertain, after=True, when=lambda changes: changes[0].position is not None)
    asked = requests.encode(world.upsert("a", world.now + 60_000), Ask("me", 1))
    world.client._append([asked])
    # When the shard has to move meanwhile
    world.clock.run_until_idle()
    node = world.nodes["n1"]
    seats = {owned.shard.fence.seat: owned.shard.fence.epoch for owned in node._owned.values()}
    node.member.yielding = lambda: seats
    node.member.held = dict
    world.clock.advance(2)
    # Then the request is not carried out and answered a second time
    assert [record.key for record in world.records("jobs.answers")].count(b"me") == 1
    assert world.client.find("s", "a").status is Status.WAITING


def orphan(world):
    """An event of tenant h whose delivery was begun by a node that died."""
    world.courier.hold = True
    world.schedule("a", 0, tenant="h")
    world.clock.advance(0.5)
    world.kill("n1")


def to_stream(name="h", topic="out"):
    return Registered(Tenant(tenant=name, type=TenantType.MESSAGING, props={"topic": topic}))


@pytest.mark.parametrize("known", [True, False], ids=["in the same step", "while it waits"])
def test_an_event_that_was_rescheduled_is_not_lost_to_its_earlier_delivery(world, known):
    orphan(world)
    # Given that its tenant has a stream by now, or is away and gets one later
    world.client.control(to_stream() if known else Removed("h"))
    # When it gets another instant, and then a node takes over
    world.client.send([world.upsert("a", world.now + 20_000, tenant="h")])
    world.start("n2")
    world.clock.advance(5)
    if not known:
        world.client.control(to_stream())
        world.clock.advance(5)
    # Then it waits for that instant
    assert world.client.find("h", "a").status is Status.WAITING
    assert world.fired() == []
    world.clock.advance(20)
    assert world.fired() == ["a"]


def test_a_delivery_of_an_earlier_owner_waits_while_its_tenant_is_paused(world):
    orphan(world)
    world.client.control(Paused("h", True))
    world.courier.hold = False
    world.start("n2")
    world.clock.advance(10)
    assert len(world.courier.delivered) == 1
    world.client.control(Paused("h", False))
    world.clock.advance(1)
    assert len(world.courier.delivered) == 2
    assert world.client.find("h", "a").status is Status.DONE


def test_a_claimed_event_whose_tenant_is_gone_is_given_up_in_the_end(world):
    orphan(world)
    world.client.control(Removed("h"))
    world.start("n2", ladder=MINUTE)
    world.clock.advance(58)
    assert world.client.find("h", "a").status is Status.FIRING
    world.clock.advance(5)
    found = world.client.find("h", "a")
    assert (found.status, found.error) == (Status.FAILED, "missed the backlog limit")


@pytest.mark.parametrize("control", [Removed("s"), Paused("s", True)], ids=["removed", "paused"])
def test_events_of_a_tenant_that_is_away_are_given_up_in_the_end(control):
    world = World(shards=1)
    world.start(ladder=MINUTE)
    world.clock.advance(2)
    world.schedule("a", 1000)
    world.schedule("later", 60_000)
    world.client.control(control)
    world.clock.advance(60)
    assert world.client.find("s", "a").status is Status.WAITING
    world.clock.advance(3)
    found = world.client.find("s", "a")
    assert (found.status, found.error) == (Status.FAILED, "missed the backlog limit")
    assert world.client.find("s", "later").status is Status.WAITING


@pytest.mark.parametrize("shards", [1, 3])
def test_a_tenant_whose_stream_was_deleted_holds_up_nobody(world, shards):
    # Given a tenant with events, a cron and a dry run, whose stream is deleted
    world.bus.create("gone", StreamConfig(shards=shards))
    world.client.control(to_stream("g", "gone"))
    world.schedule("x", 2000, tenant="g")
    world.schedule("y", 60_000, tenant="g")
    world.ask(PutCron(replace(EACH_SECOND, tenant="g")))
    world.schedule("a", 3000)
    world.clock.advance(1)
    before = world.fired("gone")
    world.bus.delete("gone")
    # When they are due
    world.client.send([DryRun("g", "y")])
    world.clock.advance(5)
    # Then others fire, and requests are answered
    assert world.fired() == ["a"]
    assert world.schedule("b", 0)["verdict"] == "ACCEPTED"
    world.clock.advance(1)
    assert world.fired() == ["a", "b"]
    assert [one["error"] for one in world.history() if one["what"] == "dry run failed"] == [
        "stream 'gone' does not exist, or refuses records"
    ]
    assert world.nodes["n1"].error is None
    # And when it is there again, with other shards, everything fires
    world.bus.create("gone", StreamConfig(shards=2))
    world.clock.advance(15)
    fired = [*before, *world.fired("gone")]
    assert fired.count("x") == 1
    ticks_of_g = {one["eventTime"] for one in world.history() if one.get("id") == "g/c/QUARTZ"}
    assert len(ticks_of_g) == fired.count("g/c/QUARTZ")
    assert len(ticks_of_g) >= 20


def test_many_tenants_whose_streams_were_deleted_cost_one_round(world):
    names = [f"gone-{number}" for number in range(30)]
    for name in names:
        world.bus.create(name, StreamConfig())
        world.client.control(to_stream(name, name))
    world.ask(*(world.upsert("x", world.now + 1000, name) for name in names))
    world.schedule("a", 1000)
    for name in names:
        world.bus.delete(name)
    commits = count_commits(world, "n1")
    world.clock.advance(4)
    assert world.fired() == ["a"]
    assert commits.count("refused") <= 2


def test_a_tenant_whose_stream_refuses_its_events_holds_up_nobody(world):
    # Given a store that can't publish the events of one tenant
    world.bus.create("closed", StreamConfig())
    world.client.control(to_stream("g", "closed"))
    store = world.nodes["n1"]._store
    commit = store.commit

    def refusing(changes):
        if any(record.stream == "closed" for change in changes for record in change.outgoing):
            raise OutboxBlocked(name="jobs", stream="closed", streams=["closed"], reason="no right to publish")
        return commit(changes)

    store.commit = refusing
    # When events of that tenant and of another are due
    world.schedule("x", 1000, tenant="g")
    world.schedule("a", 2000)
    world.clock.advance(5)
    # Then those of the other fire, and requests are answered
    assert world.fired() == ["a"]
    assert world.schedule("b", 0)["verdict"] == "ACCEPTED"
    world.clock.advance(1)
    assert (world.fired(), world.fired("closed")) == (["a", "b"], [])
    assert world.nodes["n1"].error is None
    # And when the stream takes them, they fire
    del store.commit
    world.clock.advance(6)
    assert world.fired("closed") == ["x"]


def test_a_full_stream_holds_up_its_own_tenants_and_nobody_else(world):
    # Given a stream that is full, as a group has not confirmed anything
    world.bus.create("ring", StreamConfig(capacity=1, protect=True, protect_bytes=3000))
    [ring] = world.bus.logs("ring")
    ring.hold("slow", 0)
    world.client.control(to_stream("g", "ring"))
    world.schedule("x", 1000, tenant="g", payload="x" * 5000)
    # And many others that are full too
    for number in range(30):
        world.bus.create(f"full-{number}", StreamConfig(protect=True, protect_bytes=1))
        world.client.control(to_stream(f"f{number}", f"full-{number}"))
    world.ask(*(world.upsert("x", world.now + 1000, f"f{number}") for number in range(30)))
    world.schedule("a", 2000)
    commits = count_commits(world, "n1")
    world.clock.advance(5)
    # Then others fire, and requests are answered
    assert (world.fired(), world.fired("ring")) == (["a"], [])
    assert commits.count("refused") <= 3
    assert world.schedule("b", 0)["verdict"] == "ACCEPTED"
    world.clock.advance(1)
    assert world.fired() == ["a", "b"]
    assert world.nodes["n1"].error is None
    # And when it has room, its events fire once
    world.client.control(to_stream("g", "roomy"))
    world.clock.advance(2)
    assert world.fired("roomy") == ["x"]
    assert world.client.find("g", "x").status is Status.DONE


def test_a_store_without_room_is_waited_for(world):
    world.schedule("a", 1000)
    fail_commits(world, "n1", StoreFull(stream="lmdb:./s", reason="the disk is full"), after=False)
    world.clock.advance(3)
    assert world.fired() == ["a"]
    assert world.nodes["n1"].error is None


def test_a_round_that_was_refused_costs_other_tenants_nothing_of_their_rate(world):
    # Given a tenant with one event in 20 seconds, and another whose stream is full
    world.client.control(Registered(Tenant(tenant="r", type=TenantType.MESSAGING, props={"topic": "out"}, rate=0.05)))
    world.bus.create("ring", StreamConfig(protect=True, protect_bytes=1))
    world.client.control(to_stream("g", "ring"))
    # When events of both are due at the same time
    at = world.now + 1000
    world.ask(world.upsert("a", at, tenant="r"), world.upsert("x", at, tenant="g"))
    world.clock.advance(3)
    # Then the first one fires at once
    assert world.fired() == ["a"]


# crons


def outcomes(world, name="s/c/QUARTZ"):
    """What became of each nominal second of a cron that ticks each second."""
    found = []
    for one in world.history():
        if one.get("id") == name:
            first, count = one["eventTime"] // 1000, one.get("count", 1)
            assert one.get("lastTime", one["eventTime"]) // 1000 == first + count - 1
            found += [(first + number, one["what"], one.get("reason")) for number in range(count)]
    return found


def is_complete(found):
    """Each second from the first to the last, once."""
    seconds = [second for second, _, _ in found]
    return seconds == list(range(seconds[0], seconds[0] + len(seconds)))


def test_a_cron_that_is_set_up_again_unchanged_misses_nothing_of_a_pause(world):
    # Given a cron, and a time without nodes
    world.ask(PutCron(EACH_SECOND))
    world.clock.advance(3)
    world.kill("n1")
    world.clock.advance(7200)
    # When a program starts, a node with it, and sets the same cron up again at once
    world.client.send([PutCron(EACH_SECOND)])
    world.start("n2")
    world.clock.advance(5)
    # Then each second has an outcome
    assert is_complete(outcomes(world))
    assert len(outcomes(world)) > 7200


@pytest.mark.parametrize("request_", [
    PutCron(replace(EACH_SECOND, expression="0 0 0 1 1 ? 2099")), RemoveCron("s", "c"),
], ids=["replaced", "removed"])  # fmt: skip
def test_seconds_before_a_cron_was_replaced_or_removed_have_an_outcome_too(world, request_):
    world.ask(PutCron(EACH_SECOND))
    world.clock.advance(3)
    world.kill("n1")
    world.clock.advance(100)
    world.client.send([request_])
    world.start("n2")
    world.clock.advance(1.5)
    taken = world.now // 1000
    world.clock.advance(3)
    found = outcomes(world)
    assert is_complete(found)
    assert found[-1][0] in (taken - 1, taken)
    assert {reason for _, what, reason in found if what == "skipped"} == {
        "replaced" if isinstance(request_, PutCron) else "removed"
    }


def test_ticks_that_nobody_decided_are_counted_up_to_a_limit(world):
    world.ask(PutCron(EACH_SECOND))
    world.clock.advance(3)
    world.kill("n1")
    world.clock.jump_wall(20_000)
    world.client.send([RemoveCron("s", "c")])
    world.start("n2")
    world.clock.advance(5)
    found = outcomes(world)
    assert 10_000 < len(found) < 10_010
    assert found[-1][2].startswith("removed; so are ")
    assert len([one for one in world.history() if one["what"] == "skipped"]) == 2


def test_a_cron_that_is_paused_or_resumed_while_it_ticks_forgets_nothing(world):
    # Given a cron that must not overlap, whose tick is under way
    world.courier.hold = True
    row = replace(EACH_SECOND, tenant="h", policy=Policy(overlap=Overlap.SKIP))
    world.ask(PutCron(row))
    world.clock.advance(1.5)
    assert len(world.courier.delivered) == 1
    # When it is set up again, paused and resumed in the moment of a tick
    for request in (PutCron(row), PauseCron("h", "c", "QUARTZ", True), PauseCron("h", "c", "QUARTZ", False)):
        world.clock.advance(1 - (world.now % 1000) / 1000 - 0.001)
        world.client.send([request])
        world.clock.advance(0.5)
    # Then no other tick fires until it ends
    assert len(world.courier.delivered) == 1
    world.courier.hold = False
    world.courier.let_go()
    world.clock.advance(3)
    assert len(world.courier.delivered) > 1
    assert is_complete(sorted(outcomes(world, "h/c/QUARTZ")))


def test_a_tick_that_ended_in_the_second_of_the_next_does_not_keep_it_from_firing(world):
    world.courier.hold = True
    world.ask(PutCron(replace(EACH_SECOND, tenant="h", policy=Policy(overlap=Overlap.SKIP))))
    world.clock.advance(1.5)
    # Given a result that comes in the same step as the next tick
    world.clock.advance(1 - (world.now % 1000) / 1000 - 0.0001)
    node = world.nodes["n1"]
    world.clock._now_ns += 200_000
    world.courier.let_go()
    node.wake()
    world.clock.advance(0.1)
    assert [what for _, what, _ in outcomes(world, "h/c/QUARTZ")] == ["fired"]
    assert len(world.courier.delivered) == 2


def test_a_cron_of_a_shard_whose_clock_was_set_back_has_no_second_without_an_outcome(world):
    world.clock.advance(10)
    world.clock.jump_wall(-6)
    world.clock.advance(0.5)
    world.ask(PutCron(EACH_SECOND))
    world.clock.advance(12)
    [row] = world.client.crons("s", "c")
    found = outcomes(world)
    assert found[0][0] == row.since + 1
    assert is_complete(found)


def test_crons_whose_names_look_alike_do_not_mix(world):
    # Given tenants with slashes in their names
    for tenant in ("x", "x/y"):
        world.client.control(Registered(Tenant(tenant=tenant, type=TenantType.HTTP, props={"url": "http://localhost"})))
    base = replace(EACH_SECOND, log_granularity="MINUTES")
    one, other = replace(base, tenant="x", id="y/c"), replace(base, tenant="x/y", id="c", payload=b"other")
    world.ask(PutCron(one), PutCron(other))
    world.clock.advance(5.5)
    # Then both tick, and have their own runs
    delivered = [(one.event.tenant, one.event.payload) for one in world.courier.delivered]
    assert delivered.count(("x", b"* * * * * ?")) >= 5
    assert delivered.count(("x/y", b"other")) >= 5
    runs = world.client.runs(one, 100)
    assert len(runs) == delivered.count(("x", b"* * * * * ?"))
    assert not any(b"other" in run.event for run in runs)


def test_a_trigger_in_the_second_of_a_tick_fires_under_an_id_of_its_own(world):
    world.courier.hold = True
    world.ask(PutCron(replace(EACH_SECOND, tenant="h", expression="0/30 * * * * ?")))
    world.clock.advance(30 - (world.now / 1000) % 30)
    assert len(world.courier.delivered) == 1
    # When it is triggered at the moment of a tick that is under way
    assert world.ask(TriggerCron("h", "c", "QUARTZ"))[0]["verdict"] == "UPDATED"
    world.clock.advance(1)
    world.courier.hold = False
    world.courier.let_go()
    world.clock.advance(5)
    # Then both are delivered, and nothing of them is left
    tick, trigger = world.courier.delivered
    assert tick.event.event_id != trigger.event.event_id
    store, shard = world.client.store, world.client.shard_of("h", "c")
    assert store.firing(shard) == []
    assert store.tenants(shard) == {}


def test_a_backfill_of_a_tick_that_is_under_way_changes_nothing(world):
    world.courier.hold = True
    world.ask(PutCron(replace(EACH_SECOND, tenant="h", expression="0/30 * * * * ?")))
    world.clock.advance(30 - (world.now / 1000) % 30 + 0.01)
    second = world.now // 1000
    world.ask(TriggerCron("h", "c", "QUARTZ", second - 1, second))
    world.clock.advance(1)
    world.courier.hold = False
    world.courier.let_go()
    world.clock.advance(5)
    assert len(world.courier.delivered) == 1
    store, shard = world.client.store, world.client.shard_of("h", "c")
    assert store.firing(shard) == []
    assert store.tenants(shard) == {}


def test_a_backfill_of_very_many_seconds_is_cut_off_without_looking_at_all_of_them(world):
    world.ask(PutCron(EACH_SECOND))
    world.clock.advance(1)
    answer = world.ask(TriggerCron("s", "c", "QUARTZ", 0, 1_700_000_000))[0]
    assert answer["verdict"] == "UPDATED"
    world.clock.advance(2)
    triggered = [one["eventTime"] for one in world.history() if one["what"] == "triggered"]
    assert sorted(triggered) == [second * 1000 for second in range(1, 10_001)]
