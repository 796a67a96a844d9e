"""Copies of an append on buses whose server keeps them: looked for before it is sent again, and dropped by readers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.core.producers import PRODUCERS_REMEMBERED, Window, admit, window_of
from lockstep.errors import AppendUncertain, ServerUnreachable, StoreFull
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.network.driver import STRIDE
from lockstep.log.port import DROPPED_BY_READERS
from lockstep.streams.cursor import LOOK_BACK_APPENDS, LOOK_BACK_BYTES, LOOK_BACK_LEAST, Cursor
from lockstep.testing import VirtualRuntime
from lockstep.testing.contract import Producer
from memory_driver import MemoryServer, MemoryTopic

KEEP_ALL = StreamConfig(capacity=None)


@pytest.fixture
def server():
    return MemoryServer()


@pytest.fixture
def bus(server):
    bus = server.bus(VirtualRuntime())
    yield bus
    bus.close()


@pytest.fixture
def log(bus):
    return bus.create("orders", KEEP_ALL)


@pytest.fixture
def lose_the_answer(monkeypatch):
    """The next append is stored, and its answer is lost."""
    send = MemoryTopic.send

    def lose(topic, messages):
        send(topic, messages)
        monkeypatch.setattr(MemoryTopic, "send", send)
        raise AppendUncertain(stream="orders", reason="the answer was lost")

    return lambda: monkeypatch.setattr(MemoryTopic, "send", lose)


def others_append(server, count, size=1):
    """So many appends of another producer, written past the bus."""
    producer = Producer("other")
    server.topics["orders"].messages += [producer.batch(b"x" * size).seal(1) for _ in range(count)]


def read_from(log, position):
    """The values that a reader which starts at a position gets."""
    cursor = Cursor(log, position, dedupe=True)
    found = []
    while segments := cursor.read(100_000, 64 << 20)[0]:
        found += [value for segment in segments for value in segment.view.values()[segment.start : segment.stop]]
    return found


@pytest.mark.parametrize("has_seen", [True, False])
def test_an_append_is_found_before_it_is_sent_again_however_many_came_since(
    server, bus, log, lose_the_answer, has_seen
):
    others_append(server, 3)
    if has_seen:
        log.bounds()
    batch = Producer().batch(b"a")
    lose_the_answer()
    with pytest.raises(AppendUncertain):
        log.append([batch])
    others_append(server, 10_050)
    assert log.append([batch]) == [3 * STRIDE]
    assert len(server.topics["orders"].messages) == 3 + 1 + 10_050


def test_a_reader_that_starts_recognizes_a_copy_of_what_stands_thousands_of_appends_before(server, log):
    batch = Producer().batch(b"a")
    log.append([batch])
    others_append(server, LOOK_BACK_APPENDS - 10)
    position = log.bounds().next
    server.topics["orders"].messages += [batch.seal(1)]
    log.append([Producer("third").batch(b"b")])
    assert read_from(log, position) == [b"b"]


def test_large_appends_are_looked_back_at_less_far(server, log):
    batch, size = Producer().batch(b"a"), LOOK_BACK_BYTES // LOOK_BACK_LEAST
    for before in (LOOK_BACK_LEAST - 1, LOOK_BACK_LEAST + 1):
        log.append([batch])
        others_append(server, before, size)
        position = log.bounds().next
        log.append([batch])
        assert read_from(log, position) == ([] if before < LOOK_BACK_LEAST else [b"a"])


def test_the_promise_names_the_window():
    for number in (LOOK_BACK_APPENDS, LOOK_BACK_LEAST, PRODUCERS_REMEMBERED):
        assert f"{number:,}" in DROPPED_BY_READERS
    assert f"{LOOK_BACK_BYTES >> 20} MiB" in DROPPED_BY_READERS


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 20), st.integers(1, 4))))
def test_a_window_of_many_batches_is_the_one_that_they_lead_to_one_by_one(batches):
    window = Window(limit=3)
    for batch in batches:
        window, _ = admit(window, *batch)
    assert list(window_of(batches, 3).last.items()) == list(window.last.items())


def test_an_append_without_a_producer_that_is_uncertain_says_nothing_about_others(log, lose_the_answer, monkeypatch):
    one, two = (pack([value], producer=NO_PRODUCER, sequence=0, created_ns=1) for value in (b"one", b"two"))
    lose_the_answer()
    with pytest.raises(AppendUncertain):
        log.append([one])

    def refuse(_, messages):
        raise StoreFull(stream="orders", reason="there is no room")

    monkeypatch.setattr(MemoryTopic, "send", refuse)
    with pytest.raises(StoreFull):
        log.append([two])
    with pytest.raises(AppendUncertain):
        log.append([one])


def test_what_was_uncertain_stays_so_if_the_catalogue_can_not_be_read(bus, log, lose_the_answer, monkeypatch):
    batch = Producer().batch(b"a")
    lose_the_answer()
    with pytest.raises(AppendUncertain):
        log.append([batch])

    def find(_):
        raise ServerUnreachable(server="here", reason="it is away")

    monkeypatch.setattr(bus.driver.catalogue, "find", find)
    log._config_due = float("-inf")
    with pytest.raises(AppendUncertain):
        log.append([batch])
