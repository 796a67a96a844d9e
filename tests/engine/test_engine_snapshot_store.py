"""The store of persisted snapshots: whole or refused, whoever writes, prunes, is killed or flips a byte."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import msgpack
import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from local_engine import LocalEngine
from run_worlds import sums_graph, trade
from snapshot_worlds import OURS, PAGES, file_of, head, numbers, put, reasons
from test_engine_docs import SNAPSHOT as PAGE
from test_engine_docs import section, table

from lockstep.engine.errors import SnapshotRefused
from lockstep.engine.runtime.snapshots import format as snapshot_format
from lockstep.engine.runtime.snapshots.format import HEAD, seal
from lockstep.engine.runtime.snapshots.store import SnapshotInfo, SnapshotStore, snapshot_name


@pytest.fixture
def store(tmp_path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "kept", OURS)


# Written and read


def test_a_snapshot_comes_back_as_it_was(store):
    name = put(store, 17, shards=2, block=40)
    (info,) = store.complete()
    sizes = sum(path.stat().st_size for path in (store.folder / name).iterdir())
    assert info == SnapshotInfo(
        name="00000000000000000017-x", number=17, block=40, fingerprint="f", belongs=OURS, shards=2, bytes=sizes,
        path=store.folder / name, made_ns=info.made_ns,
    )  # fmt: skip
    assert info.made_ns > 0
    assert store.refused() == []
    for shard in range(2):
        assert store.load(info, shard) == {HEAD: head(17, block=40), **PAGES}


def test_without_pages_and_with_empty_ones(store):
    store.write(name=snapshot_name(1, "x"), shard=0, shards=1, head=head(1), pages={})
    store.write(name=snapshot_name(2, "x"), shard=0, shards=1, head=head(2), pages={"a": b"", "b": b"x"})
    one, two = store.complete()
    assert store.load(one, 0) == {HEAD: head(1)}
    assert store.load(two, 0) == {HEAD: head(2), "a": b"", "b": b"x"}


def test_where_nothing_was_written_there_is_nothing(store):
    assert (store.complete(), store.refused(), store.newest("f", 1)) == ([], [], None)
    store.prune()
    assert not store.folder.exists()


def test_files_and_folders_are_for_their_owner_alone(store):
    before = os.umask(0)
    try:
        put(store, 1)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (store.folder, *sorted(store.folder.rglob("*")))]
    assert modes == [0o700, 0o700, 0o600]


def test_the_same_shard_written_twice_is_there_once(store):
    put(store, 1)
    put(store, 1)
    assert numbers(store) == [1]
    assert len(list((store.folder / snapshot_name(1, "x")).iterdir())) == 1


def test_a_snapshot_counts_when_all_its_shards_are_there(store):
    put(store, 1, shards=3, only=2)
    put(store, 1, shards=3, only=0)
    assert numbers(store) == []
    assert reasons(store) == ["1 of 3 shards are missing, the first is 1"]
    put(store, 1, shards=3, only=1)
    assert numbers(store) == [1]
    assert reasons(store) == []


def test_engines_that_divide_differently_do_not_disturb_each_other(store):
    put(store, 5, shards=1)
    put(store, 5, shards=2)
    put(store, 5, shards=3, only=0)
    assert [info.shards for info in store.complete()] == [1, 2]
    assert store.newest("f", 2).shards == 2
    assert store.newest("f", 3) is None


def test_the_newest_that_fits_is_chosen(store, caplog):
    for number in (3, 20, 100):
        put(store, number)
    put(store, 200, fingerprint="other")
    assert store.newest("f", 1).number == 100
    assert store.newest("f", 1, upto=100).number == 100
    assert store.newest("f", 1, upto=99).number == 20
    assert store.newest("f", 1, upto=2) is None
    assert store.newest("other", 1).number == 200
    assert store.newest("third", 1) is None
    assert store.newest("f", 2) is None
    assert reasons(store) == []
    assert reasons(store, fingerprint="f") == ["it is of another model, other"]


def test_one_is_found_by_its_name_and_only_if_it_is_whole(store):
    names = [put(store, number, tag="a.b-c_d", shards=2) for number in (1, 2)]
    put(store, 2, tag="a.b-c_d", shards=1)
    assert [store.find(name, 2) for name in names] == [info for info in store.complete() if info.shards == 2]
    file_of(store, 1, 1, 2, "a.b-c_d").write_bytes(b"")
    for name, shards in ((names[0], 2), (names[0], 1), (names[1], 3), ("../kept", 1), (snapshot_name(3, "x"), 1)):
        with pytest.raises(SnapshotRefused):
            store.find(name, shards)


def test_an_engine_that_starts_from_it_goes_on_as_if_nothing_had_been(tmp_path):
    engines = [LocalEngine(sums_graph(), frozenset({"q/sums"}), tmp_path / name) for name in ("one", "two")]
    one, two = engines

    def run(engine: LocalEngine, first: int) -> None:
        engine.publishers["q/in"].publish([trade(number) for number in range(first, first + 3)])
        engine.settle()
        for _ in range(2):  # the second stores what the first published
            engine.run_batch(engine.sequencer.position.number)

    run(one, 1)
    run(two, 1)
    store, kept = SnapshotStore(tmp_path / "kept", OURS), dict(two.stored[0])
    store.write(name=snapshot_name(two.committed, "x"), shard=0, shards=1, head=kept.pop(HEAD), pages=kept)
    (info,) = store.complete()
    assert (info.number, info.fingerprint) == (two.committed, two.graph.fingerprint)
    two.stored[0] = store.load(info, 0)
    two.restart()
    run(one, 4)
    run(two, 4)
    assert two.out("q/sums") == one.out("q/sums")
    assert two.workers[0].position.number > info.number


# Broken


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_byte_flipped_and_any_cut_is_refused_and_the_older_one_is_used(data):
    with tempfile.TemporaryDirectory() as folder:
        store = SnapshotStore(Path(folder), OURS)
        put(store, 1, shards=2)
        put(store, 2, shards=2)
        path = file_of(store, 2, data.draw(st.integers(0, 1)), 2)
        content = path.read_bytes()
        at = data.draw(st.integers(0, len(content) - 1))
        bit = data.draw(st.integers(0, 8))
        if bit == 8:
            path.write_bytes(content[:at])
        else:
            path.write_bytes(content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :])
        assert numbers(store) == [1]
        assert store.newest("f", 2).number == 1
        ((where, reason),) = store.refused()
        assert where.name == snapshot_name(2, "x")
        assert path.name in reason
        store.prune(keep=1)
        assert path.exists()
        assert numbers(store) == [1]


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=40))
def test_bytes_behind_the_end_are_refused(extra):
    with tempfile.TemporaryDirectory() as folder:
        store = SnapshotStore(Path(folder), OURS)
        put(store, 1)
        with file_of(store, 1).open("ab") as file:
            file.write(extra)
        assert numbers(store) == []


def resealed(content: bytes, **changes) -> bytes:
    """The same file with another index, and with a checksum that fits."""
    *_, size = snapshot_format.FIXED.unpack_from(content)
    start, end = snapshot_format.FIXED.size, snapshot_format.FIXED.size + size
    index = msgpack.packb({**msgpack.unpackb(content[start:end]), **changes})
    fixed = snapshot_format.FIXED.pack(snapshot_format.MAGIC, snapshot_format.FILE_VERSION, 0, len(index))
    return summed(fixed + index + content[end:-4])


def summed(body: bytes) -> bytes:
    return body + struct.pack("<I", crc32c(body))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": snapshot_name(9, "x")}, "it was written as shard 0 of 1 of 00000000000000000009-x"),
        ({"shard": 1, "shards": 2}, "it was written as shard 1 of 2 of"),
        ({"belongs": "local.other 77"}, "it belongs to local.other 77, and this is local.trades 5f"),
        ({"belongs": ""}, "it belongs to nobody, and this is"),
        ({"head": 10**6}, "its index does not fit its size"),
        ({"pages": []}, "its index does not fit its size"),
        ({"pages": [["model", -1]]}, "its index can't be read"),
        ({"pages": 7}, "its index can't be read"),
        ({"head": "long"}, "its index can't be read"),
        ({"more": 1}, "its index can't be read"),
    ],
)
def test_an_index_that_says_something_else_is_refused(store, changes, reason):
    put(store, 1)
    path = file_of(store, 1)
    path.write_bytes(resealed(path.read_bytes(), **changes))
    assert numbers(store) == []
    assert [f"{path.name}: {reason}" in found for found in reasons(store)] == [True]
    assert store.newest("f", 1) is None


def test_a_file_of_a_newer_version_and_one_of_something_else_are_told_from_damage(store):
    for number, (at, new) in enumerate([(4, b"\x02"), (0, b"X")], 1):
        put(store, number)
        body = bytearray(file_of(store, number).read_bytes()[:-4])
        body[at : at + 1] = new
        file_of(store, number).write_bytes(summed(bytes(body)))
    told = [reason.partition(": ")[2] for reason in reasons(store)]
    assert told == ["it has format 2, and this version reads 1", "it is not the file of a snapshot"]


@pytest.mark.parametrize(
    "page", [seal(b"\xc1"), seal(msgpack.packb(7)), seal(msgpack.packb({"fingerprint": "f"})), b"x"]
)
def test_a_head_that_is_none_is_refused(store, page):
    with pytest.raises(SnapshotRefused):
        store.write(name=snapshot_name(1, "x"), shard=0, shards=1, head=page, pages={})
    put(store, 1)
    path = file_of(store, 1)
    content = path.read_bytes()
    body = content[:-4].replace(head(1), page + bytes(len(head(1)) - len(page)) if len(page) < len(head(1)) else page)
    path.write_bytes(summed(body))
    assert numbers(store) == []


def test_shards_of_different_moments_are_no_snapshot(store):
    for changes in ({"digest": "e"}, {"block": 11}, {"fingerprint": "g"}):
        put(store, 1, shards=2, only=0)
        put(store, 1, shards=2, only=1, **changes)
        assert reasons(store) == ["its shards are not of one moment"]
    put(store, 1, shards=2, only=1)
    assert numbers(store) == [1]


def test_a_shard_in_the_place_of_another_is_refused(store):
    put(store, 1, shards=2)
    file_of(store, 1, 1, 2).write_bytes(file_of(store, 1, 0, 2).read_bytes())
    assert numbers(store) == []


def test_a_renamed_snapshot_is_refused(store):
    put(store, 1)
    (store.folder / snapshot_name(1, "x")).rename(store.folder / snapshot_name(99, "x"))
    (store.folder / "lost+found").mkdir()
    (store.folder / snapshot_name(3, "y")).write_bytes(b"a file")
    assert numbers(store) == []
    strange = "it is not a folder with the name of a snapshot"
    renamed = f"00000-of-00001.snapshot: it was written as shard 0 of 1 of {snapshot_name(1, 'x')}"
    assert reasons(store) == [strange, strange, renamed]


def test_what_is_refused_is_logged_with_the_reason_when_it_would_have_been_chosen(store, caplog):
    put(store, 1)
    put(store, 2)
    file_of(store, 2).write_bytes(b"")
    with caplog.at_level(logging.WARNING, logger="lockstep"):
        assert store.newest("f", 1).number == 1
    (record,) = caplog.records
    assert record.action == "snapshot_refused"
    assert "too short" in record.reason


def test_snapshots_of_others_in_the_same_folder_are_neither_used_nor_touched(store):
    other = SnapshotStore(store.folder, "local.quotes 8a")
    for number in (1, 2, 3):
        put(store, number, tag="ours")
        put(other, 10 * number, tag="theirs")
    assert store.newest("f", 1).number == 3
    assert [reason.partition(": ")[2] for reason in reasons(store)] == [
        "it belongs to local.quotes 8a, and this is local.trades 5f"
    ] * 3
    store.prune(keep=1)
    assert (numbers(store), numbers(other)) == ([3], [10, 20, 30])
    everybody = SnapshotStore(store.folder)
    assert numbers(everybody) == [3, 10, 20, 30]
    everybody.prune(keep=2)
    assert numbers(everybody) == [3, 20, 30]


def test_one_that_is_gone_or_replaced_since_it_was_chosen_is_not_loaded(store):
    put(store, 1)
    (info,) = store.complete()
    other = dataclasses.replace(info, fingerprint="g")
    with pytest.raises(SnapshotRefused, match="it was replaced by another"):
        store.load(other, 0)
    file_of(store, 1).write_bytes(file_of(store, 1).read_bytes()[:-1])
    with pytest.raises(SnapshotRefused, match="its checksum does not match"):
        store.load(info, 0)
    file_of(store, 1).unlink()
    with pytest.raises(SnapshotRefused, match="No such file"):
        store.load(info, 0)


# Killed


class _Failing(dict[str, bytes]):
    """Pages during whose writing the process ends."""

    def values(self):  # type: ignore[override]
        for number, page in enumerate(super().values()):
            if number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            yield page


def write_and_die(folder: str, where: str) -> None:
    """The child process."""
    store, pages = SnapshotStore(Path(folder), OURS), {f"q/w:{number}": bytes(8 << 20) for number in range(5)}
    if where == "amid pages":
        pages = _Failing(pages)
    else:
        call = {"before the rename": "fsync", "after the rename": "replace"}[where]
        real = getattr(os, call)

        def die(*args: object) -> None:
            if call == "replace":
                real(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        if call == "fsync":
            (store.folder / snapshot_name(2, "x")).mkdir()  # so that the first one is of the file
        setattr(os, call, die)
    store.write(name=snapshot_name(2, "x"), shard=0, shards=1, head=head(2), pages=pages)


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.parametrize("where", ["amid pages", "before the rename", "after the rename"])
def test_a_writer_killed_at_any_moment_leaves_a_store_that_is_fine(store, where):
    put(store, 1)
    child = subprocess.run([sys.executable, __file__, str(store.folder), where], check=False, timeout=100)
    assert child.returncode == -signal.SIGKILL
    folder = store.folder / snapshot_name(2, "x")
    (left,) = folder.iterdir()
    if where == "after the rename":
        assert numbers(store) == [1, 2]
        return
    # Then it is not taken for one, and what it left is large and goes
    assert left.stat().st_size > 16 << 20
    assert (numbers(store), store.newest("f", 1).number) == ([1], 1)
    assert reasons(store) == ["it holds no shards"]
    store.prune()
    assert list(folder.iterdir()) == []
    # And the same one can be written again
    put(store, 2)
    assert numbers(store) == [1, 2]


# The page


def test_the_page_says_what_is_in_a_file():
    page = section(PAGE, "Persisted snapshots")
    assert f"Version {snapshot_format.FILE_VERSION}" in page
    assert f"`{snapshot_format.MAGIC.decode()}`" in page
    assert "FOLDER/00000000000000000017-ID/00000-of-00002.snapshot" in page
    sizes = [(int(at), int(size)) for at, size, *_ in table(PAGE, "The file of a shard") if size.isdigit()]
    assert sizes == [(0, 4), (4, 2), (6, 2), (8, 4)]
    assert sum(size for _, size in sizes) == snapshot_format.FIXED.size
    fields = [name.strip("`") for name, *_ in table(PAGE, "The index of a file")]
    assert fields == [field.name for field in dataclasses.fields(snapshot_format.Index)]


if __name__ == "__main__":
    write_and_die(*sys.argv[1:])
