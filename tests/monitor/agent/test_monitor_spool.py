"""The spool on disk: order, restarts, damage, bounds, a disk that takes no more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lockstep.errors import BadArgument
from lockstep.monitor.agent.errors import SpoolBusy
from lockstep.monitor.agent.spool import FileSpool, MemorySpool

MANY = 1 << 30


def texts(*numbers):
    return [b"message %d" % number for number in numbers]


@pytest.fixture
def spool(tmp_path):
    made = FileSpool(tmp_path / "spool", limit_bytes=1 << 16)
    yield made
    made.close()


def again(spool, tmp_path, **options):
    spool.close()
    return FileSpool(tmp_path / "spool", **{"limit_bytes": 1 << 16, **options})


def drained(spool):
    found = []
    while part := spool.first(7, MANY):
        found += part
        spool.remove(len(part))
    return found


def test_messages_come_in_order_and_stay_until_removed(spool):
    for text in texts(1, 2, 3):
        spool.append(text)
    assert spool.first(2, MANY) == texts(1, 2)
    assert spool.first(10, MANY) == texts(1, 2, 3)
    spool.remove(0)
    assert len(spool) == 3
    spool.first(3, MANY)
    spool.remove(2)
    assert spool.first(10, MANY) == texts(3)


def test_at_least_one_message_comes_however_large(spool):
    spool.append(b"x" * 5000)
    spool.append(b"y")
    assert spool.first(10, 100) == [b"x" * 5000]


def test_another_start_goes_on_where_the_last_one_was(spool, tmp_path):
    for text in texts(1, 2, 3):
        spool.append(text)
    spool.remove(len(spool.first(1, MANY)))
    next_one = again(spool, tmp_path)
    next_one.append(b"message 4")
    assert drained(next_one) == texts(2, 3, 4)
    last = again(next_one, tmp_path)
    assert len(last) == 0
    last.close()


def test_two_agents_can_not_have_one_spool(spool, tmp_path):
    with pytest.raises(SpoolBusy):
        FileSpool(tmp_path / "spool")


def test_an_entry_that_was_not_written_whole_is_cut_off(spool, tmp_path):
    for text in texts(1, 2):
        spool.append(text)
    [path] = (tmp_path / "spool").glob("*.spool")
    spool.close()
    os.truncate(path, path.stat().st_size - 3)
    next_one = FileSpool(tmp_path / "spool", limit_bytes=1 << 16)
    next_one.append(b"message 3")
    assert drained(next_one) == texts(1, 3)
    next_one.close()


def test_damage_ends_a_file_and_later_files_are_sent(spool, tmp_path):
    for number in range(600):
        spool.append(b"message %d " % number + b"x" * 50)
    paths = sorted((tmp_path / "spool").glob("*.spool"))
    data = bytearray(paths[0].read_bytes())
    data[len(data) // 2] ^= 1
    paths[0].write_bytes(data)
    found = drained(spool)
    assert spool.dropped == 600 - len(found) > 0
    assert found[-1].startswith(b"message 599")
    spool.append(b"more")
    assert drained(spool) == [b"more"]


def test_damage_in_the_file_that_is_written_to(spool, tmp_path):
    for text in texts(1, 2):
        spool.append(text)
    [path] = (tmp_path / "spool").glob("*.spool")
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    assert spool.first(10, MANY) == []
    spool.append(b"message 3")
    assert drained(spool) == texts(3)
    assert (spool.dropped, len(spool)) == (2, 0)


def test_the_oldest_go_when_it_is_full(spool, tmp_path):
    for number in range(3000):
        spool.append(b"message %d " % number + b"x" * 50)
    assert spool.dropped > 0
    found = drained(spool)
    assert len(found) == 3000 - spool.dropped
    assert found[-1].startswith(b"message 2999")
    assert sum(path.stat().st_size for path in (tmp_path / "spool").iterdir()) < 1 << 16


def test_files_that_were_dropped_while_they_were_sent(spool):
    for number in range(800):
        spool.append(b"message %d " % number + b"x" * 50)
    part = spool.first(10, MANY)
    for number in range(800, 3000):
        spool.append(b"message %d " % number + b"x" * 50)
    spool.remove(len(part))
    found = drained(spool)
    assert found[-1].startswith(b"message 2999")
    assert len(found) + spool.dropped == 3000


def test_files_are_removed_when_they_are_sent(spool, tmp_path):
    for _ in range(20):
        for number in range(200):
            spool.append(b"message %d " % number + b"x" * 50)
        drained(spool)
    assert len(list((tmp_path / "spool").glob("*.spool"))) <= 1
    assert spool.dropped == 0


def test_numbers_of_files_are_not_used_again_by_a_later_start(spool, tmp_path):
    for number in range(600):
        spool.append(b"message %d " % number + b"x" * 50)
    drained(spool)
    next_one = again(spool, tmp_path)
    next_one.append(b"one")
    last = again(next_one, tmp_path)
    assert drained(last) == [b"one"]
    last.close()


def test_a_note_of_what_was_sent_that_is_lost_sends_again(spool, tmp_path):
    for text in texts(1, 2):
        spool.append(text)
    spool.remove(len(spool.first(1, MANY)))
    (tmp_path / "spool" / "sent").write_text("rubbish")
    next_one = again(spool, tmp_path)
    assert drained(next_one) == texts(1, 2)
    next_one.close()


def test_a_disk_that_is_full_keeps_messages_in_memory_behind_those_on_disk(spool, monkeypatch):
    spool.append(b"message 1")
    real = os.write
    full = [True]

    def write(file, data):
        if full[0]:
            real(file, bytes(data)[:5])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    monkeypatch.setattr("lockstep.monitor.agent.spool.os.write", write)
    spool.append(b"message 2")
    full[0] = False
    spool.append(b"message 3")
    assert len(spool) == 3
    assert drained(spool) == texts(1, 2, 3)
    spool.append(b"message 4")
    assert drained(spool) == texts(4)


def test_a_spool_that_would_hold_nothing_is_refused(tmp_path):
    with pytest.raises(BadArgument):
        FileSpool(tmp_path, limit_bytes=10)


def test_memory_drops_the_oldest():
    spool = MemorySpool(3)
    for text in texts(1, 2, 3):
        spool.append(text)
    part = spool.first(2, MANY)
    spool.append(b"message 4")
    spool.remove(len(part))
    assert (drained(spool), spool.dropped) == (texts(3, 4), 1)


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 10), st.integers(0, 100))
def test_whatever_is_kept_comes_back(tmp_path_factory, messages, count, size):
    spool = FileSpool(tmp_path_factory.mktemp("s"), limit_bytes=1 << 16)
    for message in messages:
        spool.append(message)
    found = []
    while part := spool.first(count, size):
        found += part
        spool.remove(len(part))
    spool.close()
    assert found == messages


class SpoolMachine(RuleBasedStateMachine):
    """The spool against a list, with restarts and kills (which write nothing) at any point."""

    @initialize(folder=st.uuids())
    def begin(self, folder):
        import tempfile

        self.folder = Path(tempfile.mkdtemp()) / str(folder)
        self.spool = FileSpool(self.folder, limit_bytes=1 << 20)
        self.kept, self.turn = [], 0

    @rule(size=st.integers(0, 40_000))
    def append(self, size):
        self.turn += 1
        message = b"%d " % self.turn + b"x" * size
        if sum(map(len, self.kept)) + size < 1 << 19:
            self.spool.append(message)
            self.kept.append(message)

    @precondition(lambda self: self.kept)
    @rule(count=st.integers(1, 5), removes=st.booleans())
    def read(self, count, removes):
        part = self.spool.first(count, MANY)
        assert part == self.kept[: len(part)]
        assert part
        if removes:
            self.spool.remove(len(part))
            del self.kept[: len(part)]

    @rule()
    def start_again(self):
        self.spool.close()
        self.spool = FileSpool(self.folder, limit_bytes=1 << 20)
        assert len(self.spool) == len(self.kept)

    def teardown(self):
        import shutil

        if hasattr(self, "spool"):
            self.spool.close()
            shutil.rmtree(self.folder.parent)


TestSpoolMachine = SpoolMachine.TestCase
