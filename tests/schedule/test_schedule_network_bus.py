"""A scheduler on a bus whose offsets have gaps, as those of network buses have."""

from __future__ import annotations

import json

import pytest

from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.schedule.client import SchedulerClient
from lockstep.schedule.history import records_of
from lockstep.schedule.streams import SchedulerStreams
from lockstep.streams.client import Lockstep
from lockstep.testing import VirtualRuntime
from memory_driver import MemoryServer

STREAMS = SchedulerStreams("jobs")


@pytest.fixture
def bus():
    runtime = VirtualRuntime()
    with Lockstep(MemoryServer().bus(runtime), runtime) as made:
        STREAMS.create(made, shards=2)
        yield made


def append(bus, stream, *records):
    """Store each record as a batch of its own."""
    log = bus.logs(stream)[0]
    for record in records:
        value = json.dumps(record).encode()
        log.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=bus.runtime.wall_ns())])


def test_every_node_is_listed(bus):
    shown = {"host": "h", "port": 1, "wall": 0, "underWay": 0, "shards": [], "master": False}
    cards = [{"node": name, "member": name, **shown} for name in ("a", "b", "c")]
    append(bus, STREAMS.nodes, *cards)
    client = SchedulerClient(bus, STREAMS, store=None)
    assert [card["node"] for card in client.nodes()] == ["a", "b", "c"]
    client.close()


@pytest.mark.parametrize(("scanned", "found"), [(100, [1, 2, 3]), (2, [2, 3])])
def test_the_history_of_an_event_is_found(bus, scanned, found):
    append(bus, STREAMS.history, *({"tenant": "t", "id": "x", "at": at} for at in (1, 2, 3)))
    assert [record["at"] for record in records_of(bus, STREAMS, "t", "x", scanned=scanned)] == found
