"""Commits of the store on disk: many jobs at once, and every way in which one can fail."""

from __future__ import annotations

import lmdb
import pytest

from lockstep.errors import AppendUncertain, LockstepError, StoreBroken, StoreFull
from lockstep.log.config import StreamConfig
from lockstep.log.embedded.tables import CELLS
from lockstep.log.lmdb import room
from lockstep.log.lmdb.environment import REGISTRY
from lockstep.log.lmdb.store import _Ticket
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values


@pytest.fixture(params=["", "&replica={}"], ids=["alone", "with replica"])
def bus(request, tmp_path):
    url = f"lmdb:{tmp_path / 'bus'}?durability=relaxed{request.param.format(tmp_path / 'copy')}"
    bus = open_bus(url, ThreadRuntime())
    yield bus
    bus.close()


@pytest.fixture
def store(bus):
    return bus._store


def add_one(tables):
    count = int(tables.get(CELLS, b"n") or b"0") + 1
    tables.put(CELLS, b"n", b"%d" % count)
    return count


def fail(_):
    raise ZeroDivisionError


def interrupt(_):
    raise KeyboardInterrupt


def outcome(ticket):
    try:
        return ticket.result()
    except (LockstepError, ZeroDivisionError) as error:
        return type(error)


class FailingCommit:
    """A transaction whose commit fails, after all that is written before it was written."""

    def __init__(self, transaction):
        self._transaction = transaction

    def __enter__(self):
        return self._transaction

    def __exit__(self, *_):
        self._transaction.abort()
        raise lmdb.DiskError("No space left on device")


def fail_commits(store, monkeypatch):
    begin = store._begin
    monkeypatch.setattr(store, "_begin", lambda: FailingCommit(begin()))


def test_jobs_of_one_commit_see_each_other(store):
    tickets = [_Ticket(add_one) for _ in range(3)]
    store._commit(tickets)
    assert [ticket.result() for ticket in tickets] == [1, 2, 3]


def test_a_bad_job_does_not_spoil_the_others(store):
    tickets = [_Ticket(job) for job in (add_one, fail, add_one)]
    store._commit(tickets)
    assert [outcome(ticket) for ticket in tickets] == [1, ZeroDivisionError, 2]


def test_an_interrupted_thread_leaves_the_jobs_of_others(store):
    mine, other = _Ticket(interrupt), _Ticket(add_one)
    store._waiting.extend([mine, other])
    with pytest.raises(KeyboardInterrupt):
        store._commit_waiting()
    assert list(store._waiting) == [mine, other]
    store._waiting.clear()
    store._commit([other])
    assert other.result() == 1


def test_a_commit_that_may_have_happened_is_not_run_again(bus, store, monkeypatch):
    fail_commits(store, monkeypatch)
    tickets = [_Ticket(add_one), _Ticket(add_one)]
    store._commit(tickets)
    monkeypatch.undo()
    uncertain = bus.promises.sync_replicas == 1
    assert [outcome(ticket) for ticket in tickets] == [AppendUncertain if uncertain else StoreFull] * 2
    # With a replica it did happen, once; without one it did not
    assert store.write(add_one) == (3 if uncertain else 1)


def test_an_uncertain_append_sent_again_counts_once(bus, store, monkeypatch):
    log, batch = bus.create("orders", StreamConfig()), Producer().batch(b"a")
    fail_commits(store, monkeypatch)
    with pytest.raises((AppendUncertain, StoreFull)):
        log.append([batch])
    monkeypatch.undo()
    assert log.append([batch]) == [0]
    assert values(log) == [b"a"]


def test_a_disk_that_fails_after_the_commit_stops_later_writes(bus, store, monkeypatch):
    log = bus.create("orders", StreamConfig())

    def keep_house(_):
        raise lmdb.Error("mdb_env_sync: Input/output error")

    monkeypatch.setattr(store.environment, "_keep_house", keep_house)
    log.append([Producer("a").batch(b"acknowledged")])
    with pytest.raises(StoreBroken, match="Input/output error"):
        log.append([Producer("b").batch(b"refused")])
    assert values(log) == [b"acknowledged"]


def test_damaged_pages_are_our_error_and_stop_writes(bus, store):
    with pytest.raises(StoreBroken, match="page is damaged"), store.read():
        raise lmdb.CorruptedError("page is damaged")
    with pytest.raises(StoreBroken):
        store.write(add_one)


def test_whoever_opens_a_folder_of_this_process_gets_the_open_one(bus, store, tmp_path):
    other = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    assert other._store.environment is store.environment
    other.close()
    assert REGISTRY.has(tmp_path / "bus")
    assert store.write(add_one) == 1


def test_the_ballast_is_laid_in_thrown_out_once_and_laid_in_again(bus, tmp_path):
    ballast = tmp_path / "bus" / "ballast"
    assert ballast.stat().st_size == room.BALLAST_BYTES
    assert room.throw_ballast(tmp_path / "bus")
    assert not room.throw_ballast(tmp_path / "bus")
    room.load_ballast(tmp_path / "bus")
    assert ballast.exists()


def test_no_ballast_where_there_is_no_room_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "disk_left", lambda _: 4 * room.BALLAST_BYTES - 1)
    room.load_ballast(tmp_path)
    assert list(tmp_path.iterdir()) == []
