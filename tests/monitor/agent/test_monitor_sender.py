"""The sender: numbers, order, copies only where a batch has to be sent again, and messages that nobody takes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import RecordTooLarge
from lockstep.monitor.agent.sender import Sender
from lockstep.monitor.agent.spool import MemorySpool
from lockstep.monitor.transport.errors import TransportDown


class Played:
    """A transport that takes, fails before, in the middle or after, as it is told."""

    def __init__(self, *moods):
        self.moods = list(moods)
        self.taken = []

    def publish_many(self, messages):
        mood = self.moods.pop(0) if self.moods else "take"
        if any(b"too large" in message.body for message in messages):
            raise RecordTooLarge(stream="s", size=1, limit=0)
        count = {"take": len(messages), "none": 0, "half": len(messages) // 2, "all": len(messages)}[mood]
        self.taken += [(message.pipe, json.loads(message.body)) for message in messages[:count]]
        if mood != "take":
            raise TransportDown(transport="played", reason="it was told to")

    def numbers(self, pipe="results"):
        return [body["_n"] for name, body in self.taken if name == pipe]


def first_sight(numbers):
    """What is left when each number that is not above the last one is dropped, as servers do."""
    found = []
    for number in numbers:
        if not found or number > found[-1]:
            found.append(number)
    return found


@given(
    st.lists(st.sampled_from(["take", "none", "half", "all"]), max_size=12), st.lists(st.integers(0, 3), max_size=12)
)
def test_nothing_is_lost_and_copies_are_known_by_their_numbers(moods, arrivals):
    transport = Played(*moods)
    sender = Sender(transport, MemorySpool(), "a")
    count = 0
    for arriving in arrivals:
        for _ in range(arriving):
            count += 1
            sender.result({"client": "c", "check": {"at": count}})
        sender.send_next()
    while sender.is_busy:
        sender.send_next()
    assert first_sight(transport.numbers()) == list(range(1, count + 1))


def test_a_message_that_no_transport_takes_holds_nothing_up():
    transport = Played()
    sender = Sender(transport, MemorySpool(), "a")
    for text in ("one", "too large", "two"):
        sender.result({"output": text})
    assert sender.send_next()
    assert [body["output"] for _, body in transport.taken] == ["one", "two"]
    assert (sender.refused, sender.dropped, sender.waiting) == (1, 1, 0)


def test_a_keepalive_that_waits_is_replaced_and_goes_first():
    transport = Played("none")
    sender = Sender(transport, MemorySpool(), "a")
    sender.keepalive({"at": 1})
    sender.result({"r": 1})
    assert not sender.send_next()
    sender.keepalive({"at": 2})
    assert sender.send_next()
    assert [(pipe, body.get("at")) for pipe, body in transport.taken] == [("keepalives", 2), ("results", None)]
    assert not sender.is_busy


def test_a_keepalive_that_comes_while_one_is_sent_is_sent_too():
    sender = None

    class Slow(Played):
        def publish_many(self, messages):
            if len(self.taken) == 0:
                sender.keepalive({"at": 2})
            super().publish_many(messages)

    transport = Slow()
    sender = Sender(transport, MemorySpool(), "a")
    sender.keepalive({"at": 1})
    sender.send_next()
    sender.send_next()
    assert [body["at"] for _, body in transport.taken] == [1, 2]


def test_other_errors_of_a_transport_are_not_swallowed():
    class Broken:
        def publish_many(self, messages):
            raise ZeroDivisionError

    sender = Sender(Broken(), MemorySpool(), "a")
    sender.result({})
    with pytest.raises(ZeroDivisionError):
        sender.send_next()


def test_the_check_stands_last():
    transport = Played()
    sender = Sender(transport, MemorySpool(), "a")
    sender.result({"client": "c", "check": {"name": "n"}, "signature": "s"})
    sender.send_next()
    assert list(transport.taken[0][1]) == ["client", "signature", "_agent", "_n", "check"]
