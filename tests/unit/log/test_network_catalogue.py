"""The catalogue of a server: compact, the same for everybody, and read from its last snapshot."""

from __future__ import annotations

import json

import pytest

from lockstep.log.config import StreamConfig
from lockstep.log.network import catalogue
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.wire import Known
from memory_wire import MemoryServer, MemoryTopic


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


def opened(server):
    return TopicCatalogue(CountedTopic(server))


def stream(name, **settings):
    return Known(name, f"id-{name}", StreamConfig(capacity=None, **settings))


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


def test_a_stream_altered_is_altered_for_everybody_and_after_a_snapshot(server, often):
    mine, other = opened(server), opened(server)
    orders = mine.add(stream("orders"))
    mine.alter(orders, StreamConfig(capacity=5))
    assert other.find("orders").config.capacity == 5
    for head in range(1, 30):
        other.trim(orders, head)
    assert opened(server).find("orders").config.capacity == 5
    mine.alter(Known("orders", "another", orders.config), StreamConfig(capacity=7))
    assert other.find("orders").config.capacity == 5
