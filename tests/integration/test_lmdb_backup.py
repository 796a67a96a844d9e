"""A store is copied while another process publishes; the copy is whole, and can take the place of the store."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

import lockstep
from lockstep.errors import BadOffset, IllegalState, NotAStore, StoreNotFound
from lockstep.log.lmdb.backend import backup
from lockstep.log.lmdb.verify import verify

PUBLISH = """
import sys, lockstep
with lockstep.connect(sys.argv[1]) as bus, bus.publisher("orders") as publisher:
    for number in range(1_000_000):
        publisher.publish(b"%d" % number).result()
        print(number, flush=True)
"""


def stored(folder) -> list[int]:
    with (
        lockstep.connect(f"lmdb:{folder}", create=False) as bus,
        bus.subscriber("orders", initial="earliest") as reader,
    ):
        return [int(record.value) for record in reader.records(idle_s=0.1)]


def test_a_backup_taken_under_load_is_a_whole_store_that_can_be_restored(tmp_path):
    source, copy = tmp_path / "bus", tmp_path / "copy"
    # Given a process that publishes without a pause
    url = f"lmdb:{source}?map_bytes=67108864&durability=relaxed"
    child = subprocess.Popen([sys.executable, "-c", PUBLISH, url], stdout=subprocess.PIPE)
    try:
        told = [int(child.stdout.readline()) for _ in range(50)]
        # When the store is copied meanwhile
        backup(source, copy)
        child.stdout.readline()
    finally:
        child.kill()
        child.communicate()
    # Then the copy is without a fault, and has everything acknowledged before, up to one moment
    assert verify(copy).ok
    found = stored(copy)
    assert found == list(range(len(found)))
    assert len(found) >= len(told)
    # And in the place of the lost store it is written to as before
    shutil.rmtree(source)
    shutil.copytree(copy, source)
    with lockstep.connect(f"lmdb:{source}") as bus, bus.publisher("orders") as publisher:
        assert publisher.publish(b"%d" % len(found)).result() == len(found)
    assert stored(source) == [*found, len(found)]
    # And a reader that had read further before is told
    with lockstep.connect(f"lmdb:{source}") as bus, bus.subscriber("orders") as reader:
        reader.seek(len(found) + 2)
        with pytest.raises(BadOffset):
            reader.poll(timeout=1)


def test_a_backup_carries_the_positions_of_groups(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path / 'bus'}") as bus:
        with bus.publisher("orders") as publisher:
            publisher.publish_many([b"0", b"1"])
        with bus.subscriber("orders", group="g", initial="earliest") as member:
            assert member.poll(timeout=5)
            member.confirm(sync=True)
    backup(tmp_path / "bus", tmp_path / "copy")
    with lockstep.connect(f"lmdb:{tmp_path / 'copy'}") as bus:
        [progress] = bus.groups.describe("g").streams
        assert progress.lag == 0


def test_what_can_not_be_copied_is_refused(tmp_path):
    with pytest.raises(StoreNotFound):
        backup(tmp_path / "none", tmp_path / "copy")
    with lockstep.connect(f"lmdb:{tmp_path / 'bus'}"), pytest.raises(IllegalState, match="has it open"):
        backup(tmp_path / "bus", tmp_path / "copy")
    with pytest.raises(StoreNotFound, match="missing does not exist"):
        backup(tmp_path / "bus", tmp_path / "missing" / "copy")
    with pytest.raises(NotAStore, match="a new or an empty folder"):
        backup(tmp_path / "bus", tmp_path)
