"""Subscribing by the public face: each block once, over takeovers, restarts and gaps."""

from __future__ import annotations

import pytest
from event_worlds import Desk, event, graph
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import BlocksMissing, HistoryTrimmed, OutputBroken, PositionForeign
from lockstep.engine.runtime.sequence.streams import EVENT_STREAM
from lockstep.errors import BadArgument, StreamNotFound
from lockstep.events import Flag, Opcode, Position
from lockstep.runtime import ThreadRuntime


class Clock(ThreadRuntime):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def desk(tmp_path, clock):
    desk = Desk(f"memory:{tmp_path.name}", runtime=clock)
    yield desk
    desk.close()


def drained(subscription) -> list[tuple[int, list]]:
    """The blocks that are there now."""
    found = []
    while (block := subscription.next_block(timeout=0)) is not None:
        found.append((block.number, [one.values[0] for one in block.events()]))
    return found


def test_rows_say_what_they_are(desk):
    desk.come_out((3, [event(1), event(2)]), (5, [event(1, "D", flags=Flag.RETENTION)]))
    rows = list(desk.project.subscribe("Copy", begin="start", timeout=0))
    assert rows[0] == {"opcode": "insert", "flags": "N", "block": 3, "ID": 1, "symbol": "s1", "price": 1.0}
    assert [(row["opcode"], row["flags"], row["block"]) for row in rows[1:]] == [("insert", "N", 3), ("delete", "R", 5)]


def test_from_now_on_means_nothing_that_is_there(desk):
    desk.come_out((1, [event(1)]))
    desk.beat()
    desk.come_out((2, [event(2)]))
    with desk.project.subscribe("Copy") as subscription:
        assert drained(subscription) == []
        desk.come_out((4, [event(4)]))
        assert drained(subscription) == [(4, [4])]


def test_a_late_copy_at_the_end_does_not_lead_astray(desk):
    # Given a stream at whose end an old leader wrote a copy of block 1 after block 2 was out
    desk.come_out((1, [event(1)]))
    desk.come_out((2, [event(2)]))
    desk.beat()
    desk.put(*desk.frames((1, [event(1)]), previous=0))
    # When somebody begins now
    with desk.project.subscribe("Copy") as subscription:
        desk.come_out((3, [event(3)]))
        # Then the copy is not taken for the start of something
        assert drained(subscription) == [(3, [3])]


def test_copies_and_barriers_of_a_takeover_are_not_seen(desk):
    desk.come_out((1, [event(1)]), (2, [event(2)]))
    desk.barrier()
    desk.put(*desk.frames((2, [event(2)]), previous=1))
    desk.come_out((4, [event(4)]))
    desk.put(*desk.frames((1, [event(1)]), (2, [event(2)]), (4, [event(4)]), (6, [event(6)]), previous=0))
    desk.last = 6
    assert drained(desk.project.subscribe("Copy", begin="start")) == [(1, [1]), (2, [2]), (4, [4]), (6, [6])]


def test_a_block_in_pieces_comes_whole(desk):
    numbers = list(range(100))
    pieces = desk.frames((2, [event(one) for one in numbers]), (3, [event(7)]), previous=1, max_bytes=700)
    desk.come_out((1, [event(1)]))
    subscription = desk.project.subscribe("Copy", begin="start")
    desk.put(*pieces[:3])
    assert drained(subscription) == [(1, [1])]
    assert subscription.position.last == 1
    again = desk.project.subscribe("Copy", after=subscription.position)
    desk.put(*pieces[1:3], *pieces[3:])
    assert drained(subscription) == [(2, numbers), (3, [7])]
    assert drained(again) == [(2, numbers), (3, [7])]


def test_collapse_joins_updates_over_pieces(desk):
    pairs = [one for number in range(40) for one in (event(number, "UB", 2.0), event(number, "D"))]
    desk.put(*desk.frames((1, pairs), previous=0, max_bytes=700))
    (block,) = desk.project.subscribe("Copy", begin="start", collapse=True, blocks=True, timeout=0)
    assert [one.opcode for one in block.events()] == [Opcode.UPDATE] * 40
    assert [one.values[0] for one in block.events()] == list(range(40))


def test_deletes_by_retention_can_be_left_out(desk):
    old = event(1, "D", flags=Flag.RETENTION)
    desk.come_out((1, [event(1)]), (2, [old]), (3, [event(2, "UB", flags=Flag.RETENTION), event(2, "D")]))
    subscription = desk.project.subscribe("Copy", begin="start", rmretdel=True)
    assert drained(subscription) == [(1, [1]), (2, []), (3, [2, 2])]


def test_a_restart_goes_on_with_the_next_block(desk):
    # Given two frames of several blocks
    desk.come_out((1, [event(1)]), (2, [event(2)]), (3, [event(3)]))
    desk.come_out((5, [event(5), event(6)]), (7, [event(7)]))
    # When a subscriber is started anew after each row
    seen, position = [], None
    for _ in range(10):
        begin = {"begin": "start"} if position is None else {"after": position}
        with desk.project.subscribe("Copy", timeout=0, **begin) as subscription:
            for row in subscription:
                seen.append((row["block"], row["ID"]))
                position = subscription.position.dumps()
                break
    # Then only the block in whose middle it ended comes again
    assert seen == [(1, 1), (2, 2), (3, 3), *[(5, 5)] * 7]
    rest = list(desk.project.subscribe("Copy", timeout=0, after=position))
    assert [row["ID"] for row in rest] == [5, 6, 7]


def test_a_position_of_another_stream_is_refused(desk):
    desk.come_out((1, [event(1)]))
    position = desk.project.subscribe("Copy").position
    desk.bus.delete(desk.out.name)
    desk.bus.create("local.desk.q.Copy.O", EVENT_STREAM)
    with pytest.raises(PositionForeign):
        desk.project.subscribe("Copy", after=position)
    for text in ("no", "[]", '{"stream":"a"}', '{"stream":"a","identity":"b","offset":"1","last":1}'):
        with pytest.raises(BadArgument):
            Position.loads(text)


def test_a_position_that_was_trimmed_away_is_refused(desk):
    position = desk.project.subscribe("Copy", begin="start").position
    desk.come_out((1, [event(1)]))
    desk.come_out((2, [event(2)]))
    desk.out.trim(1)
    with pytest.raises(HistoryTrimmed, match="from offset 0 on, but it begins at 1"):
        desk.project.subscribe("Copy", after=position)
    assert drained(desk.project.subscribe("Copy", begin="start")) == [(2, [2])]


def test_what_is_trimmed_under_a_reader_is_said(desk):
    subscription = desk.project.subscribe("Copy", begin="start")
    desk.come_out((1, [event(1)]))
    desk.come_out((2, [event(2)]))
    desk.out.trim(1)
    with pytest.raises(HistoryTrimmed):
        drained(subscription)


def test_the_rows_that_are_held_come_first(desk):
    desk.come_out((1, [event(1), event(2)]), (2, [event(1, "UB", 5.0), event(1, "D")]), (3, [event(2, "D"), event(4)]))
    subscription = desk.project.subscribe("Copy", snapshot=True, blocks=True, timeout=0)
    desk.come_out((4, [event(4, "UB", 7.0), event(4, "D")]))
    blocks = list(subscription)
    assert [(block.number, block.is_snapshot) for block in blocks] == [(3, True), (4, False)]
    assert [(one.opcode, one.values) for one in blocks[0].events()] == [
        (Opcode.INSERT, (1, "s1", 5.0)),
        (Opcode.INSERT, (4, "s4", 1.0)),
    ]
    (row, _) = desk.project.subscribe("Copy", snapshot=True, after=blocks[0].position, timeout=0)
    assert row["block"] == 4


def test_rows_of_a_trimmed_stream_are_refused(desk):
    desk.come_out((1, [event(1)]))
    desk.come_out((2, [event(2)]))
    desk.out.trim(1)
    with pytest.raises(HistoryTrimmed, match="snapshot of the rows"):
        desk.project.subscribe("Copy", snapshot=True)


def test_a_window_that_keeps_no_rows_has_none(tmp_path):
    desk = Desk(f"memory:{tmp_path.name}-empty", model=graph(index="pi_EMPTY"))
    desk.come_out((1, [event(1)]))
    with desk.project.subscribe("Copy", snapshot=True) as subscription:
        assert drained(subscription) == []
        desk.come_out((2, [event(2)]))
        assert drained(subscription) == [(2, [2])]
    desk.close()


def test_a_gap_is_waited_for_and_then_told(desk, clock):
    desk.come_out((1, [event(1)]))
    subscription = desk.project.subscribe("Copy", begin="start", patience_s=10)
    desk.put(*desk.frames((5, [event(5)]), previous=3))
    assert drained(subscription) == [(1, [1])]
    clock.now = 9.0
    assert drained(subscription) == []
    clock.now = 10.0
    with pytest.raises(OutputBroken, match="Block 5"):
        drained(subscription)


def test_a_gap_that_is_filled_late_is_none(desk, clock):
    desk.come_out((1, [event(1)]))
    subscription = desk.project.subscribe("Copy", begin="start")
    desk.put(*desk.frames((5, [event(5)]), previous=3))
    assert drained(subscription) == [(1, [1])]
    clock.now = 9.0
    desk.put(*desk.frames((3, [event(3)]), previous=1))
    assert drained(subscription) == [(3, [3]), (5, [5])]
    clock.now = 100.0
    assert drained(subscription) == []
    assert subscription.position.last == 5


def test_a_published_block_that_does_not_come_is_told(desk, clock):
    desk.come_out((1, [event(1)]))
    subscription = desk.project.subscribe("Copy", begin="start", patience_s=3)
    desk.beat(published=4, last=4)
    assert drained(subscription) == [(1, [1])]
    clock.now = 2.9
    assert drained(subscription) == []
    clock.now = 3.0
    with pytest.raises(BlocksMissing, match="ends with block 1, but block 4"):
        drained(subscription)


def test_a_block_that_comes_in_time_is_not_missing(desk, clock):
    subscription = desk.project.subscribe("Copy", begin="start", patience_s=3)
    desk.beat(published=4, last=4)
    assert drained(subscription) == []
    clock.now = 2.0
    desk.come_out((4, [event(4)]))
    assert drained(subscription) == [(4, [4])]
    clock.now = 9.0
    assert drained(subscription) == []
    assert subscription.is_published(4)
    assert not subscription.is_published(5)


def test_what_can_not_be_is_refused(desk):
    with pytest.raises(BadArgument, match="begin"):
        desk.project.subscribe("Copy", begin="later")
    with pytest.raises(BadArgument, match="snapshots"):
        desk.project.subscribe("Copy", snapshots=True)
    with pytest.raises(BadArgument, match="patience_s"):
        desk.project.subscribe("Copy", patience_s=0)
    desk.bus.delete(desk.out.name)
    with pytest.raises(StreamNotFound) as told:
        desk.project.subscribe("Copy")
    assert "--publish" in told.value.__notes__[0]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_however_it_is_written_and_read_each_block_comes_once(data):
    # Given blocks, some large, written in frames by leaders that go back now and then
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 30]), min_size=1, max_size=8))
    blocks = [(2 * at + 2, [event(100 * at + one) for one in range(size)]) for at, size in enumerate(sizes)]
    desk = Desk("memory:")
    values: list[bytes] = []
    reached = 0
    while reached < len(blocks):
        start = data.draw(st.integers(0, reached))
        stop = data.draw(st.integers(reached + 1, len(blocks)))
        values += desk.frames(*blocks[start:stop], previous=blocks[start - 1][0] if start else 0, max_bytes=700)
        reached = stop
    # When a subscriber reads while they are written, and is started anew now and then
    position, seen = desk.project.subscribe("Copy", begin="start").position, []
    while True:
        count = data.draw(st.integers(1, 3))
        desk.put(*values[:count])
        values = values[count:]
        with desk.project.subscribe("Copy", after=position) as subscription:
            for _ in range(data.draw(st.integers(1, 4))):
                block = subscription.next_block(timeout=0)
                if block is not None:
                    seen.append((block.number, block.events()))
            position = subscription.position
            if not values and block is None:
                break
    # Then it has each block once, whole and in order
    assert seen == blocks
    desk.close()
