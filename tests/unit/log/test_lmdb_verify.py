"""Verify finds every kind of damage, names it, and writes nothing."""

from __future__ import annotations

import hashlib
import shutil

import lmdb
import pytest

from lockstep.errors import IllegalState, StoreNotFound
from lockstep.log.config import StreamConfig
from lockstep.log.embedded.tables import LogRow, entry_key, log_key
from lockstep.log.embedded.transaction import PRODUCER_ROW
from lockstep.log.lmdb.verify import verify
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "bus"
    bus = open_bus(f"lmdb:{folder}?map_bytes=16777216", ThreadRuntime())
    log, producer = bus.create("orders", StreamConfig(capacity=40)), Producer()
    for number in range(10):
        log.append([producer.batch(*(b"%d %d" % (number, at) for at in range(5)))])
    log.hold("group", 12)
    bus.create("large", StreamConfig(capacity=None)).append([producer.batch(b"x" * 100_000)])
    bus.create("empty", StreamConfig())
    bus.close()
    return folder


@pytest.fixture
def folder(pristine, tmp_path):
    shutil.copytree(pristine, tmp_path / "copy")
    return tmp_path / "copy"


def change(folder, work):
    with lmdb.open(str(folder), max_dbs=20) as environment:
        tables = {name: environment.open_db(name.encode()) for name in ("logs", "entries", "producers", "holds")}
        tables |= {name: environment.open_db(name.encode()) for name in ("catalogue", "meta")}
        with environment.begin(write=True) as transaction:
            work(transaction, tables)


def put(table, key, value):
    return lambda transaction, tables: transaction.put(key, value, db=tables[table])


def delete(table, key):
    return lambda transaction, tables: transaction.delete(key, db=tables[table])


def flip(table, key, at):
    def work(transaction, tables):
        value = bytearray(transaction.get(key, db=tables[table]))
        value[at] ^= 1
        transaction.put(key, bytes(value), db=tables[table])

    return work


def test_a_whole_store_has_no_faults(pristine):
    report = verify(pristine)
    assert report.ok, report.lines()
    assert (report.streams, report.batches, report.records) == (3, 9, 41)
    assert report.stored_bytes > 100_000


def test_nothing_is_written(pristine):
    def state():
        files = sorted(item for item in pristine.rglob("*") if item.is_file())
        return [(item.name, item.stat().st_mtime_ns, hashlib.sha256(item.read_bytes()).digest()) for item in files]

    before = state()
    verify(pristine)
    assert state() == before


ROW = LogRow(first=10, next=50, stored_bytes=720, append_ns=2**62)
DAMAGE = {
    "a batch": (flip("entries", entry_key(0, 20), 70), ("orders", 20, "the batch is damaged: its checksum")),
    "a header": (flip("entries", entry_key(0, 20), 8), ("orders", 20, "the batch is damaged: its checksum")),
    "a version": (flip("entries", entry_key(0, 20), 2), ("orders", 20, "nothing reads format 0")),
    "a missing batch": (delete("entries", entry_key(0, 20)), ("orders", 20, "records from 20 to 25 are missing")),
    "a missing first batch": (delete("entries", entry_key(0, 10)), ("orders", 10, "records from 10 to 15 are missing")),
    "a missing last batch": (
        delete("entries", entry_key(0, 45)),
        ("orders", 45, "its last batch ends at 45"),
    ),
    "a batch too many": (
        put("entries", entry_key(0, 50), Producer().batch(b"x").seal(2**62)),
        ("orders", 51, "its row says that it ends at 50"),
    ),
    "an overlap": (
        put("entries", entry_key(0, 12), Producer().batch(b"x").seal(2**62)),
        ("orders", 12, "the batch begins before the one in front of it ends, at 15"),
    ),
    "an early append time": (
        put("entries", entry_key(0, 50), Producer().batch(b"x").seal(1)),
        ("orders", 50, "an earlier append time"),
    ),
    "a strange key": (put("entries", log_key(0) + b"x", b""), ("orders", None, "an entry has the key")),
    "no entries": (delete("entries", entry_key(1, 0)), ("large", 0, "nothing is stored")),
    "stored bytes": (put("logs", log_key(0), ROW.pack()), ("orders", None, "its row says 720 bytes, and")),
    "bounds": (
        put("logs", log_key(2), LogRow(first=5, next=2).pack()),
        ("empty", None, "begins at 5 and ends at 2"),
    ),
    "row append time": (
        put("logs", log_key(1), LogRow(next=1, stored_bytes=100_064).pack()),
        ("large", None, "its row has an earlier append time"),
    ),
    "no row": (delete("logs", log_key(0)), ("orders", None, "its row of totals is missing")),
    "a short row": (put("logs", log_key(0), b"x"), ("orders", None, "its row of totals is missing or can't be read")),
    "a catalogue entry": (put("catalogue", b"orders", b"{"), ("orders", None, "its catalogue entry can't be read")),
    "a catalogue entry of another kind": (
        put("catalogue", b"orders", b'{"number": 0}'),
        ("orders", None, "its catalogue entry can't be read"),
    ),
    "rows of nobody": (delete("catalogue", b"orders"), (None, None, "table entries has rows of a log numbered 0")),
    "numbers": (
        put("meta", b"next-log-number", b"1"),
        (None, None, "the next log would get number 1"),
    ),
    "a producer": (
        put("producers", log_key(0) + b"x", b""),
        ("orders", None, "producer 78 has a wrong size"),
    ),
    "a producer ahead": (
        put("producers", log_key(0) + b"x" * 16, PRODUCER_ROW.pack(1, 51, 0)),
        ("orders", None, "is said to be ahead of the log"),
    ),
    "a hold": (put("holds", log_key(0) + b"group", b"soon"), ("orders", None, "the hold of b'group' is b'soon'")),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_named(folder, name):
    work, (stream, offset, what) = DAMAGE[name]
    change(folder, work)
    report = verify(folder)
    assert [f for f in report.faults if (f.stream, f.offset) == (stream, offset) and what in f.what], report.lines()


def test_the_same_number_twice(folder):
    def work(transaction, tables):
        transaction.put(b"twin", transaction.get(b"orders", db=tables["catalogue"]), db=tables["catalogue"])

    change(folder, work)
    assert "twin: it has the same number as orders" in verify(folder).lines()


def test_all_faults_are_found_not_just_the_first(folder):
    for at in (15, 25, 40):
        change(folder, flip("entries", entry_key(0, at), 66))
    change(folder, flip("entries", entry_key(1, 0), 5000))
    (folder / "lockstep.json").write_text("{")
    report = verify(folder)
    found = [(fault.stream, fault.offset) for fault in report.faults]
    assert sorted(found[1:]) == [("large", 0), ("orders", 15), ("orders", 25), ("orders", 40)]
    assert report.lines()[0].startswith("the settings: [NOT_A_STORE]")


def test_a_missing_settings_file_is_one_fault_among_others(folder):
    (folder / "lockstep.json").unlink()
    report = verify(folder)
    assert len(report.faults) == 1
    assert report.records == 41


def test_a_missing_data_file(folder):
    (folder / "data.mdb").unlink()
    assert verify(folder).lines() == ["there is no data.mdb"]


def test_a_file_that_is_not_lmdb(folder):
    (folder / "data.mdb").write_bytes(b"garbage" * 10_000)
    report = verify(folder)
    assert not report.ok
    assert all("data.mdb" in line for line in report.lines())


def test_a_truncated_file_takes_nobody_down(folder):
    data = (folder / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(data[: len(data) // 2])
    report = verify(folder)
    assert not report.ok


def test_an_empty_store_lacks_tables(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    bus.close()
    assert verify(tmp_path / "bus").ok
    (tmp_path / "bus" / "data.mdb").unlink()
    lmdb.open(str(tmp_path / "bus")).close()
    assert [line for line in verify(tmp_path / "bus").lines() if line == "table entries is missing"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StoreNotFound):
        verify(tmp_path / "missing")


def test_a_store_that_is_open_here(folder):
    bus = open_bus(f"lmdb:{folder}", ThreadRuntime())
    with pytest.raises(IllegalState, match="this process has it open"):
        verify(folder)
    bus.close()
    assert verify(folder).ok


def test_histories_are_whole_too(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}", ThreadRuntime())
    config = StreamConfig(capacity=2, history=f"lmdb:{tmp_path / 'archive'}")
    log, producer = bus.create("orders", config), Producer()
    for number in range(20):
        log.append([producer.batch(b"%d" % number)])
    bus.close()
    for folder in ("bus", "archive"):
        report = verify(tmp_path / folder)
        assert report.ok, report.lines()
    assert report.records == 20
