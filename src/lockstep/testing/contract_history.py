"""Histories: what was stored is read back, and what did not happen after all is replaced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstep.log.batch import BatchView
from lockstep.log.history import History
from lockstep.log.port import Entry
from lockstep.testing.contract_case import Producer


class HistoryContract:
    """What every History must do: subclass it and override the fixture `history`."""

    @pytest.fixture
    def history(self) -> Iterator[History]:
        """A history of the kind under test, with nothing in it; yours yields it and closes it."""
        message = "override the fixture 'history'"
        raise NotImplementedError(message)

    def test_a_new_history_is_empty(self, history: History) -> None:
        assert history.next_offset() == 0
        assert history.read(0) is None
        assert history.read(1000) is None

    def test_what_was_stored_is_read_back_byte_for_byte(self, history: History) -> None:
        stored = fill(history, (0, 2), (2, 1), (3, 4))
        for entry, offsets in zip(stored, ([0, 1], [2], [3, 4, 5, 6]), strict=True):
            for offset in offsets:
                assert history.read(offset) == entry
        assert history.next_offset() == 7

    def test_reading_behind_the_end_finds_nothing(self, history: History) -> None:
        fill(history, (0, 2))
        assert history.read(2) is None

    def test_reading_in_a_gap_finds_the_next_batch(self, history: History) -> None:
        _, behind = fill(history, (0, 2), (10, 2))
        for offset in (2, 5, 9, 10, 11):
            assert history.read(offset) == behind
        assert history.next_offset() == 12

    def test_a_history_may_begin_anywhere(self, history: History) -> None:
        [only] = fill(history, (1 << 40, 3))
        assert history.read(0) == only
        assert history.next_offset() == (1 << 40) + 3

    def test_storing_an_offset_again_replaces_it(self, history: History) -> None:
        first, _ = fill(history, (0, 2), (2, 2))
        [instead] = fill(history, (2, 3), name="other")
        assert history.read(0) == first
        assert history.read(2) == history.read(4) == instead
        assert history.next_offset() == 5

    def test_storing_an_offset_again_removes_everything_above(self, history: History) -> None:
        fill(history, (0, 2), (2, 2), (4, 2))
        [instead] = fill(history, (0, 1), name="other")
        assert history.read(0) == instead
        assert history.read(1) is None
        assert history.next_offset() == 1

    def test_large_batches(self, history: History) -> None:
        batch = Producer().batch(bytes(range(256)) * 8192)
        history.store(0, 1, batch.seal(1))
        entry = history.read(0)
        assert entry is not None
        assert BatchView(entry.base, entry.data, "").values() == (bytes(range(256)) * 8192,)


def fill(history: History, *ranges: tuple[int, int], name: str = "producer") -> list[Entry]:
    """Store batches of `count` records at `base`, and return them."""
    producer, stored = Producer(name), []
    for base, count in ranges:
        data = producer.batch(*(b"%s %d" % (name.encode(), base + at) for at in range(count))).seal(1)
        history.store(base, count, data)
        stored.append(Entry(base, data))
    return stored
