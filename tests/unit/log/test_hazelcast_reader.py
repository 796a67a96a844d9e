"""Reading ahead: few questions for many messages, nothing skipped, nothing too large."""

from __future__ import annotations

import pytest

from lockstep.log.hazelcast.reader import CURSORS, LARGEST_CHUNK_BYTES, CursorSet, ItemSizes
from memory_ring import FakeRing

SMALL = b"x" * 100


def read_from(cursors, start, max_bytes=1 << 20):
    cursor = cursors.at(start, max_bytes)
    found = cursor.take(start, max_bytes) if cursor.goes_on_from(start) else []
    return found or cursor.ask(start, max_bytes)[0]


def read_all(cursors, start=1, max_bytes=1 << 20):
    found = []
    while some := read_from(cursors, start, max_bytes):
        found += some
        start = some[-1][0] + 1
    return found


@pytest.fixture
def ring():
    return FakeRing([b"mark"] + [SMALL + b"%d" % number for number in range(5000)])


@pytest.fixture
def cursors(ring):
    return CursorSet(ring, lambda: 0)


@pytest.mark.parametrize("max_bytes", [1, 1000, 1 << 20])
def test_everything_is_read_once_in_order_with_few_questions(ring, cursors, max_bytes):
    assert [data for _, data in read_all(cursors, max_bytes=max_bytes)] == ring.items[1:]
    assert len(ring.asked) < 20


def test_the_message_that_was_handed_out_last_can_be_asked_for_again(ring, cursors):
    found = read_from(cursors, 1, 300)
    again = read_from(cursors, found[-1][0], 300)
    assert again[0] == found[-1]
    asked = len(ring.asked)
    assert read_from(cursors, again[-1][0], 1) == again[-1:]
    assert len(ring.asked) == asked


def test_what_comes_while_one_reads_is_found_by_the_next_question(ring, cursors):
    read_all(cursors)
    ring.items.append(b"new")
    assert read_from(cursors, 5001) == [(5001, b"new")]
    assert read_from(cursors, 5002) == []


def test_a_read_ahead_that_came_back_empty_is_asked_again(ring, cursors):
    # Given a read ahead that was answered when nothing more was there
    del ring.items[5:]
    at = read_from(cursors, 1, 1)[-1][0] + 1
    while some := read_from(cursors, at, 1):
        at = some[-1][0] + 1
    ring.items.append(b"new")
    assert read_from(cursors, at) == [(5, b"new")]


def test_a_read_ahead_that_failed_is_asked_again(ring, cursors):
    at = 1
    for _ in range(3):
        at = read_from(cursors, at, 200)[-1][0] + 1
    ring.is_away = True
    assert [data for _, data in read_all(cursors, at)] == ring.items[at:]


def test_looking_at_the_end_does_not_disturb_a_reader(ring, cursors):
    at = 1
    for _ in range(20):
        at = read_from(cursors, at, 500)[-1][0] + 1
        read_from(cursors, 4999, 1)
    glances = [question for question in ring.asked if question[0] == 4999]
    assert len(ring.asked) - len(glances) < 10


def test_several_readers_of_one_handle_each_go_on(ring, cursors):
    places = [1, 1000, 2000][:CURSORS]
    for _ in range(30):
        places = [read_from(cursors, place, 500)[-1][0] + 1 for place in places]
    assert len(ring.asked) < 40


def test_a_chunk_is_bounded_by_the_largest_message_seen():
    sizes = ItemSizes()
    assert sizes.count(1 << 20, 0) <= 4
    sizes.note([(0, b"x" * 8_000_000)])
    sizes.note([(number, b"x") for number in range(100)])
    assert sizes.count(1 << 20, 999) * 8_000_000 <= LARGEST_CHUNK_BYTES + 8_000_000


def test_forgetting_drops_what_was_read_ahead_and_keeps_the_place(ring, cursors):
    at = 1
    for _ in range(5):
        at = read_from(cursors, at, 200)[-1][0] + 1
    cursors.forget()
    assert [data for _, data in read_all(cursors, at)] == ring.items[at:]
