"""Part E: groups share streams, one member at a time for each, and remember how far they are."""

from __future__ import annotations

import random

import pytest
from worlds import CALM, HASTY, in_parallel, offsets, publish, take, values

from lockstep import GroupOptions
from lockstep.cli.groups import _counted
from lockstep.core.group import Beat
from lockstep.errors import BadConfig, BadOffset, Fenced
from lockstep.streams.admin import LISTEN_MAX_S, listen
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.views import group_row


def join(node, *streams, group="g", timing=CALM, **options):
    return node.subscriber(*streams or ["orders"], group=group, group_options=timing, **options)


def test_e1_at_most_one_member_may_read_at_any_time(virtual):
    # Given five members of a group that are cut off and come back at random
    chance = random.Random(5)
    publish(virtual.node(), "orders", *(b"%d" % n for n in range(50)))
    nodes = [virtual.outage() for _ in range(5)]
    members = [join(node, timing=HASTY) for node, _, _ in nodes]
    owners = set()
    # When time passes
    for _ in range(600):
        _, begin, end = nodes[chance.randrange(5)]
        if chance.random() < 0.1:
            begin("g")
        elif chance.random() < 0.3:
            end()
        virtual.runtime.advance(chance.random() * 0.1)
        # Then never more than one of them believes that it may read
        assigned = [number for number, member in enumerate(members) if member.is_assigned]
        assert len(assigned) <= 1
        owners.update(assigned)
    assert len(owners) > 1, "the stream moved, or the test shows nothing"


@pytest.mark.real_servers
def test_e2_others_get_nothing_and_take_over_without_restart(world, bus):
    # Given a first member that reads, and a second one
    publish(bus, "orders", b"0", b"1")
    first = join(world.node())
    assert values(take(first, 2)) == [b"0", b"1"]
    second = join(world.node())
    # When both poll
    # Then the second gets nothing
    for _ in range(3):
        assert not second.poll(0.02)
        first.poll()
    assert not second.is_assigned
    # And when the first leaves, the second gets what was not confirmed
    first.close()
    assert values(take(second, 2)) == [b"0", b"1"]


def test_e2_a_long_poll_picks_up_a_stream_that_becomes_free(threads):
    # Given a second member in a long poll
    bus = threads.node()
    publish(bus, "orders", b"0", b"1")
    first, second = join(threads.node()), join(threads.node())
    threads.until(lambda: first.is_assigned or second.is_assigned)
    holder, waiting = (first, second) if first.is_assigned else (second, first)
    found = []
    # When the holder leaves meanwhile
    in_parallel(lambda: found.extend(waiting.poll(20.0)), holder.close)
    # Then the poll returns the records
    assert values(found) == [b"0", b"1"]
    assert waiting.is_assigned


def test_e3_a_confirmed_offset_survives_a_restart(world, bus):
    publish(bus, "orders", b"0", b"1", b"2")
    with join(world.node()) as member:
        take(member, 3)
        member.confirm(1, sync=True)
        assert member.confirmed_offset() == 1
    assert values(take(join(world.node()), 1)) == [b"2"]


def test_e3_it_survives_when_everybody_closed_the_bus(disk):
    bus = disk.node()
    publish(bus, "orders", b"0", b"1")
    member = join(bus)
    take(member, 2)
    member.confirm(0)
    bus.close()
    assert values(take(join(disk.node()), 1)) == [b"1"]


def test_e4_confirm_covers_everything_up_to_an_offset(world, bus):
    publish(bus, "orders", *(b"%d" % n for n in range(5)))
    with join(bus) as member:
        records = take(member, 5)
        member.confirm(records[3], sync=True)
    assert values(take(join(bus), 1)) == [b"4"]


def test_e4_confirm_without_an_offset_is_what_was_read_last(bus):
    publish(bus, "orders", b"0", b"1", b"2")
    with join(bus) as member:
        take(member, 2)
        member.confirm(sync=True)
        assert member.confirmed_offset() == 1
    assert values(take(join(bus), 1)) == [b"2"]


def test_e4_confirm_before_the_first_read_does_nothing(world, bus):
    member = join(bus)
    member.confirm()
    world.until(lambda: member.is_assigned)
    assert not member.poll()
    member.confirm(sync=True)
    member.flush_confirms()
    assert member.confirmed_offset() is None


@pytest.mark.parametrize("offset", [-1, 2, 99])
def test_e4_confirm_of_what_was_not_read_is_refused(bus, offset):
    publish(bus, "orders", b"0", b"1", b"2")
    member = join(bus)
    take(member, 2)
    with pytest.raises(BadOffset):
        member.confirm(offset)


def test_e4_a_confirmation_outlasts_a_lease_that_ran_out_for_a_moment(virtual):
    # Given a lone member that read a batch
    node, begin, end = virtual.outage()
    publish(node, "orders", b"0", b"1", b"2")
    member = join(node, timing=HASTY)
    take(member, 2)
    # When its lease runs out, it polls in vain, and gets its lease back
    begin("g")
    virtual.until(lambda: not member.is_assigned)
    assert not member.poll()
    end()
    virtual.until(lambda: member.is_assigned)
    # Then what it read before can still be confirmed
    member.confirm(sync=True)
    assert member.confirmed_offset() == 1


@pytest.mark.real_servers
def test_e5_what_was_not_confirmed_goes_to_the_next_member(world):
    # Given a member that confirmed some of what it read, and is cut off
    node, begin, _ = world.outage()
    publish(node, "orders", *(b"%d" % n for n in range(10)))
    lost = join(node, timing=HASTY)
    take(lost, 7)
    lost.confirm(2, sync=True)
    begin("g")
    # When another member is there
    heir = join(world.node(), timing=HASTY)
    # Then it gets the rest in order, none missing
    assert offsets(take(heir, 7)) == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("beat", [0.05, 0.1, 0.2])
def test_e5_a_silent_member_is_replaced_however_rarely_members_beat(threads, beat):
    # Given members that beat up to half a lease apart, of which one falls silent
    timing = GroupOptions(lease_s=0.4, beat_s=beat)
    node, begin, _ = threads.outage()
    publish(node, "orders", b"0")
    lost = join(node, timing=timing)
    take(lost, 1)
    heir = join(threads.node(), timing=timing)
    begin("g")
    # Then the other takes over
    assert values(take(heir, 1)) == [b"0"]


def test_e6_two_groups_each_get_everything(bus):
    publish(bus, "orders", b"0", b"1")
    one, two = join(bus, group="one"), join(bus, group="two")
    assert values(take(one, 2)) == values(take(two, 2)) == [b"0", b"1"]
    one.confirm(sync=True)
    assert (one.confirmed_offset(), two.confirmed_offset()) == (1, None)


def test_e6_a_group_is_independent_on_two_streams(world, bus):
    publish(bus, "orders", b"0", b"1")
    publish(bus, "payments", b"0", b"1")
    orders, payments = join(bus, "orders"), join(world.node(), "payments")
    take(orders, 2)
    orders.confirm(sync=True)
    assert values(take(payments, 2)) == [b"0", b"1"]
    assert (orders.confirmed_offset(), payments.confirmed_offset()) == (1, None)


def test_e7_groups_and_single_subscribers_do_not_interfere(bus):
    publish(bus, "orders", b"0", b"1")
    member, alone = join(bus), bus.subscriber("orders", initial="earliest")
    take(member, 1)
    member.confirm(sync=True)
    alone.seek(1)
    assert offsets(take(alone, 1)) == [1]
    assert offsets(take(member, 1)) == [1]
    assert bus.groups.names() == ["g"]


def test_e8_a_lone_member_that_stops_polling_keeps_its_stream(virtual):
    # Given a lone member whose work takes longer than it should
    bus = virtual.node()
    publish(bus, "orders", b"0", b"1")
    timing = GroupOptions(lease_s=0.4, beat_s=0.1, max_processing_s=1.0, revoke_s=0.2)
    member = join(bus, timing=timing)
    take(member, 1)
    epoch = member.epoch()
    # When it does not poll for long
    virtual.runtime.advance(60.0)
    # Then it is still the owner, and goes on
    member.confirm(sync=True)
    assert values(take(member, 1)) == [b"1"]
    assert member.epoch() == epoch


def test_e8_a_member_that_stops_polling_loses_its_stream_to_another(virtual):
    # Given a member that works for too long, and another one that polls
    bus = virtual.node()
    publish(bus, "orders", b"0", b"1")
    timing = GroupOptions(lease_s=0.4, beat_s=0.1, max_processing_s=2.0, revoke_s=0.2)
    slow = join(virtual.node(), timing=timing)
    take(slow, 1)
    other = join(virtual.node(), timing=timing)
    # When time passes, it keeps its stream before the deadline
    started = virtual.runtime.monotonic()
    virtual.until(lambda: other.poll() or not slow.is_assigned)
    assert virtual.runtime.monotonic() - started >= 1.0
    # Then the other gets everything, and the slow one may take part again
    assert values(take(other, 2)) == [b"0", b"1"]
    with pytest.raises(Fenced):
        slow.confirm(sync=True)
    other.close()
    assert values(take(slow, 2)) == [b"0", b"1"]


def test_e9_confirming_what_is_no_longer_owned_goes_to_the_error_handler(virtual):
    # Given a member with an error handler that lost its stream to another, which confirmed
    told = []
    node, begin, end = virtual.outage()
    publish(node, "orders", b"0", b"1", b"2")
    lost = join(node, timing=HASTY, on_error=lambda summary, error: told.append(error))
    [_, record] = take(lost, 2)
    begin("g")
    heir = join(virtual.node(), timing=HASTY)
    take(heir, 1)
    heir.confirm(sync=True)
    end()
    # When it confirms, before and after it notices, with and without an offset
    lost.confirm(record)
    virtual.until(lambda: not lost.poll() and lost.offset() is None)
    lost.confirm(record)
    lost.confirm()
    # Then each is told as Fenced, nothing is raised, and the group's position is what it was
    assert [type(error) for error in told] == [Fenced, Fenced, Fenced]
    virtual.runtime.advance(1.0)
    assert heir.confirmed_offset() == 0


def test_e10_deactivate_hands_over_and_reactivate_rejoins(world, bus):
    # Given two members, of which the first has read but not confirmed
    publish(bus, "orders", b"0", b"1", b"2")
    first = join(world.node())
    assert offsets(take(first, 2)) == [0, 1]
    second = join(world.node())
    # When the first is deactivated
    first.deactivate()
    # Then the second gets exactly what was not confirmed, and the first gets nothing
    assert offsets(take(second, 2)) == [0, 1]
    assert not first.poll(0.02)
    assert not first.is_assigned
    second.confirm(1, sync=True)
    # And when it is handed back, the first gets only the rest
    first.reactivate()
    second.deactivate()
    assert offsets(take(first, 1)) == [2]


def test_e10_a_hand_over_takes_no_lease(virtual):
    # Given two members with a long lease
    timing = GroupOptions(lease_s=60.0, beat_s=20.0)
    first, second = (join(virtual.node(), timing=timing) for _ in range(2))
    virtual.until(lambda: first.is_assigned)
    started = virtual.runtime.monotonic()
    # When the owner is deactivated
    first.deactivate()
    virtual.until(lambda: second.is_assigned)
    # Then the other has the stream at once
    assert virtual.runtime.monotonic() - started < 0.1


def test_e11_beats_extend_the_lease_and_come_no_more_often_than_they_should(virtual):
    # Given a member that beats every 0.2 s
    timing = GroupOptions(lease_s=1.0, beat_s=0.2)
    node, begin, _ = virtual.outage()
    member = join(node, timing=timing)
    virtual.until(lambda: member.is_assigned)
    log = GroupLog(node.bus, "g", virtual.runtime, create=False)
    log.load()
    # When ten seconds pass, with many polls
    for _ in range(100):
        virtual.runtime.advance(0.1)
        assert not member.poll()
        # Then the lease is never older than a beat and what it takes to read it back
        assert member._member.lease_age() <= 0.3
    # And there are as many beats as fit
    beats = [record for _, record in log.read_new() if isinstance(record, Beat)]
    assert 45 <= len(beats) <= 51
    assert all(beat.held == {member._seat("orders"): member.epoch()} for beat in beats)
    # And when beats stop, the lease ends
    begin("g")
    virtual.runtime.advance(1.01)
    assert not member.is_assigned
    assert member._member.lease_age() >= 1.0


@pytest.mark.real_servers
def test_e12_a_stale_epoch_confirms_nothing(world):
    # Given a member that was cut off for long, while another took over and confirmed further
    node, begin, end = world.outage()
    publish(node, "orders", *(b"%d" % n for n in range(10)))
    stale = join(node, timing=HASTY)
    take(stale, 5)
    stale.confirm(1, sync=True)
    old_epoch = stale.epoch()
    begin("g")
    heir = join(world.node(), timing=HASTY)
    take(heir, 5)
    heir.confirm(4, sync=True)
    # When it comes back and confirms, whether it knows of the other or not
    end()
    with pytest.raises(Fenced, match="orders"):
        stale.confirm(3, sync=True)
    # Then nothing has changed, and the fencing token has grown
    assert heir.epoch() > old_epoch
    heir.flush_confirms()
    assert heir.confirmed_offset() == 4


@pytest.mark.parametrize(("lease", "beat"), [(1.0, 0.6), (0, 0.1), (1.0, 0), (-1, 0.2)])
def test_a_lease_must_outlast_two_beats(lease, beat):
    with pytest.raises(BadConfig):
        GroupOptions(lease_s=lease, beat_s=beat)


def test_two_members_of_one_group_agree_on_one_owner(world):
    """Section 5, election: two candidates agree on one; all see the same."""
    members = [join(world.node()) for _ in range(2)]
    world.until(lambda: any(member.is_assigned for member in members))
    view = world.node().groups.describe("g")
    [progress] = view.streams
    assert progress.owner in view.members
    [owner] = [member for member in members if member.is_assigned]
    assert owner._member.id == progress.owner


def test_a_group_without_members_has_no_owner(world, bus):
    """Section 5, election: no candidates."""
    with join(bus) as member:
        world.until(lambda: member.is_assigned)
    view = bus.groups.describe("g")
    assert view.members == {}
    assert [progress.owner for progress in view.streams] == [None]


def test_a_member_that_is_not_heard_within_its_lease_is_described_as_silent(virtual):
    node, begin, end = virtual.outage()
    viewer, member = virtual.node(), join(node)
    virtual.until(lambda: member.is_assigned)
    assert viewer.groups.describe("g").silent == frozenset()
    begin("g")
    virtual.until(lambda: viewer.groups.describe("g").silent)
    view = viewer.groups.describe("g")
    assert view.silent == {member._member.id} == set(view.members)
    row = group_row(view)
    assert (row["members"], row["silent"], _counted(row)) == (1, 1, "1 (1 silent)")
    end()


def test_a_live_member_is_not_silent_to_somebody_who_listens_whatever_the_clocks_say(virtual):
    # Given a member that is cut off, and one that is at work, looked at from a host whose clock is a minute ahead
    node, begin, end = virtual.outage()
    gone, member, viewer = join(node, "a", group="gone"), join(virtual.node(), "b"), virtual.node()
    virtual.until(lambda: gone.is_assigned and member.is_assigned)
    begin("gone")
    virtual.runtime.jump_wall(60.0)
    views = [viewer.groups.describe(name) for name in viewer.groups.names()]
    assert [len(view.silent) for view in views] == [1, 1], "by the time stamps"
    # When somebody listens
    began = virtual.runtime.monotonic()
    heard = {view.name: view.silent for view in listen(viewer.bus, virtual.runtime, views)}
    # Then only the one that says nothing is silent, and it took a little more than a lease to know
    assert heard == {"g": frozenset(), "gone": {gone._member.id}}
    assert CALM.lease_s <= virtual.runtime.monotonic() - began <= LISTEN_MAX_S
    # And a group that is deleted meanwhile, or has no silent member, is no matter
    viewer.bus.delete("_group.gone")
    assert [view.name for view in listen(viewer.bus, virtual.runtime, views)] == [view.name for view in views]
    end()


def test_an_appends_that_never_arrive_elect_nobody(virtual):
    """Section 5, election: the compare-and-set always fails; it is tried again, and nothing happens."""
    node, begin, end = virtual.outage()
    node.create("orders")
    virtual.node().bus.create("_group.g", GroupLog(node.bus, "g", virtual.runtime).log.config)
    begin("g")
    member = join(node, timing=HASTY)
    virtual.runtime.advance(5.0)
    assert node.bus.plan.counts["outage"] >= 2
    assert not member.is_assigned
    end()
    virtual.until(lambda: member.is_assigned)
