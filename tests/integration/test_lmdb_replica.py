"""Second copies: whatever was acknowledged is on the replica, wherever a writer died, and nothing strange gets in."""

from __future__ import annotations

import shutil
import threading
import time

import pytest
from lmdb_child import Child

from lockstep.errors import BadConfig, StoreBroken, TimedOut
from lockstep.log.config import StreamConfig
from lockstep.log.lmdb.environment import REGISTRY
from lockstep.log.lmdb.replica import Mirror, commit_number
from lockstep.log.lmdb.verify import verify
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer, records, values

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
KEEP_ALL = StreamConfig(capacity=None)
POINTS = {"before replica": [b"0", b"1", b"2"], "between": [b"0", b"1", b"2", b"3"], "after": [b"0", b"1", b"2", b"3"]}


@pytest.fixture
def url(tmp_path):
    return f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={1 << 26}&replica={tmp_path / 'copy'}"


def die(url, point):
    with Child("die_in_commit", url, point) as child:
        assert child.lines() == [0, 1, 2]
        assert child.end() == -9


def read_folder(folder):
    bus = open_bus(f"lmdb:{folder}", ThreadRuntime(), create=False)
    found = {name: records(bus.open(name)) for name in bus.names()}
    bus.close()
    return found


@pytest.mark.parametrize("point", POINTS)
def test_the_store_is_lost_after_its_writer_died(tmp_path, url, point):
    die(url, point)
    shutil.rmtree(tmp_path / "bus")
    bus = open_bus(f"lmdb:{tmp_path / 'copy'}", ThreadRuntime(), create=False)
    log = bus.open("orders")
    assert values(log) == POINTS[point]
    # And the copy is a bus like any other: the dead writer's batch is sent again and counts once
    producer = Producer("mortal")
    producer.sequence = 3
    log.append([producer.batch(b"3")])
    assert values(log) == [b"0", b"1", b"2", b"3"]
    bus.close()
    assert verify(tmp_path / "copy").ok


@pytest.mark.parametrize("point", POINTS)
def test_the_next_writer_brings_both_in_step(tmp_path, url, point):
    die(url, point)
    bus = open_bus(url, ThreadRuntime(), create=False)
    log = bus.open("orders")
    assert values(log) == POINTS[point]
    log.append([Producer("next").batch(b"next")])
    bus.close()
    assert read_folder(tmp_path / "bus") == read_folder(tmp_path / "copy")
    for folder in ("bus", "copy"):
        assert verify(tmp_path / folder).ok


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_stays_brings_both_in_step(tmp_path, url, point):
    bus = open_bus(url, ThreadRuntime())
    log = bus.create("orders", KEEP_ALL)
    die(url, point)
    log.append([Producer("alive").batch(b"alive")])
    assert values(log) == [*POINTS[point], b"alive"]
    bus.close()
    assert read_folder(tmp_path / "bus") == read_folder(tmp_path / "copy")


def test_a_replica_added_later_gets_everything(tmp_path, url):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={1 << 26}", ThreadRuntime())
    log, producer = bus.create("orders", KEEP_ALL), Producer()
    for number in range(100):
        log.append([producer.batch(b"%d" % number)])
    bus.close()
    bus = open_bus(url, ThreadRuntime())
    assert bus.promises.sync_replicas == 1
    bus.close()
    assert read_folder(tmp_path / "bus") == read_folder(tmp_path / "copy")


def test_a_replica_of_another_store_is_refused_and_nothing_changes(tmp_path, url):
    open_bus(f"lmdb:{tmp_path / 'copy'}", ThreadRuntime()).close()
    with pytest.raises(BadConfig, match="it holds another store"):
        open_bus(url, ThreadRuntime())
    # And the store is not spoilt by the wish
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    assert bus.promises.sync_replicas == 0
    bus.close()
    assert not REGISTRY.has(tmp_path / "copy")


@pytest.mark.parametrize("kind", ["replica", "async_replica"])
def test_a_replica_in_the_same_folder_is_refused(tmp_path, kind):
    with pytest.raises(BadConfig, match="protects nothing"):
        open_bus(f"lmdb:{tmp_path / 'bus'}?{kind}={tmp_path / 'bus'}", ThreadRuntime())


def test_one_folder_can_not_be_both_replicas(tmp_path):
    copy = tmp_path / "copy"
    with pytest.raises(BadConfig, match="it is the replica already"):
        open_bus(f"lmdb:{tmp_path / 'bus'}?replica={copy}&async_replica={copy}", ThreadRuntime())


def test_a_replica_that_was_written_on_its_own_is_refused(tmp_path, url):
    bus = open_bus(url, ThreadRuntime())
    bus.create("orders", KEEP_ALL).append([Producer().batch(b"a")])
    bus.close()
    copy = open_bus(f"lmdb:{tmp_path / 'copy'}", ThreadRuntime())
    copy.open("orders").append([Producer("alone").batch(b"b")])
    copy.close()
    for _ in range(2):
        with pytest.raises(StoreBroken, match="written to on its own"):
            open_bus(url, ThreadRuntime())
    assert not REGISTRY.has(tmp_path / "bus"), "what was opened on the way was given back"


def test_a_replica_written_on_its_own_while_the_store_is_open(tmp_path, url):
    bus = open_bus(url, ThreadRuntime())
    log = bus.create("orders", KEEP_ALL)
    copy = open_bus(f"lmdb:{tmp_path / 'copy'}", ThreadRuntime())
    copy.open("orders").append([Producer("alone").batch(b"b")])
    copy.close()
    kept = []
    for _ in range(2):  # and an error that somebody keeps does not keep the lock
        with pytest.raises(StoreBroken, match="written to on its own") as caught:
            log.append([Producer().batch(b"a")])
        kept.append(caught)
    assert values(log) == []
    bus.close()


class TestFollower:
    @pytest.fixture
    def url(self, tmp_path):
        return f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={1 << 26}&async_replica={tmp_path / 'copy'}"

    def test_it_catches_up(self, tmp_path, url):
        bus = open_bus(url, ThreadRuntime())
        log, producer = bus.create("orders", StreamConfig(capacity=50)), Producer()
        for number in range(200):
            log.append([producer.batch(b"%d" % number)])
        wait_until(lambda: lag(bus) == 0)
        bus.close()
        assert read_folder(tmp_path / "bus") == read_folder(tmp_path / "copy")
        assert verify(tmp_path / "copy").ok

    def test_in_virtual_time_the_lag_grows_and_goes(self, tmp_path, url):
        clock = VirtualRuntime()
        bus = open_bus(url, clock)
        log, producer = bus.create("orders", KEEP_ALL), Producer()
        clock.advance(1)
        assert lag(bus) == 0
        for number in range(10):
            log.append([producer.batch(b"%d" % number)])
        assert lag(bus) == 10
        clock.advance(1)
        assert lag(bus) == 0
        bus.close()

    def test_it_goes_on_after_a_failure_that_was_mended(self, tmp_path, url, caplog):
        clock = VirtualRuntime()
        bus = open_bus(url, clock)
        bus._store.mirror._following.path = tmp_path / "gone"  # as a disk that was unmounted
        bus.create("orders", KEEP_ALL)
        clock.advance(60)
        assert lag(bus) == 1
        assert caplog.text.count("The replica can't follow") == 1, "told once"
        bus._store.mirror._following.path = tmp_path / "copy"
        clock.advance(10)
        assert lag(bus) == 0
        bus.close()

    def test_another_process_takes_over_from_a_dead_one(self, tmp_path, url):
        clock = VirtualRuntime()
        open_bus(url, clock).close()
        with Child("follow", url) as child:
            assert child.line() == 1
            bus = open_bus(url, clock)
            log, producer = bus.create("orders", KEEP_ALL), Producer()
            log.append([producer.batch(b"a")])
            wait_until(lambda: lag(bus) == 0)  # the child follows, for nobody else does
            clock.advance(60)
            child.kill()
        log.append([producer.batch(b"b")])
        assert lag(bus) == 1
        clock.advance(10)
        assert lag(bus) == 0
        bus.close()
        assert read_folder(tmp_path / "bus") == read_folder(tmp_path / "copy")

    def test_a_replica_that_can_not_be_read_leaves_the_store_alone(self, tmp_path, url, monkeypatch, caplog):
        monkeypatch.setattr("lockstep.log.lmdb.replica._JOURNAL_MAX", 5)
        bus = open_bus(url, VirtualRuntime())
        log, producer = bus.create("orders", KEEP_ALL), Producer()
        copy = open_bus(f"lmdb:{tmp_path / 'copy'}", ThreadRuntime())
        copy.create("stray", KEEP_ALL)
        copy.close()
        caplog.clear()
        for number in range(20):
            log.append([producer.batch(b"%d" % number)])
        assert [record.action for record in caplog.records] == ["replica_unreadable"]
        with bus._store.read() as tables:
            assert len(list(tables.scan("journal", b""))) <= 6, "what nobody follows does not grow for ever"
        bus.close()

    def test_a_follower_that_does_not_stop_in_time_gives_the_folders_back_itself(self, tmp_path, url, monkeypatch):
        entered, let_go = threading.Event(), threading.Event()

        def follow(_, primary):
            entered.set()
            assert let_go.wait(30)
            with primary.read() as tables:
                return commit_number(tables)

        monkeypatch.setattr(Mirror, "_follow", follow)
        bus = open_bus(url, ThreadRuntime())
        assert entered.wait(30)
        task = bus._store.mirror._task
        monkeypatch.setattr(bus._store.mirror, "_task", Impatient(task))
        with pytest.raises(TimedOut):
            bus.close()
        assert REGISTRY.has(tmp_path / "bus"), "the follower still reads there"
        let_go.set()
        task.stop()
        assert not REGISTRY.has(tmp_path / "bus")
        assert not REGISTRY.has(tmp_path / "copy")

    def test_a_journal_that_is_too_short_means_a_whole_copy(self, tmp_path, url, monkeypatch):
        monkeypatch.setattr("lockstep.log.lmdb.replica._JOURNAL_MAX", 5)
        clock = VirtualRuntime()
        bus = open_bus(url, clock)
        log, producer = bus.create("orders", KEEP_ALL), Producer()
        clock.advance(1)
        for number in range(30):
            log.append([producer.batch(b"%d" % number)])
        with bus._store.read() as tables:
            assert len(list(tables.scan("journal", b""))) <= 6, "what nobody follows does not grow for ever"
        clock.advance(1)
        assert lag(bus) == 0
        bus.close()
        assert read_folder(tmp_path / "bus") == read_folder(tmp_path / "copy")


class Impatient:
    """A task whose owner does not wait for it."""

    def __init__(self, task):
        self._task = task

    def stop(self):
        self._task.stop(0.0)


def lag(bus):
    return bus._store.mirror.lag(bus._store.environment)


def wait_until(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen in 30 s"
