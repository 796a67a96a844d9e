from __future__ import annotations

import os
import select
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.log import inotify
from lockstep.log.config import StreamConfig
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.lmdb import notify
from lockstep.log.lmdb.notify import FileNotifier, InotifyWaiter, make_notify_file

INFO = LogInfo("orders", 1, "abc", StreamConfig(), 0)


class Named:
    def __init__(self, identity):
        self.identity = identity


def is_readable(waiter, seconds=0.0):
    return bool(select.select([waiter.fileno()], [], [], seconds)[0])


@pytest.fixture
def ringing(tmp_path):
    notify = FileNotifier(tmp_path / "bells")
    yield notify
    notify.close()


@pytest.fixture
def waiter(ringing):
    waiter = ringing.waiter()
    yield waiter
    waiter.close()


def test_a_ring_wakes_who_watches(ringing, waiter):
    waiter.watch(Named("abc"))
    assert not is_readable(waiter)
    ringing.notify(INFO)
    assert is_readable(waiter, 10)
    waiter.wait(10)
    assert not is_readable(waiter)


def test_a_ring_wakes_nobody_else(ringing, waiter):
    waiter.watch(Named("other"))
    ringing.notify(INFO)
    assert not is_readable(waiter)
    waiter.watch(Named("abc"))
    waiter.unwatch(Named("abc"))
    ringing.notify(INFO)
    waiter.wait(0)  # taking a watch away may itself be an event
    ringing.notify(INFO)
    assert not is_readable(waiter)


def test_many_rings_are_one_wake_up(ringing, waiter):
    waiter.watch(Named("abc"))
    for _ in range(1000):
        ringing.notify(INFO)
    waiter.wait(10)
    assert not is_readable(waiter)


def test_a_bell_that_can_not_be_rung_fails_nobody(ringing, tmp_path, caplog):
    (tmp_path / "bells").write_text("in the way")
    ringing.notify(INFO)
    assert [record.action for record in caplog.records] == ["bell_failed"]


def test_ringing_leaves_no_descriptors_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        notify = FileNotifier(tmp_path / "bells")
        waiter = notify.waiter()
        waiter.watch(Named("abc"))
        notify.notify(INFO)
        waiter.close()
        waiter.close()
        notify.close()
        notify.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_bell_holds_one_byte(tmp_path):
    path = make_notify_file(tmp_path / "bells", "abc")
    assert path == make_notify_file(tmp_path / "bells", "abc")
    assert path.read_bytes() == b"\n"


def test_a_bell_left_empty_is_filled_and_stays_the_same_file(ringing, waiter, tmp_path):
    bell = tmp_path / "bells" / "abc"
    bell.parent.mkdir()
    bell.touch()
    number = bell.stat().st_ino
    waiter.watch(Named("abc"))
    assert (bell.read_bytes(), bell.stat().st_ino) == (b"\n", number)
    bell.write_bytes(b"")
    waiter.wait(0)
    ringing.notify(INFO)
    assert is_readable(waiter, 10)


def test_a_bell_is_never_seen_empty(tmp_path, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    for call in ("write", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, die)
            with pytest.raises(KeyboardInterrupt):
                make_notify_file(tmp_path, "abc")
        assert list(tmp_path.iterdir()) == []


def test_who_comes_second_takes_the_first_ones_bell(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda _: False)
    first = make_notify_file(tmp_path, "abc").stat().st_ino
    assert make_notify_file(tmp_path, "abc").stat().st_ino == first
    assert [path.name for path in tmp_path.iterdir()] == ["abc"]


def test_the_bell_of_a_deleted_log_goes(ringing, tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    path = make_notify_file(tmp_path / "bells", "abc")
    ringing.notify(INFO)
    for _ in range(2):
        ringing.forget(INFO)
        assert not path.exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_few_bells_are_kept_open(ringing, tmp_path, monkeypatch):
    monkeypatch.setattr(notify, "_OPEN_FILES_MAX", 3)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(10):
        make_notify_file(tmp_path / "bells", f"log{number}")
        ringing.notify(replace(INFO, identity=f"log{number}"))
        ringing.notify(replace(INFO, identity="log0"))
    assert list(ringing._open) == ["log8", "log9", "log0"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 3


def test_a_waiter_is_not_closed_while_it_is_woken(waiter, monkeypatch):
    closer = threading.Thread(target=waiter.close)
    write, seen = os.eventfd_write, []

    def write_late(descriptor, value):
        monkeypatch.undo()
        closer.start()
        closer.join(0.05)
        seen.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        write(descriptor, value)

    monkeypatch.setattr(os, "eventfd_write", write_late)
    waiter.wake()
    closer.join(30)
    assert not closer.is_alive()
    assert seen == ["anon_inode:[eventfd]"]
    waiter.wake()


def test_a_closed_waiter_touches_no_descriptor(waiter, tmp_path):
    waiter.watch(Named("abc"))
    waiter.close()
    waiter.watch(Named("other"))
    waiter.unwatch(Named("abc"))
    waiter.wait(3600)
    assert [path.name for path in (tmp_path / "bells").iterdir()] == ["abc"]


def test_without_inotify_waits_are_short(tmp_path, monkeypatch):
    monkeypatch.setattr(inotify, "_inotify_init", lambda: None)
    waiter = InotifyWaiter(tmp_path / "bells")
    waiter.watch(Named("abc"))
    waiter.unwatch(Named("abc"))
    waiter.wait(3600)  # looks again after a short pause; a wait of an hour would end this test
    waiter.wake()
    assert is_readable(waiter)
    waiter.close()
