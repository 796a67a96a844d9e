"""Folders and files that are not what they should be: named, refused, and left as they are."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from lmdb_child import Child

from lockstep.errors import BatchDamaged, FormatTooNew, NotAStore, StoreNotFound
from lockstep.log.batch import BatchView
from lockstep.log.config import StreamConfig
from lockstep.log.lmdb.environment import REGISTRY
from lockstep.log.lmdb.verify import verify
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer

pytestmark = [pytest.mark.acceptance]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "bus"
    bus = open_bus(f"lmdb:{folder}?map_bytes={1 << 26}", ThreadRuntime())
    log, producer = bus.create("orders", StreamConfig(capacity=None)), Producer()
    for number in range(10):
        log.append([producer.batch(b"needle %d" % number * 500, b"second", b"third")])
    bus.close()
    return folder


def flip(folder, pattern, places):
    """Flip a byte in every copy of a value in the file, old pages included."""
    data = bytearray((folder / "data.mdb").read_bytes())
    at, flipped = data.find(pattern), 0
    while at >= 0:
        for place in places:
            data[at + place] ^= 0x40
        flipped += 1
        at = data.find(pattern, at + 1)
    assert flipped
    (folder / "data.mdb").write_bytes(data)


@pytest.mark.parametrize("offset", [15, 16, 17])
def test_flipped_bytes_in_a_value_are_reported_with_the_offset(folder, offset):
    flip(folder, b"needle 5" * 500, [100])
    bus = open_bus(f"lmdb:{folder}", ThreadRuntime())
    log = bus.open("orders")
    entry = log.read(offset, max_bytes=1)[0]
    with pytest.raises(BatchDamaged) as caught:
        BatchView(entry.base, entry.data, "orders")
    assert (caught.value.params["offset"], caught.value.params["stream"]) == (15, "orders")
    # The rest is readable, and the log goes on
    assert BatchView(18, log.read(18)[0].data, "orders").values()[0] == b"needle 6" * 500
    log.append([Producer("later").batch(b"x")])
    bus.close()
    assert [(fault.stream, fault.offset) for fault in verify(folder).faults] == [("orders", 15)]


@pytest.mark.parametrize("offset", [15, 16, 17])
def test_a_damaged_count_does_not_look_like_a_gap(folder, offset):
    data = bytearray((folder / "data.mdb").read_bytes())
    start = data.rfind(b"LS\x01", 0, data.find(b"needle 5"))
    assert data[start + 8] == 3
    data[start + 8] = 1
    (folder / "data.mdb").write_bytes(data)
    bus = open_bus(f"lmdb:{folder}", ThreadRuntime())
    entry = bus.open("orders").read(offset)[0]
    assert entry.base == 15
    with pytest.raises(BatchDamaged):
        BatchView(entry.base, entry.data, "orders")
    bus.close()


def test_a_data_file_that_is_not_lmdb(folder):
    (folder / "data.mdb").write_bytes(b"this is not a database " * 1000)
    with pytest.raises(NotAStore, match="bus is not a Lockstep store"):
        open_bus(f"lmdb:{folder}", ThreadRuntime())
    assert not REGISTRY.has(folder)


def test_a_file_a_foreign_folder_and_a_missing_parent(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "data.mdb").write_text("x")
    for name, error in (("file", NotAStore), ("foreign", NotAStore), ("missing/bus", StoreNotFound)):
        with pytest.raises(error):
            open_bus(f"lmdb:{tmp_path / name}", ThreadRuntime())
    assert (tmp_path / "foreign" / "data.mdb").read_text() == "x"
    assert not (tmp_path / "missing").exists()


def test_settings_of_a_newer_version(folder):
    stored = json.loads((folder / "lockstep.json").read_text())
    (folder / "lockstep.json").write_text(json.dumps(stored | {"format": 2}))
    with pytest.raises(FormatTooNew, match="Upgrade lockstep"):
        open_bus(f"lmdb:{folder}", ThreadRuntime())


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("closed", ["parent", "folder", "settings", "data", "new"])
def test_no_permission(closed):
    with tempfile.TemporaryDirectory() as name:
        parent = Path(name)
        folder = parent / "bus"
        if closed != "new":
            open_bus(f"lmdb:{folder}", ThreadRuntime()).close()
        open_folders = {"parent": (), "folder": (parent,), "new": (parent,)}.get(closed, (parent, folder))
        for one in open_folders:
            one.chmod(0o777 if closed in ("settings", "data") else 0o755)
        if closed == "data":
            for item in folder.glob("lockstep.json*"):
                item.chmod(0o666)
        with Child("open_as_nobody", f"lmdb:{folder}") as child:
            assert child.line() == "FORBIDDEN"
            assert child.end() == 0
