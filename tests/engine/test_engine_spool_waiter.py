"""The publisher learns of parts from the kernel, and looks into their folders seldom."""

from __future__ import annotations

import select
import threading
from contextlib import ExitStack
from functools import partial

import pytest
from run_worlds import sums_graph

from forks import exit_code_of_a_fork
from lockstep.engine.compute.local import LocalCompute
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.runtime import coordinator
from lockstep.engine.runtime.engine import Engine, EngineOptions
from lockstep.engine.runtime.output.event_streams import EventPublisher, out_batches
from lockstep.engine.runtime.output.publisher import Publisher
from lockstep.engine.runtime.output.spool import Spool, SpoolPart, SpoolWaiter
from lockstep.log import inotify
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import connect

FOR_EVER_S = 3600.0


@pytest.fixture
def no_looking(monkeypatch):
    """Nobody looks again by himself within a test."""
    monkeypatch.setattr(coordinator, "_IDLE_S", FOR_EVER_S)
    monkeypatch.setattr(inotify.FileWaiter, "LOOK_AGAIN_S", FOR_EVER_S)


def leave_part(folder) -> int:
    Spool(folder).write(SpoolPart(first=1, last=1, position={}, frames={}))
    return 0


def is_readable(waiter, seconds: float) -> bool:
    return bool(select.select([waiter.fileno()], [], [], seconds)[0])


@pytest.mark.parametrize("shard", [0, 1])
def test_a_part_of_another_process_ends_a_wait(tmp_path, shard):
    spools = [Spool(tmp_path / "0"), Spool(tmp_path / "1")]
    waiter = SpoolWaiter([spool.folder for spool in spools])
    assert waiter.is_told
    assert not is_readable(waiter, 0)
    assert exit_code_of_a_fork(partial(leave_part, spools[shard].folder)) == 0
    assert is_readable(waiter, 10)
    waiter.close()


def test_where_a_folder_can_not_be_watched_nobody_is_told(tmp_path, monkeypatch):
    assert not SpoolWaiter([tmp_path / "missing"]).is_told
    monkeypatch.setattr(inotify, "_inotify_init", lambda: None)
    assert not SpoolWaiter([tmp_path]).is_told


class Desk:
    """A project in which local engines sum up, and what comes out."""

    def __init__(self, folder, stack: ExitStack) -> None:
        self.folder, self.runtime = folder, ThreadRuntime()
        self.client = stack.enter_context(connect(f"lmdb:{folder}/bus"))
        self.graph = sums_graph()
        self.source, self.sums = self.graph.nodes[0], self.graph.nodes[-1]
        self.sent = 0

    def engine(self, name: str) -> Engine:
        options = EngineOptions(runner="local", name=name)
        wanted = frozenset({self.sums.path})
        return Engine(self.graph, wanted, self.client.bus, self.folder / name, self.runtime, options)

    def feed(self, engine: Engine) -> None:
        publisher = EventPublisher(self.client, engine.streams.input(self.source), self.source.schema)
        self.sent += 1
        publisher.publish([Event(Opcode.INSERT, Flag.NORMAL, (self.sent, "ACME", 1.0))])
        publisher.flush()

    def blocks(self, engine: Engine) -> list[int]:
        log = self.client.bus.open(engine.streams.output(self.sums))
        return [number for batch in out_batches(log, self.sums.schema) for number, _ in batch.blocks()]


@pytest.fixture
def desk(tmp_path):
    with ExitStack() as stack:
        yield Desk(tmp_path, stack)


def test_parts_are_published_although_nobody_looks_for_them(desk, no_looking):
    with desk.engine("one") as engine:
        for number in (1, 2, 3):
            desk.feed(engine)
            engine.drain(timeout=30)
            assert desk.blocks(engine) == [*range(1, number + 1)]


def test_a_standby_that_takes_over_publishes_although_nobody_looks_for_parts(desk, no_looking):
    with desk.engine("one") as engine:
        engine.drain(timeout=30)
        with desk.engine("two") as standby:
            standby.run_until(lambda _: standby.report().state == "running", timeout=30)
            engine.stop()
            standby.run_until(lambda _: standby.role == "active", timeout=15)
            desk.feed(standby)
            standby.drain(timeout=30)
            assert desk.blocks(standby) == [1]


def test_a_drain_waits_for_what_was_decided_after_it_looked_how_much_was_published(desk, monkeypatch):
    may_publish, step = threading.Event(), Publisher.step
    monkeypatch.setattr(Publisher, "step", lambda self: may_publish.is_set() and step(self))
    with desk.engine("one") as engine:
        looks, status = 0, engine.status

        def status_before_a_record_is_decided():
            nonlocal looks
            looks, found = looks + 1, status()
            if looks == 1:
                desk.feed(engine)
                engine.run_until(lambda _: engine._is_caught_up(), timeout=30)
            if looks > 4:
                may_publish.set()
            return found

        monkeypatch.setattr(engine, "status", status_before_a_record_is_decided)
        engine.drain(timeout=30)
        assert desk.blocks(engine) == [1]


@pytest.mark.parametrize("why", ["workers elsewhere", "no inotify"])
def test_where_nothing_tells_of_parts_the_publisher_looks_for_them(desk, no_looking, monkeypatch, why):
    if why == "no inotify":
        monkeypatch.setattr(inotify, "_inotify_init", lambda: None)
    else:
        monkeypatch.setattr(LocalCompute, "works_here", lambda _: False)
    with desk.engine("one") as engine:
        desk.feed(engine)
        engine.drain(timeout=30)
        assert desk.blocks(engine) == [1]


def test_an_engine_that_is_stopped_twice_closes_nothing_of_others(desk):
    with desk.engine("one") as engine:
        engine.stop()
        other = (desk.folder / "other").open("w")  # gets the number of a descriptor that the engine has closed
        engine.stop()
        other.write("all")
        other.close()
    assert (desk.folder / "other").read_text() == "all"
