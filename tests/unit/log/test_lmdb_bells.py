from __future__ import annotations

import select
from pathlib import Path

import pytest

from lockstep.log.config import StreamConfig
from lockstep.log.embedded.catalogue import LogInfo
from lockstep.log.lmdb import bells
from lockstep.log.lmdb.bells import FileBells, InotifyWaiter, make_bell

INFO = LogInfo("orders", 1, "abc", StreamConfig(), 0)


class Named:
    def __init__(self, identity):
        self.identity = identity


def is_readable(waiter, seconds=0.0):
    return bool(select.select([waiter.fileno()], [], [], seconds)[0])


@pytest.fixture
def ringing(tmp_path):
    bells = FileBells(tmp_path / "bells")
    yield bells
    bells.close()


@pytest.fixture
def waiter(ringing):
    waiter = ringing.waiter()
    yield waiter
    waiter.close()


def test_a_ring_wakes_who_watches(ringing, waiter):
    waiter.watch(Named("abc"))
    assert not is_readable(waiter)
    ringing.ring(INFO)
    assert is_readable(waiter, 10)
    waiter.wait(10)
    assert not is_readable(waiter)


def test_a_ring_wakes_nobody_else(ringing, waiter):
    waiter.watch(Named("other"))
    ringing.ring(INFO)
    assert not is_readable(waiter)
    waiter.watch(Named("abc"))
    waiter.unwatch(Named("abc"))
    ringing.ring(INFO)
    waiter.wait(0)  # taking a watch away may itself be an event
    ringing.ring(INFO)
    assert not is_readable(waiter)


def test_many_rings_are_one_wake_up(ringing, waiter):
    waiter.watch(Named("abc"))
    for _ in range(1000):
        ringing.ring(INFO)
    waiter.wait(10)
    assert not is_readable(waiter)


def test_a_bell_that_can_not_be_rung_fails_nobody(ringing, tmp_path, caplog):
    (tmp_path / "bells").write_text("in the way")
    ringing.ring(INFO)
    assert [record.action for record in caplog.records] == ["bell_failed"]


def test_ringing_leaves_no_descriptors_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        bells = FileBells(tmp_path / "bells")
        waiter = bells.waiter()
        waiter.watch(Named("abc"))
        bells.ring(INFO)
        waiter.close()
        waiter.close()
        bells.close()
        bells.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_bell_holds_one_byte(tmp_path):
    path = make_bell(tmp_path / "bells", "abc")
    assert path == make_bell(tmp_path / "bells", "abc")
    assert path.read_bytes() == b"\n"


def test_without_inotify_waits_are_short(tmp_path, monkeypatch):
    monkeypatch.setattr(bells, "_inotify_init", lambda: None)
    waiter = InotifyWaiter(tmp_path / "bells")
    waiter.watch(Named("abc"))
    waiter.unwatch(Named("abc"))
    waiter.wait(3600)  # looks again after a short pause; a wait of an hour would end this test
    waiter.wake()
    assert is_readable(waiter)
    waiter.close()
