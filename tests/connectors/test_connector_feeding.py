"""A publisher connector at work on a source of the test's own: what failed is sent again, what is enough is exact."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from connector_worlds import SCHEMA, World, connector, event, model

from lockstep.connectors.port import NOTHING, Pace, Piece
from lockstep.connectors.publisher import Feeding, FeedOptions
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.frames import encode_frame
from lockstep.errors import TimedOut
from lockstep.events.clients import client_id

PACE = Pace(lambda: True, threading.Event().wait, time.monotonic)


@pytest.fixture
def world(tmp_path):
    made = World(f"lmdb:{tmp_path / 'bus'}", model(into=[connector("fs", "in", type="pub", fsname="f")]))
    yield made
    made.close()


class Topic:
    """As a partition of Kafka: blocks of two events, joined to one piece, and then silence."""

    is_numbered = True

    def __init__(self, blocks: int, joined: int) -> None:
        self._blocks, self._joined = blocks, joined

    def pieces(self, after, note):
        begin = after or (0 if note is None else note.at)
        for first in range(begin + 1, self._blocks + 1, self._joined):
            numbers = np.arange(first, min(first + self._joined, self._blocks + 1), dtype=np.int64)
            blocks = [(int(n), [event(2 * int(n) - 1), event(2 * int(n))]) for n in numbers]
            yield Piece(EventBatch.of(SCHEMA, blocks), numbers)
        while True:
            yield None

    def start(self):
        return None

    def close(self) -> None:
        pass


class Frames(Topic):
    """Frames with numbers of their own, one after the other without a pause."""

    def pieces(self, after, note):
        begin = after or (0 if note is None else note.at)
        for n in range(begin + 1, self._blocks + 1):
            batch = EventBatch.of(SCHEMA, [(n, [event(n)])])
            frame = encode_frame(batch, client=client_id("feed"), first_id=n)
            yield Piece(EventBatch.empty(SCHEMA), NOTHING, frame=frame, at=n, frame_events=1)
        while True:
            yield None


class Link(Topic):
    """What was read can't be read again."""

    is_numbered = False

    def pieces(self, after, note):
        return super().pieces(0, None)


def feeding(world: World, source: Topic, **options) -> Feeding:
    planned = world.only()
    notes = world.workshop.notes(planned)
    return Feeding(world.project, planned.node, planned.path, source, notes, PACE, FeedOptions(**options))


def noted(world: World):
    return world.workshop.notes(world.only()).last()


class Failing:
    """A publisher that loses one record, and says so only to whoever asks."""

    def __init__(self, inner, at: int) -> None:
        self._inner, self._at, self._count = inner, at, 0

    def publish(self, frame):
        self._count += 1
        return Lost() if self._count == self._at else self._inner.publish(frame)

    def flush(self):
        self._inner.flush()

    def close(self):
        self._inner.close()


class Lost:
    def result(self):
        raise TimedOut(what="a record", seconds=1)


def test_a_frame_that_was_not_stored_is_an_error_and_is_sent_again(world):
    first = feeding(world, Frames(3, 1))
    first._plain = Failing(world.client.publisher(first._stream, create=False), at=2)
    with pytest.raises(TimedOut):
        first.step()
    first.close()
    assert noted(world) is None
    second = feeding(world, Frames(3, 1))
    assert second.step() is False
    second.close()
    assert noted(world).at == 3


def test_a_source_that_is_never_silent_has_notes(world):
    stopped = []

    class Busy(Frames):
        def pieces(self, after, note):
            for piece in super().pieces(after, note):
                if piece is not None and piece.at == 750:
                    stopped.append(noted(world))
                yield piece

    only = feeding(world, Busy(800, 1))
    only.step()
    only.close()
    assert stopped[0].at == 500
    assert world.taken() == list(range(1, 801))


def test_enough_is_exact_although_pieces_are_joined(world):
    only = feeding(world, Topic(blocks=20, joined=10), max_events=7)
    assert only.step() is True
    only.close()
    assert world.taken() == [1, 2, 3, 4, 5, 6, 7]


def test_what_was_taken_before_a_takeover_counts(world, monkeypatch):
    # Given a leader that took three blocks and noted it, and was killed after two more without a note
    first = feeding(world, Topic(blocks=3, joined=2), max_events=13)
    assert first.step() is False
    first.close()
    killed = feeding(world, Topic(blocks=5, joined=1), max_events=13)
    monkeypatch.setattr(killed._notes, "write", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        killed.step()
    killed.close()
    assert noted(world).at == 3
    # When others lead, the rest is what is missing to the limit
    for _ in range(2):
        last = feeding(world, Topic(blocks=20, joined=10), max_events=13)
        assert last.step() is True
        last.close()
    assert world.taken() == list(range(1, 14))


def test_of_a_source_without_places_the_count_itself_is_noted(world):
    for blocks in (1, 3):
        one = feeding(world, Link(blocks, 1), max_events=5)
        one.step()
        one.close()
    assert world.taken() == [1, 2, 1, 2, 3]
    assert noted(world).more == {"events": 5}


def test_frames_with_numbers_of_their_own_are_counted_too(world):
    only = feeding(world, Frames(9, 1), max_events=4)
    assert only.step() is True
    only.close()
    assert world.taken() == [1, 2, 3, 4]
