"""What the bus on tables gives back and keeps together, in memory and on disk."""

from __future__ import annotations

import threading

import pytest

from lockstep.errors import Closed, StoreFull, StreamNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.embedded import catalogue
from lockstep.log.embedded.tables import ENTRIES, HOLDS, LOGS, PRODUCERS, log_key, scan_prefix
from lockstep.log.lmdb.environment import REGISTRY
from lockstep.log.lmdb.store import LmdbStore
from lockstep.log.lmdb.verify import verify
from lockstep.log.memory import MemoryBroker
from lockstep.log.port import Bounds
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer


@pytest.fixture(params=["memory", "lmdb"])
def bus(request, tmp_path):
    url = f"lmdb:{tmp_path / 'bus'}?durability=relaxed"
    bus = MemoryBroker().bus(ThreadRuntime()) if request.param == "memory" else open_bus(url, ThreadRuntime())
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


def rows(bus, log):
    """How many rows of a log are stored."""
    prefix = log_key(log.info.number)
    with bus._store.read() as tables:
        return sum(1 for table in (LOGS, ENTRIES, PRODUCERS, HOLDS) for _ in scan_prefix(tables, table, prefix))


def fill(log, batches):
    """Append batches of producers of their own, so that each leaves two rows."""
    start = log.bounds().next
    for number in range(start, start + batches):
        log.append([Producer(str(number)).batch(b"x")])


class Between:
    """A waiter that does something instead of waiting."""

    def __init__(self, work):
        self._work = work

    def wait(self, timeout):
        del timeout
        self._work()


class Killed(BaseException):
    """What a test raises where a process may be killed."""


def kill():
    raise Killed


def test_a_large_log_is_deleted_in_pieces_and_others_write_in_between(bus, monkeypatch):
    # Given a log with 101 rows beside its row of totals, and another log
    monkeypatch.setattr(catalogue, "PIECE_ROWS", 10)
    other, log = bus.create("other", StreamConfig()), bus.create("orders", StreamConfig(protect=True))
    fill(log, 50)
    log.hold("group", 0)
    left = []

    def look_and_append():
        left.append(rows(bus, log))
        fill(other, 1)

    monkeypatch.setattr(bus._runtime, "waiter", lambda: Between(look_and_append))
    # When it is deleted
    bus.delete("orders")
    # Then each transaction removed a piece, and others could write in between
    assert left == [*range(91, 0, -10)]
    assert rows(bus, log) == 0
    assert other.bounds().next == len(left)


def test_a_log_whose_deletion_was_cut_short_is_gone_and_is_removed_later(bus, monkeypatch):
    # Given a process that was killed while it deleted a log
    monkeypatch.setattr(catalogue, "PIECE_ROWS", 10)
    log = bus.create("orders", StreamConfig())
    fill(log, 50)
    with monkeypatch.context() as patched:
        patched.setattr(bus._runtime, "waiter", lambda: Between(kill))
        with pytest.raises(Killed):
            bus.delete("orders")
    assert rows(bus, log) == 90
    # Then nobody sees the log any more, and one of its name is another one
    assert bus.names() == []
    for use in (log.bounds, lambda: log.read(0), lambda: log.append([Producer("late").batch(b"x")])):
        with pytest.raises(StreamNotFound):
            use()
    anew = bus.create("orders", StreamConfig())
    assert anew.bounds() == Bounds(0, 0)
    fill(anew, 1)
    # And what it held is removed with the next one that is deleted
    bus.create("short", StreamConfig())
    bus.delete("short")
    assert rows(bus, log) == 0
    assert rows(bus, anew) == 3


def test_what_a_killed_process_left_of_a_deleted_log_goes_when_the_store_is_opened(tmp_path, monkeypatch):
    # Given a store with half of a deleted log
    monkeypatch.setattr(catalogue, "PIECE_ROWS", 10)
    url = f"lmdb:{tmp_path / 'bus'}?durability=relaxed"
    bus = open_bus(url, ThreadRuntime())
    log = bus.create("orders", StreamConfig())
    fill(log, 50)
    with monkeypatch.context() as patched:
        patched.setattr(bus._runtime, "waiter", lambda: Between(kill))
        with pytest.raises(Killed):
            bus.delete("orders")
    bus.close()
    # Then the store is sound
    assert verify(tmp_path / "bus").faults == ()
    # When it is opened again, then the rest goes
    bus = open_bus(url, ThreadRuntime())
    assert rows(bus, log) == 0
    bus.close()


def test_a_deleted_log_that_can_not_be_removed_now_is_deleted_all_the_same(bus, monkeypatch, caplog):
    monkeypatch.setattr(catalogue, "PIECE_ROWS", 10)
    log = bus.create("orders", StreamConfig())
    fill(log, 50)
    with monkeypatch.context() as patched:
        patched.setattr(bus._runtime, "waiter", lambda: Between(full))
        bus.delete("orders")
    assert bus.names() == []
    assert [record.action for record in caplog.records] == ["delete_unfinished"]
    assert bus.finish_deletes()
    assert rows(bus, log) == 0


def full():
    raise StoreFull(stream="s", reason="the disk is full")


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
    grid = MemoryBroker()
    bus = grid.bus(ThreadRuntime())
    log, waiter = bus.create("orders", StreamConfig()), bus.waiter()
    waiter.watch(log)
    waiter.unwatch(log)
    bus.delete("orders")
    assert grid.notifier.listeners == {}


def test_a_deleted_log_leaves_no_bell(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path}?durability=relaxed", ThreadRuntime())
    for name in ("a", "b"):
        log, waiter = bus.create(name, StreamConfig()), bus.waiter()
        waiter.watch(log)
        log.append([Producer().batch(b"x")])
        bus.delete(name)
        waiter.close()
    assert list((tmp_path / "bells").iterdir()) == []
    assert bus._notifier._open == {}
    bus.close()


def test_a_history_is_opened_once_however_many_ask_for_it():
    grid, meeting, opened = MemoryBroker(), threading.Event(), []
    bus = grid.bus(ThreadRuntime())

    def open_slowly(url, stream):
        opened.append(stream)
        meeting.wait(0.05)  # time for the others to come here too, if they may
        return MemoryBroker()._open_history(url, stream)

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

    bus = MemoryBroker().bus(ThreadRuntime())
    disk = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    monkeypatch.setattr(LmdbStore, "write", write)
    with pytest.raises(ZeroDivisionError):
        disk._history(f"lmdb:{tmp_path / 'old'}", "orders")
    assert not REGISTRY.has(tmp_path / "old")
    disk.close()
    bus.close()
