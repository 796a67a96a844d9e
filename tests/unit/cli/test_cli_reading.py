"""Reading to the end in a group: shards that nobody owns yet are waited for."""

from __future__ import annotations

import itertools

from lockstep.cli.stream_read import Limits, Reading
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import Lockstep
from lockstep.streams.subscriber import Subscriber


def test_to_the_end_means_all_shards_although_they_come_one_after_the_other(monkeypatch):
    # Given a member that sees its shards assigned one at a time, as another thread reads the group's log
    clock = ThreadRuntime()
    with Lockstep(MemoryBroker().bus(clock), clock) as client:
        client.create("events", StreamConfig(shards=3))
        with client.publisher("events", create=False) as publisher:
            for number in range(9):
                publisher.publish(b"%d" % number)
        looks = itertools.count(1)
        seen = Subscriber.assigned.fget
        hidden: list[str] = []

        def one_more(self):
            every = seen(self)
            found = every[: 1 + next(looks) // 20]
            hidden[:] = every[len(found) :]
            return found

        monkeypatch.setattr(Subscriber, "assigned", property(one_more))
        monkeypatch.setattr(Subscriber, "unowned", property(lambda _: hidden))
        # When everything up to the end is read
        ends = {log.name: log.bounds().next for log in client.logs("events")}
        with client.subscriber("events", group="g", create=False, initial="earliest") as member:
            assert member.wait_assigned(10.0)
            found = [record.value for records in Reading(member, Limits(ends=ends), clock) for record in records]
    # Then nothing is left out
    assert sorted(found) == [b"%d" % number for number in range(9)]


def test_a_shard_that_is_won_between_two_looks_is_read(monkeypatch):
    # Given a member that wins its other shards while it is asked which shards have no owner
    clock, won = ThreadRuntime(), []
    with Lockstep(MemoryBroker().bus(clock), clock) as client:
        client.create("events", StreamConfig(shards=3))
        with client.publisher("events", create=False) as publisher:
            for number in range(9):
                publisher.publish(b"%d" % number)
        seen = Subscriber.assigned.fget
        monkeypatch.setattr(Subscriber, "assigned", property(lambda self: seen(self) if won else seen(self)[:1]))
        monkeypatch.setattr(Subscriber, "unowned", property(lambda _: won.extend([1]) or []))
        ends = {log.name: log.bounds().next for log in client.logs("events")}
        with client.subscriber("events", group="g", create=False, initial="earliest") as member:
            assert member.wait_assigned(10.0)
            reading = Reading(member, Limits(ends=ends), clock)
            while member.unowned or len(seen(member)) < 3:  # the real shares come one after the other, too
                member.poll(0)
            won.clear()
            assert not reading._is_over() or reading._finished.issuperset(seen(member))
            reading._finished.update(seen(member)[:1])
            won.clear()
            # Then what it was assigned before that does not count as all
            assert not reading._is_over()
