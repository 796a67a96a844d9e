"""A server that loses the end of the catalogue: everybody comes to the same streams again, and is told."""

from __future__ import annotations

import pytest

from lockstep.errors import DataError, StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.network import catalogue
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.driver import StreamEntry
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer, values
from memory_driver import MemoryServer, MemoryTopic

KEEP_ALL = StreamConfig(capacity=None)


class World:
    """Two processes on one server. Both have read the entry of `bills`, and only `mine` that of `orders`."""

    def __init__(self):
        self.server, self.runtime = MemoryServer(), VirtualRuntime()
        self.mine, self.other = self.server.bus(self.runtime), self.server.bus(self.runtime)
        self.mine.create("bills", KEEP_ALL)
        assert self.other.names() == ["bills"]
        self.orders = self.mine.create("orders", KEEP_ALL)

    @property
    def entries(self):
        return self.server.topics["_catalogue"].messages

    def lose_last_entry(self):
        del self.entries[-1]

    def identities(self, name):
        return {bus.open(name).identity for bus in (self.mine, self.other)}


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize("more", [[], ["parts"], ["parts", "sums"]])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_handle_of_a_stream_whose_entry_was_lost_fails_and_everybody_has_the_one_made_since(
    world, caplog, more, is_last
):
    world.lose_last_entry()
    names = [*more, "orders"] if is_last else ["orders", *more]
    for name in names:
        world.other.create(name, KEEP_ALL)
    world.runtime.advance(2.0)
    with pytest.raises(StreamNotFound):
        world.orders.append([Producer().batch(b"a")])
    with pytest.raises(StreamNotFound):
        world.orders.read(0)
    assert len(world.identities("orders")) == 1
    assert world.mine.names() == world.other.names() == sorted(["bills", *names])
    assert "lost" in caplog.text


def test_a_stream_whose_entry_was_lost_and_that_nobody_made_since_is_not_there(world):
    world.lose_last_entry()
    world.runtime.advance(2.0)
    with pytest.raises(StreamNotFound):
        world.orders.bounds()
    assert world.mine.names() == world.other.names() == ["bills"]


def test_streams_whose_entries_are_there_go_on(world):
    bills = world.mine.open("bills")
    world.lose_last_entry()
    world.other.create("orders", KEEP_ALL)
    world.runtime.advance(2.0)
    bills.append([Producer().batch(b"a")])
    assert values(world.other.open("bills")) == [b"a"]


def test_what_is_made_at_once_after_a_loss_is_the_stream_of_the_others(world):
    world.lose_last_entry()
    theirs = world.other.create("orders", KEEP_ALL)
    assert world.mine.create("orders", KEEP_ALL).identity == theirs.identity


def test_what_is_made_where_an_entry_was_lost_is_seen_by_everybody(world):
    world.lose_last_entry()
    made = world.mine.create("orders", KEEP_ALL)
    assert made.identity != world.orders.identity
    assert world.identities("orders") == {made.identity}


def test_what_is_altered_at_once_after_a_loss_is_the_stream_of_the_others(world):
    world.lose_last_entry()
    world.other.create("orders", KEEP_ALL)
    world.mine.alter("orders", StreamConfig(capacity=5))
    assert world.other.open("orders").config.capacity == 5


def test_what_is_deleted_at_once_after_a_loss_is_the_stream_of_the_others(world):
    world.lose_last_entry()
    world.other.create("orders", KEEP_ALL)
    world.mine.delete("orders")
    assert world.mine.names() == world.other.names() == ["bills"]


def test_a_setting_that_was_lost_is_lost_for_everybody(world):
    world.mine.alter("orders", StreamConfig(capacity=5))
    handle = world.mine.open("orders")
    world.lose_last_entry()
    world.other.create("parts", KEEP_ALL)
    world.runtime.advance(2.0)
    handle.bounds()
    assert handle.config == world.other.open("orders").config == KEEP_ALL


def test_an_entry_that_comes_again_in_the_same_place_does_not_hide_what_was_lost_before_it(world):
    bills = world.mine.open("bills")
    bills.append([Producer().batch(b"a", b"b")])
    bills.trim(1)
    del world.entries[-2:]
    world.other.create("parts", KEEP_ALL)
    world.other.open("bills").trim(1)
    world.runtime.advance(2.0)
    assert world.mine.names() == world.other.names() == ["bills", "parts"]


def test_a_handle_that_is_asked_often_asks_the_server_once_a_second_whether_it_lost_something(world, monkeypatch):
    topic = world.mine.driver.catalogue._topic
    asked, reread = [], topic.reread
    monkeypatch.setattr(topic, "reread", lambda number: asked.append(number) or reread(number))
    for _ in range(40):
        world.orders.bounds()
        world.runtime.advance(0.1)
    assert 3 <= len(asked) <= 5


class FragileTopic(MemoryTopic):
    """The topic of a catalogue on a server that fails once, before a call that `is_due` chooses."""

    def __init__(self, server, is_due=None, fail=None):
        super().__init__(server, "_catalogue")
        self.is_due, self.fail = is_due, fail

    def send(self, messages):
        self._fail_before("send", messages[0])
        return super().send(messages)

    def fetch(self, number, max_bytes):
        self._fail_before("fetch", number)
        return super().fetch(number, max_bytes)

    def _fail_before(self, *call):
        if self.is_due is not None and self.is_due(*call):
            self.is_due = None
            self.fail()


class KeepingTopic(FragileTopic):
    def drop(self, before):
        """The server drops messages by their age only."""


def opened(topic):
    return TopicCatalogue(topic, VirtualRuntime().monotonic)


def stream(name):
    return StreamEntry(name, f"id-{name}", KEEP_ALL)


def written(topic, trims):
    """A catalogue with one stream, which was trimmed so often."""
    mine = opened(topic)
    orders = mine.add(stream("orders"))
    for head in range(1, trims + 1):
        mine.trim(orders, head)
    return mine


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(catalogue, "SNAPSHOT_EVERY", 10)


def test_what_is_lost_right_before_a_change_is_noticed_by_the_change():
    server = MemoryServer()
    mine = written(FragileTopic(server), 2)
    server.topics["_catalogue"].messages.clear()
    assert mine.add(stream("parts")) == stream("parts")
    assert mine.all() == opened(FragileTopic(server)).all() == [stream("parts")]


@pytest.mark.usefixtures("often")
def test_a_snapshot_that_is_stored_after_a_loss_does_not_count():
    server = MemoryServer()
    mine, messages = written(FragileTopic(server), 8), server.topics["_catalogue"].messages

    def lose_three():
        del messages[-3:]

    mine._topic.is_due, mine._topic.fail = lambda call, data: call == "send" and b'"snapshot"' in data, lose_three
    mine.trim(stream("orders"), 9)
    assert b'"upto": 10' in messages[7]
    mine.verify()
    assert mine.find("orders").head == opened(FragileTopic(server)).find("orders").head == 6


@pytest.mark.usefixtures("often")
def test_what_is_lost_while_the_catalogue_is_read_is_not_taken_over():
    server = MemoryServer()
    written(KeepingTopic(server), 9)

    def lose_two_and_grow():
        del server.topics["_catalogue"].messages[-2:]
        for name in ("parts", "sums"):
            opened(KeepingTopic(server)).add(stream(name))

    topic = KeepingTopic(server, lambda *call: call == ("fetch", 10), lose_two_and_grow)
    fresh = opened(topic)
    assert [one.name for one in fresh.all()] == ["orders", "parts", "sums"]
    assert topic.is_due is None, "the server failed"
    assert fresh.find("orders").head == 8


@pytest.mark.usefixtures("often")
def test_what_a_snapshot_made_needless_is_no_loss(caplog):
    server = MemoryServer()
    mine, sleeper = (opened(MemoryTopic(server, "_catalogue")) for _ in range(2))
    orders = mine.add(stream("orders"))
    assert sleeper.find("orders") == orders
    for head in range(1, 35):
        mine.trim(orders, head)
    assert server.topics["_catalogue"].first > 1
    assert mine.find("orders").head == sleeper.find("orders").head == 34
    assert caplog.text == ""


def test_a_server_that_shows_something_else_each_time_is_an_error_and_no_endless_loop():
    mine = written(FragileTopic(MemoryServer()), 1)
    mine._topic.reread = lambda number: None
    with pytest.raises(DataError, match="each time"):
        mine.verify()
