"""Who led a project, found on its sequence log in a few reads, is what a walk over all of it says."""

from __future__ import annotations

import random

import pytest
from cluster_worlds import World

from lockstep.core.sequence import Entry, Mark
from lockstep.engine.runtime.control.leaders import LeaderEpoch, leader_epochs
from lockstep.engine.runtime.sequence.entries import encode
from lockstep.log.batch import NO_PRODUCER, pack

BODY = '{"ends":{},"blocks":0,"events":0}'


@pytest.fixture
def log():
    world = World()
    return world.bus.open(world.streams.sequence)


def write(log, *records: Mark | Entry, at_ns: int = 0, batch: int = 1) -> None:
    for first in range(0, len(records), batch):
        values = [encode(record) for record in records[first : first + batch]]
        log.append([pack(values, producer=NO_PRODUCER, sequence=0, created_ns=at_ns)])


def entry(epoch: int, owner: str) -> Entry:
    return Entry(epoch, owner, 1, "", BODY)


def test_nobody_led_a_project_without_entries(log):
    assert leader_epochs(log, 10) == []


@pytest.mark.parametrize("seed", range(8))
def test_epochs_are_those_of_a_walk(log, seed):
    chance = random.Random(seed)
    expected = []
    for epoch in sorted(chance.sample(range(1, 60), 12)):
        owner = f"i{epoch}"
        write(log, Mark(epoch, owner), at_ns=epoch * 10)
        expected.append(LeaderEpoch(epoch=epoch, incarnation=owner, at_ns=epoch * 10))
        entries = [entry(epoch, owner)] * chance.choice((0, 1, 2, 90, 300))
        write(log, *entries, at_ns=epoch * 10 + 1, batch=chance.choice((1, 7)))
    assert leader_epochs(log, 50) == expected[::-1]
    assert leader_epochs(log, 3) == expected[:-4:-1]


def test_what_a_leader_that_slept_writes_late_leads_nobody_astray(log):
    write(log, Mark(1, "a"), *[entry(1, "a")] * 100)
    write(log, Mark(2, "b"), entry(1, "a"), entry(1, "a"), entry(2, "b"), Mark(2, "c"), at_ns=5)
    write(log, *[entry(2, "b")] * 100, entry(1, "a"))
    assert [(lead.epoch, lead.incarnation, lead.at_ns) for lead in leader_epochs(log, 9)] == [(2, "b", 5), (1, "a", 0)]


@pytest.mark.parametrize("late", [1, 8, 30])
@pytest.mark.parametrize("before", [10, 64, 100])
def test_the_mark_is_found_before_late_records(log, late, before):
    write(log, Mark(1, "a"), *[entry(1, "a")] * before)
    write(log, Mark(2, "b"), at_ns=5)
    write(log, *[entry(1, "a")] * late, *[entry(2, "b")] * 60, at_ns=6)
    assert [(lead.epoch, lead.at_ns) for lead in leader_epochs(log, 9)] == [(2, 5), (1, 0)]


def test_what_was_trimmed_is_not_told(log):
    write(log, Mark(1, "a"), *[entry(1, "a")] * 10, Mark(2, "b"), *[entry(2, "b")] * 10, Mark(3, "c"), at_ns=7)
    log.trim(15)
    assert leader_epochs(log, 9) == [
        LeaderEpoch(epoch=3, incarnation="c", at_ns=7),
        LeaderEpoch(epoch=2, incarnation="b", at_ns=None),
    ]


def test_it_takes_a_few_reads_however_long_the_log_is(log):
    write(log, Mark(1, "a"), *[entry(1, "a")] * 3000, Mark(2, "b"), *[entry(2, "b")] * 3000)

    class Counted:
        name, limits, bounds, count = log.name, log.limits, log.bounds, 0

        def read(self, offset: int, **more: int):
            self.count += 1
            return log.read(offset, **more)

    counted = Counted()
    assert [lead.epoch for lead in leader_epochs(counted, 9)] == [2, 1]
    assert counted.count < 80
