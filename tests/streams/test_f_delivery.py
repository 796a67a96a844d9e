"""Part F: what is guaranteed about delivery. Kills of real processes are in tests/acceptance."""

from __future__ import annotations

import os
import random

import pytest
from worlds import CALM, HASTY, Outage, everything, in_parallel, publish, take, values

from lockstep import StreamConfig
from lockstep.errors import AppendUncertain, BadOffset, Conflict, Fenced, UnsupportedByBackend
from lockstep.log.batch import BatchView
from lockstep.log.memory import MemoryBroker
from lockstep.streams.client import Lockstep


def join(node, timing=CALM, **options):
    return node.subscriber("orders", group="g", group_options=timing, **options)


def test_f1_at_least_once_under_random_faults(virtual):
    # Given a publisher whose bus misbehaves, and three members that are cut off at random
    chance = random.Random(11)
    source, shaky = virtual.shaky()
    publisher = source.publisher("orders", config=StreamConfig(capacity=None), retry_s=0.01)
    nodes = [virtual.outage() for _ in range(3)]
    members = [join(node, HASTY) for node, _, _ in nodes]
    acknowledged, handled = [], []
    # When records are published and handled meanwhile
    for number in range(120):
        getattr(shaky.plan, chance.choice(["drop", "lose_ack", "late", "duplicate"]))(log="orders")
        receipt = publisher.publish(b"%d" % number)
        if chance.random() < 0.1:
            _, begin, end = nodes[chance.randrange(3)]
            chance.choice([lambda begin=begin: begin("g"), end])()
        for member in members:
            _handle_some(member, handled)
        acknowledged.append(receipt.result())
        virtual.runtime.advance(chance.random() * 0.2)
    for _, _, end in nodes:
        end()
    virtual.until(lambda: [_handle_some(member, handled) for member in members] and len(set(handled)) >= 120)
    # Then every acknowledged record was handled, each for the first time in order
    assert sorted(set(handled)) == acknowledged
    assert list(dict.fromkeys(handled)) == acknowledged


def _handle_some(member, handled):
    batch = member.poll(max_records=3)
    handled.extend(record.offset for record in batch)
    if batch:
        try:
            member.confirm()
        except Fenced:
            return


@pytest.mark.needs("atomic")
def test_f2_a_handler_can_tell_what_it_did_before(world, bus):
    # Given a handler that acts once for each record, however often it is delivered
    acted = []

    def handle(record):
        if bus.first_time("g", f"{record.stream}/{record.offset}"):
            acted.append(record.offset)

    publish(bus, "orders", b"0", b"1")
    # When records are delivered twice
    for _ in range(2):
        with join(world.node()) as member:
            for record in take(member, 2):
                handle(record)
    # Then it acted once
    assert acted == [0, 1]
    assert bus.first_time("another", "orders/0")


@pytest.mark.needs("atomic")
def test_f2_of_many_who_ask_one_is_the_first(threads):
    nodes, firsts = [threads.node() for _ in range(3)], []
    in_parallel(
        *[lambda node=node: firsts.extend(n for n in range(30) if node.first_time("g", str(n))) for node in nodes]
    )
    assert sorted(firsts) == list(range(30))


@pytest.mark.real_servers
@pytest.mark.needs("atomic")
def test_f3_confirmation_output_and_state_are_one_step(world, bus):
    # Given a handler that counts and passes on
    bus.create("out")
    publish(bus, "orders", b"0", b"1", b"2")
    with join(bus) as member:
        for record in take(member, 2):
            with bus.group_transaction(member) as together:
                count = int(together.get("count") or b"0") + 1
                together.put("count", b"%d" % count)
                together.publish("out", record.value)
                together.confirm(record)
    # When another member goes on
    with join(world.node()) as heir:
        for record in take(heir, 1):
            with bus.group_transaction(heir) as together:
                together.put("count", b"%d" % (int(together.get("count")) + 1))
                together.publish("out", record.value)
                together.confirm(record)
        # Then input, output and state agree
        assert bus.group_transaction(heir).get("count") == b"3"
    assert values(everything(bus, "out")) == [b"0", b"1", b"2"]
    assert [progress.confirmed for progress in bus.groups.describe("g").streams] == [2]


@pytest.mark.needs("atomic")
def test_f3_a_failing_handler_leaves_nothing(bus):
    bus.create("out")
    publish(bus, "orders", b"0")
    member = join(bus)
    [record] = take(member, 1)
    with pytest.raises(ZeroDivisionError), bus.group_transaction(member) as together:
        _write_and_fail(together, record)
    assert everything(bus, "out") == []
    assert bus.group_transaction(member).get("count") is None
    member.flush_confirms()
    assert member.confirmed_offset() is None


def _write_and_fail(together, record):
    together.publish("out", b"x")
    together.put("count", b"1")
    together.confirm(record)
    raise ZeroDivisionError


@pytest.mark.real_servers
@pytest.mark.needs("atomic")
def test_f3_a_member_that_was_replaced_writes_nothing(world):
    # Given a member that was cut off, and its heir
    node, begin, end = world.outage()
    node.create("out")
    publish(node, "orders", b"0")
    stale = join(node, HASTY)
    [record] = take(stale, 1)
    begin("g")
    heir = join(world.node(), HASTY)
    take(heir, 1)
    end()
    # When it commits what it did
    together = node.group_transaction(stale)
    together.publish("out", b"x")
    together.put("count", b"1")
    with pytest.raises(Fenced):
        _confirm_and_commit(together, record)
    # Then nothing of it is there
    assert everything(node, "out") == []
    assert node.group_transaction(stale).get("count") is None


def _confirm_and_commit(together, record):
    together.confirm(record)
    together.commit()


@pytest.mark.needs("atomic")
def test_f3_a_commit_whose_answer_was_lost_can_be_repeated(world):
    # Given a transaction that was written, but whose writer was not told
    bus, shaky = world.shaky()
    bus.create("out")
    publish(bus, "orders", b"0", b"1")
    member = join(bus)
    [record] = take(member, 1)
    shaky.plan.lose_ack(on="atomic")

    def attempt(of):
        with bus.group_transaction(member) as together:
            together.publish("out", of.value)
            together.put("count", b"%d" % (int(together.get("count") or b"0") + 1))
            together.confirm(of)

    with pytest.raises(AppendUncertain):
        attempt(record)
    # When the record is handled once more
    attempt(record)
    # Then it still counts once
    assert values(everything(bus, "out")) == [b"0"]
    assert bus.group_transaction(member).get("count") == b"1"
    # And what was passed by long ago is refused
    [later] = take(member, 1)
    attempt(later)
    with pytest.raises(BadOffset, match="confirmed already"):
        attempt(record)


@pytest.mark.needs("atomic")
def test_f3_state_that_somebody_else_changed_is_a_conflict(bus):
    mine, other = bus.transaction(), bus.transaction()
    mine.expect("count", mine.get("count"))
    other.put("count", b"1")
    other.commit()
    mine.put("count", b"1")
    with pytest.raises(Conflict, match="nothing was written"):
        mine.commit()


def test_f3_a_bus_that_cant_says_so(virtual):
    grid = MemoryBroker()
    grid.promises = type(grid.promises)(
        durability="memory", may_lose="", opened_by="process", retention=(), atomic=False
    )
    bus = Lockstep(grid.bus(virtual.runtime), virtual.runtime)
    with pytest.raises(UnsupportedByBackend, match="in one step"):
        bus.transaction()


def test_f5_confirmations_are_written_soon_and_only_the_newest(virtual):
    # Given a member that confirms every record
    bus = virtual.node()
    publish(bus, "orders", *(b"%d" % n for n in range(50)))
    member = join(bus)
    for record in take(member, 50):
        member.confirm(record)
    assert member.confirmed_offset() is None
    # When a moment passes
    virtual.runtime.advance(0.1)
    # Then the last one counts, and the others cost nothing
    assert member.confirmed_offset() == 49
    assert len(records_in(bus, "_group.g", b'"confirm"')) <= 2


def records_in(bus, name, mark):
    entries = bus.bus.open(name).read(0)
    return [value for entry in entries for value in BatchView(entry.base, entry.data, name).values() if mark in value]


def test_f5_a_synchronous_confirmation_counts_when_it_returns(world, bus):
    publish(bus, "orders", b"0", b"1")
    member = join(bus)
    take(member, 2)
    member.confirm(0, sync=True)
    assert bus.groups.describe("g").streams[0].confirmed == 0
    member.confirm(1)
    member.flush_confirms()
    assert world.node().groups.describe("g").streams[0].confirmed == 1


def test_f5_a_confirmation_that_got_lost_is_sent_again(virtual):
    plan = Outage()
    bus, _ = virtual.shaky(plan)
    publish(bus, "orders", b"0")
    member = join(bus)
    take(member, 1)
    plan.drop(times=3, log="_group.g")
    member.confirm(sync=True)
    assert member.confirmed_offset() == 0


def test_one_way_all_records_arrive_at_all_subscribers(threads):
    """Section 5, OneWay: two publishers, four subscribers."""
    count = 2000
    config = StreamConfig(capacity=None)
    threads.node().create("orders", config)
    readers = [threads.node().subscriber("orders", initial="earliest") for _ in range(4)]
    received = [[] for _ in readers]
    payloads = [os.urandom(10) for _ in range(count)]
    in_parallel(
        *[lambda: publish(threads.node(), "orders", *payloads)] * 2,
        *[lambda r=r, got=got: got.extend(take(r, 2 * count)) for r, got in zip(readers, received, strict=True)],
    )
    assert [len(got) for got in received] == [2 * count] * 4
    assert received[0] == received[1] == received[2] == received[3]
    assert sorted(values(received[0])) == sorted(payloads * 2)


@pytest.mark.parametrize("direct", [False, True])
def test_round_trip_request_and_reply(world, bus, direct):
    """Section 5, RoundTrip."""
    requests, replies = bus.publisher("requests"), world.node().publisher("replies")
    server = world.node().subscriber("requests", initial="earliest")
    client = bus.subscriber("replies", initial="earliest")

    def send(publisher, value):
        return publisher.publish_direct(value) if direct else publisher.publish(value)

    for number in range(50):
        send(requests, b"%d" % number)
        [request] = take(server, 1)
        send(replies, request.value + b"!")
        assert values(take(client, 1)) == [b"%d!" % number]


def test_f3_a_group_transaction_without_a_confirm_is_fenced_too(virtual):
    # Given a transaction of a member that loses its stream before the commit
    bus = virtual.node()
    bus.create("out")
    publish(bus, "orders", b"0")
    with join(bus) as member:
        take(member, 1)
        together = bus.group_transaction(member)
        together.put("count", b"1")
        together.publish("out", b"x")
        bus.groups.reset("g", "orders", "earliest", force=True)
        # When it commits
        # Then it is fenced, and nothing of it is written
        with pytest.raises(Fenced):
            together.commit()
        assert bus.bounds("out").count == 0
        # And the owner can
        take(member, 1)
        with bus.group_transaction(member) as again:
            assert again.get("count") is None
            again.publish("out", b"y")
    assert bus.bounds("out").count == 1


def test_f3_a_group_transaction_of_a_member_that_owns_nothing_is_fenced(virtual):
    bus = virtual.node()
    bus.create("orders")
    with join(bus) as owner:
        assert owner.wait_assigned(5.0)
        with join(bus) as other, pytest.raises(Fenced), bus.group_transaction(other) as together:
            together.put("count", b"1")


def test_f2_keys_are_remembered_for_ever_unless_a_limit_is_given(virtual):
    bus = virtual.node()
    assert all(bus.first_time("all", str(n)) for n in range(20))
    assert not any(bus.first_time("all", str(n)) for n in range(20))
    assert all(bus.first_time("last", str(n), remember=5) for n in range(20))
    assert [bus.first_time("last", str(n), remember=5) for n in (19, 15, 0)] == [False, False, True]
