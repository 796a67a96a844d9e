"""A node beside a store that is a server: it goes on while a commit is under way, and with no shard of that commit."""

from __future__ import annotations

import pytest
from schedule_worlds import World

from lockstep.core.agenda import Status
from lockstep.errors import AppendUncertain, IllegalState, ServerUnreachable
from lockstep.schedule.requests import DryRun
from lockstep.schedule.tenants import Registered, Tenant, TenantType

EVENTS = 12


class Server:
    """The store of a node, as if it were a server: notes when commits begin and end, and may have one fail."""

    def __init__(self, node):
        self.notes, self.error, self.is_stored = [], None, True
        self.commit, self.read, self.claim = node._store.commit, node._store.due_events, node._store.claim
        node._store.begin, node._store.due_events, node._store.claim = self.begin, self.due_events, self.claims

    def begin(self, changes):
        shards = sorted(change.shard for change in changes)
        is_firing = any(change.late_ms for change in changes)
        self.notes += [("begin", shards)] if is_firing else []
        error, self.error = (self.error, None) if is_firing else (None, self.error)
        refused = self.commit(changes) if error is None or self.is_stored else set()

        def end():
            self.notes += [("end", shards)] if is_firing else []
            if error is not None:
                raise error
            return refused

        return end

    def due_events(self, shard, *asked):
        self.notes.append(("read", shard))
        return self.read(shard, *asked)

    def claims(self, shard, fence):
        self.notes.append(("claim", shard))
        return self.claim(shard, fence)

    def under_way(self):
        """Shards whose commit is under way, at each note."""
        found = [[]]
        for what, about in self.notes:
            found.append(about if what == "begin" else [] if what == "end" else found[-1])
        return list(zip(self.notes, found, strict=False))


def behind(**options):
    """A node that has more to do than one round takes: twelve events in each of two shards, all due at once."""
    world = World(shards=2, is_remote=True)
    node = world.start(round_events=4, **options)
    world.clock.advance(2)
    at = world.now + 1000
    names = [name for shard in (0, 1) for name in in_shard(world, shard)]
    world.ask(*(world.upsert(name, at) for name in names))
    return world, names, Server(node)


def in_shard(world, shard, tenant="s"):
    return [name for name in map(str, range(1000)) if world.client.shard_of(tenant, name) == shard][:EVENTS]


def test_the_other_shards_are_read_during_a_commit_and_its_own_after_it():
    world, names, server = behind()
    world.clock.advance(5)
    assert sorted(world.fired()) == sorted(names)
    reads = [(shard, busy) for (what, shard), busy in server.under_way() if what == "read"]
    assert [shard for shard, busy in reads if shard in busy] == []
    assert len([shard for shard, busy in reads if busy]) >= 4  # and not all of them waited
    begins = [about for what, about in server.notes if what == "begin"]
    assert [0] in begins
    assert [1] in begins


@pytest.mark.parametrize("is_stored", [True, False])
def test_after_a_commit_that_failed_its_shards_are_read_again_and_nothing_is_lost_or_doubled(is_stored):
    world, names, server = behind()
    begin = server.begin

    def once_in_halves(changes):
        if server.error is None and len(changes) == 1 and ("claim", changes[0].shard) not in server.notes:
            server.error, server.is_stored = AppendUncertain(stream="x", reason="on order"), is_stored
            world.nodes["n1"]._store.begin = begin
        return begin(changes)

    world.nodes["n1"]._store.begin = once_in_halves
    world.clock.advance(8)
    assert sorted(world.fired()) == sorted(names)
    claims = [shard for what, shard in server.notes if what == "claim"]
    assert len(claims) == 1
    # And what was made of the other shard during it was not begun before its shard was read again
    failed = server.notes.index(("end", claims))
    after = [note for note in server.notes[failed + 1 :] if note[0] in ("begin", "claim")]
    assert after[0] == ("claim", claims[0])


def test_what_a_commit_under_way_fires_counts_for_the_rate_of_its_tenant():
    world, names, _ = behind()
    world.client.control(Registered(Tenant(tenant="s", type=TenantType.MESSAGING, props={"topic": "out"}, rate=3.0)))
    world.clock.advance(1)
    before = len(world.fired())
    world.clock.advance(4)
    assert len(world.fired()) - before == pytest.approx(12, abs=2)
    world.clock.advance(10)
    assert sorted(world.fired()) == sorted(names)


def test_what_a_commit_under_way_claims_counts_for_the_deliveries_under_way():
    world, _, _ = behind(in_flight=3)
    world.courier.hold = True
    at = world.now + 500
    world.ask(*(world.upsert(name, at, "h") for shard in (0, 1) for name in in_shard(world, shard, "h")))
    world.clock.advance(5)
    assert len(world.courier.delivered) == 3
    while world.courier.held:
        world.courier.let_go()
        world.clock.advance(1)
        assert len(world.courier.held) <= 3
    assert len(world.courier.delivered) == 2 * EVENTS


def test_a_node_that_stops_in_the_middle_leaves_nothing_in_doubt():
    world, names, server = behind()
    node, rounds = world.nodes["n1"], []
    round_ = node._round

    def three_rounds():
        rounds.append(round_())
        if len(rounds) >= 5 and node._commits._under_way is not None:
            node._task.stop()
        return rounds[-1]

    node._round = three_rounds
    world.clock.advance(3)
    assert node._commits._under_way is not None
    node.close()
    assert [what for what, _ in server.notes].count("begin") == [what for what, _ in server.notes].count("end")
    world.start("n2")
    world.clock.advance(5)
    assert sorted(world.fired()) == sorted(names)


def test_a_shard_that_was_lost_during_a_commit_delivers_nothing_of_it():
    """Its next owner finds what was claimed, and delivers that."""
    world = World(shards=1, is_remote=True)
    node = world.start()
    world.clock.advance(2)
    world.schedule("a", 1000, tenant="h")
    begin, owned = node._store.begin, node._owned

    def losing(changes):
        end = begin(changes)
        if any(change.events for change in changes):
            node._store.begin = begin
            owned.clear()
        return end

    node._store.begin = losing
    world.clock.advance(1)
    assert world.courier.delivered == []
    world.clock.advance(2)
    assert world.client.find("h", "a").status is Status.DONE
    assert len(world.courier.delivered) == 1


def test_an_error_that_no_store_may_raise_ends_the_node():
    world, _, server = behind()
    server.error = IllegalState(what="x", action="y", reason="on order")
    world.clock.advance(3)
    assert isinstance(world.nodes["n1"].error, IllegalState)


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_store_that_goes_away_right_after_a_commit_has_nothing_done_twice_and_nothing_forgotten(is_remote):
    world = World(shards=1, is_remote=is_remote)
    world.start()
    world.clock.advance(2)
    store, failures = world.nodes["n1"]._store, [1]
    next_due = store.next_due

    def failing(*asked):
        if failures:
            failures.pop()
            raise ServerUnreachable(server="the store", reason="on order")
        return next_due(*asked)

    at = world.now + 1000
    world.ask(world.upsert("a", at), world.upsert("b", at, "h"))
    world.clock.advance(0.5)
    store.next_due = failing
    world.client.send([world.upsert("c", at + 60_000)])
    world.clock.advance(5)
    assert failures == []
    assert world.fired() == ["a"]
    assert world.client.find("h", "b").status is Status.DONE
    assert [one.event.id for one in world.courier.delivered] == ["b"]


@pytest.mark.parametrize("is_remote", [False, True])
def test_results_of_deliveries_survive_a_store_that_can_not_be_read(is_remote):
    # Given a delivery under way
    world = World(shards=1, is_remote=is_remote)
    world.start()
    world.clock.advance(2)
    world.courier.hold = True
    world.schedule("a", 0, tenant="h")
    world.clock.advance(0.5)
    # When its result comes while the store is away
    store = world.nodes["n1"]._store
    expired = store.expired

    def failing(*_):
        raise ServerUnreachable(server="the store", reason="on order")

    store.expired = failing
    world.courier.let_go()
    world.clock.advance(5)
    store.expired = expired
    world.clock.advance(3)
    # Then it counts all the same
    assert world.client.find("h", "a").status is Status.DONE
    assert len(world.courier.delivered) == 1


@pytest.mark.parametrize("is_remote", [False, True])
def test_what_an_earlier_owner_had_begun_is_delivered_if_the_store_goes_away_right_after_the_commit(is_remote):
    # Given a delivery that a node had begun when it was killed, and an event that is due by the time of the next owner
    world = World(shards=1, is_remote=is_remote)
    world.start()
    world.clock.advance(2)
    world.courier.hold = True
    at = world.now + 500
    world.ask(world.upsert("a", world.now, "h"), world.upsert("b", at))
    world.clock.advance(0.2)
    assert len(world.courier.held) == 1
    world.kill("n1")
    world.courier.hold = False
    # When the store can't be read right after the step that takes the delivery over
    node = world.start("n2")
    next_due, failures = node._store.next_due, []

    def failing(*asked):
        if not failures:
            failures.append(asked)
            raise ServerUnreachable(server="the store", reason="on order")
        return next_due(*asked)

    node._store.next_due = failing
    world.clock.advance(60)
    # Then it is delivered all the same
    assert len(failures) == 1
    assert world.fired() == ["b"]
    assert world.client.find("h", "a").status is Status.DONE
    assert len(world.courier.delivered) == 2


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_dry_run_is_delivered_if_the_store_goes_away_right_after_the_commit(is_remote):
    # Given a step that carries out a dry run, and after which the store can't be read
    world = World(shards=1, is_remote=is_remote)
    node = world.start()
    world.clock.advance(2)
    world.schedule("a", 60_000, tenant="h")
    due = world.now + 1000
    world.ask(world.upsert("b", due))
    next_due, failures = node._store.next_due, []

    def failing(*asked):
        if not failures:
            failures.append(asked)
            raise ServerUnreachable(server="the store", reason="on order")
        return next_due(*asked)

    node._store.next_due = failing
    take = node._take_requests
    node._take_requests = lambda round_: take(round_) if round_.now >= due else None
    world.client.send([DryRun("h", "a")])
    world.clock.advance(10)
    # Then it is delivered, once
    assert len(failures) == 1
    assert [(one.event.id, one.dry_run) for one in world.courier.delivered] == [("a", True)]
