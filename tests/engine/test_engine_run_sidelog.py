"""Bad records and notices are written when they were read back, and not when somebody acknowledged them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from lockstep.engine.runtime.output import side_streams
from lockstep.engine.runtime.output.side_streams import SideLog
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.log.batch import Batch, BatchView
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.log.port import Log
from lockstep.testing.faults import FaultyBus
from lockstep.testing.virtual import VirtualRuntime

ITEMS = [{"block": 1}, {"block": 2}, {"block": 2}, {"block": 5}]
PLACES = [(1, 0), (2, 0), (2, 1), (5, 0)]


class Lying:
    """A log that acknowledges appends, and loses as many of them as it is told."""

    def __init__(self, log: Log) -> None:
        self._log, self.lose = log, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def append(self, batches: Sequence[Batch]) -> list[int]:
        if self.lose:
            self.lose -= 1
            return [self._log.bounds().next]
        return self._log.append(batches)


@pytest.fixture
def clock():
    return VirtualRuntime()


@pytest.fixture
def bus(clock):
    return FaultyBus(MemoryBroker(dedupe=False).bus(clock))


@pytest.fixture
def log(bus):
    return bus.create("b", StreamConfig(capacity=None))


def places(log: Log) -> list[tuple[int, int]]:
    found = (json.loads(value) for _, value in values_between(log, log.bounds().first, log.bounds().next))
    return [(item["block"], item["index"]) for item in found]


def opened(log: Log, clock: VirtualRuntime) -> SideLog:
    made = SideLog(log, clock)
    made.look()
    return made


def test_what_was_acknowledged_and_is_not_there_is_written_again(log, clock):
    lying = Lying(log)
    side = opened(lying, clock)
    lying.lose = 1
    assert not side.write(ITEMS)
    assert not side.write(ITEMS)
    assert places(log) == []
    clock.advance(0.6)
    assert side.write(ITEMS)
    assert places(log) == PLACES


def test_a_late_append_is_waited_for_and_its_copy_is_known_by_its_numbers(bus, log, clock):
    side = opened(log, clock)
    bus.plan.late(log="b")
    assert not side.write(ITEMS)
    clock.advance(0.6)
    assert side.write(ITEMS)
    assert set(places(log)) == set(PLACES)
    assert side.write([{"block": 6}])


def test_many_are_written_one_after_the_other(log, clock, monkeypatch):
    monkeypatch.setattr(side_streams, "_RECORDS_MAX", 2)
    side = opened(log, clock)
    assert side.write(ITEMS)
    assert places(log) == PLACES
    assert side.write(ITEMS)
    assert places(log) == PLACES


def test_who_takes_over_goes_on_after_the_last_one(log, clock):
    assert opened(log, clock).write(ITEMS[:2])
    assert opened(log, clock).write(ITEMS)
    assert places(log) == PLACES


def test_a_stream_that_keeps_the_newest_only_does_not_stop_it(bus, clock):
    log = bus.create("few", StreamConfig(capacity=1))
    side = opened(log, clock)
    for block in range(1, 9):
        assert side.write([{"block": block}])
    assert places(log)[-1] == (8, 0)


def test_large_items_go_out_in_batches_that_any_bus_takes(log, clock):
    sizes = [300_000, 300_000, 10, 10, 600_000, 10]
    items = [{"block": number, "body": "x" * size} for number, size in enumerate(sizes, 1)]
    side = opened(log, clock)
    assert side.write(items)
    assert [block for block, _ in places(log)] == [1, 2, 3, 4, 5, 6]
    stored, at = [], log.bounds().first
    while found := log.read(at):
        for entry in found:
            view = BatchView(entry.base, entry.data, log.name)
            stored.append(len(view.values()))
            at = view.end
    assert stored == [1, 3, 1, 1]
