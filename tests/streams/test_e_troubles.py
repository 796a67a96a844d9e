"""Groups in trouble: full stores, deleted groups, callbacks that fail; and positions that protect."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from worlds import CALM, HASTY, everything, publish, take, values

from lockstep import GroupOptions, StreamConfig
from lockstep.core.group import GroupState, Reset, Snapshot
from lockstep.core.seats import Seat
from lockstep.errors import DataError, Fenced, NotFound, ServerUnreachable, StoreFull, StreamNotFound
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.streams.grouplog import GroupLog, decode, encode

PROTECTED = StreamConfig(capacity=5, protect=True)


@pytest.mark.needs("protect")
def test_a_confirmation_that_does_not_count_protects_nothing_less(world):
    # Given a protected stream, and a member whose confirmation is on its way when the group is reset
    node = world.node()
    node.create("orders", PROTECTED)
    slow = GroupOptions(lease_s=5.0, beat_s=0.1, confirm_s=60.0)
    with node.subscriber("orders", group="g", group_options=slow) as member:
        assert member.wait_assigned(20.0)
        publish(node, "orders", *[b"%d" % n for n in range(20)])
        take(member, 20)
        member.confirm(0, sync=True)
        member.confirm(19)
        node.groups.reset("g", "orders", 1, force=True)
        world.until(lambda: member._member.group_state.seat(member._seat("orders")).start == 1)
    # When more is published than the capacity
    publish(node, "orders", *[b"more"] * 10)
    # Then everything from the reset position on is still there
    assert node.bounds("orders").first <= 1


def test_a_member_survives_a_store_that_is_full_for_a_while(world):
    # Given a member of a group whose log can't be written for a while
    node, bus = world.shaky()
    publish(node, "orders", b"x")
    bus.plan.fail(StoreFull(stream="orders", reason="the disk is full"), times=6, log="_group.g")
    # When there is room again
    with node.subscriber("orders", group="g", group_options=HASTY, on_error=lambda *_: None) as member:
        # Then it goes on as if nothing had been
        assert values(take(member, 1)) == [b"x"]
        assert member._member.error is None


def test_a_member_of_a_deleted_group_says_so(world):
    # Given a member whose group is deleted by force
    node = world.node()
    publish(node, "orders", b"x")
    member = node.subscriber("orders", group="g", group_options=CALM)
    take(member, 1)
    node.groups.delete("g", force=True)
    # When it polls on
    world.until(lambda: member._member.error is not None, "the end of the member")
    # Then it is told, instead of waiting for ever; and closing it is no error
    with pytest.raises(NotFound):
        member.poll()
    member.close()


@pytest.mark.needs("atomic")
def test_a_transaction_of_a_group_that_was_made_anew_is_refused(world):
    # Given a member whose group was deleted, made anew, and went on without it
    node = world.node()
    publish(node, "orders", b"x")
    node.create("out")
    member = node.subscriber("orders", group="g", group_options=CALM)
    [record] = take(member, 1)
    node.groups.delete("g", force=True)
    other = world.node().subscriber("orders", group="g", group_options=CALM)
    take(other, 1)

    # When the first commits what it had in hand
    def commit_late():
        with node.group_transaction(member) as together:
            together.publish("out", b"late")
            together.confirm(record)

    with pytest.raises((Fenced, NotFound)):
        commit_late()
    # Then nothing of it is written
    assert everything(node, "out") == []


@pytest.mark.needs("atomic")
def test_a_transaction_does_not_write_to_a_stream_made_anew(world):
    # Given a transaction to a stream that is deleted and made anew before the commit
    node = world.node()
    node.create("out")
    together = node.transaction()
    together.publish("out", b"x")
    node.delete("out")
    node.create("out")
    # When it commits, then it is refused
    with pytest.raises(StreamNotFound):
        together.commit()
    assert everything(node, "out") == []


def test_an_error_callback_that_fails_does_not_end_the_member(threads):
    # Given a member whose error callback raises
    node, other = threads.node(), threads.node()
    publish(node, "a", b"x")
    publish(node, "b", b"x")
    told = threading.Event()

    def fail(_summary, _error):
        told.set()
        message = "the callback is broken"
        raise RuntimeError(message)

    impatient = GroupOptions(lease_s=0.6, beat_s=0.1, revoke_s=0.1)
    with node.subscriber("a", "b", group="g", group_options=impatient, on_error=fail) as member:
        take(member, 2)
        # When a stream has to be taken from it because it does not finish
        with other.subscriber("a", "b", group="g", group_options=impatient) as second:
            assert told.wait(20.0)
            threads.until(lambda: second.poll(0.01) or second.assigned)
            # Then it is still a member
            assert member._member.error is None


def test_a_grouped_subscriber_gives_everything_back_when_closed(disk):
    # Given a process that opened and closed one
    node = disk.node()
    publish(node, "orders", b"x")
    node.subscriber("orders", group="g", group_options=CALM).close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    # When it does so many times, then it holds no more files than before
    for _ in range(10):
        node.subscriber("orders", group="g", group_options=CALM).close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_deactivate_holds_after_a_stall(virtual):
    # Given a member that was set aside because it did not poll, and is then deactivated
    first, second = virtual.node(), virtual.node()
    publish(first, "orders", b"x")
    options = GroupOptions(max_processing_s=2.0)
    member = first.subscriber("orders", group="g", group_options=options)
    take(member, 1)
    second.subscriber("orders", group="g", group_options=options)
    virtual.runtime.advance(5.0)
    member.deactivate()
    # When it polls, then it stays inactive
    member.poll()
    assert not member._member.is_active


def test_members_note_each_others_snapshots(virtual, monkeypatch):
    # Given a group of four that writes a snapshot every 50 records
    monkeypatch.setattr("lockstep.streams.grouplog.SNAPSHOT_EVERY", 50)
    node = virtual.node()
    streams = [f"s{n}" for n in range(4)]
    for stream in streams:
        publish(node, stream, b"x")
    for _ in range(4):
        virtual.node().subscriber(*streams, group="g")
    # When it beats for a while
    virtual.runtime.advance(30.0)
    # Then its log stays short, and a newcomer can still read it
    grouplog = GroupLog(node.bus, "g", virtual.runtime, create=False)
    assert grouplog.log.bounds().count < 250
    assert len(grouplog.load().seats) == 4


@pytest.mark.needs("atomic")
def test_a_record_read_before_a_reset_can_not_be_confirmed_behind_it(world):
    # Given a record in hand when the group is reset to the beginning
    node = world.node()
    publish(node, "orders", b"1", b"2", b"3")
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        old = take(member, 3)[-1]
        node.groups.reset("g", "orders", 0, force=True)
        world.until(lambda: member.poll(0.01, max_records=1), "the first record again")
        # When it is confirmed in a transaction, then that is refused: records before it are not processed
        with pytest.raises(Fenced), node.group_transaction(member) as together:
            together.confirm(old)


def test_a_doubled_reset_counts_once(world):
    # Given a reset whose append landed twice
    node = world.node()
    publish(node, "orders", b"1", b"2")
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        take(member, 2)
        member.confirm(sync=True)
    node.groups.reset("g", "orders", 0)
    grouplog = GroupLog(node.bus, "g", node.runtime, create=False)
    [reset] = [record for _, record in grouplog._read_from(0) if isinstance(record, Reset)]
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        take(member, 2)
        member.confirm(sync=True)
    # When the copy arrives late, then the group stays where it is
    grouplog.append([reset])
    assert node.groups.describe("g").streams[0].confirmed == 1


def test_a_confirmation_is_kept_until_it_is_written(virtual):
    # Given a member whose confirmation can't be written at first
    node, bus = virtual.shaky()
    publish(node, "orders", b"x", b"y")
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        take(member, 2)
        bus.plan.fail(StoreFull(stream="g", reason="full"), times=1, log="_group.g")
        member.confirm()
        # When its confirmations are flushed
        # Then that raises, and does not return as if they counted
        with pytest.raises(StoreFull):
            member.flush_confirms()
        # And when the log can be written again, they count
        member.flush_confirms()
        assert member.confirmed_offset() == 1


def test_a_confirmation_waits_for_a_server_that_is_away(virtual):
    # Given a member whose server does not answer at first
    node, bus = virtual.shaky()
    publish(node, "orders", b"x", b"y")
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        take(member, 2)
        bus.plan.fail(ServerUnreachable(server="s", reason="away"), times=2, log="_group.g")
        member.confirm()
        # When its confirmations are flushed, then they count when that returns
        member.flush_confirms()
        assert member.confirmed_offset() == 1
        assert bus.plan.pending == 0


def test_flushing_confirmations_that_did_not_count_says_so(virtual):
    # Given a confirmation on its way when the group is reset
    node = virtual.node()
    publish(node, "orders", b"x", b"y")
    slow = GroupOptions(lease_s=5.0, beat_s=0.1, confirm_s=60.0)
    with node.subscriber("orders", group="g", group_options=slow, on_error=lambda *_: None) as member:
        take(member, 2)
        member.confirm(0)
        member._member.flush(member._seat("orders"), 1.0)
        member.confirm(1)
        node.groups.reset("g", "orders", 0, force=True)
        # Then flushing it is refused: once
        with pytest.raises(Fenced):
            member.flush_confirms()
        member.flush_confirms()


def test_a_member_that_cannot_write_to_its_group_tells_its_reader(virtual):
    # Given a group whose log can't be written at all
    node, bus = virtual.shaky()
    publish(node, "orders", b"x")
    told = []
    loud = node.subscriber("orders", group="g", group_options=HASTY)
    quiet = node.subscriber("orders", group="h", group_options=HASTY, on_error=lambda _, error: told.append(error))
    for group in ("g", "h"):
        bus.plan.fail(StoreFull(stream=group, reason="the disk is full"), times=100, log=f"_group.{group}")
    # When that lasts longer than a lease
    # Then polling raises it, or reports it to on_error
    with pytest.raises(StoreFull, match="the disk is full"):
        take(loud, 1)
    for _ in range(3):
        assert not quiet.poll(1.0)
    assert {type(error) for error in told} == {StoreFull}


@pytest.mark.parametrize("offset", ["0.5", "-1", "1e300", '"three"', "null"])
def test_a_record_of_the_group_that_is_not_valid_breaks_no_member(virtual, caplog, offset):
    # Given a group log with a confirmation that is no offset, as versions before wrote it
    node = virtual.node()
    publish(node, "orders", b"x", b"y")
    with node.subscriber("orders", group="g", group_options=CALM) as member:
        take(member, 1)
        own, seat = member._member, member._seat("orders")
        poison = {"kind": "confirm", "member": own.id, "seat": seat, "epoch": member.epoch(), "offset": 0}
        data = json.dumps(poison).replace('"offset": 0', f'"offset": {offset}').encode()
        node.bus.open("_group.g").append([pack([data], producer=NO_PRODUCER, sequence=0, created_ns=0)])
        # When the members read it
        member.confirm(0, sync=True)
        # Then it counts for nothing, and is reported
        assert member.confirmed_offset() == 0
    assert "group_record_invalid" in {getattr(record, "action", None) for record in caplog.records}
    with node.subscriber("orders", group="g", group_options=CALM) as other:
        assert values(take(other, 1)) == [b"y"]


def test_a_snapshot_with_a_confirmation_that_is_no_integer_can_be_read():
    state = GroupState(seats={"orders@1": Seat(epoch=1, confirmed=2.5)}, upto=7)
    restored = decode(encode(Snapshot(7, state)))
    assert restored.group.seat("orders@1").resume == 3


@pytest.mark.parametrize(
    "newer",
    [
        {"kind": "beat", "member": "a", "number": 1, "lease": 1.0, "held": [], "seats": [], "pace": 3},
        {"kind": "snapshot", "upto": 1, "group": {"seats": {"s": {"pace": 3}}, "members": {}, "resets": [], "upto": 1}},
        {
            "kind": "snapshot",
            "upto": 1,
            "group": {"seats": {}, "members": {"a": {"seats": [], "pace": 3}}, "resets": [], "upto": 1},
        },
    ],
    ids=["record", "seat", "member"],
)
def test_a_record_of_a_newer_version_stops_who_reads_the_group_with_the_reason(virtual, newer):
    node = virtual.node()
    publish(node, "orders", b"x")
    member = node.subscriber("orders", group="g", group_options=CALM)
    take(member, 1)
    batch = pack([json.dumps(newer).encode()], producer=NO_PRODUCER, sequence=0, created_ns=0)
    node.bus.open("_group.g").append([batch])
    virtual.runtime.advance(2 * CALM.lease_s)
    for ask in (lambda: member.poll(0.0), member.close):
        with pytest.raises(DataError, match="says pace, which a newer version wrote"):
            ask()


def test_a_member_without_anything_to_do_says_so_once(virtual, caplog):
    # Given a stream with one shard, and two members
    node = virtual.node()
    node.create("orders")
    first = node.subscriber("orders", group="g", group_options=CALM)
    virtual.until(lambda: first.is_assigned)
    second = node.subscriber("orders", group="g", group_options=CALM)
    # When some time passes, longer than it takes to notice that somebody died
    second.poll(CALM.lease_s)
    assert not [record for record in caplog.records if getattr(record, "action", None) == "member_idle"]
    for _ in range(10):
        first.poll(CALM.lease_s)
        second.poll(CALM.lease_s)
    # Then the one that got nothing said so, with what to do
    said = [record.getMessage() for record in caplog.records if getattr(record, "action", None) == "member_idle"]
    assert len(said) == 1
    assert "2 members for 1 streams or shards" in said[0]
    assert "shards=" in said[0]


def test_who_is_told_of_a_trouble_while_a_member_closes_does_not_hold_its_lock(world):
    # Given a member whose stream somebody else took while a confirmation was on its way
    node = world.node()
    publish(node, "orders", b"x")
    free: list[bool] = []

    def told(_summary, _error):
        threads = member._member._pumping
        other = threading.Thread(target=lambda: free.append(threads.acquire(timeout=5) and not threads.release()))
        other.start()
        other.join(30)

    slow = GroupOptions(lease_s=5.0, beat_s=0.1, confirm_s=60.0)
    member = node.subscriber("orders", group="g", group_options=slow, on_error=told)
    take(member, 1)
    member.confirm(0)
    node.groups.reset("g", "orders", 0, force=True)
    # When it closes, and its user is told that the confirmation did not count
    member.close()
    # Then others may use the member meanwhile
    assert all(free)
