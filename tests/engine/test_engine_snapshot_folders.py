"""Where persisted snapshots may lie, and which of them are removed."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from snapshot_worlds import OURS, PAGES, file_of, head, make_old, numbers, put, reasons

from lockstep.engine.errors import SnapshotFolderUnusable
from lockstep.engine.runtime.snapshots import disk
from lockstep.engine.runtime.snapshots.format import HEAD
from lockstep.engine.runtime.snapshots.store import SnapshotStore, snapshot_name
from lockstep.errors import BadArgument


@pytest.fixture
def store(tmp_path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "kept", OURS)


# Names and places


@pytest.mark.parametrize("name", ["", ".", "..", "x", "../00000000000000000001-x", "00000000000000000001-../x"])
def test_no_name_leads_out_of_the_folder(store, name):
    with pytest.raises(BadArgument, match="name"):
        store.write(name=name, shard=0, shards=1, head=head(1), pages=PAGES)
    assert not store.folder.exists()


@pytest.mark.parametrize("tag", ["", "a/b", "../b", "a b", "ä", "x" * 65, "a\n"])
def test_an_id_must_fit_into_a_name(tag):
    with pytest.raises(BadArgument):
        snapshot_name(1, tag)


@pytest.mark.parametrize(
    "wrong", [{"name": snapshot_name(2, "x")}, {"shard": 1}, {"shard": -1}, {"shards": 0}, {"pages": {HEAD: b""}}]
)
def test_what_does_not_fit_together_is_not_written(store, wrong):
    right = {"name": snapshot_name(1, "x"), "shard": 0, "shards": 1, "head": head(1), "pages": PAGES}
    with pytest.raises(BadArgument):
        store.write(**(right | wrong))
    assert not store.folder.exists()


def test_a_folder_that_is_none_and_one_without_a_place_are_told(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    for folder, reason in [
        (tmp_path / "file", "it is not a folder"),
        (tmp_path / "file" / "below", "Not a directory"),
        (tmp_path / "missing" / "kept", "No such file or directory"),
        (tmp_path / "nowhere", "it is not a folder"),
    ]:
        store = SnapshotStore(folder)
        with pytest.raises(SnapshotFolderUnusable, match=reason):
            store.prepare()
        with pytest.raises(SnapshotFolderUnusable, match=reason):
            put(store, 1)
    with pytest.raises(SnapshotFolderUnusable, match="Not a directory"):
        SnapshotStore(tmp_path / "file").complete()
    with pytest.raises(SnapshotFolderUnusable):
        SnapshotStore(tmp_path / "nowhere").newest("f", 1)


def test_a_folder_is_made_and_left_empty_when_it_is_tried(store):
    store.prepare()
    store.prepare()
    assert list(store.folder.iterdir()) == []


def test_the_folder_may_be_a_link_to_one(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "kept").symlink_to(tmp_path / "disk")
    store = SnapshotStore(tmp_path / "kept")
    put(store, 1)
    assert numbers(store) == [1]


@contextmanager
def nobody() -> Iterator[None]:
    """Without the rights of root, for whom every folder is writable."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_not_be_written_is_told_and_nothing_is_changed():
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        store = SnapshotStore(Path(above) / "kept", OURS)
        put(store, 1)
        store.folder.chmod(0o555)
        with nobody():
            with pytest.raises(SnapshotFolderUnusable, match="Permission denied"):
                store.prepare()
            with pytest.raises(SnapshotFolderUnusable, match="Permission denied"):
                put(store, 2)
        assert numbers(store) == [1]
        store.folder.chmod(0o700)


def test_what_may_not_be_read_is_refused(store):
    put(store, 1)
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        shared = SnapshotStore(Path(above) / "kept", OURS)
        put(shared, 1)
        put(shared, 2)
        shared.folder.chmod(0o755)
        (shared.folder / snapshot_name(1, "x")).chmod(0o000)
        (shared.folder / snapshot_name(2, "x")).chmod(0o755)
        file_of(shared, 2).chmod(0o000)
        with nobody():
            assert reasons(shared) == ["it holds no shards", "00000-of-00001.snapshot: Permission denied"]
            shared.prune()
        (shared.folder / snapshot_name(1, "x")).chmod(0o700)
        shared.folder.chmod(0o700)


def test_a_full_disk_is_told_and_leaves_nothing_behind(store):
    put(store, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(SnapshotFolderUnusable, match="File too large"):
            store.write(name=snapshot_name(2, "x"), shard=0, shards=1, head=head(2), pages={"a": bytes(1 << 20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path for path in store.folder.rglob("*") if path.is_file()] == [file_of(store, 1)]
    assert numbers(store) == [1]


def test_a_link_in_the_place_of_a_file_is_neither_read_nor_written_through(store, tmp_path):
    put(store, 1)
    path, elsewhere = file_of(store, 1), tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    assert reasons(store) == [f"{path.name}: it is a symbolic link"]
    with pytest.raises(SnapshotFolderUnusable, match="is not a file"):
        put(store, 1)
    assert elsewhere.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_without_waiting(store, make):
    put(store, 1)
    file_of(store, 1).unlink()
    make(file_of(store, 1))
    assert reasons(store)[0] in [f"{file_of(store, 1).name}: {why}" for why in ("it is not a file", "Is a directory")]
    with pytest.raises(SnapshotFolderUnusable):
        put(store, 1)


def test_a_link_in_the_place_of_a_snapshot_is_refused(store, tmp_path):
    put(store, 1)
    (tmp_path / "elsewhere").mkdir()
    (store.folder / snapshot_name(2, "x")).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SnapshotFolderUnusable, match="it is a symbolic link"):
        put(store, 2)
    assert numbers(store) == [1]
    assert len(store.refused()) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


# Pruning


def test_the_newest_ones_are_kept(store):
    for number in range(1, 6):
        put(store, number, shards=2)
    store.prune()
    assert numbers(store) == [4, 5]
    assert sorted(path.name for path in store.folder.iterdir()) == [snapshot_name(4, "x"), snapshot_name(5, "x")]
    store.prune(keep=3)
    assert numbers(store) == [4, 5]


@pytest.mark.parametrize("keep", [0, -1])
def test_the_last_one_can_not_be_pruned(store, keep):
    put(store, 1)
    with pytest.raises(BadArgument, match="keep"):
        store.prune(keep)
    assert numbers(store) == [1]


def test_the_only_good_one_stays_whatever_lies_around_it_and_broken_ones_stay_too(store):
    for number in (1, 2, 3, 4):
        put(store, number)
    for number in (1, 3, 4):
        file_of(store, number).write_bytes(file_of(store, number).read_bytes()[:-9])
        make_old(file_of(store, number), file_of(store, number).parent)
    store.prune(keep=1)
    assert numbers(store) == [2]
    assert len(store.refused()) == 3


def test_one_that_was_never_finished_goes_when_it_is_old_and_a_newer_one_is_whole(store):
    for number in (1, 2, 3):
        put(store, number, shards=2, only=0)
    other = SnapshotStore(store.folder, "others")
    put(other, 1, tag="theirs", shards=2, only=0)
    file_of(store, 3, 0, 2).write_bytes(b"damaged")
    for number in (1, 3):
        make_old(file_of(store, number, 0, 2), file_of(store, number, 0, 2).parent)
    make_old(file_of(other, 1, 0, 2, "theirs"), file_of(other, 1, 0, 2, "theirs").parent)
    # Without a newer one nothing goes
    store.prune()
    assert len(store.refused()) == 4
    put(store, 9)
    store.prune()
    # Then those stay that are fresh, damaged, or somebody else's
    left = sorted(path.name for path in store.folder.iterdir())
    kept = [snapshot_name(1, "theirs"), *(snapshot_name(number, "x") for number in (2, 3, 9))]
    assert left == kept


def test_an_empty_folder_goes_when_it_is_old(store):
    put(store, 1)
    for number in (2, 3):
        (store.folder / snapshot_name(number, "x")).mkdir()
    make_old(store.folder / snapshot_name(2, "x"))
    store.prune()
    assert [path.name for path in sorted(store.folder.iterdir())] == [snapshot_name(1, "x"), snapshot_name(3, "x")]


def test_files_that_are_not_ours_stay_and_their_folder_with_them(store):
    for number in (1, 2):
        put(store, number)
    note = store.folder / snapshot_name(1, "x") / "note.txt"
    note.write_text("mine")
    store.prune(keep=1)
    assert note.read_text() == "mine"
    assert not file_of(store, 1).exists()


def test_what_dead_writers_left_is_removed_and_what_lives_is_not(store):
    put(store, 1)
    folder = store.folder / snapshot_name(1, "x")
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    here = socket.gethostname()
    parts = {
        "dead": folder / f".00000-of-00001~{here}~{gone.pid}~ab.part",
        "alive": folder / f".00000-of-00001~{here}~{os.getpid()}~ab.part",
        "elsewhere": folder / f".00000-of-00001~other.host-1~{gone.pid}~ab.part",
        "probe": store.folder / f".probe~{here}~{gone.pid}~ab.part",
        "not ours": folder / ".00000-of-00001.part",
    }
    for path in parts.values():
        path.write_bytes(b"x")
    store.prune()
    assert {name for name, path in parts.items() if path.exists()} == {"alive", "elsewhere", "not ours"}
    make_old(parts["elsewhere"], parts["alive"], parts["not ours"])
    store.prune()
    assert {name for name, path in parts.items() if path.exists()} == {"not ours"}
    assert numbers(store) == [1]


def test_several_engines_write_and_prune_at_once_and_there_is_always_one_to_start_from(tmp_path):
    first = SnapshotStore(tmp_path / "kept", OURS)
    put(first, 1)
    failed: list[BaseException] = []

    def work(odd: int) -> None:
        try:
            mine = SnapshotStore(tmp_path / "kept", OURS)
            for number in range(2, 40):
                put(mine, number, tag="same" if number % 3 == 0 else f"of{odd}")
                mine.prune()
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=work, args=(odd,)) for odd in range(2)]
    for thread in threads:
        thread.start()
    seen = 0
    while any(thread.is_alive() for thread in threads):
        info = first.newest("f", 1)
        if info is not None:
            assert info.number >= seen
            seen = info.number
    assert failed == []
    assert numbers(first)[-1] == 39
    assert first.refused() == []


@pytest.mark.parametrize("step", ["mkdir", "create", "replace", "sync"])
def test_a_folder_that_another_engine_prunes_while_it_is_written_to_is_made_again(store, monkeypatch, step):
    # Given another engine that removes the snapshot's folder, as it is empty or not needed any more, within the write
    store.prepare()
    folder = store.folder / snapshot_name(1, "same")
    removed: list[str] = []

    def prune(at: str, path: Path) -> None:
        if at == step and path == folder and not removed:
            removed.append(at)
            shutil.rmtree(folder)

    make, create, replace, sync = Path.mkdir, disk._create, Path.replace, disk.sync

    def mkdir(path: Path, *arguments, **named) -> None:
        make(path, *arguments, **named)
        if step == "mkdir" and path == folder and not removed:
            prune("mkdir", path)
            raise FileExistsError  # it was there, and is not any more

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(disk, "_create", lambda path: (prune("create", path.parent), create(path))[1])
    monkeypatch.setattr(Path, "replace", lambda path, to: (prune("replace", path.parent), replace(path, to))[1])
    monkeypatch.setattr(disk, "sync", lambda path: (prune("sync", path), sync(path))[1])
    # When it is written
    put(store, 1, tag="same")
    # Then it is there; if it was pruned when it was complete, it was not needed
    assert removed == [step]
    assert numbers(store) == ([] if step == "sync" else [1])


def test_a_folder_that_never_stays_is_told_and_not_tried_for_ever(store, monkeypatch):
    store.prepare()
    create = disk._create
    monkeypatch.setattr(disk, "_create", lambda path: (shutil.rmtree(path.parent), create(path))[1])
    with pytest.raises(SnapshotFolderUnusable, match="removed again and again"):
        put(store, 1)
