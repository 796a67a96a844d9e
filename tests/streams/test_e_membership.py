"""Part E, continued: sharing many streams, being told of changes, looking at groups and changing them."""

from __future__ import annotations

import threading

import pytest
from worlds import BOUND_S, CALM, HASTY, everything, offsets, publish, take, values

from lockstep import GroupOptions, StreamConfig
from lockstep.errors import BadArgument, Fenced, GroupBusy, GroupNotFound

STREAMS = [f"stream-{number}" for number in range(7)]


def join(node, *streams, timing=CALM, **options):
    return node.subscriber(*streams or ["orders"], group="g", group_options=timing, **options)


def balance(world, members, streams):
    """Poll until every stream has an owner and the shares differ by one at most."""

    def balanced():
        for member in members:
            member.poll()
        shares = [len(member.assigned) for member in members]
        return sum(shares) == streams and max(shares) - min(shares) <= 1

    world.until(balanced, "a balanced group")
    return [set(member.assigned) for member in members]


def test_e14_streams_are_shared_evenly_and_stay_where_they_are(world, bus):
    # Given three members that share seven streams
    members = [join(world.node(), *STREAMS) for _ in range(3)]
    before = balance(world, members, len(STREAMS))
    epochs = {name: member.epoch(name) for member in members for name in member.assigned}
    # When a fourth one joins
    members.append(join(world.node(), *STREAMS))
    after = balance(world, members, len(STREAMS))
    # Then it gets its share, no more streams move than that, and those that stay were never interrupted
    moved = set().union(*(was - now for was, now in zip(before, after[:3], strict=True)))
    assert len(moved) <= 2
    assert after[3] == moved
    for was, now, member in zip(before, after[:3], members[:3], strict=True):
        assert all(member.epoch(name) == epochs[name] for name in was & now)


def test_e14_the_streams_of_a_member_that_leaves_are_shared_by_the_others(world):
    members = [join(world.node(), *STREAMS) for _ in range(3)]
    before = balance(world, members, len(STREAMS))
    members.pop().close()
    after = balance(world, members, len(STREAMS))
    assert all(was <= now for was, now in zip(before[:2], after, strict=True))


@pytest.mark.real_servers
def test_e14_shards_are_shared_too(world, bus):
    bus.create("orders", StreamConfig(shards=4))
    members = [join(world.node()) for _ in range(2)]
    assert [len(share) for share in balance(world, members, 4)] == [2, 2]


def test_e15_members_are_told_what_they_get_and_what_moves(world, bus):
    # Given a member that is told
    told = []
    callbacks = {name: lambda stream, name=name: told.append((name, stream)) for name in ("on_assigned", "on_revoked")}
    publish(bus, "orders", b"0", b"1")
    first = join(world.node(), **callbacks)
    take(first, 1)
    assert told == [("on_assigned", "orders")]
    # When it hands its stream over
    first.confirm()
    first.deactivate()
    # Then it was told before, and what it had confirmed counts
    assert told[1:] == [("on_revoked", "orders")]
    assert values(take(join(world.node()), 1)) == [b"1"]


@pytest.mark.real_servers
def test_e15_a_member_that_was_replaced_is_told_that_its_stream_is_lost(world):
    told = []
    node, begin, end = world.outage()
    publish(node, "orders", b"0")
    first = join(node, timing=HASTY, on_lost=told.append, on_revoked=told.append)
    take(first, 1)
    begin("g")
    heir = join(world.node(), timing=HASTY)
    take(heir, 1)
    end()
    world.until(lambda: not first.poll() and told)
    assert told == ["orders"]


def test_e15_a_stream_moves_when_the_work_at_hand_is_done(virtual):
    # Given a member that works on records of two streams
    for name in ("a", "b"):
        publish(virtual.node(), name, b"0", b"1")
    first = join(virtual.node(), "a", "b")
    take(first, 4)
    # When another one joins, and the first does not poll yet
    second = join(virtual.node(), "a", "b")
    virtual.runtime.advance(1.0)
    # Then nothing has moved: its work may still be confirmed
    assert second.assigned == []
    for name in ("a", "b"):
        first.confirm(1, stream=name, sync=True)
    # And when it polls again, one stream moves, and nothing is delivered twice
    first.poll()
    virtual.until(lambda: second.assigned)
    assert not second.poll()


def test_e15_a_stream_moves_when_its_time_is_up(virtual):
    # Given a member whose work takes longer than the budget
    told = []
    timing = GroupOptions(lease_s=1.0, beat_s=0.1, revoke_s=2.0)
    publish(virtual.node(), "a", b"0")
    publish(virtual.node(), "b", b"0")
    first = join(virtual.node(), "a", "b", timing=timing, on_error=lambda summary, error: told.append(summary))
    take(first, 2)
    second = join(virtual.node(), "a", "b", timing=timing)
    # When the budget is used up
    virtual.runtime.advance(1.0)
    assert second.assigned == []
    virtual.until(lambda: second.assigned)
    # Then the stream has moved without it, and it is told
    assert any("did not finish within 2.0 s" in summary for summary in told)


def test_e15_a_receiver_hands_over_when_its_handlers_are_done(threads):
    # Given a receiver with two workers, both at work, of which one stream is to move
    started, go_on, handled = threading.Semaphore(0), threading.Event(), []

    def handle(record):
        started.release()
        assert go_on.wait(10)
        handled.append((record.stream, record.offset))

    bus = threads.node()
    for name in ("a", "b"):
        publish(bus, name, b"0")
    first = threads.node()
    first.receive(join(first, "a", "b"), handle, workers=2)
    assert started.acquire(timeout=10)
    second = join(threads.node(), "a", "b")
    # When the other member polls meanwhile
    for _ in range(10):
        assert not second.poll(0.02)
    # Then it gets nothing that is being worked on; and afterwards one stream, without what is done
    go_on.set()
    threads.until(lambda: second.poll(0.02) or second.assigned)
    assert not second.poll(0.05)
    assert sorted(handled) == [("a", 0), ("b", 0)]


def test_e17_groups_can_be_listed_and_described(world, bus):
    # Given a group with a member that is two records behind
    publish(bus, "orders", b"0", b"1", b"2")
    member = join(bus)
    take(member, 1)
    member.confirm(sync=True)
    # When it is described
    assert bus.groups.names() == ["g"]
    view = world.node().groups.describe("g")
    # Then members, owner, epoch, position and lag are there
    assert view.members == {member._member.id: ("orders",)}
    [progress] = view.streams
    assert (progress.stream, progress.owner, progress.epoch) == ("orders", member._member.id, member.epoch())
    assert (progress.confirmed, progress.next, progress.end, progress.lag) == (0, 1, 3, 2)
    assert 0 <= progress.lag_s < BOUND_S
    with pytest.raises(GroupNotFound, match="'no-such'"):
        bus.groups.describe("no-such")


def test_e17_lag_is_known_in_seconds_too(virtual):
    bus = virtual.node()
    with join(bus):
        virtual.runtime.advance(1.0)
    publish(bus, "orders", b"0")
    virtual.runtime.advance(30.0)
    [progress] = bus.groups.describe("g").streams
    assert (progress.lag, progress.lag_s) == (1, pytest.approx(30.0))


@pytest.mark.parametrize(("to", "expected"), [("earliest", 1), ("latest", 4), (2, 2), ("time", 3)])
def test_e17_a_group_can_be_reset(virtual, to, expected):
    # Given a group without members that has confirmed everything
    bus = virtual.node()
    for number in range(4):
        publish(bus, "orders", b"%d" % number)
        virtual.runtime.advance(1.0)
    bus.trim("orders", 1)
    with join(bus) as member:
        take(member, 3)
        member.confirm(sync=True)
    # When it is reset
    to = f"time:{everything(bus, 'orders')[-1].appended_ns}" if to == "time" else to
    assert bus.groups.reset("g", "orders", to) == expected
    # Then it reads from there
    again = join(bus)
    virtual.until(lambda: again.is_assigned)
    assert offsets(again.poll()) == list(range(expected, 4))


@pytest.mark.parametrize("to", [5, -1, "first"])
def test_e17_a_reset_to_nowhere_is_refused(bus, to):
    publish(bus, "orders", b"0")
    with pytest.raises(BadArgument, match="give earliest, latest"):
        bus.groups.reset("g", "orders", to)


def test_e17_a_reset_is_refused_while_a_member_works_unless_forced(virtual):
    # Given a member at work
    bus = virtual.node()
    publish(bus, "orders", b"0", b"1")
    member = join(virtual.node())
    take(member, 2)
    # When the group is reset
    with pytest.raises(GroupBusy, match="orders"):
        bus.groups.reset("g", "orders", "earliest")
    with pytest.raises(GroupBusy, match="orders"):
        bus.groups.delete("g")
    # Then only force helps; and what the member had read is not confirmed by it afterwards
    bus.groups.reset("g", "orders", "earliest", force=True)
    with pytest.raises(Fenced):
        member.confirm(sync=True)
    assert offsets(take(member, 2)) == [0, 1]


def test_e17_a_reset_of_a_stream_with_shards(virtual):
    # Given a group that has confirmed everything of two shards
    bus = virtual.node()
    with bus.publisher("orders", config=StreamConfig(shards=2)) as publisher:
        for number in range(6):
            publisher.publish(b"%d" % number)
    with join(bus) as member:
        take(member, 6)
        for name in member.assigned:
            member.confirm(stream=name, sync=True)
    # When it is reset, each shard is named
    with pytest.raises(BadArgument, match="it has 2 shards"):
        bus.groups.reset("g", "orders", "earliest")
    assert [bus.groups.reset("g", log.name, "earliest") for log in bus.logs("orders")] == [0, 0]
    # Then everything is read again
    assert len(take(join(bus), 6)) == 6


@pytest.mark.real_servers
def test_e17_a_deleted_group_begins_anew(world, bus):
    publish(bus, "orders", b"0")
    with join(bus) as member:
        take(member, 1)
        member.confirm(sync=True)
    bus.groups.delete("g")
    assert bus.groups.names() == []
    assert values(take(join(bus), 1)) == [b"0"]


@pytest.mark.real_servers
def test_e17_a_stream_made_anew_has_no_old_position(world, bus):
    publish(bus, "orders", b"0", b"1")
    with join(bus) as member:
        take(member, 2)
        member.confirm(sync=True)
    bus.delete("orders")
    publish(bus, "orders", b"new")
    assert bus.groups.describe("g").streams == ()
    assert values(take(join(bus), 1)) == [b"new"]


def test_e18_extend_counts_processing_time_from_new(virtual):
    # Given a slow member that says so, and another one
    timing = GroupOptions(lease_s=0.4, beat_s=0.1, max_processing_s=2.0, revoke_s=0.1)
    publish(virtual.node(), "orders", b"0")
    slow = join(virtual.node(), timing=timing)
    take(slow, 1)
    other = join(virtual.node(), timing=timing)
    # When it works for much longer than it may, and extends
    for _ in range(10):
        virtual.runtime.advance(1.5)
        slow.extend()
        assert not other.poll()
    # Then the stream is still its own
    slow.confirm(sync=True)
    assert slow.confirmed_offset() == 0


def test_e18_a_handler_is_given_its_epoch_and_a_way_to_extend(virtual):
    timing = GroupOptions(lease_s=0.4, beat_s=0.1, max_processing_s=2.0, revoke_s=0.1)
    bus, told = virtual.node(), []
    publish(bus, "orders", b"0")
    member = join(bus, timing=timing)

    def handle(record, delivery):
        delivery.extend()
        told.append((delivery.epoch, delivery.attempt))

    bus.receive(member, handle)
    virtual.until(lambda: told)
    assert told == [(member.epoch(), 1)]
