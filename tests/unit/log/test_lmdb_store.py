"""Commits of the store on disk: many jobs at once, and every way in which one can fail."""

from __future__ import annotations

import threading

import lmdb
import pytest

from lockstep.errors import AppendUncertain, IllegalState, LockstepError, StoreBroken, StoreFull
from lockstep.log.config import StreamConfig
from lockstep.log.embedded.tables import CELLS
from lockstep.log.lmdb import environment
from lockstep.log.lmdb import tables as lmdb_tables
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


def raise_if_type(found):
    if isinstance(found, type):
        raise found


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
        return self._transaction.__enter__()

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


class InterruptedBegin:
    """A transaction that is begun, and then its thread is interrupted."""

    def __init__(self, transaction):
        self._transaction = transaction

    def __enter__(self):
        self._transaction.abort()
        raise KeyboardInterrupt

    def __exit__(self, *_):
        raise AssertionError


class InterruptedCommit:
    """A transaction that is committed, and then its thread is interrupted, as when a signal came meanwhile."""

    def __init__(self, transaction):
        self._transaction = transaction

    def __enter__(self):
        return self._transaction.__enter__()

    def __exit__(self, *error):
        self._transaction.__exit__(*error)
        raise KeyboardInterrupt


def interrupt_begin(store, monkeypatch):
    begin = store._begin
    monkeypatch.setattr(store, "_begin", lambda: InterruptedBegin(begin()))


def interrupt_commit(store, monkeypatch):
    begin = store._begin
    monkeypatch.setattr(store, "_begin", lambda: InterruptedCommit(begin()))


def interrupt_after_commit(store, monkeypatch):
    monkeypatch.setattr(store.environment, "after_commit", lambda: interrupt(None))


def interrupt_taking(store, monkeypatch):
    take = store._take
    monkeypatch.setattr(store, "_take", lambda own: interrupt(take(own)))


def interrupt_replica(store, monkeypatch):
    if store.mirror is None:
        pytest.skip("it has no replica")
    commit = store.mirror.commit
    monkeypatch.setattr(store.mirror, "commit", lambda *args: interrupt(commit(*args)))


NOT_STORED = [interrupt_taking, interrupt_begin]
STORED = [interrupt_replica, interrupt_commit, interrupt_after_commit]


def in_thread(call):
    """What a call returned or raised in another thread."""
    found = []

    def run():
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - told to the test
            found.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    return found[0]


def wait_for_its_turn(store, job):
    """The ticket of another thread that waits, as it is in the queue."""
    ticket = _Ticket(job)
    store._waiting.append(ticket)
    return ticket


@pytest.mark.parametrize("point", NOT_STORED)
@pytest.mark.parametrize("call", [in_thread, lambda call: call()], ids=["thread", "main"])
def test_interrupted_before_the_commit_nothing_happened_and_the_others_go_on(store, monkeypatch, point, call):
    other = wait_for_its_turn(store, add_one)
    point(store, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        raise_if_type(call(lambda: store.write(add_one)))
    monkeypatch.undo()
    store._settle(other)  # as its thread does
    assert other.result() == 1
    assert store.write(add_one) == 2
    assert not store._waiting


@pytest.mark.parametrize("point", STORED)
def test_interrupted_when_it_may_be_stored_nothing_is_run_again(store, monkeypatch, point):
    other = wait_for_its_turn(store, add_one)
    point(store, monkeypatch)
    assert in_thread(lambda: store.write(add_one)) is KeyboardInterrupt
    monkeypatch.undo()
    with pytest.raises(AppendUncertain, match="interrupted"):
        store._settle(other)
    assert in_thread(lambda: store.write(add_one)) == 3, "both were stored, each once"


@pytest.mark.parametrize("point", STORED)
def test_an_interrupted_main_thread_takes_nobody_with_it(store, monkeypatch, point):
    other = wait_for_its_turn(store, add_one)
    point(store, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        store.write(add_one)
    monkeypatch.undo()
    assert list(store._waiting) == [other]
    store._settle(other)
    assert other.result() == 2


def test_a_thread_interrupted_while_it_waits_takes_its_job_back(store, monkeypatch):
    class Interrupted:
        def __enter__(self):
            assert len(store._waiting) == 1
            raise KeyboardInterrupt

        def __exit__(self, *_):
            raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(store, "_turn", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            store.write(add_one)
    assert not store._waiting
    assert store.write(add_one) == 1


def test_a_withdrawn_job_is_not_run(store):
    wait_for_its_turn(store, add_one).withdrawn = True
    assert in_thread(lambda: store.write(add_one)) == 1
    assert not store._waiting


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_job_that_ends_its_thread_ends_no_other(store, end):
    def job(_):
        raise end

    other = wait_for_its_turn(store, job)
    assert in_thread(lambda: store.write(add_one)) == 1
    with pytest.raises(end):
        other.result()
    with pytest.raises(end):
        store.write(job)
    assert store.write(add_one) == 2


def test_housekeeping_that_fails_does_not_run_jobs_again(store, monkeypatch, caplog):
    def keep_house(_):
        raise OSError("Too many open files")

    monkeypatch.setattr(store.environment, "_keep_house", keep_house)
    other = wait_for_its_turn(store, add_one)
    assert in_thread(lambda: store.write(add_one)) == 1
    assert other.result() == 2
    assert [record.action for record in caplog.records] == ["ballast_failed"]


def test_an_error_after_the_commit_does_not_run_jobs_again(store, monkeypatch):
    def after_commit():
        raise MemoryError

    monkeypatch.setattr(store.environment, "after_commit", after_commit)
    tickets = [_Ticket(add_one), _Ticket(add_one)]
    store._commit(tickets)
    monkeypatch.undo()
    assert [outcome(ticket) for ticket in tickets] == [AppendUncertain] * 2
    assert store.write(add_one) == 3


def test_a_write_in_a_write_is_refused_whatever_was_reached(store, monkeypatch):
    with pytest.raises(IllegalState):
        store.write(lambda _: store.write(add_one))

    def after_commit():  # as a signal's handler might
        with pytest.raises(IllegalState):
            store.write(add_one)

    monkeypatch.setattr(store.environment, "after_commit", after_commit)
    assert store.write(add_one) == 1


def test_the_mark_of_the_writer_is_cleared_while_it_has_the_lock(store, monkeypatch):
    begin, marks = store._begin, []

    class Watched(InterruptedCommit):
        def __exit__(self, *error):
            marks.append(store.environment.writing)
            self._transaction.__exit__(*error)
            store.environment.writing = -1  # another connection has the lock now

    monkeypatch.setattr(store, "_begin", lambda: Watched(begin()))
    store.write(add_one)
    assert marks == [None]
    assert store.environment.writing == -1


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


def test_closing_waits_for_a_write_under_way_which_is_stored(tmp_path):
    # Given a thread in the middle of a transaction, which would keep the error that it gets
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    writing, go_on, outcomes = threading.Event(), threading.Event(), []

    def slow(tables):
        writing.set()
        assert go_on.wait(30)
        return add_one(tables)

    def write():
        try:
            outcomes.append(bus._store.write(slow))
        except LockstepError as error:
            outcomes.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert writing.wait(30)
    # When another thread closes the store
    closing = threading.Thread(target=bus.close, daemon=True)
    closing.start()
    closing.join(0.05)  # long enough to reach LMDB if it did not wait
    go_on.set()
    # Then both end, and what was written is there
    for thread in (writer, closing):
        thread.join(30)
        assert not thread.is_alive()
    assert outcomes == [1]


def test_a_write_that_never_ends_does_not_block_closing(bus, store, monkeypatch, caplog):
    monkeypatch.setattr(environment, "_WRITER_WAITS_S", 0.01)
    with store.environment.gate:
        assert not store.environment.close()
    assert "stays open" in caplog.text
    assert store.write(add_one) == 1


def test_a_store_that_could_not_be_closed_can_be_opened_again(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "_WRITER_WAITS_S", 0.01)
    url = f"lmdb:{tmp_path / 'stuck'}"
    bus = open_bus(url, ThreadRuntime())
    gate = bus._store.environment.gate
    holding = threading.Thread(target=lambda: (gate.acquire(), held.set(), go_on.wait(30), gate.release()))
    held, go_on = threading.Event(), threading.Event()
    holding.start()
    assert held.wait(30)
    bus.close()
    again = open_bus(url, ThreadRuntime())
    go_on.set()
    holding.join(30)
    assert again._store.write(add_one) == 1
    again.close()
    assert not REGISTRY.has(tmp_path / "stuck")


def test_the_ballast_is_laid_in_thrown_out_once_and_laid_in_again(bus, tmp_path):
    ballast = tmp_path / "bus" / "ballast"
    assert ballast.stat().st_size == lmdb_tables.BALLAST_BYTES
    assert lmdb_tables.delete_ballast(tmp_path / "bus")
    assert not lmdb_tables.delete_ballast(tmp_path / "bus")
    lmdb_tables.create_ballast(tmp_path / "bus")
    assert ballast.exists()


def test_no_ballast_where_there_is_no_room_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr(lmdb_tables, "disk_left", lambda _: 4 * lmdb_tables.BALLAST_BYTES - 1)
    lmdb_tables.create_ballast(tmp_path)
    assert list(tmp_path.iterdir()) == []
