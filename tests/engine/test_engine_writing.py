"""Files appear when they are complete; devices, pipes and links stay what they are."""

from __future__ import annotations

import os
import threading

import pytest

from lockstep.engine.data.trades import write_trades
from lockstep.engine.errors import FileUnwritable
from lockstep.engine.events.atomic_files import new_file, unwritable
from lockstep.errors import PathMissing


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, data=b"new", **more):
    with new_file(path, **more) as file:
        file.write(data)


def test_a_file_is_there_when_it_is_complete(tmp_path):
    with new_file(tmp_path / "a", sync=True) as file:
        file.write(b"new")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_a_failure_leaves_the_older_file_and_nothing_else(tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def fail():
        with new_file(tmp_path / "a") as file:
            file.write(b"new")
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    with new_file(tmp_path / "a") as first, new_file(tmp_path / "a") as second:
        first.write(b"first")
        second.write(b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert names(tmp_path) == ["a"]


def test_a_link_stays_a_link_and_its_file_is_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("folder/real")
    (tmp_path / "dangling").symlink_to("folder/later")
    write(tmp_path / "link")
    write(tmp_path / "dangling", b"late")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "real").read_bytes() == b"new"
    assert (tmp_path / "folder" / "later").read_bytes() == b"late"
    assert names(tmp_path / "folder") == ["later", "real"]


@pytest.mark.parametrize("how", [write, lambda path: write_trades(path, 1, seed=1)])
@pytest.mark.parametrize("name", ["pipe", "link"])
def test_a_pipe_is_written_to_and_stays(tmp_path, how, name):
    # Given a pipe with a reader, and a link to it
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to("pipe")
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    # When it is written to
    how(tmp_path / name)
    # Then the pipe is one still, and the reader has it all
    assert pipe.is_fifo()
    reader.join()
    assert got[0]
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path) == ["link", "pipe"]


def test_who_may_read_a_file_stays_as_it_was(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o640)
    write(tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["", "none/a"])
def test_what_can_not_be_written_is_said_in_words(tmp_path, name):
    with pytest.raises(PathMissing, match="can't be used"):
        write(tmp_path / name)


def test_an_error_while_writing_is_said_in_words(tmp_path):
    def fail():
        with unwritable(tmp_path / "a"), new_file(tmp_path / "a"):
            raise OSError(28, "No space left on device")

    with pytest.raises(FileUnwritable, match=r"No space left on device"):
        fail()
    assert names(tmp_path) == []
