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
