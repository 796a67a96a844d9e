"""Simulated agents: as many results as the plan says, numbered as agents number them, in time that a test moves."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lockstep.monitor.agent.swarm import Plan, Swarm
from lockstep.streams.client import connect


class Clock:
    def __init__(self):
        self.passed = 0.0

    def monotonic(self):
        return self.passed

    def wall(self):
        return 1_479_577_421 + self.passed

    def sleep(self, seconds):
        self.passed += seconds or 0.01


@pytest.fixture
def bus():
    with connect("memory:") as opened:
        yield opened


def run(bus, plan, seconds):
    clock = Clock()
    swarm = Swarm(bus, "m", plan, wall=clock.wall, monotonic=clock.monotonic, sleep=clock.sleep)
    told = swarm.run(seconds)
    with bus.subscriber("m.input", initial="earliest") as subscriber:
        records = []
        while batch := subscriber.poll(0.0):
            records += [(record.key.decode(), json.loads(record.value)) for record in batch]
    return told, records


def test_every_check_of_every_client_once_an_interval(bus):
    told, records = run(bus, Plan(7, 3, 5.0), 20.0)
    results = [document for key, document in records if key.startswith("r:")]
    pairs = Counter((document["client"], document["check"]["name"]) for document in results)
    assert (len(pairs), set(pairs.values())) == (21, {4})
    assert told["results"] == len(results) == 84
    keepalives = Counter(key for key, _ in records if key.startswith("k:"))
    assert (len(keepalives), set(keepalives.values())) == (7, {2})


def test_numbers_are_those_of_agents_without_a_gap(bus):
    _, records = run(bus, Plan(5, 4, 2.0), 10.0)
    last = {}
    for key, document in records:
        assert document["_n"] == last.get((key, document["_agent"]), 0) + 1
        last[key, document["_agent"]] = document["_n"]
        assert key in (f"k:{document.get('name')}", f"r:{document.get('client')}")
    assert len(last) == 10


def test_a_share_fails_the_same_with_the_same_seed(bus):
    told, records = run(bus, Plan(10, 10, 1.0, failing=0.1, seed=7), 10.0)
    failing = sum(1 for key, document in records if key.startswith("r:") and document["check"]["status"])
    assert told["failing"] == failing
    assert 60 < failing < 140
    with connect("memory:") as other:
        assert run(other, Plan(10, 10, 1.0, failing=0.1, seed=7), 10.0)[0]["failing"] == failing
