"""Stores that run out of room: publishers are told, readers go on, and after trimming so do publishers."""

from __future__ import annotations

import os
import subprocess

import pytest
from lmdb_child import Child, fill

from lockstep.errors import StoreFull
from lockstep.log.config import StreamConfig
from lockstep.log.lmdb.verify import verify
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer, values

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
KEEP_ALL = StreamConfig(capacity=None)


def test_space_is_used_again_after_retention(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed", ThreadRuntime())
    log, producer = bus.create("orders", StreamConfig(capacity=200)), Producer()
    sizes = []
    for _ in range(20):
        for _ in range(20):
            log.append([producer.batch(*[b"x" * 1000] * 10)])
        sizes.append((tmp_path / "bus" / "data.mdb").stat().st_size)
    assert max(sizes) <= 2 * sizes[1]
    bus.close()
    assert verify(tmp_path / "bus").ok


def check_full_and_free_again(bus, reason):
    log, producer = bus.create("orders", KEEP_ALL), Producer()
    accepted = fill(log, producer)
    assert len(accepted) > 10
    # Publishers are told, again and again
    for _ in range(3):
        with pytest.raises(StoreFull, match=reason):
            log.append([producer.batch(b"x" * 20_000)])
        producer.sequence -= 1
    # Readers go on
    assert values(log) == accepted
    # And after trimming, publishing works again, with nothing missing or doubled
    log.trim(len(accepted) - 2)
    again = fill(log, producer)
    assert len(again) >= len(accepted) // 4
    assert values(log) == accepted[-2:] + again


def test_a_full_map(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={4 << 20}", ThreadRuntime())
    check_full_and_free_again(bus, "its map of 4194304 bytes is full")
    bus.close()
    report = verify(tmp_path / "bus")
    assert report.ok, report.lines()


def test_a_reader_killed_in_a_full_store_does_not_keep_it_full(tmp_path):
    url = f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={4 << 20}"
    bus = open_bus(url, ThreadRuntime())
    log, producer = bus.create("orders", StreamConfig(capacity=50)), Producer()
    for _ in range(100):
        log.append([producer.batch(os.urandom(3000))])
    with Child("read_and_stay", url) as child:
        assert child.line() == 100
        fill(log, producer)  # what the reader sees can't be used again
        child.kill()
    for _ in range(200):
        log.append([producer.batch(os.urandom(3000))])
    bus.close()


def test_a_map_that_another_process_enlarged_is_taken_over(tmp_path):
    def url(map_bytes):
        return f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={map_bytes}&async_replica={tmp_path / 'copy'}"

    runtime = VirtualRuntime()
    bus = open_bus(url(4 << 20), runtime)
    log = bus.create("orders", KEEP_ALL)
    log.append([Producer().batch(b"first")])
    with Child("publish_large", url(16 << 20), 40) as child:
        assert child.end() == 0
    with bus.snapshot() as view:
        assert view.bounds("orders").next == 41
    assert log.append([Producer("other").batch(b"last")]) == [41]
    assert bus._store.environment.map_bytes == 16 << 20
    runtime.advance(60)
    assert bus._store.mirror.lag(bus._store.environment) == 0, "its copy was enlarged with it"
    bus.close()


def test_a_full_process_uses_the_map_that_another_process_enlarged(tmp_path):
    bus = open_bus(f"lmdb:{tmp_path / 'bus'}?durability=relaxed&map_bytes={2 << 20}", ThreadRuntime())
    log, producer = bus.create("orders", KEEP_ALL), Producer()
    fill(log, producer)
    with Child("publish_large", f"lmdb:{tmp_path / 'bus'}?map_bytes={8 << 20}", 0) as child:
        assert child.end() == 0
    assert len(fill(log, producer)) > 100
    bus.close()


def test_a_file_that_may_not_grow(tmp_path):
    with Child("fill_file", f"lmdb:{tmp_path / 'bus'}?durability=relaxed", 4 << 20) as child:
        accepted, last = child.line()
        assert child.end() == 0
    assert accepted > 10
    assert last == "again"
    report = verify(tmp_path / "bus")
    assert report.ok, report.lines()


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder]
    mounted = subprocess.run(command, check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_a_full_disk(small_disk, durability):
    bus = open_bus(f"lmdb:{small_disk / 'bus'}?durability={durability}", ThreadRuntime())
    check_full_and_free_again(bus, "the disk is full")
    bus.close()
    report = verify(small_disk / "bus")
    assert report.ok, report.lines()
