"""Every history runs the same suite; see lockstep.testing.contract."""

from __future__ import annotations

import pytest

from lockstep.log.history import HeapHistory, NullHistory
from lockstep.log.lmdb.backend import LmdbHistory
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import HistoryContract, Producer


class TestHeapHistory(HistoryContract):
    @pytest.fixture
    def history(self):
        return HeapHistory()


class TestLmdbHistory(HistoryContract):
    @pytest.fixture
    def history(self, tmp_path):
        history = LmdbHistory(tmp_path / "archive", "orders", ThreadRuntime())
        yield history
        history.close()


class TestLmdbHistoryBesideOthers(TestLmdbHistory):
    """The histories of other streams in the same folder do not shine through."""

    @pytest.fixture
    def history(self, tmp_path):
        names = ("before", "orders", "zebra")
        before, history, behind = [LmdbHistory(tmp_path / "archive", name, ThreadRuntime()) for name in names]
        for other in (before, behind):
            other.store(0, 1, Producer(other.__class__.__name__).batch(b"x").seal(1))
            other.store(5000, 1, Producer("y").batch(b"y").seal(1))
        yield history
        for one in (before, history, behind):
            assert one is history or one.next_offset() == 5001
            one.close()


def test_a_lmdb_history_is_there_after_it_was_closed(tmp_path):
    data = Producer().batch(b"a", b"b").seal(1)
    first = LmdbHistory(tmp_path / "archive", "orders", ThreadRuntime())
    first.store(5, 2, data)
    first.close()
    again = LmdbHistory(tmp_path / "archive", "orders", ThreadRuntime())
    assert (again.next_offset(), again.read(0).data) == (7, data)
    again.close()


def test_a_null_history_keeps_nothing():
    history = NullHistory()
    history.store(0, 1, Producer().batch(b"a").seal(1))
    assert history.read(0) is None
    assert history.next_offset() == 0
    history.close()
