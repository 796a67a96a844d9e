"""The catalogue of a server: compact, the same for everybody, and read from its last snapshot."""

from __future__ import annotations

import json

import pytest

from lockstep.errors import DataError, ServerUnreachable
from lockstep.log.config import StreamConfig
from lockstep.log.network import catalogue
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.driver import StreamEntry
from lockstep.testing import VirtualRuntime
from memory_driver import MemoryServer, MemoryTopic


class CountedTopic(MemoryTopic):
    def __init__(self, server):
        super().__init__(server, "_catalogue")
        self.read = 0

    def fetch(self, number, max_bytes):
        found = super().fetch(number, max_bytes)
        self.read += len(found)
        return found


@pytest.fixture
def server():
    return MemoryServer()


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(catalogue, "SNAPSHOT_EVERY", 10)


def opened(server, topic=CountedTopic):
    return TopicCatalogue(topic(server), VirtualRuntime().monotonic)


def stream(name, **settings):
    return StreamEntry(name, f"id-{name}", StreamConfig(capacity=None, **settings))


class PausedTopic(CountedTopic):
    """Its process is paused right before it sends a snapshot; `meanwhile` is what others do then."""

    meanwhile = None

    def send(self, messages):
        if self.meanwhile is not None and b'"snapshot"' in messages[0]:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().send(messages)


def stored(server):
    topic = server.topics["_catalogue"]
    return [json.loads(data) for data in topic.messages[topic.first :] if data is not None]


def test_ten_thousand_trims_leave_a_short_catalogue_and_a_short_way_to_open_it(server):
    mine = opened(server)
    orders = mine.add(stream("orders"))
    for head in range(1, 10_001):
        mine.trim(orders, head)
    assert len(stored(server)) <= 2 * catalogue.SNAPSHOT_EVERY
    other = opened(server)
    assert other.find("orders").head == 10_000
    assert other._topic.read <= 5 * catalogue.SNAPSHOT_EVERY


@pytest.mark.usefixtures("often")
def test_a_reader_that_slept_while_others_compacted_misses_nothing(server):
    mine, sleeper = opened(server), opened(server)
    assert sleeper.all() == []
    orders = mine.add(stream("orders"))
    mine.add(stream("bills"))
    for head in range(1, 35):
        mine.trim(orders, head)
    mine.remove(stream("bills"))
    assert server.topics["_catalogue"].first > 2
    assert [one.name for one in sleeper.all()] == ["orders"]
    assert sleeper.find("orders").head == 34


@pytest.mark.usefixtures("often")
def test_a_catalogue_is_not_read_anew_after_its_own_snapshot(server):
    mine = opened(server)
    for number in range(10):
        mine.add(stream(f"s{number}"))
    assert "snapshot" in stored(server)[0]
    before = mine._topic.read
    assert len(mine.all()) == 10
    assert mine._topic.read == before


@pytest.mark.usefixtures("often")
def test_a_snapshot_in_parts_counts_only_when_it_is_complete(server, monkeypatch):
    monkeypatch.setattr(catalogue, "_PART_BYTES", 600)
    mine = opened(server)
    for number in range(25):
        mine.add(stream(f"s{number:02}"))
    parts = [entry for entry in stored(server) if "snapshot" in entry]
    assert parts[-1]["of"] > 2
    half = list(catalogue.snapshot_parts({"wrong": stream("wrong")}, 25, 600))
    lone = json.loads(half[0]) | {"of": 2}
    mine._topic.send([json.dumps(lone).encode()])
    assert len(opened(server).all()) == 25
    assert opened(server).find("wrong") is None


@pytest.mark.usefixtures("often")
def test_two_snapshots_that_cross_lose_no_stream(server):
    slow, quick = opened(server, PausedTopic), opened(server)
    for name in ("orders", "bills", "parts"):
        slow.add(stream(name))
    orders = stream("orders")
    for head in range(1, 7):
        slow.trim(orders, head)
    quick.all()
    slow._topic.meanwhile = lambda: quick.trim(orders, 8)
    slow.trim(orders, 7)
    snapshots = [entry["upto"] for entry in stored(server) if "snapshot" in entry]
    assert snapshots == [11, 10], "the older one was stored last"
    assert server.topics["_catalogue"].first == 11
    fresh = opened(server)
    assert {one.name for one in fresh.all()} == {one.name for one in slow.all()} == {"orders", "bills", "parts"}
    assert fresh.find("orders").head == 8


@pytest.mark.usefixtures("often")
def test_a_change_that_was_stored_does_not_fail_because_a_snapshot_could_not_be_written(server):
    mine = opened(server, PausedTopic)
    orders = mine.add(stream("orders"))

    def refuse():
        raise ServerUnreachable(server="a server", reason="it was stopped")

    mine._topic.meanwhile = refuse
    for head in range(1, 12):
        mine.trim(orders, head)
    assert [entry["upto"] for entry in stored(server) if "snapshot" in entry] == [11], "written by the next change"
    assert opened(server).find("orders").head == 11


def test_a_catalogue_whose_beginning_is_lost_is_an_error_and_not_an_empty_one(server):
    mine = opened(server)
    mine.add(stream("orders"))
    mine.add(stream("bills"))
    server.topics["_catalogue"].first = 1
    with pytest.raises(DataError, match="begins at message 1"):
        opened(server).all()
    with pytest.raises(DataError):
        opened(server).add(stream("parts"))


def test_a_stream_altered_is_altered_for_everybody_and_after_a_snapshot(server, often):
    mine, other = opened(server), opened(server)
    orders = mine.add(stream("orders"))
    mine.alter(orders, StreamConfig(capacity=5))
    assert other.find("orders").config.capacity == 5
    for head in range(1, 30):
        other.trim(orders, head)
    assert opened(server).find("orders").config.capacity == 5
    mine.alter(StreamEntry("orders", "another", orders.config), StreamConfig(capacity=7))
    assert other.find("orders").config.capacity == 5
