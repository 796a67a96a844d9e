"""A stream as a ring, over a ring in memory whose members go away in the middle of a call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lockstep.errors import AppendUncertain, ServerUnfit, ServerUnreachable, TakenBack
from lockstep.log.config import StreamConfig
from lockstep.log.hazelcast.client import bound_connecting
from lockstep.log.hazelcast.ring import MARK
from lockstep.log.hazelcast.topic import RingTopic
from lockstep.log.network.driver import StreamEntry
from memory_ring import FakeRing, Future

KNOWN = StreamEntry("orders", "0af3", StreamConfig(capacity=None))


class Ring(FakeRing):
    """`meanwhile` is done before the next read is answered."""

    name, seen_at = "orders@0af3", 0.0

    def __init__(self, link):
        super().__init__([MARK])
        self.link, self.fault, self.meanwhile = link, None, []

    @property
    def seen(self):
        return len(self.items) - 1

    def is_genuine(self):
        if self.fault is not None:
            raise self.fault
        return True

    def add(self, data):
        self.items.append(data)
        return len(self.items) - 1

    def arm(self):
        """Nobody waits here."""

    def read(self, start, count):
        while self.meanwhile:
            self.meanwhile.pop()()
        return super().read(start, count)

    def fail_over(self, *lost_and_new):
        """A member goes, with items that it had not copied, and others get their numbers."""

        def happen():
            self.link.losses += 1
            if lost_and_new:
                self.items[-1:] = lost_and_new

        self.meanwhile.append(happen)


@pytest.fixture
def ring():
    return Ring(SimpleNamespace(losses=0, server="hazelcast://h1", clock=lambda: 0.0))


@pytest.fixture
def topic(ring):
    return RingTopic(ring.link, ring, KNOWN, SimpleNamespace(find=lambda name: KNOWN), 1 << 20)


@pytest.mark.parametrize(
    "fault",
    [ServerUnreachable(server="h1", reason="away"), ServerUnfit(server="h1", reason="split", setting="members")],
    ids=lambda fault: fault.code,
)
def test_an_append_that_the_ring_has_taken_is_never_said_to_have_failed(ring, topic, fault):
    ring.fault = fault
    with pytest.raises(AppendUncertain, match="orders"):
        topic.send([b"a"])
    ring.fault = None
    assert topic.send([b"b"]) == [1]


def test_what_came_while_a_member_was_lost_is_read_again_and_goes_on_where_it_was(ring, topic):
    topic.send([b"%d" % number for number in range(5)])
    assert [message.number for message in topic.fetch(0, 1)] == [0]
    ring.fail_over()
    ring.fail_over()
    found = topic.fetch(1, 1 << 20)
    while found[-1].number < 4:
        found += topic.fetch(found[-1].number + 1, 1 << 20)
    assert [(message.number, message.data) for message in found] == [(at, b"%d" % at) for at in range(1, 5)]
    assert not ring.meanwhile


def test_what_was_taken_back_while_reading_on_is_told_before_anything_behind_it_is_handed_out(ring, topic):
    topic.send([b"a", b"never copied"])
    number = 0
    while messages := topic.fetch(number, 1 << 20):
        number = messages[-1].number + 1
    # When the member that showed the last message is lost in the middle of the next read, and two others were stored
    ring.fail_over(b"another", b"one more")
    for _ in range(2):
        with pytest.raises(TakenBack, match="offset 1000000 on of stream 'orders' were read"):
            topic.fetch(number, 1 << 20)
    # Then reading from elsewhere goes on
    assert [message.data for message in topic.fetch(0, 1 << 20)][:1] == [b"a"]


class Manager:
    """The client's connections, as far as starting uses them; those of `hung` never come."""

    def __init__(self, hung):
        self.hung, self.tried, self.is_going_on = hung, [], False

    def _get_or_connect_to_member(self, member):
        self.tried.append(member)
        future = Future()
        if member not in self.hung:
            future.set_exception(OSError("refused")) if member == "refusing" else future.set_result(member)
        return future

    def _start_connect_all_members_timer(self):
        self.is_going_on = True


@pytest.mark.parametrize("hung", [(), ("h1",), ("h2",)])
def test_starting_waits_for_all_members_and_for_one_that_hangs_not_for_ever(hung):
    manager = Manager(hung)
    bound_connecting(manager, lambda: ["h1", "refusing", "h2"], 0.01)
    manager.connect_to_all_cluster_members(True)
    assert manager.tried == ["h1", "refusing", "h2"]
    assert manager.is_going_on


def test_a_client_that_starts_in_another_way_is_left_alone():
    other = SimpleNamespace(connect_to_all_cluster_members="as it was")
    bound_connecting(other, list, 0.01)
    assert other.connect_to_all_cluster_members == "as it was"
