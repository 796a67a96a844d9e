"""Processes killed at any point: nothing acknowledged is lost, nothing is torn, and what they held is given back."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest
from lmdb_child import Child, value_of

from lockstep.log.batch import BatchView
from lockstep.log.config import StreamConfig
from lockstep.log.lmdb import environment as environment_module
from lockstep.log.lmdb.verify import verify
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values, views

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
WRITERS = 3


@pytest.mark.parametrize("options", ["durability=relaxed", "durability=fsync", "durability=relaxed&replica={copy}"])
@pytest.mark.parametrize("rounds", [2, pytest.param(40, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_publishers_killed_under_load(tmp_path, options, rounds):
    chance = random.Random(options)
    url = f"lmdb:{tmp_path / 'bus'}?map_bytes={1 << 30}&{options.format(copy=tmp_path / 'copy')}"
    acknowledged = {}
    for number in range(rounds):
        names = [f"p{number}-{writer}" for writer in range(WRITERS)]
        with ExitStack() as stack:
            children = [stack.enter_context(Child("publish", url, name)) for name in names]
            by_child = dict(zip(children, names, strict=True))
            order = chance.sample(children, len(children))
            for child in order:
                told = [child.line() for _ in range(chance.randrange(1, 30))]
                child.process.kill()
                acknowledged[by_child[child]] = told + child.lines()
    check_everything(url, acknowledged)
    for folder in ("bus", "copy") if "replica" in options else ("bus",):
        report = verify(tmp_path / folder)
        assert report.ok, report.lines()


def check_everything(url, acknowledged):
    bus = open_bus(url, ThreadRuntime(), create=False)
    log = bus.open("orders")
    found, next_sequence = {}, {}
    for view in views(log):
        name = view.producer.rstrip(b"-").decode()
        assert view.sequence == next_sequence.get(name, 0), "one producer's batches are in order, without gap or copy"
        next_sequence[name] = view.sequence + view.count
        assert view.values() == tuple(value_of(name, view.sequence + at) for at in range(view.count))
        found[name, view.sequence] = (view.count, view.base)
    for name, told in acknowledged.items():
        assert told, "every publisher got something through"
        for sequence, count, base in told:
            assert found[name, sequence] == (count, base)
    log.append([Producer("after").batch(b"the store goes on")])
    bus.close()


def test_a_reader_killed_while_reading_gives_its_slot_and_space_back(tmp_path, monkeypatch):
    monkeypatch.setattr(environment_module, "READER_CHECK_S", 0.0)
    url = f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={1 << 28}"
    bus = open_bus(url, ThreadRuntime())
    log, producer = bus.create("orders", StreamConfig(capacity=50)), Producer()

    def publish(count):
        for _ in range(count):
            log.append([producer.batch(b"x" * 10_000)])
        return (tmp_path / "bus" / "data.mdb").stat().st_size

    publish(100)
    with Child("read_and_stay", url) as child:
        assert child.line() == 100
        # While somebody reads, what he sees can't be overwritten
        held = publish(300)
        child.kill()
    # When he is gone, it can
    publish(100)
    assert publish(600) <= held * 1.1
    assert str(child.pid) not in bus._store.environment.lmdb.readers()
    bus.close()


def test_processes_that_make_the_same_store_at_once_agree(tmp_path):
    for number in range(2):
        url = f"lmdb:{tmp_path / f'bus{number}'}"
        with ExitStack() as stack:
            children = [stack.enter_context(Child("make", url)) for _ in range(4)]
            assert [child.line() for child in children] == ["ready"] * 4
            for child in children:
                child.go()
            made = [child.line() for child in children]
            assert [child.end() for child in children] == [0] * 4
        assert all(identities == made[0] for identities in made)
        bus = open_bus(url, ThreadRuntime(), create=False)
        assert values(bus.open("orders")) == [b"x"] * 4
        bus.close()


def test_a_fork_may_not_use_what_it_inherited(tmp_path):
    with Child("fork", f"lmdb:{tmp_path / 'bus'}") as child:
        told = [child.line() for _ in range(5)]
        assert child.end() == 0
    assert told == [*["FORKED_PROCESS"] * 4, [0, ["before", "child", "after"]]]


def test_batches_read_by_others_are_whole(tmp_path):
    """Somebody who reads while others write and die never sees half a batch."""
    url = f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={1 << 30}"
    with Child("publish", url, "w0") as child:
        child.line()
        bus = open_bus(url, ThreadRuntime())
        log, at = bus.open("orders"), 0
        for _ in range(50):
            for entry in log.read(at):
                assert entry.base == at
                at = BatchView(entry.base, entry.data, "orders").end
        child.kill()
    assert at > 0
    bus.close()
