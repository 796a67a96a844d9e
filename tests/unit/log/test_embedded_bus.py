"""What the bus on tables gives back and keeps together, in memory and on disk."""

from __future__ import annotations

import threading

import pytest

from lockstep.errors import Closed, StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.embedded.tables import HOLDS
from lockstep.log.lmdb.environment import REGISTRY
from lockstep.log.lmdb.store import LmdbStore
from lockstep.log.memory import Grid
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer


@pytest.fixture(params=["memory", "lmdb"])
def bus(request, tmp_path):
    url = f"lmdb:{tmp_path / 'bus'}?durability=relaxed"
    bus = Grid().bus(ThreadRuntime()) if request.param == "memory" else open_bus(url, ThreadRuntime())
    yield bus
    bus.close()


def test_a_hold_on_a_deleted_log_is_refused_and_leaves_nothing(bus):
    log = bus.create("orders", StreamConfig(protect=True))
    bus.delete("orders")
    with pytest.raises(StreamNotFound):
        log.hold("group", 0)
    log.hold("group", None)  # to let go of what is gone is no error
    with bus._store.read() as tables:
        assert list(tables.scan(HOLDS, b"")) == []


def test_who_watches_a_log_that_is_deleted_can_let_go(bus):
    log, waiter = bus.create("orders", StreamConfig()), bus.waiter()
    waiter.watch(log)
    bus.delete("orders")
    waiter.unwatch(log)
    waiter.close()
    assert bus.names() == []
    bus.create("orders", StreamConfig())  # the name is free, and nobody watches it
    assert bus.open("orders").identity != log.identity


def test_a_deleted_log_leaves_no_listeners():
    grid = Grid()
    bus = grid.bus(ThreadRuntime())
    log, waiter = bus.create("orders", StreamConfig()), bus.waiter()
    waiter.watch(log)
    waiter.unwatch(log)
    bus.delete("orders")
    assert grid.bells.listeners == {}


def test_a_deleted_log_leaves_no_bell(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path}?durability=relaxed", ThreadRuntime())
    for name in ("a", "b"):
        log, waiter = bus.create(name, StreamConfig()), bus.waiter()
        waiter.watch(log)
        log.append([Producer().batch(b"x")])
        bus.delete(name)
        waiter.close()
    assert list((tmp_path / "bells").iterdir()) == []
    assert bus._bells._open == {}
    bus.close()


def test_a_history_is_opened_once_however_many_ask_for_it():
    grid, meeting, opened = Grid(), threading.Event(), []
    bus = grid.bus(ThreadRuntime())

    def open_slowly(url, stream):
        opened.append(stream)
        meeting.wait(0.05)  # time for the others to come here too, if they may
        return Grid()._open_history(url, stream)

    bus._open_history = open_slowly
    config = StreamConfig(history="memory:")
    threads = [threading.Thread(target=bus.create, args=("orders", config)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert opened == ["orders"]
    bus.close()
    with pytest.raises(Closed):
        bus._history("memory:", "late")


def test_a_history_that_can_not_be_opened_gives_its_folder_back(tmp_path, monkeypatch):
    def write(*_):
        raise ZeroDivisionError

    bus = Grid().bus(ThreadRuntime())
    disk = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    monkeypatch.setattr(LmdbStore, "write", write)
    with pytest.raises(ZeroDivisionError):
        disk._history(f"lmdb:{tmp_path / 'old'}", "orders")
    assert not REGISTRY.has(tmp_path / "old")
    disk.close()
    bus.close()
