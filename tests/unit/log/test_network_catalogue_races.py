"""The catalogue as a topic: what others write at the same moment is taken as it comes."""

from __future__ import annotations

import json

import pytest

from lockstep.errors import StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.driver import Ends, Message, StreamEntry
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer, values
from memory_driver import MemoryServer

KEEP_ALL = StreamConfig(capacity=None)


class SharedTopic:
    """A topic to which another process writes right after each message of ours."""

    def __init__(self, *others):
        self._others, self._messages = list(others), []

    def send(self, messages):
        self._messages += messages
        if self._others:
            self._messages.append(json.dumps(self._others.pop(0)).encode())

    def fetch(self, number, max_bytes):
        return [Message(at, data) for at, data in enumerate(self._messages)][number:]

    def reread(self, number):
        return next(iter(self.fetch(number, 1)), None)

    def ends(self):
        return Ends(0, len(self._messages))


def test_a_stream_that_another_process_deletes_while_it_is_made_was_made():
    catalogue = TopicCatalogue(SharedTopic({"remove": "orders", "identity": "one"}), VirtualRuntime().monotonic)
    made = catalogue.add(StreamEntry("orders", "one", StreamConfig()))
    assert (made.name, made.identity) == ("orders", "one")
    assert catalogue.find("orders") is None


def test_a_stream_that_is_deleted_before_its_topic_is_made_is_made_again():
    server, runtime = MemoryServer(), VirtualRuntime()
    mine, other = server.bus(runtime), server.bus(runtime)
    make = mine.driver.make

    def make_late(known):
        mine.driver.make = make
        other.delete("orders")
        make(known)

    mine.driver.make = make_late
    mine.create("orders", KEEP_ALL).append([Producer().batch(b"a")])
    assert other.names() == ["orders"]
    assert values(other.open("orders")) == [b"a"], "what is acknowledged is found"


def test_a_writer_learns_that_its_stream_is_deleted_although_there_is_a_topic_of_that_name():
    server, runtime = MemoryServer(), VirtualRuntime()
    mine, other = server.bus(runtime), server.bus(runtime)
    other.create("orders", KEEP_ALL)
    remove, producer = other.driver.remove, Producer()

    def remove_slowly(known):
        remove(known)
        made.append(mine.create("orders", KEEP_ALL))

    made = []
    other.driver.remove = remove_slowly
    other.delete("orders")
    runtime.advance(2)
    with pytest.raises(StreamNotFound):
        made[0].append([producer.batch(b"a")])
